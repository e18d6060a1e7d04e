"""One run at a time is timed from its ledger to its confirmation."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from magnetar.common.naming.position import Position
from magnetar.ledger.ledger_store import Run
from magnetar.ledger.managed_ledger.write_samples import (
    GIVEN_UP_AFTER_MS,
    SAMPLE_EVERY_MS,
    STORAGE_LATENCY,
    WriteSamples,
)

from tests.simulation.power_loss import Process
from tests.unit.ledger.managed_ledger.harness import load, simulated


@dataclass
class Clock:
    now: float = 100.0

    def monotonic(self) -> float:
        return self.now

    def wall_ms(self) -> int:
        return int(self.now * 1000)


def a_run(clock: Clock, entry_id: int, ledger_id: int = 1) -> Run:
    return Run([b"a", b"b"], publish_time_ms=clock.wall_ms(), ledger_id=ledger_id, first_entry_id=entry_id)


def test_a_run_is_timed_until_its_last_entry_is_durable() -> None:
    clock, samples = Clock(), WriteSamples()
    count, sum_ms = STORAGE_LATENCY.count, STORAGE_LATENCY.sum_ms
    samples.handed_over(a_run(clock, 10), clock)
    clock.now += 0.004
    for last in (Position(1, 10), Position(2, 99), Position(0, 99)):
        samples.confirmed(last, clock)
        assert samples.waits
    samples.confirmed(Position(1, 11), clock)
    assert not samples.waits
    assert STORAGE_LATENCY.count - count == 1
    assert STORAGE_LATENCY.sum_ms - sum_ms == pytest.approx(4.0)


def test_the_next_one_is_taken_after_a_while_and_one_that_never_ends_is_given_up() -> None:
    clock, samples = Clock(), WriteSamples()
    count = STORAGE_LATENCY.count
    samples.handed_over(a_run(clock, 0), clock)
    samples.confirmed(Position(1, 1), clock)
    samples.handed_over(a_run(clock, 2), clock)
    assert not samples.waits, "it is too soon"
    clock.now += SAMPLE_EVERY_MS / 1000
    samples.handed_over(a_run(clock, 4), clock)
    assert samples.waits
    clock.now += GIVEN_UP_AFTER_MS / 1000 - 1
    samples.handed_over(a_run(clock, 6), clock)
    samples.confirmed(Position(1, 3), clock)
    assert samples.waits, "the first one is still waited for"
    clock.now += 2
    samples.handed_over(a_run(clock, 0, ledger_id=9), clock)
    samples.confirmed(Position(1, 7), clock)
    assert samples.waits
    samples.confirmed(Position(9, 1), clock)
    assert STORAGE_LATENCY.count - count == 2


def test_a_clock_that_went_back_does_not_end_it() -> None:
    clock, samples = Clock(), WriteSamples()
    samples.handed_over(a_run(clock, 0), clock)
    clock.now = 50.0
    samples.handed_over(a_run(clock, 2), clock)
    samples.confirmed(Position(1, 1), clock)
    assert samples.waits
    samples.confirmed(Position(1, 3), clock)
    assert not samples.waits


def test_runs_of_a_topic_are_sampled() -> None:
    async def scenario(process: Process) -> None:
        topic = await load(process)
        count = STORAGE_LATENCY.count
        await topic.publish_confirmed(3)
        assert STORAGE_LATENCY.count == count + 1
        await topic.ledger.close()

    simulated(scenario)
