"""Figures of a compacted view and of compaction runs."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from magnetar.common.naming.position import Position

WRITE_MS_BOUNDS: Final = (0.5, 1, 5, 10, 20, 50, 100, 200, 1000)
"""Upper bounds of `WriteTimes.counts` in ms; one more bucket counts longer writes."""


class ViewEnd(NamedTuple):
    """The last message of a view."""

    position: Position
    batch_index: int
    """The highest batch index at that position that is not compacted out; -1 when it is not a batch."""


@dataclass(frozen=True, slots=True)
class ViewFigures:
    """The size of a view, as internal stats and metrics show it."""

    ledger_id: int = -1
    """Ledger of the newest segment; -1 without a segment."""
    segments: int = 0
    entries: int = 0
    """Entries that a reader gets; entries of batches of which all messages died are counted by estimate."""
    byte_length: int = 0
    """Bytes of those entries, by the same estimate."""
    stored_bytes: int = 0
    """Bytes of all segments, including what is dead in them."""
    damaged: int = 0
    """Segments that were found damaged or lost since the topic was loaded."""


@dataclass(slots=True)
class WriteTimes:
    """Times of pages from their hand-over to storage to their confirmation."""

    counts: list[int] = field(default_factory=lambda: [0] * (len(WRITE_MS_BOUNDS) + 1))
    total_ms: float = 0.0

    def add(self, ms: float) -> None:
        """Counts one page."""
        self.counts[bisect_left(WRITE_MS_BOUNDS, ms)] += 1
        self.total_ms += ms

    def add_all(self, other: WriteTimes) -> None:
        """Counts the pages of others."""
        self.counts = [one + more for one, more in zip(self.counts, other.counts, strict=True)]
        self.total_ms += other.total_ms


@dataclass(slots=True)
class CompactionProgress:
    """Progress of a run; the run changes it as it goes on."""

    entries_read: int = 0
    """Entries of the topic that were examined."""
    bytes_read: int = 0
    """Bytes read from the topic and from earlier segments."""
    bytes_written: int = 0
    """Bytes of pages written."""
    writes: WriteTimes = field(default_factory=WriteTimes)
    """Times of the pages written."""
    parts: int = 0
    """Parts that the view includes already; see `CompactionLimits.memory_bytes`."""


@dataclass(frozen=True, slots=True)
class CompactionResult:
    """The outcome of a run that succeeded."""

    horizon: Position
    """The view's horizon after the run."""
    removed_messages: int
    """Messages overwritten, deleted or dropped: of the topic's new entries and of the earlier view."""
    figures: ViewFigures
    """The view after the run."""
    entries_read: int
    bytes_read: int
    bytes_written: int
    duration_s: float
    did_anything: bool
    """False when nothing was new: no metadata and no ledger was written."""
