"""Brokers that hand bundles over to each other, with topics, under simulated time; each can die any moment.

Their ledgers are in one store, as on bookies, and each has metadata of its own connection.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Final

from magnetar.broker.byte_budget import ByteBudget
from magnetar.broker.config import BrokerConfig
from magnetar.broker.control.bundle_handover import HandOver
from magnetar.broker.namespaces import Namespaces
from magnetar.broker.ownership.cluster import Cluster
from magnetar.broker.policies.policy_store import PolicyStore
from magnetar.broker.schemas.schema_store import SchemaStore
from magnetar.broker.topics.persistent_topic import PersistentTopic
from magnetar.broker.topics.publish.producer import Producer
from magnetar.broker.topics.registry.topic_registry import TopicRegistry
from magnetar.common.cluster.bundle_owners import Owned
from magnetar.common.control.control_errors import BrokerUnreachable
from magnetar.common.control.control_pb2 import TakeRequest, TakeResponse
from magnetar.common.errors import MagnetarError, OwnershipLost, ServiceNotReady
from magnetar.common.metadata.values import BrokerRegistration
from magnetar.common.naming.bundle_range import BundleRange
from magnetar.common.naming.namespace_name import NamespaceName
from magnetar.common.naming.topic_name import TopicName
from magnetar.common.runtime.task_owner import TaskOwner
from magnetar.common.wire import pulsar_pb2 as pb
from magnetar.ledger.managed_ledger import ManagedLedgerConfig, ManagedLedgerContext
from magnetar.sim.metadata import SimMetadataStore

from tests.simulation.power_loss import KEYS, Process
from tests.unit.broker.topics.world import ListeningPeer, sends
from tests.unit.ledger.managed_ledger.harness import context

TTL_MS: Final = 3_000
TOPIC: Final = TopicName.parse("persistent://public/default/t")
ON_THE_WAY_S: Final = 0.002
"""Longest time that a call to another broker takes each way."""
TIMEOUT_S: Final = 20.0
POLL_S: Final = 0.0005
WAIT_S: Final = 30.0

CLOSE_PRODUCER: Final = pb.BaseCommand.CLOSE_PRODUCER
SEND_RECEIPT: Final = pb.BaseCommand.SEND_RECEIPT


async def no_coordinators(namespace: NamespaceName, bundle: BundleRange) -> None:
    """Closes the coordinators of a bundle: there are none."""


@dataclass(eq=False)
class MovingBroker:
    """A broker without sockets: its `url` is its name."""

    broker_id: str
    world: MovingWorld
    store: SimMetadataStore
    cluster: Cluster
    registry: TopicRegistry
    tasks: TaskOwner
    hand_over: HandOver = field(init=False)
    dead: bool = False
    answers_lost: bool = False
    """What it is asked to do it does, and nobody hears of it."""
    peers: list[ListeningPeer] = field(default_factory=list)

    async def begin(self) -> None:
        others = MovingOthers(self)
        clock = self.world.process.clock
        self.hand_over = HandOver(
            self.cluster, self.registry, others, clock, lambda: TIMEOUT_S, no_coordinators
        )
        self.cluster.ownership.on_lost = self._lost
        await self.cluster.begin(self.broker_id)
        await self.cluster.register(self._fill)

    def _fill(self, registration: BrokerRegistration) -> None:
        registration.addresses.broker_url = self.broker_id

    def _lost(self, namespace: NamespaceName, bundle: BundleRange) -> None:
        self.registry.abandon_bundle(namespace, bundle, OwnershipLost("another broker's"))

    def die(self) -> None:
        """At once; its session ends when it was not heard of for long enough."""
        self.dead = True
        self.store.crash()
        self.registry.abandon(OwnershipLost("it is dead"))
        for peer in self.peers:
            peer.connected = False

    async def take(self, request: TakeRequest) -> TakeResponse:
        namespace, bundle = NamespaceName.parse(request.namespace), BundleRange.parse(request.bundle)
        over = Owned(request.from_broker_id, request.from_run, request.from_version, 0)
        owned = await self.cluster.ownership.take(namespace, bundle, over)
        return TakeResponse(version=owned.version, broker_id=owned.broker_id, run=owned.run)


class MovingOthers:
    """Calls between them: an `OtherBrokers`."""

    def __init__(self, broker: MovingBroker) -> None:
        self._broker = broker
        self._world = broker.world

    async def next_owner(
        self, namespace: NamespaceName, bundle: BundleRange, excepted: Collection[str]
    ) -> BrokerRegistration:
        await self._world.on_the_way()
        for broker_id in self._world.brokers:
            found = self._broker.cluster.directory.get(broker_id)
            if found is not None and broker_id not in excepted:
                return found
        raise ServiceNotReady("nobody else")

    async def prepare(self, broker: BrokerRegistration) -> None:
        await self._world.on_the_way()
        if self._world.brokers[broker.broker_id].dead:
            raise BrokerUnreachable("dead")

    async def take(self, broker: BrokerRegistration, request: TakeRequest) -> TakeResponse:
        target = self._world.brokers[broker.broker_id]
        await self._world.on_the_way()
        if target.dead:
            raise BrokerUnreachable("dead")
        taking = target.tasks.spawn(target.take(request), "take")
        await asyncio.wait((taking,))
        await self._world.on_the_way()
        if target.dead or target.answers_lost or taking.cancelled():
            taking.exception() if not taking.cancelled() else None
            raise BrokerUnreachable("no answer")
        answer: TakeResponse = taking.result()
        return answer


@dataclass(eq=False)
class MovingWorld:
    """Brokers by id."""

    process: Process
    ledgers: ManagedLedgerContext
    rng: random.Random
    brokers: dict[str, MovingBroker] = field(default_factory=dict)

    @staticmethod
    async def of(process: Process, brokers: int) -> MovingWorld:
        ledgers = context(process, await process.open_store(), ManagedLedgerConfig())
        world = MovingWorld(process, ledgers, random.Random(process.loop.rng.getrandbits(64)))
        await Namespaces(process.metadata, KEYS, process.clock).ensure_defaults("sim")
        for number in range(brokers):
            await world._start(f"b{number}:8080")
        await asyncio.sleep(1)  # all know of all
        return world

    async def _start(self, broker_id: str) -> None:
        process, config = self.process, BrokerConfig()
        store = SimMetadataStore(process.world.metadata, process.loop.rng)
        cluster = Cluster(store, KEYS, process.clock, self.rng, session_ttl_ms=TTL_MS)
        tasks = TaskOwner(broker_id)
        registry = TopicRegistry(
            config,
            ByteBudget(config.memory, self.ledgers.cache),
            self.ledgers,
            process.metadata,
            KEYS,
            Namespaces(process.metadata, KEYS, process.clock),
            PolicyStore(config, process.metadata, KEYS),
            SchemaStore(process.metadata, KEYS, process.clock),
            tasks.spawn,
            cluster.ownership,
        )
        broker = self.brokers[broker_id] = MovingBroker(broker_id, self, store, cluster, registry, tasks)
        await broker.begin()

    async def on_the_way(self) -> None:
        await asyncio.sleep(self.rng.uniform(0.0001, ON_THE_WAY_S))

    def living(self) -> list[MovingBroker]:
        return [broker for broker in self.brokers.values() if not broker.dead]

    def owner(self) -> MovingBroker:
        """The living broker that serves the topic."""
        (found,) = [each for each in self.living() if each.cluster.ownership.table.of_topic(TOPIC)]
        return found

    async def close(self) -> None:
        for broker in self.living():
            await broker.registry.close()
            await broker.cluster.close()
        for broker in self.brokers.values():
            broker.cluster.drop("the test is over")
            await broker.tasks.close()


@dataclass(eq=False)
class MovingPublisher:
    """Publishes numbers one after the other, wherever the topic is; what is not confirmed is sent again."""

    world: MovingWorld
    confirmed: int = 0
    followed: int = 0
    looked_up: int = 0
    sent: int = 0
    pause_s: float = 0.0
    _at: tuple[MovingBroker, ListeningPeer, Producer] | None = None

    async def publish(self) -> None:
        """One message, until it is confirmed."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + WAIT_S
        while not await self._try():
            assert loop.time() < deadline, "the topic is served in the end"
            await asyncio.sleep(POLL_S)
        self.confirmed += 1

    async def run(self, over: asyncio.Event) -> None:
        while not over.is_set():
            await self.publish()
            await asyncio.sleep(self.pause_s)

    async def _try(self) -> bool:
        if self._at is None:
            await self._open(await self._look_up())
            if self._at is None:
                return False
        broker, peer, producer = self._at
        before = producer.closed
        seen = 0 if before else len(peer.commands)
        if not producer.closed and peer.connected:
            try:
                topic = await broker.registry.get(TOPIC, create=False)
                if not producer.closed:
                    topic.publishing.publish(producer, sends(b"%d" % self.confirmed, first=self.confirmed))
                    self.sent += 1
            except MagnetarError:
                pass
        while peer.connected:
            for command in peer.commands[seen:]:
                if command.type == SEND_RECEIPT and not before:
                    return True
                if command.type == CLOSE_PRODUCER:
                    self._at = None
                    url = command.close_producer.assignedBrokerServiceUrl
                    if url:
                        self.followed += 1
                        await self._open(self.world.brokers[url])
                    return False
            await asyncio.sleep(POLL_S)
        self._at = None
        return False

    async def _look_up(self) -> MovingBroker | None:
        self.looked_up += 1
        asked = self.world.rng.choice(self.world.living())
        try:
            urls = await asked.cluster.ownership.where(TOPIC)
        except MagnetarError:
            return None
        return self.world.brokers[urls.broker_url]

    async def _open(self, broker: MovingBroker | None) -> None:
        if broker is None or broker.dead:
            return
        peer = ListeningPeer(listener="")
        broker.peers.append(peer)
        producer = Producer(1, "p", 0, peer, {}, b"", 0)
        try:
            topic = await broker.registry.get(TOPIC, create=True)
            await topic.add_producer(producer)
        except MagnetarError:
            return
        self._at = broker, peer, producer


async def stored(world: MovingWorld) -> list[int]:
    """The numbers on the topic."""
    topic = await world.owner().registry.get(TOPIC, create=False)
    assert isinstance(topic, PersistentTopic)
    found: list[int] = []
    at = topic.ledger.next_position(topic.ledger.first_position())
    while at is not None:
        for run in (await topic.ledger.read(at, 1_000, 1 << 20)).runs:
            found += map(int, run.entries)
            last = run
        at = topic.ledger.next_position(type(at)(last.ledger_id, last.last_entry_id))
    return found
