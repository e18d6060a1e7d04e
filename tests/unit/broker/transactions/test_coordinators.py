"""A broker runs the coordinators of its bundles: loaded once, on first use, and gone with the bundle."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import pytest
from magnetar.broker.transactions.coordinator_topic import COORDINATORS, coordinator_partition
from magnetar.broker.transactions.coordinators import Coordinators
from magnetar.common.errors import (
    DataCorruption,
    LogFailed,
    ServiceNotReady,
    TransactionCoordinatorNotFound,
)
from magnetar.common.metadata.values import TransactionLogHead, decode
from magnetar.common.naming.bundle_range import BundleRange
from magnetar.common.naming.topic_name import TopicName
from magnetar.common.naming.txn_id import Action
from magnetar.ledger.managed_ledger import ManagedLedgerContext

from tests.simulation.power_loss import KEYS, Process
from tests.unit.broker.transactions.harness import FakeTopics
from tests.unit.ledger.managed_ledger.harness import simulated, until
from tests.unit.ledger.transaction_log.harness import context

EVERYTHING = BundleRange(0, 0xFFFF_FFFF)
NAMESPACE = COORDINATORS.namespace


@dataclass
class FakeOwnership:
    """Owns what the test says."""

    lost: set[int] = field(default_factory=set)
    lease: None = None

    def check(self, name: TopicName) -> None:
        if name in {coordinator_partition(each) for each in self.lost}:
            raise ServiceNotReady(f"{name} is elsewhere")

    async def settled(self, name: TopicName) -> None: ...

    async def claim(self, name: TopicName) -> None: ...

    async def where(self, name: TopicName, listener: str = "") -> None: ...


@dataclass
class Broker:
    process: Process
    ctx: ManagedLedgerContext
    ownership: FakeOwnership
    topics: FakeTopics
    coordinators: Coordinators

    def epoch(self, tc_id: int) -> int:
        values = self.process.world.metadata.dump()
        return decode(TransactionLogHead, values[KEYS.transaction_log_head(tc_id)]).owner_epoch

    def another(self) -> Coordinators:
        """The coordinators of another broker that owns everything."""
        return make(self.ctx, FakeOwnership(), self.topics)


def make(ctx: ManagedLedgerContext, ownership: FakeOwnership, topics: FakeTopics) -> Coordinators:
    async def count() -> int:
        await asyncio.sleep(0.001)
        return 4

    return Coordinators(ctx, ownership, topics, count, cluster="sim", active_max=0)  # type: ignore[arg-type]


def in_a_broker(scenario: Callable[[Broker], Awaitable[None]]) -> None:
    async def main(process: Process) -> None:
        store = await process.open_store()
        ctx = context(process, store)
        ownership, topics = FakeOwnership(), FakeTopics()
        broker = Broker(process, ctx, ownership, topics, make(ctx, ownership, topics))
        await scenario(broker)
        await broker.coordinators.close()
        await store.close()

    simulated(main)


def test_concurrent_clients_share_one_load() -> None:
    async def scenario(broker: Broker) -> None:
        coordinators = broker.coordinators
        connecting = [asyncio.ensure_future(coordinators.connect(2)) for _ in range(20)]
        await asyncio.sleep(0)
        assert coordinators.loading == [2]
        connecting.pop().cancel()
        await asyncio.gather(*connecting)
        await coordinators.connect(2)
        assert broker.epoch(2) == 1
        assert list(coordinators.loaded) == [2]
        assert coordinators.loading == []
        assert await coordinators.of(2) is coordinators.loaded[2]

    in_a_broker(scenario)


def test_a_coordinator_of_another_broker_is_not_loaded() -> None:
    async def scenario(broker: Broker) -> None:
        broker.ownership.lost = {1}
        with pytest.raises(ServiceNotReady):
            await broker.coordinators.connect(1)
        with pytest.raises(TransactionCoordinatorNotFound):
            await broker.coordinators.of(1)
        assert await broker.process.metadata.get(KEYS.transaction_log_head(1)) is None

    in_a_broker(scenario)


@pytest.mark.parametrize("tc_id", [4, 2**63, -1])
def test_a_coordinator_that_the_cluster_does_not_have_is_not_found(tc_id: int) -> None:
    async def scenario(broker: Broker) -> None:
        with pytest.raises(TransactionCoordinatorNotFound):
            await broker.coordinators.connect(tc_id)

    in_a_broker(scenario)


def test_a_failed_load_is_retried_by_the_next_client() -> None:
    async def scenario(broker: Broker) -> None:
        await broker.coordinators.connect(0)
        txn = await (await broker.coordinators.of(0)).begin(60_000, "")
        await broker.coordinators.close_bundle(NAMESPACE, EVERYTHING)
        recover = broker.ctx.ledgers.recover

        async def fails(*_: object) -> None:
            raise LogFailed("no bookie answers")

        broker.ctx.ledgers.recover = fails  # type: ignore[method-assign,assignment]
        for _ in range(2):
            with pytest.raises(ServiceNotReady, match="cannot be loaded now: no bookie answers"):
                await broker.coordinators.connect(0)

        async def damaged(*_: object) -> None:
            raise DataCorruption("a bit")

        broker.ctx.ledgers.recover = damaged  # type: ignore[method-assign,assignment]
        with pytest.raises(DataCorruption, match="a bit"):
            await broker.coordinators.connect(0)
        broker.ctx.ledgers.recover = recover  # type: ignore[method-assign]
        assert (await broker.coordinators.of(0)).transaction(txn).number == txn.least

    in_a_broker(scenario)


def test_a_coordinator_that_moves_while_it_is_loaded_is_not_served() -> None:
    async def scenario(broker: Broker) -> None:
        connecting = asyncio.ensure_future(broker.coordinators.connect(0))
        await until(lambda: broker.coordinators.loading)
        broker.ownership.lost = {0}
        with pytest.raises(ServiceNotReady):
            await connecting
        assert broker.coordinators.loaded == {}

    in_a_broker(scenario)


def test_a_bundle_takes_its_coordinators_with_it_and_leaves_the_others() -> None:
    async def scenario(broker: Broker) -> None:
        for tc_id in range(4):
            await broker.coordinators.connect(tc_id)
        hashes = sorted((coordinator_partition(each).hash, each) for each in range(4))
        bundle = BundleRange(0, hashes[1][0] + 1)
        leaving = {hashes[0][1], hashes[1][1]}
        moved = await broker.coordinators.of(hashes[0][1])
        await moved.begin(60_000, "")
        await broker.coordinators.close_bundle(NAMESPACE, bundle)
        assert set(broker.coordinators.loaded) == set(range(4)) - leaving
        with pytest.raises(TransactionCoordinatorNotFound, match="moving"):
            await moved.begin(60_000, "")
        other = broker.another()
        await other.connect(moved.coordinator_id)
        assert other.loaded[moved.coordinator_id].active == 1
        await other.close()
        broker.coordinators.bundle_lost(NAMESPACE, EVERYTHING)
        assert broker.coordinators.loaded == {}

    in_a_broker(scenario)


def test_a_load_in_progress_ends_with_its_bundle() -> None:
    async def scenario(broker: Broker) -> None:
        for is_lost in (False, True):
            connecting = asyncio.ensure_future(broker.coordinators.connect(0))
            await until(lambda: broker.coordinators.loading)
            if is_lost:
                broker.coordinators.bundle_lost(NAMESPACE, EVERYTHING)
            else:
                await broker.coordinators.close_bundle(NAMESPACE, EVERYTHING)
            with pytest.raises(ServiceNotReady, match="is moving; look it up again"):
                await connecting
            assert broker.coordinators.loading == []
        await broker.coordinators.connect(0)

    in_a_broker(scenario)


def test_a_coordinator_that_was_taken_over_is_loaded_again_by_the_next_client() -> None:
    async def scenario(broker: Broker) -> None:
        former = await broker.coordinators.of(0)
        txn = await former.begin(60_000, "")
        other = broker.another()
        await other.connect(0)
        with pytest.raises(TransactionCoordinatorNotFound):
            await former.end(txn, Action.COMMIT, None)
        await until(lambda: not broker.coordinators.loaded)
        again = await broker.coordinators.of(0)
        assert again is not former
        await again.end(txn, Action.COMMIT, None)
        await other.close()

    in_a_broker(scenario)


def test_a_dropped_coordinator_leaves_no_call_behind() -> None:
    async def scenario(broker: Broker) -> None:
        coordinator = await broker.coordinators.of(0)
        txn = await coordinator.begin(60_000, "")
        await coordinator.add_partitions(txn, ["a"], None)
        broker.topics.hanging.add("a")
        ending = asyncio.ensure_future(coordinator.end(txn, Action.COMMIT, None))
        await until(lambda: broker.topics.in_flight)
        broker.coordinators.bundle_lost(NAMESPACE, EVERYTHING)
        with pytest.raises(TransactionCoordinatorNotFound):
            await ending
        await until(lambda: not broker.topics.in_flight)

    in_a_broker(scenario)


def test_a_broker_that_shuts_down_loads_no_more() -> None:
    async def scenario(broker: Broker) -> None:
        await broker.coordinators.connect(0)
        await broker.coordinators.close()
        with pytest.raises(ServiceNotReady, match="shutting down"):
            await broker.coordinators.connect(0)
        broker.coordinators.abandon("again")

    in_a_broker(scenario)
