"""The driver: each round lists pending ledgers and offloads them, several concurrently.

A failed ledger is not retried in the same round, and later with increasing delays. Unsettled attempts are
settled at the beginning of each round and once more at the end.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from threading import Event
from typing import Final, Protocol

from magnetar.common.errors import MagnetarError
from magnetar.common.obs.logs import get_logger
from magnetar.common.offload.offload_pb2 import Ledger, WantedResponse
from magnetar.spark.offload.outcomes import Outcome, Result

log = get_logger(__name__)

WANTED_MOST: Final = 500
"""Page size of the list of pending ledgers."""

RETRY_S: Final = 30.0
RETRY_MAX_S: Final = 3_600.0
"""Delay before a failed ledger is retried, in seconds: the first value, doubled up to the last."""

UNPAUSED_MAX: Final = 200
"""Ledgers of a round, after which no other is tried before its pause is over."""

Key = tuple[str, int, int]
"""A ledger: topic, creation id, ledger id."""


class Waiting(Protocol):
    """Lists the pending ledgers."""

    def wanted(self, topics: Iterable[str] = (), *, most: int = 0) -> WantedResponse: ...


class Offloads(Protocol):
    """Offloads one ledger (`ledger_offload.Offloader`)."""

    def offload(self, wanted: Ledger) -> Outcome: ...

    def settle(self, outcome: Outcome) -> Outcome: ...


@dataclass(slots=True)
class Totals:
    """Totals of all rounds."""

    outcomes: dict[Result, int] = field(default_factory=lambda: dict.fromkeys(Result, 0))
    entries: int = 0
    entry_bytes: int = 0
    rows: int = 0
    raw_entries: int = 0
    object_bytes: int = 0

    def add(self, outcome: Outcome) -> None:
        self.outcomes[outcome.result] += 1
        if outcome.result is Result.OFFLOADED:
            self.entries += outcome.entries
            self.entry_bytes += outcome.entry_bytes
            self.rows += outcome.rows
            self.raw_entries += outcome.raw_entries
            self.object_bytes += outcome.object_bytes


@dataclass(slots=True)
class _Failure:
    """A ledger whose offload failed in this job."""

    times: int
    next_try: float


class Job:
    """Processes pending ledgers. `run` is one round; `totals` counts all rounds."""

    def __init__(
        self,
        waiting: Waiting,
        offloads: Offloads,
        *,
        topics: Sequence[str] = (),
        ledgers_at_once: int = 2,
        ledgers_max: int = 0,
        stop: Event,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """`topics`: full names, none for all. `ledgers_max` ends a round earlier; 0: when nothing waits."""
        self._waiting = waiting
        self._offloads = offloads
        self._topics = list(topics)
        self._at_once = ledgers_at_once
        self._ledgers_max = ledgers_max
        self._stop = stop
        self._now = now
        self._failures: dict[Key, _Failure] = {}
        self._unsettled: list[Outcome] = []
        self.totals = Totals()

    def run(self) -> list[Outcome]:
        """Run one round, until every pending ledger was tried. Raises the errors of `wanted`."""
        outcomes = self.settle()
        tried: set[Key] = set()
        with ThreadPoolExecutor(self._at_once, "ledger") as pool:
            running: dict[Future[Outcome], Ledger] = {}
            ahead: list[Ledger] = []
            while True:
                if not ahead and not self._stop.is_set() and not self._full(tried):
                    ahead = self._next(tried)
                while ahead and len(running) < self._at_once and not self._stop.is_set():
                    if self._full(tried):
                        ahead.clear()
                        break
                    ledger = ahead.pop(0)
                    tried.add(_key(ledger))
                    running[pool.submit(self._offloads.offload, ledger)] = ledger
                if not running:
                    return outcomes
                for future in wait(running, return_when=FIRST_COMPLETED).done:
                    ledger = running.pop(future)
                    outcomes.append(self._ended(ledger, future.result()))

    def settle(self) -> list[Outcome]:
        """Retry the unanswered calls; returns the outcomes that are settled by it."""
        before, self._unsettled = self._unsettled, []
        settled = []
        for each in before:
            found = self._offloads.settle(each)
            if found.result is Result.UNSETTLED:
                self._unsettled.append(found)
            else:
                self.totals.outcomes[Result.UNSETTLED] -= 1
                self.totals.add(found)
                settled.append(found)
        return settled

    @property
    def unsettled(self) -> int:
        return len(self._unsettled)

    # --- inside ---

    def _full(self, tried: set[Key]) -> bool:
        return bool(self._ledgers_max) and len(tried) >= self._ledgers_max

    def _next(self, tried: set[Key]) -> list[Ledger]:
        """Return waiting ledgers that were not tried in this round and did not fail recently."""
        most = WANTED_MOST
        while True:
            found = self._waiting.wanted(self._topics, most=most)
            untried = [each for each in found.ledgers if _key(each) not in tried]
            fresh = [each for each in untried if not self._pauses(each)]
            if fresh or not found.more:
                return fresh
            if len(found.ledgers) < most:
                # Brokers tell no more at a time: those that pause hide what waits behind them. Some are tried
                # all the same; if they fail once more they wait behind all others.
                room = max(0, UNPAUSED_MAX - len(tried))
                return untried[: min(self._at_once, room)]
            most *= 2  # All of this page were tried: continue with the next page.

    def _pauses(self, ledger: Ledger) -> bool:
        failure = self._failures.get(_key(ledger))
        return failure is not None and self._now() < failure.next_try

    def _ended(self, ledger: Ledger, outcome: Outcome) -> Outcome:
        self.totals.add(outcome)
        if outcome.result is Result.UNSETTLED:
            self._unsettled.append(outcome)
        if outcome.result is Result.FAILED:
            before = self._failures.get(_key(ledger))
            times = 1 if before is None else before.times + 1
            pause_s = min(RETRY_S * 2 ** min(times - 1, 20), RETRY_MAX_S)
            self._failures[_key(ledger)] = _Failure(times, self._now() + pause_s)
        else:
            self._failures.pop(_key(ledger), None)
        return outcome


def run_rounds(
    job: Job, *, every_s: float | None, stop: Event, report: Callable[[MagnetarError], None]
) -> None:
    """One round, or one every `every_s` seconds until `stop`; then a last try at what is unsettled.

    Raises the error of a single round; of one among many it is reported, and the next one tried.
    """
    while True:
        began = time.monotonic()
        try:
            job.run()
        except MagnetarError as error:
            if every_s is None:
                raise
            report(error)
        if every_s is None or stop.wait(max(0.0, began + every_s - time.monotonic())):
            break
    if job.unsettled:
        job.settle()


def _key(ledger: Ledger) -> Key:
    return ledger.topic, ledger.creation_id, ledger.ledger_id
