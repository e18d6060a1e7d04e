"""The tasks of the job: their inputs and results, small values that pickle, and what runs them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from magnetar.common.errors import MagnetarError
from magnetar.ledger.cold.layout import Part
from magnetar.spark.ledgers.ledger_source import LedgerSource


class TasksFailed(MagnetarError):
    """A task failed after all retries."""

    retriable = True


class Stopped(MagnetarError):
    """The job was stopped."""

    retriable = True


@dataclass(frozen=True, slots=True)
class MeasureTask:
    """Say how large some entries are."""

    source: LedgerSource
    entry_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class PartTask:
    """Write the entries of one range as one object."""

    source: LedgerSource
    location: str
    path: str
    """Path of the attempt, below the location."""
    name: str
    """Name of the object, below the path."""
    first_entry_id: int
    last_entry_id: int
    exact: bool


@dataclass(frozen=True, slots=True)
class WrittenPart:
    """Facts about a written part."""

    part: Part
    first_index: int
    """Topic-wide index of the range's first message."""
    max_publish_time_ms: int
    envelope_crc32c: int
    """See `envelopes`."""
    raw_reasons: dict[str, int]
    """Entries that are kept raw, by reason."""


@dataclass(frozen=True, slots=True)
class VerifyTask:
    """Read one object back and compare it with what was written."""

    location: str
    path: str
    topic: str
    ledger_id: int
    part: Part
    envelope_crc32c: int


@dataclass(frozen=True, slots=True)
class VerifiedPart:
    """Facts about an object that was read back."""

    entries: int
    rows: int
    raw_entries: int


@dataclass(frozen=True, slots=True)
class TaskFailure:
    """A permanent failure, returned instead of a result: a retry on the same data would not help."""

    reason: str


class Course(Protocol):
    """Progress of a ledger's tasks, and whether to go on."""

    def advanced(self, done: int, total: int) -> None:
        """Report that `done` of `total` tasks are done."""
        ...

    def over(self) -> str:
        """Return why the remaining tasks should be abandoned; empty to continue."""
        ...


class Tasks(Protocol):
    """Runs tasks, as many concurrently as resources allow."""

    def measure(self, task: MeasureTask, course: Course) -> list[int]:
        """Bytes, in the order of the task's entries. Raises TasksFailed, Stopped."""
        ...

    def write(self, tasks: Sequence[PartTask], course: Course) -> list[WrittenPart]:
        """Results in the order of the tasks. Raises TasksFailed, Stopped."""
        ...

    def verify(self, tasks: Sequence[VerifyTask], course: Course) -> list[VerifiedPart]:
        """Results in the order of the tasks. Raises TasksFailed, Stopped."""
        ...
