"""What the log keeps in memory of each ledger."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise

from magnetar.common.errors import StorageError
from magnetar.ledger.ledger_store import LedgerRef
from magnetar.ledger.segment_log.segment import Segment


@dataclass(slots=True, eq=False)
class LogLedger:
    """One ledger as far as this log goes. Everything in it is about durable records, except `fenced`."""

    ref: LedgerRef
    last_entry_id: int = -1
    """Highest durable entry."""
    lac: int = -1
    """Highest last add confirmed that a durable record carries."""
    byte_length: int = 0
    """Bytes of its durable entries."""
    fenced: bool = False
    """Appends are refused; true from the moment of asking for it, before the mark is durable."""
    limbo: bool = False
    failed: StorageError | None = None
    """A group with entries of it failed: their fate is unknown, and it takes no more."""
    uses_reserve: bool = False
    """Its appends may use half the space that is kept free: cursors, since consuming gives space back."""
    segments: list[Segment] = field(default_factory=list)
    """Where its records are, oldest first."""
    on_durable: Callable[[int], None] | None = None
    """Called with the highest durable entry, once per group."""
    on_failed: Callable[[StorageError], None] | None = None
    """Called once."""

    @property
    def has_copies(self) -> bool:
        """Whether some entries may be stored twice: two segments hold the same range of them."""
        lines = [segment.line(self.ref) for segment in self.segments]
        ranges = sorted((line.base, line.last_entry_id) for line in lines if line is not None and line.runs)
        return any(base <= last for (_, last), (base, _) in pairwise(ranges))

    def stored_in(self, segment: Segment) -> None:
        """Note that a segment holds a record of it."""
        if not self.segments or self.segments[-1] is not segment:
            self.segments.append(segment)
