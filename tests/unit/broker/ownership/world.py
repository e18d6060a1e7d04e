"""Brokers of a simulated cluster, as far as presence and ownership go."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from magnetar.broker.ownership.bundle_ownership import BundleOwnership
from magnetar.broker.ownership.cluster import Cluster
from magnetar.common.cluster.bundle_owners import Owned, read_owner
from magnetar.common.metadata.keys import Keys
from magnetar.common.metadata.values import BrokerRegistration, Namespace, encode
from magnetar.common.naming.bundle_range import BundleRange, split_ring
from magnetar.common.naming.namespace_name import NamespaceName
from magnetar.common.naming.topic_name import TopicName
from magnetar.sim.loop import SimClock, SimLoop, run
from magnetar.sim.metadata import SimMetadataServer, SimMetadataStore

KEYS = Keys("test")
TTL_MS = 10_000
NAMESPACE = NamespaceName.parse("tenant/ns")
BUNDLES = split_ring(4)
FIRST, SECOND, *_ = BUNDLES


@dataclass
class SimBroker:
    """One run of a broker, with a store of its own."""

    name: str
    store: SimMetadataStore
    cluster: Cluster
    lost: list[BundleRange] = field(default_factory=list)

    @property
    def ownership(self) -> BundleOwnership:
        return self.cluster.ownership

    @property
    def owns(self) -> list[BundleRange]:
        """What it believes to own."""
        return [own.range for own in self.ownership.table]

    async def begin(self, *, register: bool = True) -> None:
        await self.cluster.begin(self.name)
        if register:
            await self.cluster.register(self.fill)

    def fill(self, registration: BrokerRegistration) -> None:
        registration.addresses.broker_url = f"pulsar://{self.name}"

    async def take(self, bundle: BundleRange, over: Owned | None = None) -> Owned:
        return await self.ownership.take(NAMESPACE, bundle, over)

    async def end(self) -> None:
        await self.cluster.close()
        await self.store.close()


@dataclass
class World:
    """The metadata, and the brokers that were made."""

    server: SimMetadataServer
    store: SimMetadataStore
    loop: SimLoop
    brokers: list[SimBroker] = field(default_factory=list)

    def broker(self, name: str) -> SimBroker:
        """A broker that has not begun; the next run of it, when there was one of that name."""
        store = SimMetadataStore(self.server, self.loop.rng)
        rng = random.Random(self.loop.rng.getrandbits(32))
        cluster = Cluster(store, KEYS, SimClock(self.loop), rng, session_ttl_ms=TTL_MS)
        made = SimBroker(name, store, cluster)
        cluster.ownership.on_lost = lambda _, bundle: made.lost.append(bundle)
        self.brokers.append(made)
        return made

    async def started(self, *names: str) -> list[SimBroker]:
        """Brokers that are registered and know of one another."""
        brokers = [self.broker(name) for name in names]
        for each in brokers:
            await each.begin()
        await told()
        return brokers

    def owner(self, bundle: BundleRange) -> Owned | None:
        """What metadata says."""
        found = self.server.get(KEYS.bundle_owner(NAMESPACE, bundle))
        return None if found is None else read_owner(found.value, found.version)

    def owned(self) -> list[BundleRange]:
        """What metadata gives to anybody."""
        listing = self.server.children(KEYS.namespace_bundle_owners_prefix(NAMESPACE))
        return [KEYS.bundle_of_owner(item.key)[1] for item in listing.items]

    async def given(self, bundle: BundleRange) -> None:
        """Until metadata gives the bundle to somebody, whether he knows it or not."""
        changed = asyncio.Event()
        self.server.subscribe(lambda events: changed.set())
        while self.owner(bundle) is None:
            await changed.wait()
            changed.clear()

    async def put_namespace(self, count: int = 4, boundaries: tuple[int, ...] = ()) -> None:
        value = Namespace(bundle_count=count, bundle_boundaries=boundaries)
        await self.store.put(KEYS.namespace(NAMESPACE), encode(value))


def in_a_cluster(body: Callable[[World], Awaitable[None]], seed: int = 1) -> None:
    """Run `body` where there is one namespace with four bundles; every broker ends with it."""
    loop = SimLoop(seed)

    async def main() -> None:
        server = SimMetadataServer()
        world = World(server, SimMetadataStore(server, loop.rng), loop)
        await world.put_namespace()
        await body(world)
        for broker in world.brokers:
            await broker.end()
        await world.store.close()

    run(loop, main())


def topic_in(bundle: BundleRange) -> TopicName:
    """Some topic of the bundle."""
    names = (TopicName.of("persistent", NAMESPACE, f"t-{number}") for number in range(10_000))
    return next(name for name in names if name.hash in bundle)


async def told() -> None:
    """Until every watch has told of what was written before."""
    await asyncio.sleep(0.1)


def expire(broker: SimBroker) -> None:
    """Metadata ends the broker's session."""
    for session in list(broker.store._sessions):
        session.expire()
