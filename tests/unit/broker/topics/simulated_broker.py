"""A broker's topics over simulated storage and metadata, on virtual time, with clients that are lists."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import Any

from magnetar.broker.byte_budget import ByteBudget
from magnetar.broker.client_endings import EndCode
from magnetar.broker.config import BrokerConfig
from magnetar.broker.housekeeping import Housekeeping, look_at_all
from magnetar.broker.namespaces import Namespaces
from magnetar.broker.ownership.sole_ownership import SoleOwnership
from magnetar.broker.policies.config import (
    InactiveTopicConfig,
    PolicyConfig,
    QuotaConfig,
    RateConfig,
    RetentionConfig,
)
from magnetar.broker.policies.policy_store import PolicyStore
from magnetar.broker.read_pauses import ReadPauses
from magnetar.broker.schemas.schema_store import SchemaStore
from magnetar.broker.service_urls import ServiceUrls
from magnetar.broker.subscriptions.consumers.consumer import Consumer, ConsumerOptions
from magnetar.broker.subscriptions.subscription import Subscription
from magnetar.broker.subscriptions.types.subscription_type import SubType
from magnetar.broker.topics.persistent_topic import PersistentTopic
from magnetar.broker.topics.publish.producer import Producer
from magnetar.broker.topics.registry.partitioned_topics import PartitionedTopics
from magnetar.broker.topics.registry.topic_registry import TopicRegistry
from magnetar.broker.topics.subscribe.subscribe_request import SubscribeRequest
from magnetar.broker.topics.topic import Topic
from magnetar.common.naming.topic_name import TopicName
from magnetar.common.obs.metrics import REGISTRY
from magnetar.common.runtime.task_owner import TaskOwner
from magnetar.common.wire import pulsar_pb2 as pb
from magnetar.common.wire.events import SendRun
from magnetar.common.wire.varint import encode_varint
from magnetar.ledger.managed_ledger import EntryCache, ManagedLedgerConfig, ManagedLedgerContext
from magnetar.sim.loop import SimClock, SimLoop
from magnetar.sim.loop import run as run_loop

from tests.simulation.power_loss import KEYS, Process, World

TOPIC = "persistent://public/default/t"


@dataclass(eq=False)
class ListPeer:
    """A client that writes down the commands it is sent."""

    address: str = "10.0.0.1:40000"
    commands: list[pb.BaseCommand] = field(default_factory=list)
    connected: bool = True
    listener: str | None = None
    certificate: bytes | None = None
    protocol_version: int = 20
    writable: bool = True
    unwritable_s: float = 0.0
    read_pauses: ReadPauses = field(default_factory=ReadPauses)

    def write(self, data: bytes) -> None:
        while data:
            end = 4 + int.from_bytes(data[:4], "big")
            size = int.from_bytes(data[4:8], "big")
            self.commands.append(pb.BaseCommand.FromString(data[8 : 8 + size]))
            data = data[end:]

    def write_parts(self, parts: list[bytes]) -> None:
        self.write(b"".join(parts))

    def publish_pending(self, byte_count: int) -> None: ...

    def pause_reading_for(self, seconds: float) -> None: ...

    def close(self, reason: str, code: EndCode) -> None:
        self.connected = False

    async def is_alive(self) -> bool:
        return self.connected

    def count(self, kind: pb.BaseCommand.Type.ValueType) -> int:
        return sum(command.type == kind for command in self.commands)

    @property
    def messages(self) -> int:
        """Entries that it was sent."""
        return self.count(pb.BaseCommand.MESSAGE)


@dataclass
class SimBroker:
    """One broker's topics; `keep_house` makes one pass of a look by its name."""

    config: BrokerConfig
    registry: TopicRegistry
    partitioned: PartitionedTopics
    housekeeping: Housekeeping
    tasks: TaskOwner
    clock: SimClock
    ledgers: ManagedLedgerContext
    _ids: int = 0

    async def topic(self, name: str = TOPIC) -> PersistentTopic:
        topic = await self.registry.get(TopicName.parse(name), create=True)
        assert isinstance(topic, PersistentTopic)
        return topic

    async def producer(self, topic: Topic, name: str = "p") -> Producer:
        self._ids += 1
        producer = Producer(self._ids, name, 0, ListPeer(), {}, b"", 0)
        await topic.add_producer(producer)
        return producer

    async def publish(
        self, topic: PersistentTopic, count: int = 1, *, size: int = 100, runs: int = 1
    ) -> None:
        """Store entries of exactly `size` bytes, without a producer of the topic."""
        for _ in range(runs):
            await self.publish_entries(topic, [bytes(size)] * count)

    async def publish_entries(self, topic: PersistentTopic, entries: list[bytes]) -> None:
        """Store one run of entries, without a producer of the topic."""
        producer = Producer(0, "a-producer", 0, ListPeer(), {}, b"", 0)
        numbers = [encode_varint(number) for number in range(len(entries))]
        size = sum(map(len, entries))
        topic.publishing.publish(producer, SendRun(0, entries, numbers, None, None, False, False, size))
        await producer.wait_persisted()

    async def consumer(
        self,
        topic: Topic,
        subscription: str = "s",
        sub_type: SubType.ValueType = SubType.Exclusive,
        *,
        name: str = "c",
        permits: int = 0,
        durable: bool = True,
        peer: ListPeer | None = None,
    ) -> tuple[Subscription, Consumer, ListPeer]:
        """Connect a consumer to a subscription, from the earliest position when it is new."""
        peer = peer or ListPeer()
        self._ids += 1
        options = ConsumerOptions(self._ids, name, 0, {}, None)
        request = SubscribeRequest(
            subscription, sub_type, durable, True, None, 0, {}, options, peer, sends_entry_metadata=False
        )
        found, consumer = await topic.subscriptions.subscribe(request)
        assert isinstance(found, Subscription)
        if permits:
            found.add_permits(consumer, permits)
        return found, consumer, peer

    async def subscription(self, topic: PersistentTopic, name: str = "s") -> Subscription:
        await topic.subscriptions.create(name)
        return topic.subscriptions[name]

    async def keep_house(self, name: str) -> None:
        (look,) = [look for each, _, look in self.housekeeping.looks() if each == name]
        await look_at_all(name, list(self.registry.loaded.values()), look, self.clock)


def config_of(
    *,
    retention: RetentionConfig | None = None,
    quotas: QuotaConfig | None = None,
    rates: RateConfig | None = None,
    inactive: InactiveTopicConfig | None = None,
) -> BrokerConfig:
    """Defaults but for these policies."""
    policies = PolicyConfig(
        retention=retention or RetentionConfig(),
        quotas=quotas or QuotaConfig(),
        rates=rates or RateConfig(),
        inactive_topics=inactive or InactiveTopicConfig(),
    )
    return BrokerConfig(policies=policies)


def simulated(
    scenario: Callable[[SimBroker], Awaitable[None]],
    config: BrokerConfig | None = None,
    **ledgers: Any,
) -> None:
    """Run a scenario with a broker of its own; ledgers roll at ten entries, or as `ledgers` says."""
    ledger_config = replace(ManagedLedgerConfig(ledger_entries_max=10, ledger_age_min_minutes=0), **ledgers)
    loop = SimLoop(0)
    run_loop(loop, _main(loop, scenario, config or BrokerConfig(), ledger_config))


async def _main(
    loop: SimLoop,
    scenario: Callable[[SimBroker], Awaitable[None]],
    config: BrokerConfig,
    ledger_config: ManagedLedgerConfig,
) -> None:
    process = Process(loop, World.new())
    metadata = process.metadata
    cache = EntryCache(ledger_config.cache_megabytes << 20)
    ledgers = ManagedLedgerContext(
        await process.open_store(), metadata, KEYS, process.clock, ledger_config, cache
    )
    tasks = TaskOwner("simulated broker")
    namespaces = Namespaces(metadata, KEYS)
    await namespaces.ensure_defaults("sim")
    policies = PolicyStore(config, metadata, KEYS)
    registry = TopicRegistry(
        config,
        ByteBudget(config.memory, cache),
        ledgers,
        metadata,
        KEYS,
        namespaces,
        policies,
        SchemaStore(metadata, KEYS),
        tasks.spawn,
        SoleOwnership(namespaces, ServiceUrls()),
    )
    partitioned = PartitionedTopics(config, ledgers, metadata, KEYS, policies, registry)
    housekeeping = Housekeeping(registry, partitioned, config.policies, process.clock, ledgers.restored)
    broker = SimBroker(config, registry, partitioned, housekeeping, tasks, process.clock, ledgers)
    await scenario(broker)
    await registry.close()
    await tasks.close()


def counted(name: str, **labels: str) -> float:
    """What a counter says; 0 before its first event."""
    return REGISTRY.get_sample_value(name, labels) or 0.0
