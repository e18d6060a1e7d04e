"""A cluster of simulated brokers and discoveries over one etcd, and clients that look its bundles up."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, cast

from magnetar.broker.load.config import LoadConfig
from magnetar.common.cluster.bundle_owners import Bundle
from magnetar.common.cluster.topic_finder import TopicFinder
from magnetar.common.control.control_client import ControlClient
from magnetar.common.errors import MagnetarError
from magnetar.common.metadata.keys import Keys
from magnetar.common.metadata.store import Put
from magnetar.common.metadata.values import Namespace, encode
from magnetar.common.naming.bundle_range import split_ring
from magnetar.common.naming.namespace_name import NamespaceName
from magnetar.common.naming.topic_name import TopicName
from magnetar.discovery.bundle_assignment import AskingBrokers
from magnetar.discovery.live_brokers import LiveBrokers
from magnetar.sim.loop import SimClock, SimLoop

from bench.scale.brokers import BundleTopic, SimBroker
from bench.scale.costs import Costs
from bench.scale.etcd_model import EtcdModel, EtcdStore
from bench.scale.mirrors import Board, Mirrors
from bench.scale.network import SimControl
from bench.scale.queues import Queue

NAMESPACE_BUNDLES: Final = 64
"""Bundles of a namespace of a large cluster: half of what it may have."""

RETRY_S: Final = 1.0
"""Seconds after which a client looks a topic up again."""

BROKERS_A_DISCOVERY: Final = 50


@dataclass(frozen=True, slots=True)
class Size:
    """The size of a cluster."""

    brokers: int
    bundles: int
    shared: bool
    """Whether all processes share their mirrors, so that the largest clusters fit into memory."""

    @property
    def discoveries(self) -> int:
        return max(2, self.brokers // BROKERS_A_DISCOVERY)


class Discovery:
    """A discovery: asks the leader, or other brokers, to assign what has no owner."""

    def __init__(self, world: World, mirrors: Mirrors, first: int) -> None:
        self.mirrors = mirrors
        core = Queue(world.events_cost())
        client = cast("ControlClient", SimControl(world.brokers, core, world.costs))
        asking = AskingBrokers(mirrors.directory, LiveBrokers(mirrors.directory, first), client)
        self.finder = TopicFinder(mirrors.rings, mirrors.owners, mirrors.directory, asking)


class World:
    """Everything of one simulation. `start`, then scenarios."""

    def __init__(
        self,
        loop: SimLoop,
        size: Size,
        costs: Costs,
        config: LoadConfig | None = None,
        *,
        ttl_ms: int = 10_000,
    ) -> None:
        self.size = size
        self.costs = costs
        self.config = LoadConfig() if config is None else config
        self.ttl_ms = ttl_ms
        self.loop = loop
        self.rng = random.Random(loop.rng.getrandbits(64))
        self.clock = SimClock(loop)
        self.keys = Keys("scale")
        self.etcd = EtcdModel(costs, self._weight)
        self.mirrored = (
            self.keys.bundle_owners_prefix,
            self.keys.brokers_prefix,
            self.keys.namespaces_prefix(),
        )
        self.board: Board | None = None
        self.brokers: dict[str, SimBroker] = {}
        self.alive = 0
        """Brokers that run."""
        self.discoveries: list[Discovery] = []
        self.bundles: list[Bundle] = [
            (NamespaceName("tenant", f"namespace-{number}"), bundle)
            for number in range(-(-size.bundles // NAMESPACE_BUNDLES))
            for bundle in split_ring(NAMESPACE_BUNDLES)
        ][: size.bundles]
        self.loads: dict[Bundle, BundleTopic] | None = None
        self.bundle_by_topic: dict[TopicName, Bundle] = {}
        self.rate_of_a_core = 1.0
        self.waits: list[float] = []
        """Seconds for which clients waited for the owners of bundles."""

    def with_loads(self, rates: Iterable[float], rate_of_a_core: float) -> None:
        """Gives each bundle messages a second; brokers report them from their next start on."""
        self.rate_of_a_core = rate_of_a_core
        self.loads = {
            bundle: BundleTopic(TopicName.of("persistent", bundle[0], f"topic-{bundle[1]}"), bundle, rate)
            for bundle, rate in zip(self.bundles, rates, strict=True)
        }
        self.bundle_by_topic = {each.name: bundle for bundle, each in self.loads.items()}

    async def prepare(self) -> None:
        """Makes the namespaces, and discoveries that follow them."""
        value = encode(Namespace(bundle_count=NAMESPACE_BUNDLES))
        for namespace in dict.fromkeys(namespace for namespace, _ in self.bundles):
            self.etcd.server.commit([Put(self.keys.namespace(namespace), value)])
        for number in range(self.size.brokers):
            broker_id = f"broker-{number}.brokers.messaging.svc:8080"
            self.brokers[broker_id] = SimBroker(self, broker_id)
        if self.size.shared:
            mirrors = Mirrors(EtcdStore(self.etcd), self.keys)
            self.board = Board(mirrors)
            await mirrors.start()
        for _ in range(self.size.discoveries):
            own = Mirrors(EtcdStore(self.etcd), self.keys) if self.board is None else self.board.mirrors
            if self.board is None:
                await own.start()
            self.discoveries.append(Discovery(self, own, self.rng.getrandbits(16)))

    async def start_all(self, brokers: Iterable[SimBroker] | None = None) -> None:
        """Starts brokers at once."""
        starting = self.brokers.values() if brokers is None else brokers
        await asyncio.gather(*(broker.start() for broker in starting))

    async def look_up(self, bundles: Sequence[Bundle], within_s: float) -> None:
        """Looks bundles up, at random times within these seconds, until a running broker serves each."""
        await asyncio.gather(*(self._look_up(bundle, self.rng.uniform(0, within_s)) for bundle in bundles))

    def leader(self) -> SimBroker | None:
        """Returns the leader."""
        return next((each for each in self.brokers.values() if each.now and each.now.leader.leads), None)

    def without_owner(self) -> list[Bundle]:
        """Returns the bundles that no live broker has."""
        served = {(own.namespace, own.range) for each in self.brokers.values() for own in each.bundles()}
        return [bundle for bundle in self.bundles if bundle not in served]

    async def end(self) -> None:
        """Ends all processes."""
        for broker in self.brokers.values():
            if broker.now is not None:
                await broker.now.end()
        for discovery in self.discoveries:
            await discovery.finder.close()
            if self.board is None:
                await discovery.mirrors.close()
        if self.board is not None:
            await self.board.mirrors.close()

    def unserved(self) -> list[str]:
        """Returns what is wrong: bundles that not exactly one live broker serves, as metadata says."""
        serving: dict[Bundle, list[str]] = {}
        for broker in self.brokers.values():
            for own in broker.bundles():
                serving.setdefault((own.namespace, own.range), []).append(broker.id)
        wrong = []
        for bundle in self.bundles:
            by = serving.pop(bundle, [])
            found = self.etcd.server.get(self.keys.bundle_owner(*bundle))
            if len(by) != 1 or found is None or by[0].encode() not in found.value:
                wrong.append(f"{bundle[0]}/{bundle[1]} is served by {by or 'no broker'}")
        return wrong + [f"{bundle} is served and does not exist" for bundle in serving]

    def events_cost(self) -> Callable[[], float]:
        """Returns a function that returns the seconds of the changes since its last call."""
        seen = self.etcd.changes_s

        def behind() -> float:
            nonlocal seen
            new, seen = self.etcd.changes_s - seen, self.etcd.changes_s
            return new

        return behind

    # -- inside

    def _weight(self, prefix: str) -> int:
        """Returns how many processes a watch or a listing of the prefix stands for."""
        if self.board is None or prefix not in self.mirrored:
            return 1
        return max(1, self.alive + len(self.discoveries))

    async def _look_up(self, bundle: Bundle, after_s: float) -> None:
        await asyncio.sleep(after_s)
        began = self.loop.time()
        discovery = self.rng.choice(self.discoveries)
        while True:
            try:
                finder = discovery.finder
                found = finder.owner(*bundle) or await finder.assigned(*bundle)
            except (MagnetarError, TimeoutError):
                await asyncio.sleep(RETRY_S)
                continue
            broker = self.brokers[found.broker_id]
            if broker.now is not None and broker.now.cluster.ownership.table.get(*bundle) is not None:
                self.waits.append(self.loop.time() - began)
                return
            await asyncio.sleep(RETRY_S)
