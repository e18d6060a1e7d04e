"""The slowest publishes of a topic in the last minute, with the time of each step.

Nothing is done for quick ones: once per confirmed group of runs, the age of its oldest run is compared with
`SLOW_S`. A slower group is recorded if it is the slowest of its second, within a limit of records a second
over all topics. The steps come from what the writer of the ledger knows at that moment about the group.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from magnetar.broker.topics.publish.pending_publish import PendingPublish
from magnetar.common.runtime.clock import Clock
from magnetar.ledger.ledger_store import Run, WriteReport
from magnetar.ledger.managed_ledger.appender import QueueWait

SLOW_S: Final = 0.01
"""Seconds from receiving a run to its receipts below which it is never recorded."""

WINDOW_S: Final = 60
"""Seconds for which a slow publish is remembered; one each second."""

RECORDS_PER_S: Final = 200
"""Maximum records a second of all topics of a process."""

_WORSE: Final = 1.25
"""Factor by which a publish has to be slower to replace the one recorded in the same second."""


class PublishStep(StrEnum):
    """Where the time of a publish went; docs/explain.md has each with its test."""

    WAITED_FOR_LEDGER = "waited_for_ledger"
    WAITED_FOR_SYNC = "waited_for_sync"
    LOG_WRITE = "log_write"
    BOOKIES = "bookies"
    STORAGE = "storage"
    RECEIPT = "receipt"


@dataclass(frozen=True, slots=True)
class StepTime:
    """One step of a publish."""

    step: PublishStep
    seconds: float
    detail: str = ""
    """Bookies or causes that the step waited for."""


@dataclass(frozen=True, slots=True)
class SlowPublish:
    """One slow publish: the oldest run of a group that was confirmed together."""

    at_s: float
    """Monotonic seconds of its receipts."""
    at_ms: int
    """The same, ms since 1970 UTC."""
    seconds: float
    """From receiving it to its receipts."""
    producer: str
    address: str
    entries: int
    byte_length: int
    ledger_id: int
    entry_id: int
    steps: tuple[StepTime, ...]

    @property
    def longest(self) -> StepTime:
        """The step that took most of the time."""
        return max(self.steps, key=lambda each: each.seconds)


class _Budget:
    """Limits the records of all topics."""

    __slots__ = ("_left", "_second")

    def __init__(self) -> None:
        self._second, self._left = -1, 0

    def take(self, second: int) -> bool:
        if second != self._second:
            self._second, self._left = second, RECORDS_PER_S
        self._left -= 1
        return self._left >= 0


_BUDGET: Final = _Budget()


class SlowPublishes:
    """The slowest publish of each of the last seconds of one topic: a ring of `WINDOW_S` places."""

    __slots__ = ("_places", "_second", "_worst_s")

    def __init__(self) -> None:
        self._places: list[SlowPublish | None] = [None] * WINDOW_S
        self._second = -1
        self._worst_s = 0.0

    def wants(self, now: float, seconds: float) -> bool:
        """Whether a publish that took so long is to be recorded; counts it against the limit of the
        process.
        """
        second = int(now)
        if second != self._second:
            self._second, self._worst_s = second, 0.0
        if seconds <= self._worst_s * _WORSE or not _BUDGET.take(second):
            return False
        self._worst_s = seconds
        return True

    def add(self, publish: SlowPublish) -> None:
        """Records a publish that is wanted, in the place of its second."""
        self._places[int(publish.at_s) % WINDOW_S] = publish

    def latest(self, now: float) -> list[SlowPublish]:
        """Returns the publishes of the last minute, the slowest first."""
        found = [each for each in self._places if each is not None and each.at_s > now - WINDOW_S]
        return sorted(found, key=lambda each: -each.seconds)


def slow_publish(
    run: Run,
    pending: PendingPublish,
    now: float,
    clock: Clock,
    report: WriteReport | None,
    waited: QueueWait | None,
) -> SlowPublish:
    """Returns the record of a publish whose receipts were sent just now."""
    return SlowPublish(
        at_s=now,
        at_ms=clock.wall_ms(),
        seconds=now - pending.taken_at,
        producer=pending.producer.name,
        address=pending.producer.peer.address,
        entries=len(run.entries),
        byte_length=run.byte_length,
        ledger_id=run.ledger_id,
        entry_id=run.first_entry_id,
        steps=steps_of(pending.taken_at, now, report, waited),
    )


def steps_of(
    taken_s: float, now: float, report: WriteReport | None, waited: QueueWait | None
) -> tuple[StepTime, ...]:
    """Returns the steps of a publish that was received at `taken_s` and answered at `now`. They add up."""
    steps = []
    handed_s = taken_s
    if waited is not None and waited.handed_s > taken_s:
        handed_s = min(waited.handed_s, now)
        steps.append(StepTime(PublishStep.WAITED_FOR_LEDGER, handed_s - taken_s, waited.cause))
    if report is None:
        steps.append(StepTime(PublishStep.STORAGE, now - handed_s))
        return tuple(steps)
    sent_s = min(max(report.sent_s, handed_s), now)
    durable_s = min(max(report.durable_s, sent_s), now)
    if report.acked_by:
        steps.append(StepTime(PublishStep.BOOKIES, durable_s - handed_s, _bookies(report)))
    else:
        steps.append(StepTime(PublishStep.WAITED_FOR_SYNC, sent_s - handed_s))
        steps.append(StepTime(PublishStep.LOG_WRITE, durable_s - sent_s))
    steps.append(StepTime(PublishStep.RECEIPT, now - durable_s))
    return tuple(steps)


def _bookies(report: WriteReport) -> str:
    text = f"acknowledged by {', '.join(report.acked_by)}"
    if report.awaited:
        text += f", not yet by {', '.join(report.awaited)}"
    if report.joined:
        text += f"; {', '.join(report.joined)} replaced failed bookies meanwhile"
    return text
