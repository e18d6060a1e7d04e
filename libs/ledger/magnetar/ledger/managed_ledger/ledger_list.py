"""The ordered list of a topic's ledgers: existing entries, their succession, and counts between positions.

Only entries confirmed in topic order exist here: a ledger joins with its first confirmed entry (so it is
never empty), after the previous one is wholly confirmed. Trimming removes ledgers from the front.
"""

from __future__ import annotations

from bisect import bisect_right

from magnetar.common.metadata.metadata_pb2 import Offload
from magnetar.common.naming.position import Position
from magnetar.ledger.cold.cold_reader import ColdLedgerReader
from magnetar.ledger.ledger_store import LedgerReader, LedgerRef


class SpanOffload:
    """A ledger's offload state in its topic-ledger key at `version`; see `Offload`."""

    __slots__ = (
        "attempt",
        "completed_ms",
        "left_bookies_ms",
        "location",
        "manifest_sha256",
        "object_bytes",
        "path",
        "reader",
        "state",
        "version",
    )

    def __init__(
        self,
        version: int,
        state: Offload.State.ValueType,
        *,
        attempt: bytes = b"",
        location: str = "",
        path: str = "",
        manifest_sha256: bytes = b"",
        completed_ms: int = 0,
        object_bytes: int = 0,
        left_bookies_ms: int = 0,
    ) -> None:
        self.version = version
        self.state = state
        self.attempt = attempt
        self.location = location
        self.path = path
        self.manifest_sha256 = manifest_sha256
        self.completed_ms = completed_ms
        self.object_bytes = object_bytes
        self.left_bookies_ms = left_bookies_ms
        self.reader: ColdLedgerReader | None = None

    @property
    def complete(self) -> bool:
        """Whether the objects are complete and verified."""
        return self.state == Offload.COMPLETE

    @property
    def left_bookies(self) -> bool:
        """Whether only the objects have the entries."""
        return self.left_bookies_ms > 0

    def same_objects(self, other: SpanOffload) -> bool:
        """Returns whether both refer to the same complete objects."""
        return (
            self.complete
            and other.complete
            and (self.attempt, self.location, self.path, self.manifest_sha256)
            == (other.attempt, other.location, other.path, other.manifest_sha256)
        )


class LedgerSpan:
    """One ledger of a topic. `entries` grows while the ledger is written; the last one has id `entries - 1`.

    `base` counts the topic's entries before this ledger, since loading. `messages` is -1 and
    `max_publish_time_ms` 0 while unknown (a ledger closed by a takeover; see `storage_reads`). `offload` is
    None unless offload is known to be requested; `reader` reads the ledger from the storage it was written
    to.
    """

    __slots__ = (
        "base",
        "byte_length",
        "closed",
        "closed_ms",
        "entries",
        "first_index",
        "max_publish_time_ms",
        "messages",
        "offload",
        "opened_ms",
        "reader",
        "ref",
    )

    def __init__(
        self,
        ref: LedgerRef,
        *,
        entries: int = 0,
        byte_length: int = 0,
        first_index: int = 0,
        messages: int = 0,
        opened_ms: int = 0,
        closed_ms: int = 0,
        max_publish_time_ms: int = 0,
        closed: bool = False,
    ) -> None:
        self.ref = ref
        self.entries = entries
        self.byte_length = byte_length
        self.first_index = first_index
        self.messages = messages
        self.opened_ms = opened_ms
        self.closed_ms = closed_ms
        self.max_publish_time_ms = max_publish_time_ms
        self.closed = closed
        self.base = 0
        self.reader: LedgerReader | None = None
        self.offload: SpanOffload | None = None

    @property
    def last_position(self) -> Position:
        return Position(self.ref.id, self.entries - 1)


class LedgerSpans:
    """A topic's existing entries as an ordered list of ledgers.

    `spans` is ordered by ledger id and `by_id` has the same content; only this class changes them, and only
    the last span's `entries` may still grow.
    """

    __slots__ = ("by_id", "first_base", "spans")

    def __init__(self) -> None:
        self.spans: list[LedgerSpan] = []
        self.by_id: dict[int, LedgerSpan] = {}
        self.first_base = 0

    def add(self, span: LedgerSpan) -> None:
        """Adds the next ledger; all earlier ones must be complete."""
        assert not self.spans or span.ref.id > self.spans[-1].ref.id, "ledger ids of a topic only grow"
        span.base = self.total
        self.spans.append(span)
        self.by_id[span.ref.id] = span

    def remove_first(self, count: int) -> list[LedgerSpan]:
        """Removes the oldest ledgers (trimming)."""
        removed = self.spans[:count]
        self.first_base = self.spans[count].base if count < len(self.spans) else self.total
        del self.spans[:count]
        for span in removed:
            del self.by_id[span.ref.id]
        return removed

    @property
    def total(self) -> int:
        """Number of the topic's entries since it was loaded, including trimmed ones."""
        if not self.spans:
            return self.first_base
        last = self.spans[-1]
        return last.base + last.entries

    @property
    def entries(self) -> int:
        """Number of existing entries."""
        return self.total - self.first_base

    def ordinal(self, position: Position) -> int:
        """Returns how many entries, counted as in `total`, are at or before a position (which need not
        exist).
        """
        ledger_id, entry_id = position
        span = self.by_id.get(ledger_id)
        if span is not None:
            return span.base + min(max(entry_id, -1) + 1, span.entries)
        following = self.span_after(ledger_id)
        return self.total if following is None else following.base

    @property
    def byte_length(self) -> int:
        """Bytes of the existing entries."""
        return sum([span.byte_length for span in self.spans])

    def bytes_after(self, position: Position) -> int:
        """Returns the approximate bytes after a position: exact by ledger, averaged within one."""
        ledger_id, entry_id = position
        total = 0
        for span in reversed(self.spans):
            if span.ref.id <= ledger_id:
                if span.ref.id == ledger_id:
                    after = span.entries - 1 - max(entry_id, -1)
                    total += span.byte_length * max(after, 0) // span.entries
                break
            total += span.byte_length
        return total

    def position_before_last(self, byte_count: int) -> Position:
        """Returns the first position with at most `byte_count` bytes after it, by the same estimate."""
        spans = self.spans
        for span in reversed(spans):
            if span.byte_length > byte_count:
                kept = byte_count * span.entries // span.byte_length
                return Position(span.ref.id, span.entries - 1 - kept)
            byte_count -= span.byte_length
        return Position(spans[0].ref.id, -1) if spans else Position(-1, -1)

    def span_after(self, ledger_id: int) -> LedgerSpan | None:
        """Returns the first ledger with a higher id."""
        spans = self.spans
        if not spans or spans[-1].ref.id <= ledger_id:
            return None
        if spans[0].ref.id > ledger_id:
            return spans[0]
        return spans[bisect_right(spans, ledger_id, key=_ledger_id)]

    def next_within(self, after: Position, limit: Position) -> Position | None:
        """Returns the first existing entry after `after` and up to `limit`."""
        ledger_id = after.ledger_id
        # The common case; does not apply if the last ledger was trimmed as well.
        if ledger_id == limit.ledger_id and -1 <= after.entry_id < limit.entry_id and ledger_id in self.by_id:
            return Position(ledger_id, after.entry_id + 1)
        following = self.next_position(after)
        return following if following is not None and following <= limit else None

    def next_position(self, after: Position) -> Position | None:
        """Returns the first existing entry after a position (which need not exist)."""
        ledger_id, entry_id = after
        span = self.by_id.get(ledger_id)
        if span is not None and entry_id < span.entries - 1:
            return Position(ledger_id, max(entry_id, -1) + 1)
        following = self.span_after(ledger_id)
        return None if following is None else Position(following.ref.id, 0)

    def floor(self, position: Position) -> Position | None:
        """Returns the last existing entry at or before a position; None without one."""
        ledger_id, entry_id = position
        span = self.by_id.get(ledger_id)
        if span is not None and entry_id >= 0:
            return Position(ledger_id, min(entry_id, span.entries - 1))
        before = bisect_right(self.spans, ledger_id - (span is not None), key=_ledger_id)
        return self.spans[before - 1].last_position if before else None


def _ledger_id(span: LedgerSpan) -> int:
    return span.ref.id
