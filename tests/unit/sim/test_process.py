"""Processes on one loop die and stand still between any two steps."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from magnetar.sim.process import SimProcess, WorldLoop, run_world


def in_world(main: Callable[[WorldLoop], Coroutine[Any, Any, None]], seed: int = 1) -> str:
    loop = WorldLoop(seed, time_max_s=100)
    run_world(loop, main(loop))
    return loop.trace_hash()


async def count(steps: list[str], name: str) -> None:
    try:
        for number in range(100):
            steps.append(f"{name}{number}")
            await asyncio.sleep(0.1)
    finally:
        steps.append(f"{name} ends")


def test_a_dead_process_takes_no_further_step_not_even_a_finally() -> None:
    async def main(loop: WorldLoop) -> None:
        steps: list[str] = []
        process, other = SimProcess(loop, "a"), SimProcess(loop, "b")
        process.spawn(count(steps, "a"))
        other.spawn(count(steps, "b"))
        await asyncio.sleep(0.25)
        process.kill()
        await asyncio.sleep(0.2)
        assert steps == ["a0", "b0", "a1", "b1", "a2", "b2", "b3", "b4"]

    in_world(main)


def test_a_process_can_die_at_any_step() -> None:
    ends = set()
    for at in range(12):

        async def main(loop: WorldLoop, at: int = at) -> None:
            steps: list[str] = []
            process = SimProcess(loop, "a")
            died: list[float] = []
            process.on_death(lambda: died.append(loop.time()))
            process.kill_after(at)
            process.spawn(count(steps, "a"))
            await asyncio.sleep(1)
            assert died
            assert not process.alive
            ends.add(len(steps))

        in_world(main)
    assert ends == {0, 1, 2, 3, 4, 5, 6}


def test_death_callbacks_run_in_the_world_after_a_self_kill() -> None:
    async def main(loop: WorldLoop) -> None:
        started_again: list[float] = []
        process = SimProcess(loop, "a")

        def start_again() -> None:
            loop.call_later(1, lambda: started_again.append(loop.time()))

        process.on_death(start_again)

        async def give_up() -> None:
            process.kill()

        process.spawn(give_up())
        await asyncio.sleep(2)
        assert len(started_again) == 1

    in_world(main)


def test_a_process_that_stood_still_does_everything_at_once_and_in_order() -> None:
    async def main(loop: WorldLoop) -> None:
        heard: list[tuple[int, float]] = []
        process = SimProcess(loop, "a")
        process.pause(5)
        for number in range(3):
            process.post(lambda number=number: heard.append((number, loop.time())))
            await asyncio.sleep(1)
        assert heard == []
        await asyncio.sleep(3)
        assert heard == [(0, 5.0), (1, 5.0), (2, 5.0)]

    in_world(main)


def test_events_at_the_end_of_a_pause_keep_their_order() -> None:
    async def main(loop: WorldLoop) -> None:
        heard: list[int] = []
        process = SimProcess(loop, "a")
        process.pause(1)
        process.post(heard.append, 1)
        loop.call_later(1, process.post, heard.append, 3)
        process.call(loop.call_later, 1, heard.append, 2)
        await asyncio.sleep(2)
        assert heard[0] == 1
        assert sorted(heard) == [1, 2, 3]

    in_world(main)


def test_tasks_belong_to_the_process_that_started_them() -> None:
    async def main(loop: WorldLoop) -> None:
        steps: list[str] = []

        def start() -> None:
            loop.call_later(1, steps.append, "timer")
            task = loop.create_task(count(steps, "task"))
            task.add_done_callback(lambda _: steps.append("done"))

        process = SimProcess(loop, "a")
        process.call(start)
        process.kill()
        await asyncio.sleep(5)
        assert steps == []

    in_world(main)


def test_an_error_in_a_process_ends_the_run() -> None:
    async def main(loop: WorldLoop) -> None:
        SimProcess(loop, "a").post(lambda: [][1])
        await asyncio.sleep(1)

    with pytest.raises(IndexError):
        in_world(main)


def test_the_same_seed_gives_the_same_trace() -> None:
    async def main(loop: WorldLoop) -> None:
        process = SimProcess(loop, "a")
        process.spawn(count([], "a"))
        process.kill_after(loop.rng.randrange(40))
        await asyncio.sleep(5)

    assert in_world(main, 3) == in_world(main, 3)
    assert in_world(main, 3) != in_world(main, 7)
