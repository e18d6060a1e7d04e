"""State of a cursor: mark-delete position, acknowledgments beyond it, changes since a flush.

Pure state, no I/O. Individually acknowledged entries are one roaring bitmap per ledger, without any limit on
holes; partly acknowledged batches are ints whose bit i means "message i is ACKED" (the wire means the
opposite). Changes since the last flush are kept as deltas, so that a flush costs what changed, not what is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from magnetar.common.naming.position import EARLIEST, Position
from magnetar.ledger.ledger_store import Run
from magnetar.ledger.managed_ledger.bitmaps import bitmap_bytes, count_ranges, first_hole, ranges_in
from magnetar.ledger.managed_ledger.ledger_list import LedgerSpans
from pyroaring import BitMap

V = TypeVar("V")

ENTRY_IDS_MAX = 1 << 32
"""Entry ids in bitmaps are below this; a ledger rolls long before it."""


@dataclass(slots=True)
class AckDelta:
    """A part of a cursor's ack state: all of it (a snapshot) or the changes (a change record).

    Applying is idempotent and independent of order: positions only grow, bits and counts are only added.
    """

    mark_delete: Position
    acked: dict[int, BitMap] = field(default_factory=dict)
    partial: dict[int, dict[int, tuple[int, int]]] = field(default_factory=dict)
    """By ledger and entry: (bits of acked messages, batch size)."""
    deliveries: dict[int, dict[int, int]] = field(default_factory=dict)
    """Redelivery counts by ledger and entry."""


_MANY: Final = 8
"""Number of entries from which building a bitmap is cheaper than handling them one by one."""


class AckState:
    """Acknowledgements of one cursor over the existing entries of its topic (`spans`)."""

    __slots__ = (
        "_acked",
        "_acked_count",
        "_changed_acks",
        "_changed_deliveries",
        "_changed_partial",
        "_deliveries",
        "_dirty",
        "_mark_entry",
        "_mark_ledger",
        "_partial",
        "_spans",
        "durable",
    )

    def __init__(self, spans: LedgerSpans, mark_delete: Position, *, durable: bool) -> None:
        self._spans = spans
        self._mark_ledger, self._mark_entry = mark_delete
        self._acked: dict[int, BitMap] = {}
        self._acked_count = 0
        self._partial: dict[int, dict[int, tuple[int, int]]] | None = None
        self._deliveries: dict[int, dict[int, int]] | None = None
        # A state that is never flushed counts as dirty permanently: no changes are tracked and no callback
        # runs.
        self.durable = durable
        self._dirty = not durable
        self._changed_acks: dict[int, BitMap] | None = None
        self._changed_partial: set[tuple[int, int]] | None = None
        self._changed_deliveries: set[tuple[int, int]] | None = None

    @property
    def mark_delete(self) -> Position:
        """The mark-delete position: every entry up to it is acknowledged; the entry itself need not exist."""
        return Position(self._mark_ledger, self._mark_entry)

    @property
    def has_holes(self) -> bool:
        """Whether anything beyond the mark-delete position is acknowledged, wholly or in part."""
        return bool(self._acked) or bool(self._partial)

    @property
    def has_entry_state(self) -> bool:
        """Whether any entry has partly acknowledged batches or redelivery counts."""
        return bool(self._partial) or bool(self._deliveries)

    def backlog(self) -> int:
        """Entries not acknowledged, up to the last confirmed one."""
        spans = self._spans
        return spans.total - spans.ordinal(self.mark_delete) - self._acked_count

    def is_acked(self, ledger_id: int, entry_id: int) -> bool:
        if ledger_id == self._mark_ledger:
            if entry_id <= self._mark_entry:
                return True
        elif ledger_id < self._mark_ledger:
            return True
        bitmap = self._acked.get(ledger_id)
        return bitmap is not None and entry_id in bitmap

    def acked_among(self, ledger_id: int, entry_ids: BitMap) -> BitMap:
        """Returns those of these entries of one ledger that are acknowledged, wholly or in part."""
        if ledger_id < self._mark_ledger:
            return entry_ids
        found = BitMap()
        if ledger_id == self._mark_ledger:
            found = entry_ids.copy()
            found.remove_range(self._mark_entry + 1, ENTRY_IDS_MAX)
        if ledger_id in self._acked:
            found |= entry_ids & self._acked[ledger_id]
        if self._partial and ledger_id in self._partial:
            found |= entry_ids & BitMap(self._partial[ledger_id])
        return found

    def ack(self, ledger_id: int, entry_id: int) -> bool:
        """Acknowledges one entry; returns False if it was acknowledged already or does not exist."""
        mark_ledger = self._mark_ledger
        if ledger_id == mark_ledger:
            if entry_id <= self._mark_entry:
                return False
        elif ledger_id < mark_ledger:
            return False
        span = self._spans.by_id.get(ledger_id)
        if span is None or not 0 <= entry_id < span.entries:
            return False
        bitmap = self._acked.get(ledger_id)
        if bitmap is not None and entry_id in bitmap:
            return False
        if not self._dirty:
            self._dirty = True
            self._on_dirty()
        if self._partial is not None or self._deliveries is not None:
            self._forget(ledger_id, entry_id)
        if ledger_id == mark_ledger and entry_id == self._mark_entry + 1:
            self._mark_entry = entry_id
            if entry_id == span.entries - 1 or (bitmap is not None and entry_id + 1 in bitmap):
                self._advance()
            return True
        if bitmap is None:
            bitmap = self._acked[ledger_id] = BitMap()
        bitmap.add(entry_id)
        self._acked_count += 1
        if self.durable:
            changed = self._changed_acks
            if changed is None:
                changed = self._changed_acks = {}
            changed_bitmap = changed.get(ledger_id)
            if changed_bitmap is None:
                changed_bitmap = changed[ledger_id] = BitMap()
            changed_bitmap.add(entry_id)
        if entry_id == 0:
            self._advance()
        return True

    def ack_many(self, ledger_id: int, entry_ids: Sequence[int]) -> int:
        """Acknowledges entries of one ledger, in any order; returns how many existed and were new."""
        if len(entry_ids) < _MANY:
            return sum([self.ack(ledger_id, entry_id) for entry_id in entry_ids])
        span = self._spans.by_id.get(ledger_id)
        if span is None or ledger_id < self._mark_ledger:
            return 0
        try:
            new = BitMap(entry_ids)
        except OverflowError:
            new = BitMap([entry_id for entry_id in entry_ids if 0 <= entry_id < span.entries])
        new.remove_range(span.entries, ENTRY_IDS_MAX)
        if ledger_id == self._mark_ledger:
            new.remove_range(0, self._mark_entry + 1)
        bitmap = self._acked.get(ledger_id)
        if bitmap is not None:
            new -= bitmap
        if not new:
            return 0
        self._touch()
        if bitmap is None:
            self._acked[ledger_id] = new.copy()
        else:
            bitmap |= new
        self._acked_count += len(new)
        if self.durable:
            if self._changed_acks is None:
                self._changed_acks = {}
            changed = self._changed_acks.get(ledger_id)
            if changed is None:
                self._changed_acks[ledger_id] = new.copy()
            else:
                changed |= new
        if self._partial is not None or self._deliveries is not None:
            for entry_id in new:
                self._forget(ledger_id, entry_id)
        self._advance()
        return len(new)

    def ack_range(self, ledger_id: int, first: int, last: int) -> None:
        """Acknowledges the existing entries from `first` to `last` (inclusive) of one ledger."""
        span = self._spans.by_id.get(ledger_id)
        if span is None or ledger_id < self._mark_ledger:
            return
        first, last = max(first, 0), min(last, span.entries - 1)
        if ledger_id == self._mark_ledger:
            first = max(first, self._mark_entry + 1)
        if first > last:
            return
        self._touch()
        bitmap = self._acked.setdefault(ledger_id, BitMap())
        self._acked_count += last - first + 1 - bitmap.range_cardinality(first, last + 1)
        bitmap.add_range(first, last + 1)
        if self.durable:
            if self._changed_acks is None:
                self._changed_acks = {}
            self._changed_acks.setdefault(ledger_id, BitMap()).add_range(first, last + 1)
        self._forget_range(ledger_id, first, last)
        self._advance()

    def ack_cumulative(self, position: Position) -> None:
        """Acknowledges every existing entry up to and including `position`."""
        target = self._spans.floor(position)
        if target is None or target <= (self._mark_ledger, self._mark_entry):
            return
        self._touch()
        self._move_mark(target)

    def ack_batch(self, ledger_id: int, entry_id: int, acked_bits: int, batch_size: int) -> bool:
        """Acknowledges some messages of a batch; returns True if that completes and acknowledges the
        entry.
        """
        if self.is_acked(ledger_id, entry_id):
            return False
        span = self._spans.by_id.get(ledger_id)
        if span is None or not 0 <= entry_id < span.entries or batch_size <= 0:
            return False
        whole = (1 << batch_size) - 1
        before = self.batch_acked(ledger_id, entry_id)
        bits = before | (acked_bits & whole)
        if bits & whole == whole:
            return self.ack(ledger_id, entry_id)
        if bits != before:
            self._touch()
            if self._partial is None:
                self._partial = {}
            self._partial.setdefault(ledger_id, {})[entry_id] = (bits, batch_size)
            if self.durable:
                if self._changed_partial is None:
                    self._changed_partial = set()
                self._changed_partial.add((ledger_id, entry_id))
        return False

    def batch_acked(self, ledger_id: int, entry_id: int) -> int:
        """Returns the acknowledged messages of a partly acknowledged batch as bits; 0 without any."""
        if not self._partial:
            return 0
        return self._partial.get(ledger_id, {}).get(entry_id, (0, 0))[0]

    def delivery_count(self, ledger_id: int, entry_id: int) -> int:
        """Returns the entry's redelivery count; 0 once it is acknowledged."""
        if not self._deliveries:
            return 0
        return self._deliveries.get(ledger_id, {}).get(entry_id, 0)

    def count_redelivery(self, ledger_id: int, entry_id: int) -> int:
        """Counts a redelivery of an unacknowledged entry; returns the new count."""
        if self.is_acked(ledger_id, entry_id):
            return 0
        self._touch()
        if self._deliveries is None:
            self._deliveries = {}
        counts = self._deliveries.setdefault(ledger_id, {})
        count = counts[entry_id] = counts.get(entry_id, 0) + 1
        if self.durable:
            if self._changed_deliveries is None:
                self._changed_deliveries = set()
            self._changed_deliveries.add((ledger_id, entry_id))
        return count

    @property
    def acked_range_count(self) -> int:
        """Returns the number of acknowledged ranges beyond the mark-delete position."""
        return sum(map(count_ranges, self._acked.values()))

    @property
    def acked_bytes(self) -> int:
        """Returns the memory in bytes of acknowledgements beyond the mark-delete position."""
        return sum(map(bitmap_bytes, self._acked.values()))

    def acked_ranges(self) -> Iterator[tuple[int, int, int]]:
        """Yields these ranges as (ledger id, first, last), in order; consume it before the state changes."""
        for ledger_id in sorted(self._acked):
            for first, last in ranges_in(self._acked[ledger_id]):
                yield ledger_id, first, last

    def next_unacked(self, ledger_id: int, entry_id: int, kept: BitMap | None = None) -> int:
        """Returns the first entry id from `entry_id` on that is neither acknowledged nor in `kept`.

        The entry need not exist.
        """
        bitmap = self._acked.get(ledger_id)
        if kept is not None:
            bitmap = kept if bitmap is None else bitmap | kept
        if bitmap is None or entry_id not in bitmap:
            return entry_id
        return first_hole(bitmap, entry_id)

    def count_unacked(self, ledger_id: int, entry_ids: BitMap) -> int:
        """Counts the unacknowledged entries among these of one ledger."""
        if ledger_id < self._mark_ledger:
            return 0
        first = self._mark_entry + 1 if ledger_id == self._mark_ledger else 0
        count: int = entry_ids.range_cardinality(first, ENTRY_IDS_MAX)
        bitmap = self._acked.get(ledger_id)
        return count if bitmap is None else count - bitmap.intersection_cardinality(entry_ids)

    def unacked_ranges(self, run: Run) -> list[tuple[int, int]]:
        """Returns the unacknowledged ranges of a run as [first, last] entry ids, in order."""
        ledger_id, first = run.ledger_id, run.first_entry_id
        last = first + len(run.entries) - 1
        if ledger_id <= self._mark_ledger:
            if ledger_id < self._mark_ledger or last <= self._mark_entry:
                return []
            first = max(first, self._mark_entry + 1)
        bitmap = self._acked.get(ledger_id)
        if bitmap is None or not bitmap.range_cardinality(first, last + 1):
            return [(first, last)]
        ranges = []
        start = -1
        for entry_id in range(first, last + 1):
            if entry_id in bitmap:
                if start >= 0:
                    ranges.append((start, entry_id - 1))
                    start = -1
            elif start < 0:
                start = entry_id
        if start >= 0:
            ranges.append((start, last))
        return ranges

    def replace(self, mark_delete: Position) -> None:
        """Replaces the state by the position `mark_delete` (seek). Unflushed changes are dropped."""
        self._mark_ledger, self._mark_entry = mark_delete
        self._acked = {}
        self._acked_count = 0
        self._partial = self._deliveries = None
        self.take_changes()

    def return_before_view(self) -> None:
        """Moves a cursor that stands before the first entry of the topic to before its compacted view.

        Nothing existing lies between the two positions, so nothing is written.
        """
        self._mark_ledger, self._mark_entry = EARLIEST

    def pass_missing(self, position: Position) -> None:
        """Acknowledges everything up to a position of the compacted view before the first existing entry."""
        if position > (self._mark_ledger, self._mark_entry) and self._spans.floor(position) is None:
            self._touch()
            self._move_mark(position)

    def skip_trimmed(self, last: Position) -> None:
        """Advances past trimmed entries up to `last`; relevant to a non-durable cursor behind them."""
        if last > (self._mark_ledger, self._mark_entry):
            self._move_mark(last)

    # Flushing

    def take_changes(self) -> AckDelta:
        """Returns the changes since the last call, for a change record; they then count as flushed."""
        delta = AckDelta(self.mark_delete)
        mark_ledger, mark_entry = self._mark_ledger, self._mark_entry
        for ledger_id, bitmap in sorted((self._changed_acks or {}).items()):
            if ledger_id < mark_ledger:
                continue
            if ledger_id == mark_ledger:
                bitmap.remove_range(0, mark_entry + 1)
            if bitmap:
                delta.acked[ledger_id] = bitmap
        for ledger_id, entry_id in sorted(self._changed_partial or ()):
            partial = (self._partial or {}).get(ledger_id, {}).get(entry_id)
            if partial is not None:
                delta.partial.setdefault(ledger_id, {})[entry_id] = partial
        for ledger_id, entry_id in sorted(self._changed_deliveries or ()):
            count = (self._deliveries or {}).get(ledger_id, {}).get(entry_id)
            if count is not None:
                delta.deliveries.setdefault(ledger_id, {})[entry_id] = count
        self._changed_acks = self._changed_partial = self._changed_deliveries = None
        self._dirty = not self.durable
        return delta

    def whole(self) -> AckDelta:
        """Returns the whole state, for a snapshot; bitmaps and dicts are shared, not copied."""
        return AckDelta(self.mark_delete, self._acked, self._partial or {}, self._deliveries or {})

    def apply(self, delta: AckDelta) -> None:
        """Adds the content of a snapshot or change record while loading; call `settle` at the end."""
        if delta.mark_delete > (self._mark_ledger, self._mark_entry):
            self._mark_ledger, self._mark_entry = delta.mark_delete
        for ledger_id, bitmap in delta.acked.items():
            self._acked.setdefault(ledger_id, BitMap()).update(bitmap)
        for ledger_id, batches in delta.partial.items():
            self._partial = {} if self._partial is None else self._partial
            kept = self._partial.setdefault(ledger_id, {})
            for entry_id, (bits, size) in batches.items():
                kept[entry_id] = (bits | kept.get(entry_id, (0, 0))[0], size)
        for ledger_id, counts in delta.deliveries.items():
            self._deliveries = {} if self._deliveries is None else self._deliveries
            known = self._deliveries.setdefault(ledger_id, {})
            for entry_id, count in counts.items():
                known[entry_id] = max(count, known.get(entry_id, 0))

    def settle(self) -> None:
        """Ends loading: drops state of missing entries, counts the rest and advances the mark-delete
        position. A batch of which different records acknowledge all messages is an acknowledged entry.
        """
        for ledger_id, batches in (self._partial or {}).items():
            for entry_id, (bits, size) in batches.items():
                if bits.bit_count() >= size:
                    self._acked.setdefault(ledger_id, BitMap()).add(entry_id)
        for ledger_id in list(self._acked):
            span = self._spans.by_id.get(ledger_id)
            if span is None:
                del self._acked[ledger_id]
            else:
                self._acked[ledger_id].remove_range(span.entries, ENTRY_IDS_MAX)
        self._drop_below_mark()
        self._forget_acked()
        self._advance()

    # Internals

    def _on_dirty(self) -> None:
        """Called at the first change since the last flush; `Cursor` notifies its managed ledger."""

    def _touch(self) -> None:
        if not self._dirty:
            self._dirty = True
            self._on_dirty()

    def _forget(self, ledger_id: int, entry_id: int) -> None:
        """Drops the partial state of one entry that is now acknowledged."""
        if self._partial is not None:
            self._partial = _without(self._partial, ledger_id, entry_id)
        if self._deliveries is not None:
            self._deliveries = _without(self._deliveries, ledger_id, entry_id)

    def _drop_below_mark(self) -> None:
        mark_ledger, mark_entry = self._mark_ledger, self._mark_entry
        for ledger_id in [ledger_id for ledger_id in self._acked if ledger_id <= mark_ledger]:
            bitmap = self._acked[ledger_id]
            if ledger_id == mark_ledger:
                bitmap.remove_range(0, mark_entry + 1)
            if ledger_id < mark_ledger or not bitmap:
                del self._acked[ledger_id]
        self._acked_count = sum(map(len, self._acked.values()))

    def _move_mark(self, target: Position) -> None:
        before_ledger, before_entry = self._mark_ledger, self._mark_entry
        self._mark_ledger, self._mark_entry = target
        self._drop_below_mark()
        if self._partial is not None or self._deliveries is not None:
            for ledger_id in {*(self._partial or ()), *(self._deliveries or ())}:
                if before_ledger <= ledger_id <= target.ledger_id:
                    first = before_entry + 1 if ledger_id == before_ledger else 0
                    last = target.entry_id if ledger_id == target.ledger_id else ENTRY_IDS_MAX
                    self._forget_range(ledger_id, first, last)
        self._advance()

    def _forget_range(self, ledger_id: int, first: int, last: int) -> None:
        """Drops the partial state of entries `first` to `last` (inclusive), which are now acknowledged."""
        partial = (self._partial or {}).get(ledger_id, {})
        deliveries = (self._deliveries or {}).get(ledger_id, {})
        if last - first < len(partial) + len(deliveries):
            gone: Iterable[int] = range(first, last + 1)
        else:
            gone = [entry_id for entry_id in (*partial, *deliveries) if first <= entry_id <= last]
        for entry_id in gone:
            self._forget(ledger_id, entry_id)

    def _forget_acked(self) -> None:
        kept_by_entry: list[dict[int, dict[int, Any]]] = [self._partial or {}, self._deliveries or {}]
        for kept in kept_by_entry:
            for ledger_id, entries in list(kept.items()):
                if ledger_id > self._mark_ledger and ledger_id not in self._acked:
                    continue
                for entry_id in [entry for entry in entries if self.is_acked(ledger_id, entry)]:
                    self._forget(ledger_id, entry_id)

    def _advance(self) -> None:
        """Advances the mark-delete position over following acknowledged entries, across ledgers."""
        if not self._acked:
            return
        ledger_id, entry_id = self._mark_ledger, self._mark_entry
        while True:
            bitmap = self._acked.get(ledger_id)
            if bitmap is not None and entry_id + 1 in bitmap:
                following = first_hole(bitmap, entry_id + 1)
                bitmap.remove_range(entry_id + 1, following)
                self._acked_count -= following - entry_id - 1
                entry_id = following - 1
                if not bitmap:
                    del self._acked[ledger_id]
            self._mark_ledger, self._mark_entry = ledger_id, entry_id
            span = self._spans.by_id.get(ledger_id)
            if span is not None and entry_id < span.entries - 1:
                return
            next_span = self._spans.span_after(ledger_id)
            if next_span is None or 0 not in self._acked.get(next_span.ref.id, ()):
                return
            ledger_id, entry_id = next_span.ref.id, -1


def _without(kept: dict[int, dict[int, V]], ledger_id: int, entry_id: int) -> dict[int, dict[int, V]] | None:
    """Returns `kept` without one entry; None if nothing is left."""
    entries = kept.get(ledger_id)
    if entries is None or entries.pop(entry_id, None) is None:
        return kept
    if not entries:
        del kept[ledger_id]
    return kept or None
