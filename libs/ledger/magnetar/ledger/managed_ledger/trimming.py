"""Trimming: finds ledgers that a topic no longer needs under its retention, and deletes them.

Order (storage contract, section 4): cursors durable, then the list by compare-and-set together with recorded
intents, then the deletion.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
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


class Keeper(StrEnum):
    """The kinds of reasons to keep a ledger."""

    OPEN = "open"
    """It is written to."""
    NEEDED = "needed"
    """Some party needs entries of it."""
    RETENTION = "retention"


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
        """Returns this retention, keeping the truncation position of `before`."""
        return replace(self, truncated=max(self.truncated, before.truncated))


NO_RETENTION: Final = Retention()


def trimmable(
    spans: Sequence[LedgerSpan],
    slowest: Position | None,
    retention: Retention = NO_RETENTION,
    now_ms: int = 0,
) -> int:
    """Returns how many ledgers at the front may be deleted.

    A closed ledger may be deleted if its last entry is at or before `slowest` and retention does not keep it:
    it is too old, or the remaining ledgers still reach the retained size. `slowest` is the durable
    mark-delete position of the slowest durable cursor, None without any.
    """
    left = sum(span.byte_length for span in spans) if retention.size_bytes > 0 else 0
    count = 0
    for span in spans:
        left -= span.byte_length
        if kept_by(span, left, slowest, retention, now_ms) is not None:
            break
        count += 1
    return count


def kept_by(
    span: LedgerSpan, left: int, needed: Position | None, retention: Retention, now_ms: int
) -> Keeper | None:
    """Returns what keeps a ledger, apart from ledgers before it; None when it may be deleted.

    `left` is the size of all ledgers after it, in bytes; it counts only if retention has a size.
    """
    if not span.closed:
        return Keeper.OPEN
    if needed is not None and span.last_position > needed:
        return Keeper.NEEDED
    too_much = retention.size_bytes == 0 or 0 < retention.size_bytes <= left
    too_old = 0 <= retention.time_ms < now_ms - span.closed_ms
    if too_much or too_old or span.last_position <= retention.truncated:
        return None
    return Keeper.RETENTION


def take_off(
    spans: LedgerSpans,
    cursors: Mapping[str, Cursor],
    slowest: Position | None,
    retention: Retention,
    now_ms: int,
) -> list[LedgerSpan]:
    """Removes trimmable ledgers from the in-memory list, as many as one transaction deletes; see `trimmable`.

    Removed at once, so that no cursor is created in them.
    """
    count = trimmable(spans.spans, slowest, retention, now_ms)
    if not count:
        return []
    removed = spans.remove_first(min(count, LEDGERS_PER_TRANSACTION_MAX))
    for cursor in cursors.values():
        if not cursor.reads_view:
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
    """Commits the removal of these ledgers from the topic, with deletion intents for each and its objects.

    `first_ledger_id` is the first remaining one, 0 without any. Raises OwnershipLost, or a retriable error; a
    retry is safe.
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
            # A concurrent change of a ledger's own key (offload): read it again.
            continue
        return
    raise MetadataError(f"ledgers of {head.key} keep changing while they are trimmed")


async def let_go(ctx: ManagedLedgerContext, topic: str, doomed: Sequence[LedgerSpan]) -> None:
    """Deletes ledgers removed from the list in metadata; failures are left to their intents."""
    for span in doomed:
        await finish_quietly(ctx, span.ref)
    log.info("ledgers trimmed", topic=topic, ledgers=[span.ref.id for span in doomed])
