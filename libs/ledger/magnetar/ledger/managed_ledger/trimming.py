"""Which ledgers a topic needs no more, with its retention, and how they go.

Order (storage contract, section 4): cursors durable, then the list by compare-and-set together with recorded
intents, then the delete.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from magnetar.common.errors import MetadataError, VersionMismatch
from magnetar.common.metadata.store import Delete, Op
from magnetar.common.metadata.values import TopicLedger, decode
from magnetar.common.naming.position import EARLIEST, Position
from magnetar.common.obs.logs import get_logger
from magnetar.ledger.managed_ledger.context import ManagedLedgerContext
from magnetar.ledger.managed_ledger.cursor import Cursor
from magnetar.ledger.managed_ledger.intents import (
    delete_ledger_intent,
    delete_objects_intents,
    finish_quietly,
)
from magnetar.ledger.managed_ledger.ledger_list import LedgerSpan, LedgerSpans
from magnetar.ledger.managed_ledger.topic_head import TopicHeadKey

log = get_logger(__name__)

LEDGERS_PER_TRANSACTION_MAX = 32
_ATTEMPTS_MAX = 10


@dataclass(frozen=True, slots=True)
class Retention:
    """Retention of acknowledged entries: while younger than `time_ms` and within `size_bytes`.

    -1 for either: without that limit. A ledger's age counts from its closing. Messaging contract, section 19.
    Of what is at or before `truncated` nothing is kept.
    """

    time_ms: int = 0
    size_bytes: int = 0
    truncated: Position = EARLIEST

    def after(self, before: Retention) -> Retention:
        """This one, in the place of `before`: what was truncated stays so."""
        return replace(self, truncated=max(self.truncated, before.truncated))


NO_RETENTION: Final = Retention()


def trimmable(
    spans: Sequence[LedgerSpan],
    slowest: Position | None,
    retention: Retention = NO_RETENTION,
    now_ms: int = 0,
) -> int:
    """How many ledgers at the front may go.

    A closed ledger goes when its last entry is at or before `slowest` and retention keeps it no more: it is
    too old, or what is left without it, acknowledged or not, is still as much as is to be kept. `slowest` is
    the mark-delete position, as it is on disk, of the slowest durable cursor, None when there is none.
    """
    time_ms, size_bytes = retention.time_ms, retention.size_bytes
    left = sum(span.byte_length for span in spans) if size_bytes > 0 else 0
    count = 0
    for span in spans:
        if not span.closed or (slowest is not None and span.last_position > slowest):
            break
        left -= span.byte_length
        too_much = size_bytes == 0 or 0 < size_bytes <= left
        too_old = 0 <= time_ms < now_ms - span.closed_ms
        if not (too_much or too_old or span.last_position <= retention.truncated):
            break
        count += 1
    return count


def take_off(
    spans: LedgerSpans,
    cursors: Mapping[str, Cursor],
    slowest: Position | None,
    retention: Retention,
    now_ms: int,
) -> list[LedgerSpan]:
    """Take what may go off the list in memory, as much as one transaction deletes; see `trimmable`.

    At once, so that no cursor is put into what is about to go.
    """
    count = trimmable(spans.spans, slowest, retention, now_ms)
    if not count:
        return []
    removed = spans.remove_first(min(count, LEDGERS_PER_TRANSACTION_MAX))
    for cursor in cursors.values():
        cursor.skip_trimmed(removed[-1].last_position)
    return removed


async def take_off_list(
    ctx: ManagedLedgerContext,
    head: TopicHeadKey,
    creation_id: int,
    doomed: Sequence[LedgerSpan],
    first_ledger_id: int,
    *,
    next_index: int,
    last_position: Position,
) -> None:
    """Commit that these ledgers are no part of the topic any more, with an intent for each to be deleted, and
    for its objects.

    `first_ledger_id` is the first one that is left, 0 when none is.
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
                ops += delete_objects_intents(ctx, decode(TopicLedger, found.value))
            ops.append(delete_ledger_intent(ctx, span.ref))
        try:
            await head.commit(value, ops)
        except VersionMismatch:
            # Somebody else's change of a ledger's own key (offload): look at it again.
            continue
        return
    raise MetadataError(f"ledgers of {head.key} keep changing while they are trimmed")


async def let_go(ctx: ManagedLedgerContext, topic: str, doomed: Sequence[LedgerSpan]) -> None:
    """Delete ledgers that are off the list in metadata; what fails is left to its intent."""
    for span in doomed:
        await finish_quietly(ctx, span.ref)
    log.info("ledgers trimmed", topic=topic, ledgers=[span.ref.id for span in doomed])
