"""Brokers under simulation: presence, ownership, assignment, handover and load balancing as they are.

Left out are clients' connections, topics and bookies. What a call or a change costs is taken from `Costs` and
is work of the broker's one core, so that an overloaded leader answers late, as a real one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, cast

from magnetar.broker.control.broker_calls import BrokerCalls
from magnetar.broker.control.bundle_assignment import Assigning
from magnetar.broker.control.bundle_unload import Moving
from magnetar.broker.control.next_owners import NextOwners
from magnetar.broker.control.transaction_calls import TransactionCalls
from magnetar.broker.load.leader import LoadLeader
from magnetar.broker.load.leader_term import LeaderParts
from magnetar.broker.load.load_report import Subscribed, Usage
from magnetar.broker.load.reporter import LoadReporter, NamedTopic, Reporter
from magnetar.broker.ownership.bundle_ownership import BundleOwnership
from magnetar.broker.ownership.cluster import Cluster
from magnetar.broker.ownership.own_bundles import OwnBundle
from magnetar.broker.ownership.presence import Presence
from magnetar.broker.topics.registry.topic_registry import TopicRegistry
from magnetar.common.cluster.broker_directory import BrokerDirectory
from magnetar.common.cluster.bundle_owners import Bundle, BundleOwners
from magnetar.common.cluster.rings import Rings
from magnetar.common.control.control_client import ControlClient
from magnetar.common.control.control_pb2 import (
    LoadReport,
    ReportRequest,
    TakeRequest,
    TakeResponse,
    UnloadRequest,
    UnloadResponse,
)
from magnetar.common.control.methods import ASSIGN, REPORT, TAKE, UNLOAD
from magnetar.common.control.versions import VERSION
from magnetar.common.errors import MetadataError, ServiceNotReady
from magnetar.common.metadata.values import BrokerRegistration, Leader
from magnetar.common.naming.bundle_range import BundleRange
from magnetar.common.naming.namespace_name import NamespaceName
from magnetar.common.naming.topic_name import TopicName

from bench.scale.etcd_model import EtcdSession, EtcdStore
from bench.scale.mirrors import Mirrors
from bench.scale.network import SimControl
from bench.scale.queues import Queue

if TYPE_CHECKING:
    from bench.scale.world import World

TAKE_DEADLINE_S: Final = 1.5
"""The deadline in the control plane of a broker."""


@dataclass(slots=True)
class BundleTopic:
    """All topics of a bundle, as one that has their load; also its own rates."""

    name: TopicName
    bundle: Bundle
    message_rate_in: float
    message_rate_out: float = 0.0
    byte_rate_in: float = 0.0
    byte_rate_out: float = 0.0
    producer_count: int = 0
    subscriptions: dict[str, Subscribed] = field(default_factory=dict)

    @property
    def stats(self) -> BundleTopic:
        return self


class _NoTopics:
    """The registry of a broker that has loaded no topic."""

    loaded: Final[dict[TopicName, object]] = {}

    async def loads_done(self, concerned: Callable[[TopicName], bool], *, seconds_max: float) -> None:
        return


@dataclass
class SharedCluster:
    """A Cluster whose mirrors are those of all brokers."""

    rings: Rings
    owners: BundleOwners
    directory: BrokerDirectory
    presence: Presence
    ownership: BundleOwnership

    async def register(self, change: Callable[[BrokerRegistration], None]) -> None:
        first = not self.presence.version
        await self.presence.register(change)
        self.directory.note(self.presence.registration, self.presence.version)
        if first:
            self.ownership.open()


class Run:
    """One run of a broker."""

    def __init__(self, world: World, broker: SimBroker) -> None:
        self._world = world
        self._broker = broker
        store, keys, clock = EtcdStore(world.etcd), world.keys, world.clock
        presence = Presence(store, keys, clock, world.rng, session_ttl_ms=world.ttl_ms)
        self.mirrors = None if world.board is not None else Mirrors(store, keys)
        view = world.board.mirrors if world.board is not None else self.mirrors
        assert view is not None
        owners = view.owners if world.board is None else world.board.owners(broker.id)
        ownership = BundleOwnership(store, keys, clock, presence, view.rings, owners, view.directory)
        self.presence = presence
        self.cluster = cast("Cluster", SharedCluster(view.rings, owners, view.directory, presence, ownership))
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Joins the cluster, as a broker that starts."""
        world, broker, cluster = self._world, self._broker, self.cluster
        await self.presence.begin(broker.id)
        if self.mirrors is not None:
            await self.mirrors.start()
        else:
            await broker.core.use(world.costs.key_s * await world.etcd.skim(world.mirrored))
        client = cast("ControlClient", broker.client)
        parts = LeaderParts(
            world.config,
            EtcdStore(world.etcd),
            world.keys,
            "scale",
            world.clock,
            cluster.directory,
            cluster.owners,
            self._take,
            self._unload,
        )
        self.leader = LoadLeader(parts, self.presence.session, Leader(id=broker.id))
        assigning = Assigning(cluster, self.leader, client)
        topics = cast("TopicRegistry", _NoTopics())
        others = NextOwners(cluster, assigning, client)
        self.moving = Moving(cluster, topics, others, world.clock, lambda: 60.0, _close_nothing)
        self.calls = BrokerCalls(
            cluster, assigning, self.leader, topics, self.moving, cast("TransactionCalls", None)
        )
        await self._register()
        cluster.ownership.finder.assigner = assigning
        self._tasks.append(asyncio.create_task(self.leader.run()))
        if world.loads is not None:
            reporter = Reporter(
                "scale", broker.id, self.presence.run, self._leads, self._report, broker.usage
            )
            self._tasks.append(
                asyncio.create_task(LoadReporter(world.config, world.clock, broker, reporter).run())
            )

    async def _register(self) -> None:
        while True:
            try:
                await self.cluster.register(self._fill)
                return
            except MetadataError:
                await asyncio.sleep(1)

    async def drain(self, seconds: float) -> None:
        """Hands all bundles over."""
        await self.cluster.register(_mark_draining)
        await self.moving.drain(seconds)

    async def end(self) -> None:
        """Stops what runs, as a process that is gone."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.moving.close()
        await self.cluster.ownership.close()
        if self.mirrors is not None:
            await self.mirrors.close()

    def _fill(self, registration: BrokerRegistration) -> None:
        registration.control_address = f"{self._broker.id}:6760"
        registration.control_version = VERSION
        registration.addresses.broker_url = f"pulsar://{self._broker.id}:6650"

    def _leads(self) -> tuple[str, int]:
        leader = self.cluster.directory.leader
        return ("", 0) if leader is None else (leader.id, leader.epoch)

    async def _report(self, report: LoadReport) -> None:
        leader = self.cluster.directory.get(self._leads()[0])
        if leader is None:
            raise ServiceNotReady("there is no leader now")
        if leader.broker_id == self._broker.id:
            self.leader.report(report)
        else:
            await self._broker.client.call(leader, REPORT, ReportRequest(report=report))

    async def _take(self, broker: BrokerRegistration, request: TakeRequest) -> TakeResponse:
        if broker.broker_id == self._broker.id:
            return await self.calls.take(request)
        return await self._broker.client.call(broker, TAKE, request, deadline_s=TAKE_DEADLINE_S)

    async def _unload(self, broker: BrokerRegistration, request: UnloadRequest) -> UnloadResponse:
        if broker.broker_id == self._broker.id:
            return await self.calls.unload(request)
        return await self._broker.client.call(broker, UNLOAD, request)


class SimBroker:
    """A broker, and its machine: one run after the other. Also the Owner that its load reporter asks."""

    def __init__(self, world: World, broker_id: str) -> None:
        self.id = broker_id
        self.lost = False
        self.core = Queue(world.events_cost())
        self.client = SimControl(world.brokers, self.core, world.costs)
        self.now: Run | None = None
        self._world = world

    @property
    def run(self) -> int:
        return 0 if self.now is None else self.now.presence.run

    @property
    def calls(self) -> BrokerCalls:
        assert self.now is not None
        return self.now.calls

    def handling_s(self, method: str) -> float:
        leads = self.now is not None and self.now.leader.leads
        if method == ASSIGN.name and leads:
            return self._world.costs.choice_s(len(self._world.brokers))
        return 0.0

    async def start(self) -> None:
        run = Run(self._world, self)
        await run.start()
        self.lost, self.now = False, run
        self._world.alive += 1

    async def die(self) -> None:
        """Loses the machine: nothing is said to anything."""
        run, self.now, self.lost = self.now, None, True
        assert run is not None
        self._world.alive -= 1
        cast("EtcdSession", run.presence.session).die()
        await run.end()

    async def stop(self, drain_s: float) -> None:
        """Stops in order: hands over, then leaves."""
        run = self.now
        assert run is not None
        await run.drain(drain_s)
        self.now = None
        self._world.alive -= 1
        await run.end()
        await run.presence.close()

    # -- of its load

    @property
    def draining(self) -> bool:
        return self.now is not None and self.now.presence.registration.draining

    def bundles(self) -> Collection[OwnBundle]:
        return () if self.now is None else list(self.now.cluster.ownership.table)

    def bundle_of(self, topic: TopicName) -> OwnBundle | None:
        assert self.now is not None
        return self.now.cluster.ownership.table.get(*self._world.bundle_by_topic[topic])

    def topics(self) -> Collection[NamedTopic]:
        return cast("Collection[NamedTopic]", list(self._loads()))

    def bundles_of(self, namespace: NamespaceName) -> int:
        ring = None if self.now is None else self.now.cluster.rings.get(namespace)
        return 0 if ring is None else len(ring.bundles)

    async def split(self, bundle: Bundle, boundaries: list[int], *, unload: bool) -> None:
        assert self.now is not None
        await self.now.moving.split(*bundle, boundaries, unload=unload)

    def usage(self) -> Usage:
        """Returns the load of its bundles as CPU: `World.rate_of_a_core` messages a second are all of it."""
        rate = sum(each.message_rate_in for each in self._loads())
        return Usage(100 * rate / self._world.rate_of_a_core, 1, 2)

    def _loads(self) -> Iterable[BundleTopic]:
        loads = self._world.loads
        assert loads is not None
        return (loads[own.namespace, own.range] for own in self.bundles())


async def _close_nothing(namespace: NamespaceName, bundle: BundleRange) -> None:
    return


def _mark_draining(registration: BrokerRegistration) -> None:
    registration.draining = True
