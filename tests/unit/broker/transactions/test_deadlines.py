"""Deadlines come when they are due, in order, with one timer, and those that are over go."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable

from magnetar.broker.transactions import deadlines
from magnetar.broker.transactions.deadlines import Deadlines
from magnetar.sim.loop import SimClock, SimLoop, run


def timed(scenario: Callable[[SimClock], Awaitable[None]]) -> None:
    loop = SimLoop(0)

    async def main() -> None:
        await scenario(SimClock(loop))

    run(loop, main())


def test_each_deadline_comes_once_at_its_time() -> None:
    async def scenario(clock: SimClock) -> None:
        start, due = clock.monotonic(), list[tuple[int, float]]()
        timers = Deadlines(clock, lambda number: number != 3, lambda n: due.append((n, clock.monotonic())))
        for number, wait_s in enumerate((5.0, 1.0, 3.0, 2.0, 0.0)):
            timers.add(number, start + wait_s)
        timers.add_all([(start + 4.0, 7), (start + 0.5, 8)])
        await asyncio.sleep(10)
        assert [number for number, _ in due] == [4, 8, 1, 2, 7, 0]
        for (_, at), wait_s in zip(due, (0.0, 0.5, 1.0, 3.0, 4.0, 5.0), strict=True):
            assert 0 <= at - start - wait_s < 0.01
        assert len(timers) == 0

    timed(scenario)


def test_many_at_once_leave_turns_to_others() -> None:
    async def scenario(clock: SimClock) -> None:
        due, others = list[int](), list[int]()

        def on_due(number: int) -> None:
            due.append(number)
            if len(due) % deadlines._DUE_MAX == 1:
                asyncio.get_running_loop().call_soon(lambda: others.append(len(due)))

        timers = Deadlines(clock, lambda _: True, on_due)
        timers.add_all((clock.monotonic() + 1, number) for number in range(3 * deadlines._DUE_MAX))
        await asyncio.sleep(2)
        assert due == list(range(3 * deadlines._DUE_MAX))
        assert others == [deadlines._DUE_MAX, 2 * deadlines._DUE_MAX, 3 * deadlines._DUE_MAX]

    timed(scenario)


def test_deadlines_of_transactions_that_are_over_do_not_collect() -> None:
    async def scenario(clock: SimClock) -> None:
        open_ones: set[int] = set()
        due: list[int] = []
        timers = Deadlines(clock, open_ones.__contains__, due.append)
        rng = random.Random(1)
        longest = 0
        for number in range(20_000):
            open_ones.add(number)
            timers.add(number, clock.monotonic() + 60)
            if number >= 50:
                over = rng.choice(sorted(open_ones)[:50])
                open_ones.remove(over)
                timers.drop_one()
            longest = max(longest, len(timers))
        assert longest < 2_500
        await asyncio.sleep(100)
        assert set(due) == open_ones

    timed(scenario)


def test_nothing_comes_after_a_stop() -> None:
    async def scenario(clock: SimClock) -> None:
        due: list[int] = []
        timers = Deadlines(clock, lambda _: True, due.append)
        timers.add(1, clock.monotonic() + 1)
        timers.stop()
        await asyncio.sleep(5)
        assert due == []

    timed(scenario)
