"""Brokers that stand for leader, take bundles and report, on simulated time and metadata."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Collection
from dataclasses import dataclass, field

from magnetar.broker.load.config import LoadConfig
from magnetar.broker.load.leader import LoadLeader
from magnetar.broker.load.leader_term import LeaderParts
from magnetar.broker.load.load_report import OwnedLoad, Usage, make_report
from magnetar.common.cluster.broker_directory import BrokerDirectory
from magnetar.common.cluster.bundle_owners import Bundle, BundleOwners
from magnetar.common.control.control_pb2 import (
    Load,
    LoadReport,
    TakeRequest,
    TakeResponse,
    UnloadRequest,
    UnloadResponse,
)
from magnetar.common.errors import ServiceNotReady, VersionMismatch
from magnetar.common.metadata.keys import Keys
from magnetar.common.metadata.store import ABSENT, Put, Session
from magnetar.common.metadata.values import BrokerRegistration, BundleOwner, Leader, decode, encode
from magnetar.common.naming.bundle_range import BundleRange
from magnetar.common.naming.namespace_name import NamespaceName
from magnetar.common.runtime.task_owner import TaskOwner
from magnetar.sim.loop import SimClock, SimLoop
from magnetar.sim.metadata import SimMetadataServer, SimMetadataStore

CLUSTER = "test"
KEYS = Keys(CLUSTER)


@dataclass(eq=False)
class Broker:
    """A broker as far as leading goes."""

    broker_id: str
    run: int
    store: SimMetadataStore
    session: Session
    directory: BrokerDirectory
    owners: BundleOwners
    leader: LoadLeader
    percent: float = 1.0
    taken: list[Bundle] = field(default_factory=list)
    refuses: Exception | None = None
    stuck: asyncio.Event | None = None

    @property
    def registration(self) -> BrokerRegistration:
        return BrokerRegistration(broker_id=self.broker_id, run=self.run, control_address=self.broker_id)

    def report(self, loads: dict[Bundle, float]) -> LoadReport:
        owned = [OwnedLoad(*bundle, 1, Load(message_rate_in=load)) for bundle, load in loads.items()]
        usage = Usage(self.percent + sum(loads.values()), 0, 0)
        return make_report(
            self.broker_id, self.run, usage, owned, bundles_max=100, taken_ms=0, draining=False
        )


class World:
    """`add` brokers; `leader` is the one that leads."""

    def __init__(self, loop: SimLoop, config: LoadConfig | None = None) -> None:
        self.loop = loop
        self.config = config or LoadConfig()
        self.server = SimMetadataServer()
        self.brokers: dict[str, Broker] = {}
        self.tasks = TaskOwner("world")
        self.unloaded: list[UnloadRequest] = []

    async def add(self, broker_id: str, *, draining: bool = False, run: int = 1) -> Broker:
        store = SimMetadataStore(self.server, random.Random(self.loop.rng.random()))
        session = await store.session(5_000)
        directory, owners = BrokerDirectory(store, KEYS), BundleOwners(store, KEYS)
        await directory.start()
        await owners.start()
        parts = LeaderParts(
            self.config,
            store,
            KEYS,
            CLUSTER,
            SimClock(self.loop),
            directory,
            owners,
            self._take,
            self._unload,
        )
        leader = LoadLeader(parts, session, Leader(id=broker_id, address=f"control of {broker_id}"))
        broker = Broker(broker_id, run, store, session, directory, owners, leader)
        registration = broker.registration
        registration.draining = draining
        await session.put_ephemeral(KEYS.broker(broker_id), encode(registration))
        self.brokers[broker_id] = broker
        self.tasks.spawn(leader.run(), broker_id)
        return broker

    @property
    def leader(self) -> Broker:
        [found] = [broker for broker in self.brokers.values() if broker.leader.leads]
        return found

    def owner(self, bundle: Bundle) -> str | None:
        found = self.server.get(KEYS.bundle_owner(*bundle))
        return None if found is None else decode(BundleOwner, found.value).broker_id

    def owned_by(self, broker_id: str) -> list[Bundle]:
        return [
            (namespace, bundle)
            for namespace, bundle, owned in self.leader.owners.all()
            if owned.broker_id == broker_id
        ]

    async def give(self, bundle: Bundle, broker_id: str) -> None:
        """The bundle is the broker's, whoever has it now."""
        broker = self.brokers[broker_id]
        value = encode(BundleOwner(broker_id=broker_id, run=broker.run))
        await broker.session.commit([Put(KEYS.bundle_owner(*bundle), value, ephemeral=True)])

    async def kill(self, broker_id: str) -> None:
        """It is gone, and its lease with it."""
        broker = self.brokers.pop(broker_id)
        broker.store.crash()
        for session in list(broker.store._sessions):
            session.expire()

    async def close(self) -> None:
        await self.tasks.close()
        for broker in self.brokers.values():
            await broker.directory.close()
            await broker.owners.close()
            await broker.store.close()

    async def _take(self, asked: BrokerRegistration, request: TakeRequest) -> TakeResponse:
        broker = self.brokers.get(asked.broker_id)
        await asyncio.sleep(0.002)
        if broker is None:
            raise ServiceNotReady(f"{asked.broker_id} is unreachable")
        bundle = _bundle(request.namespace, request.bundle)
        broker.taken.append(bundle)
        if broker.stuck is not None:
            await broker.stuck.wait()
        if broker.refuses is not None:
            raise broker.refuses
        key = KEYS.bundle_owner(*bundle)
        value = encode(BundleOwner(broker_id=broker.broker_id, run=broker.run))
        try:
            version = await broker.session.commit([Put(key, value, ABSENT, ephemeral=True)])
        except VersionMismatch:
            found = await broker.store.get(key)
            assert found is not None
            owner = decode(BundleOwner, found.value)
            return TakeResponse(version=found.version, broker_id=owner.broker_id, run=owner.run)
        return TakeResponse(version=version, broker_id=broker.broker_id, run=broker.run)

    async def _unload(self, asked: BrokerRegistration, request: UnloadRequest) -> UnloadResponse:
        self.unloaded.append(request)
        broker = self.brokers.get(asked.broker_id)
        if broker is None or broker.refuses is not None:
            raise ServiceNotReady(f"{asked.broker_id} does not hand over")
        await asyncio.sleep(0.05)
        await self.give(_bundle(request.namespace, request.bundle), request.to_broker_id)
        return UnloadResponse(broker_id=request.to_broker_id)


def _bundle(namespace: str, bundle: str) -> Bundle:
    return NamespaceName.parse(namespace), BundleRange.parse(bundle)


def spread(brokers: Collection[Broker], bundles: Collection[Bundle], world: World) -> dict[str, int]:
    owners = [world.owner(bundle) for bundle in bundles]
    return {broker.broker_id: owners.count(broker.broker_id) for broker in brokers}
