"""Rounds of a job: each ledger once a round, several at a time, with growing pauses after failures."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import replace

import pytest
from magnetar.common.errors import ServiceNotReady
from magnetar.common.offload.offload_pb2 import Ledger, WantedResponse
from magnetar.spark.offload.job import RETRY_S, UNPAUSED_MAX, Job, run_rounds
from magnetar.spark.offload.outcomes import Attempt, Outcome, Result


class Desk:
    """Gives out ledgers, and takes them through as it is told to."""

    def __init__(self, ledgers: int) -> None:
        self.waiting = [Ledger(topic="t", creation_id=1, ledger_id=number) for number in range(ledgers)]
        self.results: dict[int, Result] = {}
        self.tried: list[int] = []
        self.asked: list[list[str]] = []
        self.at_once = self.at_once_max = 0
        self.lock = threading.Lock()
        self.settles = Result.OFFLOADED

    def wanted(self, topics: Iterable[str] = (), *, most: int = 0) -> WantedResponse:
        self.asked.append(list(topics))
        return WantedResponse(ledgers=self.waiting[:most], more=len(self.waiting) > most)

    def offload(self, wanted: Ledger) -> Outcome:
        with self.lock:
            self.tried.append(wanted.ledger_id)
            self.at_once += 1
            self.at_once_max = max(self.at_once_max, self.at_once)
        result = self.results.get(wanted.ledger_id, Result.OFFLOADED)
        with self.lock:
            self.at_once -= 1
            if result is not Result.FAILED:
                self.waiting.remove(wanted)
        attempt = Attempt("t", 1, wanted.ledger_id, bytes(16)) if result is Result.UNSETTLED else None
        return Outcome(topic="t", ledger_id=wanted.ledger_id, result=result, rows=10, given_up=attempt)

    def settle(self, outcome: Outcome) -> Outcome:
        return replace(outcome, result=self.settles)


def make_job(desk: Desk, **options: object) -> Job:
    options = {"stop": threading.Event(), **options}
    return Job(desk, desk, **options)  # type: ignore[arg-type]


def test_a_round_takes_everything_that_waits() -> None:
    desk = Desk(1_200)
    job = make_job(desk, ledgers_at_once=3)
    assert len(job.run()) == 1_200
    assert sorted(desk.tried) == list(range(1_200))
    assert desk.at_once_max <= 3
    assert job.totals.outcomes[Result.OFFLOADED] == 1_200
    assert job.totals.rows == 12_000


def test_a_ledger_that_fails_is_tried_once_a_round_and_then_pauses() -> None:
    desk, now = Desk(3), [0.0]
    desk.results[1] = Result.FAILED
    job = make_job(desk, now=lambda: now[0])
    job.run()
    assert sorted(desk.tried) == [0, 1, 2]
    job.run()
    assert sorted(desk.tried) == [0, 1, 2]
    now[0] += RETRY_S
    job.run()
    assert sorted(desk.tried) == [0, 1, 1, 2]
    now[0] += RETRY_S
    job.run()
    assert sorted(desk.tried) == [0, 1, 1, 2], "the second pause is longer"
    now[0] += RETRY_S
    job.run()
    assert sorted(desk.tried) == [0, 1, 1, 1, 2]


def test_ledgers_that_fail_do_not_hide_newer_ones_however_many_they_are() -> None:
    """Brokers tell of a thousand at a time, and one that failed waits behind the others."""

    class Capped(Desk):
        def wanted(self, topics: Iterable[str] = (), *, most: int = 0) -> WantedResponse:
            return super().wanted(topics, most=min(most, 1_000))

        def offload(self, wanted: Ledger) -> Outcome:
            outcome = super().offload(wanted)
            if outcome.result is Result.FAILED:
                with self.lock:
                    self.waiting.remove(wanted)
                    self.waiting.append(wanted)
            return outcome

    desk = Capped(1_300)
    desk.results = dict.fromkeys(range(1_300), Result.FAILED)
    job = make_job(desk, now=lambda: 0.0)
    job.run()
    assert sorted(desk.tried) == list(range(1_300))
    desk.tried.clear()
    desk.waiting += [Ledger(topic="t", creation_id=1, ledger_id=number) for number in range(2_000, 2_005)]
    job.run()
    assert len(desk.tried) == UNPAUSED_MAX, "pauses are for something"
    job.run()
    assert {2_000, 2_001, 2_002, 2_003, 2_004} <= set(desk.tried)
    assert len(desk.tried) <= 2 * UNPAUSED_MAX


def test_only_the_topics_that_were_named_are_asked_for() -> None:
    desk = Desk(0)
    make_job(desk, topics=["a", "b"]).run()
    assert desk.asked == [["a", "b"]]


def test_a_round_ends_after_so_many_ledgers() -> None:
    desk = Desk(10)
    make_job(desk, ledgers_max=4, ledgers_at_once=3).run()
    assert len(desk.tried) == 4


def test_a_job_that_is_stopped_takes_no_more() -> None:
    desk, stop = Desk(10), threading.Event()
    stop.set()
    assert make_job(desk, stop=stop).run() == []
    assert desk.tried == []


def test_unsettled_ledger_is_settled_in_the_next_round() -> None:
    desk = Desk(1)
    desk.results[0] = Result.UNSETTLED
    job = make_job(desk)
    job.run()
    assert job.unsettled == 1
    desk.settles = Result.UNSETTLED
    job.run()
    assert job.unsettled == 1
    desk.settles = Result.OFFLOADED
    job.run()
    assert job.unsettled == 0
    assert job.totals.outcomes[Result.OFFLOADED] == 1
    assert job.totals.outcomes[Result.UNSETTLED] == 0


def test_the_error_of_the_only_round_is_raised_and_of_many_is_reported() -> None:
    class Away(Desk):
        def wanted(self, topics: Iterable[str] = (), *, most: int = 0) -> WantedResponse:
            raise ServiceNotReady("away")

    stop = threading.Event()
    with pytest.raises(ServiceNotReady):
        run_rounds(make_job(Away(0), stop=stop), every_s=None, stop=stop, report=lambda error: None)
    reported: list[str] = []

    def report(error: Exception) -> None:
        reported.append(str(error))
        if len(reported) == 2:
            stop.set()

    run_rounds(make_job(Away(0), stop=stop), every_s=0.001, stop=stop, report=report)
    assert reported == ["away", "away"]
