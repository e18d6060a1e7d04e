"""Calls that are made again, and signs of life."""

from __future__ import annotations

import threading
from contextlib import ExitStack

import pytest
from magnetar.common.errors import NotAllowed, ServiceNotReady
from magnetar.common.offload.offload_pb2 import Ledger
from magnetar.spark.offload.heartbeats import Heartbeats
from magnetar.spark.offload.retries import Patience


class Clock:
    """Time that waiting moves."""

    def __init__(self) -> None:
        self.now = 0.0
        self.waits: list[float] = []


class Waiting(threading.Event):
    """Implements the event of `Patience` on such a clock."""

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self._clock = clock

    def wait(self, timeout: float | None = None) -> bool:
        assert timeout is not None
        self._clock.waits.append(timeout)
        self._clock.now += timeout
        return False


def patience(clock: Clock, for_s: float) -> Patience:
    return Patience(
        for_s=for_s,
        pause_s=1.0,
        pause_max_s=4.0,
        stop=Waiting(clock),
        now=lambda: clock.now,
        chance=lambda: 0.5,
    )


def away() -> None:
    raise ServiceNotReady("away")


def test_a_call_is_made_again_with_growing_pauses_until_its_time_is_over() -> None:
    clock = Clock()
    with pytest.raises(ServiceNotReady):
        patience(clock, 20.0).call(away)
    assert clock.waits == [1.0, 2.0, 4.0, 4.0, 4.0, 4.0]


def test_refused_call_is_not_retried() -> None:
    clock = Clock()

    def refused() -> None:
        raise NotAllowed("no")

    with pytest.raises(NotAllowed):
        patience(clock, 20.0).call(refused)
    assert clock.waits == []


def test_the_answer_that_comes_in_the_end_is_the_answer() -> None:
    clock = Clock()

    def answer() -> str:
        if clock.now < 5:
            away()
        return "here"

    assert patience(clock, 20.0).call(answer) == "here"


class Beaten:
    """Takes note of signs of life; refuses or does not answer as it is told to."""

    def __init__(self) -> None:
        self.heard: list[bytes] = []
        self.error: Exception | None = None
        self.beaten = threading.Event()

    def begin(self, topic: str, creation_id: int, ledger_id: int, attempt: bytes) -> Ledger:
        self.heard.append(attempt)
        self.beaten.set()
        if self.error is not None:
            raise self.error
        return Ledger()


def test_an_attempt_beats_while_it_is_under_way() -> None:
    service = Beaten()
    heartbeats = Heartbeats(service)
    with heartbeats.of(Ledger(ledger_id=1), b"a" * 16), heartbeats.of(Ledger(ledger_id=2), b"b" * 16):
        heartbeats.beat()
        assert sorted(service.heard) == [b"a" * 16, b"b" * 16]
    heartbeats.beat()
    assert len(service.heard) == 2


def test_an_attempt_that_ends_while_others_are_asked_beats_no_more() -> None:
    with ExitStack() as attempts:

        class Ending(Beaten):
            def begin(self, topic: str, creation_id: int, ledger_id: int, attempt: bytes) -> Ledger:
                attempts.close()
                return super().begin(topic, creation_id, ledger_id, attempt)

        service = Ending()
        heartbeats = Heartbeats(service)
        for number in range(3):
            attempts.enter_context(heartbeats.of(Ledger(ledger_id=number), bytes([number] * 16)))
        heartbeats.beat()
    assert len(service.heard) == 1


def test_an_attempt_that_is_refused_is_lost_and_one_that_is_not_heard_is_not() -> None:
    service = Beaten()
    heartbeats = Heartbeats(service)
    with heartbeats.of(Ledger(), bytes(16)) as beating:
        service.error = ServiceNotReady("away")
        heartbeats.beat()
        assert beating.lost == ""
        service.error = NotAllowed("another one has it")
        heartbeats.beat()
        assert beating.lost == "another one has it"
        heartbeats.beat()
        assert len(service.heard) == 2


def test_thread_continues_after_an_unexpected_error() -> None:
    service = Beaten()
    service.error = ZeroDivisionError()
    heartbeats = Heartbeats(service, every_s=0.001)
    with heartbeats.of(Ledger(), bytes(16)):
        heartbeats.start()
        assert service.beaten.wait(30)
        service.beaten.clear()
        assert service.beaten.wait(30)
    heartbeats.close()
    heartbeats.close()
