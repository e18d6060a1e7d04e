"""Topics of a broker over simulated storage and metadata, without sockets."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from magnetar.broker.byte_budget import ByteBudget
from magnetar.broker.client_endings import EndCode
from magnetar.broker.config import BrokerConfig
from magnetar.broker.deletions import Deletions
from magnetar.broker.namespaces import Namespaces
from magnetar.broker.ownership.sole_ownership import SoleOwnership
from magnetar.broker.policies.policy_store import PolicyStore
from magnetar.broker.read_pauses import ReadPauses
from magnetar.broker.schemas.schema_store import SchemaStore
from magnetar.broker.service_urls import ServiceUrls
from magnetar.broker.subscriptions.consumers.consumer import ConsumerOptions
from magnetar.broker.topics.publish.producer import Producer
from magnetar.broker.topics.registry.partitioned_topics import PartitionedTopics
from magnetar.broker.topics.registry.topic_registry import TopicRegistry
from magnetar.broker.topics.subscribe.subscribe_request import SubscribeRequest
from magnetar.broker.topics.topic import Topic
from magnetar.broker.topics.watch.topic_lists import TopicLists
from magnetar.common.naming.topic_name import TopicName
from magnetar.common.runtime.task_owner import TaskOwner
from magnetar.common.wire import pulsar_pb2 as pb
from magnetar.common.wire.events import SendRun
from magnetar.common.wire.varint import encode_varint
from magnetar.ledger.managed_ledger import ManagedLedgerConfig, ManagedLedgerContext

from tests.simulation.power_loss import KEYS, Process
from tests.unit.ledger.managed_ledger.harness import context, simulated


@dataclass(eq=False)
class ListeningPeer:
    """A client that writes down which commands it was sent."""

    connected: bool = True
    listener: str | None = None
    certificate: bytes | None = None
    protocol_version: int = 20
    writable: bool = True
    unwritable_s: float = 0.0
    read_pauses: ReadPauses = field(default_factory=ReadPauses)
    address: str = "client"
    commands: list[Any] = field(default_factory=list)

    def write(self, data: bytes) -> None:
        while data:
            end = 4 + int.from_bytes(data[:4], "big")
            command_end = 8 + int.from_bytes(data[4:8], "big")
            self.commands.append(pb.BaseCommand.FromString(data[8:command_end]))
            data = data[end:]

    def write_parts(self, parts: list[bytes]) -> None:
        self.write(b"".join(parts))

    def publish_pending(self, byte_count: int) -> None:
        pass

    def pause_reading_for(self, seconds: float) -> None:
        pass

    def close(self, reason: str, code: EndCode) -> None:
        self.connected = False

    async def is_alive(self) -> bool:
        return self.connected

    @property
    def types(self) -> list[str]:
        return [pb.BaseCommand.Type.Name(command.type) for command in self.commands]


@dataclass
class Topics:
    """The parts of a broker that have to do with topics."""

    process: Process
    ledgers: ManagedLedgerContext
    registry: TopicRegistry
    partitioned: PartitionedTopics
    lists: TopicLists
    schemas: SchemaStore
    deletions: Deletions
    tasks: TaskOwner

    async def load(self, name: str, *, create: bool = True) -> Topic:
        return await self.registry.get(TopicName.parse(name), create=create)

    def keys(self) -> set[str]:
        """What metadata holds of topics."""
        families = (
            "topic-heads",
            "partitioned-topics",
            "topics",
            "ledgers",
            "intents",
            "schemas",
            "topic-policies",
        )
        dump = self.process.world.metadata.dump()
        return {key for key in dump if key.removeprefix(KEYS.root).partition("/")[0] in families}


def sends(*entries: bytes, first: int = 0, counts: list[int] | None = None) -> SendRun:
    """A run of entries as a connection hands it on."""
    ids = [encode_varint(first + number) for number in range(len(entries))]
    return SendRun(1, [*entries], ids, None, counts, False, False, sum(map(len, entries)))


async def producer_of(topic: Topic, peer: ListeningPeer, name: str = "p") -> Producer:
    """A connected producer."""
    producer = Producer(1, name, 0, peer, {}, b"", 0)
    await topic.add_producer(producer)
    return producer


async def subscribed(topic: Topic, peer: ListeningPeer, name: str = "s", *, durable: bool = True) -> Any:
    """A connected consumer with its subscription."""
    options = ConsumerOptions(consumer_id=1, name="c", priority_level=0, properties={}, epoch=None)
    request = SubscribeRequest(
        subscription=name,
        type=pb.CommandSubscribe.Shared,
        durable=durable,
        from_earliest=True,
        start=None,
        rollback_s=0,
        properties={"made": "by test"},
        options=options,
        peer=peer,
        sends_entry_metadata=False,
    )
    return await topic.subscriptions.subscribe(request)


def in_a_broker(scenario: Callable[[Topics], Awaitable[None]], config: BrokerConfig | None = None) -> None:
    """Run a scenario in a fresh world."""

    async def run(process: Process) -> None:
        made = await open_topics(process, config or BrokerConfig())
        try:
            await scenario(made)
        finally:
            await made.registry.close()
            await made.lists.close()
            await made.tasks.close()

    simulated(run)


async def open_topics(process: Process, config: BrokerConfig) -> Topics:
    ledgers = context(process, await process.open_store(), ManagedLedgerConfig())
    metadata = process.metadata
    namespaces = Namespaces(metadata, KEYS, process.clock)
    await namespaces.ensure_defaults("sim")
    policies = PolicyStore(config, metadata, KEYS)
    schemas = SchemaStore(metadata, KEYS, process.clock)
    tasks = TaskOwner("test")
    budget = ByteBudget(config.memory, ledgers.cache)
    registry = TopicRegistry(
        config,
        budget,
        ledgers,
        metadata,
        KEYS,
        namespaces,
        policies,
        schemas,
        tasks.spawn,
        SoleOwnership(namespaces, ServiceUrls()),
    )
    partitioned = PartitionedTopics(config, ledgers, metadata, KEYS, policies, registry)
    lists = TopicLists(metadata, KEYS, registry)
    deletions = Deletions(ledgers, registry, namespaces, policies)
    return Topics(process, ledgers, registry, partitioned, lists, schemas, deletions, tasks)
