"""Transactions that share requests to etcd, and fail each by itself."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import pytest
from magnetar.common.errors import MetadataError, UnknownOutcome, VersionMismatch
from magnetar.common.metadata.etcd_writes import BYTES_MAX, UNDER_WAY_MAX, EtcdWrites
from magnetar.common.metadata.store import ABSENT, TXN_OPS_MAX, VALUE_BYTES_MAX, Check, Op, Put
from magnetar.sim.loop import SimLoop, run
from magnetar.sim.metadata import SimMetadataServer, SimMetadataStore


class Etcd:
    """A store that commits once `go` is set, and notes what it was asked to commit."""

    def __init__(self) -> None:
        self.store = SimMetadataStore(SimMetadataServer(), random.Random(1))
        self.writes = EtcdWrites(self.commit)
        self.go = asyncio.Event()
        self.requests: list[Sequence[Op]] = []
        self.broken: MetadataError | None = None

    async def commit(self, ops: Sequence[Op]) -> int:
        self.requests.append(ops)
        await self.go.wait()
        if self.broken is not None:
            raise self.broken
        return await self.store.commit(ops)

    async def together(self, *transactions: Sequence[Op]) -> list[Any]:
        """Commits transactions that wait for `UNDER_WAY_MAX` others; returns their results."""
        first = [self.writes.commit([Put(f"first-{number}", b"")]) for number in range(UNDER_WAY_MAX)]
        tasks = [asyncio.ensure_future(each) for each in first]
        await asyncio.sleep(0)
        waiting = [asyncio.ensure_future(self.writes.commit(ops)) for ops in transactions]
        await asyncio.sleep(0)
        assert len(self.requests) == UNDER_WAY_MAX
        self.go.set()
        results = await asyncio.gather(*waiting, return_exceptions=True)
        await asyncio.gather(*tasks, return_exceptions=True)
        del self.requests[:UNDER_WAY_MAX]
        return results


def simulated(scenario: Callable[[Etcd], Coroutine[Any, Any, None]]) -> None:
    async def main() -> None:
        await scenario(Etcd())

    run(SimLoop(1), main())


def test_transactions_that_wait_share_a_request() -> None:
    async def scenario(etcd: Etcd) -> None:
        revisions = await etcd.together(*([Put(f"key-{number}", b"x", ABSENT)] for number in range(200)))
        assert [len(ops) for ops in etcd.requests] == [TXN_OPS_MAX, 200 - TXN_OPS_MAX]
        for number, revision in enumerate(revisions):
            found = await etcd.store.get(f"key-{number}")
            assert found is not None
            assert found.version == revision

    simulated(scenario)


def test_a_failed_guard_fails_its_own_transaction_only() -> None:
    async def scenario(etcd: Etcd) -> None:
        version = await etcd.store.put("guard", b"")
        ok, failed, again, other = await etcd.together(
            [Put("one", b""), Check("guard", version)],
            [Put("two", b""), Check("guard", version + 1)],
            [Put("three", b""), Check("guard", version)],
            [Put("four", b"", ABSENT)],
        )
        assert isinstance(failed, VersionMismatch)
        assert failed.key == "guard"
        assert await etcd.store.get("two") is None
        assert [type(each) for each in (ok, again, other)] == [int, int, int]

    simulated(scenario)


def test_of_two_writers_of_a_key_the_later_one_fails() -> None:
    async def scenario(etcd: Etcd) -> None:
        first, second, third = await etcd.together(
            [Put("head", b"1", ABSENT)], [Put("head", b"2", ABSENT)], [Put("other", b"", ABSENT)]
        )
        assert isinstance(second, VersionMismatch)
        found = await etcd.store.get("head")
        assert found is not None
        assert (found.value, found.version) == (b"1", first)
        assert isinstance(third, int)

    simulated(scenario)


def test_a_transaction_that_is_refused_fails_alone() -> None:
    async def scenario(etcd: Etcd) -> None:
        one, refused, two = await etcd.together(
            [Put("one", b"")], [Put("long", b"x" * (VALUE_BYTES_MAX + 1))], [Put("two", b"")]
        )
        assert isinstance(refused, ValueError)
        assert [type(one), type(two)] == [int, int]

    simulated(scenario)


def test_large_values_are_not_sent_together() -> None:
    async def scenario(etcd: Etcd) -> None:
        large = b"x" * (BYTES_MAX // 2 + 1)
        await etcd.together(*([Put(f"key-{number}", large)] for number in range(6)))
        assert [len(ops) for ops in etcd.requests] == [2, 2, 2]

    simulated(scenario)


@pytest.mark.parametrize("error", [UnknownOutcome("cut off"), MetadataError("away")])
def test_an_outcome_reaches_every_transaction_of_the_request(error: MetadataError) -> None:
    async def scenario(etcd: Etcd) -> None:
        etcd.broken = error
        results = await etcd.together([Put("one", b"")], [Put("two", b"")])
        assert [type(each) for each in results] == [type(error)] * 2
        etcd.broken = None
        assert await etcd.writes.commit([Put("three", b"")]) > 0

    simulated(scenario)


def test_a_cancelled_transaction_that_waits_is_not_committed() -> None:
    async def scenario(etcd: Etcd) -> None:
        running = [
            asyncio.ensure_future(etcd.writes.commit([Put(f"first-{number}", b"")]))
            for number in range(UNDER_WAY_MAX)
        ]
        await asyncio.sleep(0)
        waiting = [asyncio.ensure_future(etcd.writes.commit([Put(name, b"")])) for name in ("one", "two")]
        await asyncio.sleep(0)
        waiting[0].cancel()
        running[0].cancel()
        await asyncio.sleep(0)
        etcd.go.set()
        assert await waiting[1] > 0
        assert await etcd.store.get("one") is None
        await asyncio.gather(*running, return_exceptions=True)

    simulated(scenario)
