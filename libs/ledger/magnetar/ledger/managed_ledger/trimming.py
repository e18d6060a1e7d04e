"""Which ledgers a topic needs no more, and how they go.

Order (storage contract, section 4): cursors durable, then the list by compare-and-set together with recorded
intents, then the delete.
"""

from __future__ import annotations

from collections.abc import Sequence

from magnetar.common.errors import MetadataError, VersionMismatch
from magnetar.common.metadata.store import Delete, Op
from magnetar.common.naming.position import Position
from magnetar.ledger.managed_ledger.context import ManagedLedgerContext
from magnetar.ledger.managed_ledger.intents import delete_ledger_intent
from magnetar.ledger.managed_ledger.ledger_list import LedgerSpan
from magnetar.ledger.managed_ledger.topic_head import TopicHeadKey

LEDGERS_PER_TRANSACTION_MAX = 32
_ATTEMPTS_MAX = 10


def trimmable(spans: Sequence[LedgerSpan], slowest: Position | None) -> int:
    """How many ledgers at the front may go.

    A closed ledger goes when its last entry is at or before `slowest`: the mark-delete position, as it is on
    disk, of the slowest durable cursor, None when there is no such cursor. (Retention will keep more.)
    """
    count = 0
    for span in spans:
        if not span.closed or (slowest is not None and span.last_position > slowest):
            break
        count += 1
    return count


async def take_off_list(
    ctx: ManagedLedgerContext,
    head: TopicHeadKey,
    creation_id: int,
    doomed: Sequence[LedgerSpan],
    *,
    first_ledger_id: int,
    next_index: int,
    last_position: Position,
) -> None:
    """Commit that these ledgers are no part of the topic any more, with an intent for each to be deleted.

    Raises OwnershipLost, or a retriable error; doing it again is safe.
    """
    await head.sync()
    for _ in range(_ATTEMPTS_MAX):
        value = head.decode()
        value.first_ledger_id = first_ledger_id
        value.next_index = max(value.next_index, next_index)
        if last_position.ledger_id > 0:
            value.last_ledger_id, value.last_entry_id = last_position
        ops: list[Op] = []
        for span in doomed:
            key = ctx.keys.topic_ledger(creation_id, span.ref.id)
            found = await ctx.metadata.get(key)
            if found is not None:
                ops.append(Delete(key, found.version))
            ops.append(delete_ledger_intent(ctx, span.ref))
        try:
            await head.commit(value, ops)
        except VersionMismatch:
            # Somebody else's change of a ledger's own key (offload): look at it again.
            continue
        return
    raise MetadataError(f"ledgers of {head.key} keep changing while they are trimmed")
