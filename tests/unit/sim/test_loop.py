"""The simulated loop: virtual time, one seed one story, deadlocks found instead of waited for."""

from __future__ import annotations

import asyncio
import random
import time

import pytest
from magnetar.sim.disk import SimDisk
from magnetar.sim.loop import (
    SimClock,
    SimCrash,
    SimDeadlock,
    SimLoop,
    SimPool,
    SimTimeLimit,
    run,
    run_inside,
)


def test_time_is_virtual_and_jumps_to_the_next_timer() -> None:
    loop = SimLoop()
    clock = SimClock(loop, wall_offset_ms=1_000)

    async def main() -> tuple[float, int]:
        await asyncio.sleep(3_600)
        return clock.monotonic(), clock.wall_ms()

    started = time.monotonic()
    assert run(loop, main()) == (3_600, 3_601_000)
    assert time.monotonic() - started < 60


def test_timers_fire_in_order_and_cancelled_ones_never() -> None:
    loop = SimLoop()
    fired: list[str] = []

    async def main() -> None:
        loop.call_later(2, fired.append, "second")
        loop.call_later(1, fired.append, "first")
        loop.call_later(1.5, fired.append, "cancelled").cancel()
        await asyncio.sleep(3)

    run(loop, main())
    assert fired == ["first", "second"]


def test_nothing_left_to_happen_is_a_deadlock_and_not_a_hang() -> None:
    loop = SimLoop()

    async def main() -> None:
        await loop.create_future()

    with pytest.raises(SimDeadlock, match="nothing left to happen"):
        run(loop, main())


def test_a_run_without_end_meets_the_time_limit() -> None:
    async def main() -> None:
        for _ in range(1_000):
            await asyncio.sleep(1)

    with pytest.raises(SimTimeLimit):
        run(SimLoop(time_max_s=100), main())


def test_an_error_in_a_callback_fails_the_run_and_a_crash_does_not() -> None:
    async def main(error: BaseException) -> None:
        def fail() -> None:
            raise error

        asyncio.get_running_loop().call_soon(fail)
        await asyncio.sleep(1)

    async def hang(error: BaseException) -> None:
        await main(error)
        await asyncio.get_running_loop().create_future()

    with pytest.raises(ZeroDivisionError):
        run(SimLoop(), main(ZeroDivisionError()))
    with pytest.raises(ZeroDivisionError):
        run(SimLoop(), hang(ZeroDivisionError()))
    run(SimLoop(), main(SimCrash()))


async def story(loop: SimLoop, disk: SimDisk) -> None:
    disk.on_operation = lambda _number, what: loop.trace(what)
    pool = SimPool(loop)

    async def worker(name: str) -> None:
        file = disk.open(name, create=True)
        for _ in range(loop.rng.randrange(1, 9)):
            await pool.run(lambda: file.pwritev([loop.rng.randbytes(10)], 0))
            await asyncio.sleep(loop.rng.random())
        await pool.run(file.fdatasync)

    await asyncio.gather(*(worker(f"file-{number}") for number in range(5)))


def trace_of(seed: int, *, shuffle: bool = False) -> str:
    loop = SimLoop(seed, shuffle_ready=shuffle)
    run(loop, story(loop, SimDisk()))
    return loop.trace_hash()


@pytest.mark.parametrize("shuffle", [False, True])
def test_the_same_seed_gives_the_same_trace_and_another_seed_another(shuffle: bool) -> None:
    assert trace_of(7, shuffle=shuffle) == trace_of(7, shuffle=shuffle)
    assert trace_of(7, shuffle=shuffle) != trace_of(8, shuffle=shuffle)


def test_shuffled_callbacks_run_in_an_order_of_the_seed() -> None:
    def order(seed: int) -> list[int]:
        loop = SimLoop(seed, shuffle_ready=True)
        seen: list[int] = []

        async def main() -> None:
            for number in range(8):
                loop.call_soon(seen.append, number)
            await asyncio.sleep(1)

        run(loop, main())
        return seen

    assert sorted(order(1)) == list(range(8))
    assert len({tuple(order(seed)) for seed in range(5)}) > 1


def test_a_pool_call_happens_later_and_brings_its_error() -> None:
    loop = SimLoop(1)

    async def main() -> None:
        pool = SimPool(loop)
        assert await pool.run(lambda: 5) == 5
        assert loop.time() > 0
        with pytest.raises(OSError, match="gone"):
            await pool.run(lambda: exec("raise OSError('gone')"))
        pool.close()

    run(loop, main())


def test_another_world_may_be_tried_from_inside_a_callback() -> None:
    outer = SimLoop()

    async def inner() -> int:
        await asyncio.sleep(100)
        return 42

    async def main() -> int:
        before = outer.time()
        result = run_inside(SimLoop(random.Random(0).randrange(9)), inner())
        assert outer.time() == before
        await asyncio.sleep(0)
        return result

    assert run(outer, main()) == 42


def test_threads_are_refused() -> None:
    loop = SimLoop()

    async def main() -> None:
        with pytest.raises(RuntimeError, match="no threads"):
            await asyncio.to_thread(int)

    run(loop, main())
