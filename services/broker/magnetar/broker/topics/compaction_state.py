"""The compactions of a topic since it was loaded, for statistics, metrics and the admin API."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from magnetar.ledger.compacted.figures import CompactionProgress, WriteTimes

COMPACTION_SUBSCRIPTION: Final = "__compaction"
"""The name under which administrators see what compaction holds; no client may subscribe with it."""


class CompactionStatus(StrEnum):
    """The last run of a topic; values are those of Pulsar's LongRunningProcessStatus."""

    NOT_RUN = "NOT_RUN"
    RUNNING = "RUNNING"
    SUCCESS = "SUCCESS"
    ERROR = "ERROR"


@dataclass(slots=True, eq=False)
class CompactionState:
    """The last run, and counters of all runs. Times are ms since 1970 UTC; 0: never."""

    status: CompactionStatus = CompactionStatus.NOT_RUN
    last_error: str = ""
    """Why the last run failed; empty unless it did."""
    started_ms: int = 0
    """Start of the last run; a run that waits for its turn has not started."""
    removed: int = 0
    """Messages that the last successful run left out of the view."""
    removed_total: int = 0
    succeeded: int = 0
    failed: int = 0
    succeeded_ms: int = 0
    failed_ms: int = 0
    duration_ms: int = 0
    """Duration of the last successful run."""
    bytes_read: int = 0
    """Bytes that the last successful run read, for its rates."""
    bytes_written: int = 0
    writes: WriteTimes = field(default_factory=WriteTimes)
    """Times of pages written by all runs that ended."""
    progress: CompactionProgress | None = None
    """Progress of the run under way; None while none runs."""
    due_since_ms: int = 0
    """The first check that found more bytes than the threshold; 0 while there are fewer."""

    def begin(self) -> CompactionState:
        """Returns the state to record in: this one, or a new one in the place of NEVER_COMPACTED."""
        return CompactionState() if self is NEVER_COMPACTED else self

    @property
    def running(self) -> bool:
        """Whether a run is in progress, or waits for its turn."""
        return self.status is CompactionStatus.RUNNING

    @property
    def read_rate(self) -> float:
        """Bytes per second that the last successful run read."""
        return self.bytes_read * 1000 / self.duration_ms if self.duration_ms else 0.0

    @property
    def write_rate(self) -> float:
        """Bytes per second that the last successful run wrote."""
        return self.bytes_written * 1000 / self.duration_ms if self.duration_ms else 0.0


NEVER_COMPACTED: Final = CompactionState()
"""The state shared by topics without a compaction since their load; nothing is recorded in it."""
