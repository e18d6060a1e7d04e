"""Ids of a counter: requests that come together share a transaction, and each fails by itself."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Coroutine, Sequence
from typing import Any

import pytest
from magnetar.common.errors import MetadataError, UnknownOutcome, VersionMismatch
from magnetar.common.metadata.id_counter import IdCounter, OpsFor
from magnetar.common.metadata.store import ABSENT, TXN_OPS_MAX, VALUE_BYTES_MAX, Check, Op, Put
from magnetar.sim.loop import SimLoop, run
from magnetar.sim.metadata import SimMetadataServer, SimMetadataStore

COUNTER = "counters/test"


class Store(SimMetadataStore):
    """A store that notes its transactions, and calls `before` with each."""

    def __init__(self, server: SimMetadataServer) -> None:
        super().__init__(server, random.Random(1))
        self.commits: list[Sequence[Op]] = []

    async def before(self, ops: Sequence[Op]) -> None:
        """Called before a transaction is committed; may raise."""

    async def commit(self, ops: Sequence[Op]) -> int:
        self.commits.append(ops)
        await self.before(ops)
        return await super().commit(ops)


def named(name: str, *more: Op) -> OpsFor:
    """Operations that write a key with its id as the value."""
    return lambda first_id: [Put(name, str(first_id).encode(), ABSENT), *more]


def simulated(main: Coroutine[Any, Any, None]) -> None:
    run(SimLoop(1), main)


def test_requests_that_wait_together_share_transactions_and_get_ascending_ids() -> None:
    async def main() -> None:
        store = Store(SimMetadataServer())
        ids = IdCounter(store, COUNTER)
        given = await asyncio.gather(*(ids.commit(named(f"key-{number}")) for number in range(300)))
        assert [first for first, _ in given] == list(range(1, 301))
        assert len(store.commits) == -(-300 // (TXN_OPS_MAX - 1))
        for number, (first, revision) in enumerate(given):
            found = await store.get(f"key-{number}")
            assert found is not None
            assert (found.value, found.version) == (str(first).encode(), revision)

    simulated(main())


def test_a_failed_guard_fails_its_own_request_only() -> None:
    async def main() -> None:
        store = Store(SimMetadataServer())
        version = await store.put("guard", b"")
        ids = IdCounter(store, COUNTER)
        requests = [ids.commit(named(f"key-{number}", Check("guard", version))) for number in range(3)]
        requests.append(ids.commit(named("bad", Check("guard", version + 7))))
        requests.append(ids.commit(named("late", Check("guard", version))))
        *good, bad, late = await asyncio.gather(*requests, return_exceptions=True)
        assert isinstance(bad, VersionMismatch)
        assert bad.key == "guard"
        given = [first for first, _ in [*good, late]]  # type: ignore[misc]
        assert given == sorted(set(given))
        assert await store.get("bad") is None

    simulated(main())


def test_a_value_that_the_store_refuses_fails_its_own_request_only() -> None:
    async def main() -> None:
        ids = IdCounter(Store(SimMetadataServer()), COUNTER)
        too_long = ids.commit(lambda first_id: [Put("long", b"x" * (VALUE_BYTES_MAX + 1))])
        first, refused, last = await asyncio.gather(
            ids.commit(named("one")), too_long, ids.commit(named("two")), return_exceptions=True
        )
        assert isinstance(refused, ValueError)
        assert not isinstance(first, BaseException)
        assert not isinstance(last, BaseException)

    simulated(main())


def test_requests_that_touch_the_same_key_are_committed_one_after_the_other() -> None:
    async def main() -> None:
        store = Store(SimMetadataServer())
        version = await store.put("head", b"")
        ids = IdCounter(store, COUNTER)
        reader = ids.commit(named("one", Check("head", version)))
        writer = ids.commit(named("two", Put("head", b"changed", version)))
        again = ids.commit(named("three", Check("head", version)))
        first, second, third = await asyncio.gather(reader, writer, again, return_exceptions=True)
        assert not isinstance(first, BaseException)
        assert not isinstance(second, BaseException)
        assert isinstance(third, VersionMismatch)
        assert [len(ops) for ops in store.commits] == [1, 3, 3, 3]

    simulated(main())


def test_an_unknown_outcome_reaches_every_request_of_its_transaction() -> None:
    async def main() -> None:
        store = Store(SimMetadataServer())
        ids = IdCounter(store, COUNTER)

        async def cut_off(ops: Sequence[Op]) -> None:
            await SimMetadataStore.commit(store, ops)
            raise UnknownOutcome("the connection broke")

        store.before = cut_off  # type: ignore[method-assign]
        results = await asyncio.gather(
            ids.commit(named("one")), ids.commit(named("two")), return_exceptions=True
        )
        assert [type(each) for each in results] == [UnknownOutcome, UnknownOutcome]
        assert [found.value for found in (await store.children("")).items if found.key == "two"] == [b"2"]
        del store.before
        assert (await ids.commit(named("three")))[0] == 3, "the counter was read again"

    simulated(main())


def test_another_process_takes_ids_in_between() -> None:
    async def main() -> None:
        server = SimMetadataServer()
        one, other = (IdCounter(Store(server), COUNTER) for _ in range(2))
        given = [
            await counter.commit(named(f"key-{n}"), 2) for n in range(6) for counter in [(one, other)[n % 2]]
        ]
        assert [first for first, _ in given] == [1, 3, 5, 7, 9, 11]

    simulated(main())


def test_a_cancelled_request_that_waits_is_not_committed() -> None:
    async def main() -> None:
        store = Store(SimMetadataServer())
        ids = IdCounter(store, COUNTER)
        begun, go = asyncio.Event(), asyncio.Event()

        async def wait(ops: Sequence[Op]) -> None:
            begun.set()
            await go.wait()

        store.before = wait  # type: ignore[method-assign]
        first = asyncio.ensure_future(ids.commit(named("one")))
        await begun.wait()
        second = asyncio.ensure_future(ids.commit(named("two")))
        third = asyncio.ensure_future(ids.commit(named("three")))
        await asyncio.sleep(0)
        second.cancel()
        go.set()
        assert (await first)[0] == 1
        assert (await third)[0] == 2
        assert await store.get("two") is None

    simulated(main())


def test_a_store_that_does_not_answer_fails_all_that_wait() -> None:
    async def main() -> None:
        store = Store(SimMetadataServer())
        ids = IdCounter(store, COUNTER)

        async def away(key: str) -> None:
            raise MetadataError("away")

        store.get = away  # type: ignore[method-assign]
        results = await asyncio.gather(
            ids.commit(named("one")), ids.commit(named("two")), return_exceptions=True
        )
        assert [type(each) for each in results] == [MetadataError, MetadataError]
        del store.get
        assert (await ids.commit(named("one")))[0] == 1

    simulated(main())


def test_operations_that_cannot_be_made_fail_their_request_only() -> None:
    async def main() -> None:
        ids = IdCounter(Store(SimMetadataServer()), COUNTER)

        def broken(first_id: int) -> Sequence[Op]:
            raise LookupError("no head")

        first, second = await asyncio.gather(
            ids.commit(broken), ids.commit(named("one")), return_exceptions=True
        )
        assert isinstance(first, LookupError)
        assert not isinstance(second, BaseException)
        with pytest.raises(LookupError):
            await ids.commit(broken)

    simulated(main())
