"""Brokers in one process that call each other over gRPC: one leads; bundles are owned with or without it."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from magnetar.broker.control.control_plane import ControlPlane
from magnetar.broker.load.config import LoadConfig, ReportConfig
from magnetar.broker.load.process_usage import WINDOW_S
from magnetar.broker.ownership.cluster import Cluster
from magnetar.broker.transaction_config import TransactionConfig
from magnetar.broker.transactions.transactions import Transactions
from magnetar.common.metadata.keys import Keys
from magnetar.common.metadata.sqlite_store import SqliteMetadataStore
from magnetar.common.metadata.values import BrokerRegistration, Namespace, encode
from magnetar.common.naming.bundle_range import split_ring
from magnetar.common.runtime.clock import SystemClock

from tests.unit.broker.ownership.world import KEYS, NAMESPACE

WAIT_S = 30.0
BUNDLES = split_ring(16)
QUICK = LoadConfig(report=ReportConfig(interval_min_ms=100, cpu_weight=0))  # all are in one process


@dataclass
class Broker:
    name: str
    cluster: Cluster
    plane: ControlPlane

    @property
    def owned(self) -> int:
        return len(self.cluster.ownership.table)


async def started(
    opened: AsyncExitStack,
    store: SqliteMetadataStore,
    keys: Keys,
    name: str,
    config: LoadConfig = QUICK,
    starting: Callable[[], object] = lambda: None,
) -> Broker:
    clock = SystemClock()
    cluster = Cluster(store, keys, clock, random.Random(name), session_ttl_ms=60_000)
    opened.push_async_callback(cluster.close)
    await cluster.begin(name)
    registry = cast(Any, SimpleNamespace(loaded={}))
    plane = ControlPlane(
        cluster,
        registry,
        store,
        keys,
        clock,
        config,
        Transactions(registry, cluster.ownership, cast(Any, SimpleNamespace(clock=clock))),
        TransactionConfig(),
        cluster_name="test",
        http_url=f"http://{name}",
    )
    opened.push_async_callback(plane.close)
    assert await plane.listen("127.0.0.1", 0, "127.0.0.1") > 0

    def fill(registration: BrokerRegistration) -> None:
        registration.addresses.broker_url = f"pulsar://{name}"
        plane.fill_registration(registration)

    await cluster.register(fill)
    starting()
    await plane.serve()
    return Broker(name, cluster, plane)


async def until(condition: Callable[[], object], what: str) -> None:
    for _ in range(int(WAIT_S / 0.02)):
        if condition():
            return
        await asyncio.sleep(0.02)
    raise AssertionError(what)


def with_brokers(
    tmp_path: Path, body: Callable[[list[Broker], SqliteMetadataStore], Awaitable[None]]
) -> None:
    async def main() -> None:
        store = await SqliteMetadataStore.open(tmp_path / "metadata.sqlite")
        async with AsyncExitStack() as opened:
            opened.push_async_callback(store.close)
            await store.put(KEYS.namespace(NAMESPACE), encode(Namespace(bundle_count=len(BUNDLES))))
            brokers = [await started(opened, store, KEYS, f"b{number}:8080") for number in range(3)]
            for each in brokers:
                await until(lambda each=each: len(each.cluster.directory.all()) == 3, "all are known")  # type: ignore[misc]
                await until(lambda each=each: each.cluster.directory.leader, "a leader is known")  # type: ignore[misc]
            await body(brokers, store)

    asyncio.run(main())


def test_leader_spreads_bundles_regardless_of_the_asked_broker(tmp_path: Path) -> None:
    async def body(brokers: list[Broker], store: SqliteMetadataStore) -> None:
        (leader,) = [each for each in brokers if each.plane.leader.leads]
        await until(lambda: len(leader.plane.leader.loads()) == 3, "all have reported")
        asked = next(each for each in brokers if each is not leader)
        for bundle in BUNDLES:
            found = await asyncio.gather(
                *(asked.cluster.ownership.finder.assigned(NAMESPACE, bundle) for _ in range(5))
            )
            assert len({each.broker_id for each in found}) == 1
        assert sorted(each.owned for each in brokers) == [5, 5, 6]

    with_brokers(tmp_path, body)


def test_bundles_are_owned_and_another_one_leads_after_the_leader_has_gone(tmp_path: Path) -> None:
    async def body(brokers: list[Broker], store: SqliteMetadataStore) -> None:
        (leader,) = [each for each in brokers if each.plane.leader.leads]
        others = [each for each in brokers if each is not leader]
        await leader.plane.close()  # its registration stays, and nobody answers there
        found = await others[0].cluster.ownership.finder.assigned(NAMESPACE, BUNDLES[0])
        assert found.broker_id in {each.name for each in others}
        await leader.cluster.close()
        await until(lambda: any(each.plane.leader.leads for each in others), "another one leads")
        for each in others:
            await until(lambda each=each: len(each.cluster.directory.all()) == 2, "it is gone")  # type: ignore[misc]
        for bundle in BUNDLES:
            await others[0].cluster.ownership.finder.assigned(NAMESPACE, bundle)
        assert sum(each.owned for each in others) == len(BUNDLES)

    with_brokers(tmp_path, body)


def test_load_report_excludes_the_cost_of_starting(tmp_path: Path) -> None:
    def busy() -> None:
        began = time.process_time()
        while time.process_time() < began + WINDOW_S:
            pass

    async def main() -> None:
        store = await SqliteMetadataStore.open(tmp_path / "metadata.sqlite")
        async with AsyncExitStack() as opened:
            opened.push_async_callback(store.close)
            broker = await started(opened, store, KEYS, "b0:8080", LoadConfig(), busy)
            reporter = broker.plane.reporter
            await until(lambda: reporter.newest, "it has looked at its load")
            assert reporter.newest is not None
            assert reporter.newest.cpu_percent == 0.0

    asyncio.run(main())
