"""One change of a bundle at a time, and nothing kept of those that are done."""

from __future__ import annotations

import asyncio

from magnetar.broker.ownership.bundle_locks import BundleLocks

from tests.unit.broker.ownership.world import FIRST, NAMESPACE, SECOND, World, in_a_cluster

ONE, OTHER = (NAMESPACE, FIRST), (NAMESPACE, SECOND)


def test_changes_of_a_bundle_wait_for_each_other_and_those_of_another_do_not() -> None:
    async def body(world: World) -> None:
        locks, log = BundleLocks(), []

        async def change(name: str, *bundles: tuple) -> None:  # type: ignore[type-arg]
            async with locks.alone(*bundles):
                log.append(f"{name} begins")
                await asyncio.sleep(1)
                log.append(f"{name} ends")

        await asyncio.gather(change("a", ONE), change("b", ONE), change("c", OTHER))
        assert log == ["a begins", "c begins", "a ends", "b begins", "c ends", "b ends"] or log == [
            "a begins",
            "c begins",
            "a ends",
            "c ends",
            "b begins",
            "b ends",
        ]
        assert ONE not in locks
        assert OTHER not in locks

    in_a_cluster(body)


def test_changes_of_several_bundles_never_wait_for_each_other_in_a_circle() -> None:
    async def body(world: World) -> None:
        locks = BundleLocks()

        async def change(*bundles: tuple) -> None:  # type: ignore[type-arg]
            async with locks.alone(*bundles):
                assert ONE in locks
                await asyncio.sleep(1)

        async with asyncio.timeout(60):
            await asyncio.gather(
                *(change(*pair) for _ in range(10) for pair in ((ONE, OTHER), (OTHER, ONE, ONE)))
            )
        assert ONE not in locks

    in_a_cluster(body)


def test_cancelled_waiter_delays_no_other() -> None:
    async def body(world: World) -> None:
        locks = BundleLocks()

        async def change() -> None:
            async with locks.alone(ONE):
                await asyncio.sleep(1)

        tasks = [asyncio.create_task(change()) for _ in range(3)]
        await asyncio.sleep(0.5)
        tasks[1].cancel()
        await asyncio.gather(tasks[0], tasks[2])
        assert ONE not in locks

    in_a_cluster(body)
