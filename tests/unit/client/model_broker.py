"""A model of Pulsar's brokers at the level of frames, for tests of clients: naive, in memory, without clocks.

A `Cluster` keeps topics; each `Broker` is a host that serves those that it owns. Tests replace single answers
by `answers`, and read what clients asked from `asked`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from magnetar.common.wire.ack_set import acked_bits_to_words, words_to_acked_bits
from magnetar.common.wire.batch import parse_metadata
from magnetar.common.wire.command_parser import command_field
from magnetar.common.wire.frame import FrameDecoder, encode_command, encode_payload_command
from magnetar.common.wire.pulsar_pb2 import (
    BaseCommand,
    CommandAck,
    CommandLookupTopicResponse,
    CommandSubscribe,
    FeatureFlags,
    MessageIdData,
    ProducerAccessMode,
    ServerError,
)

from tests.unit.client.virtual_network import VirtualNetwork, Wire

TYPE_OF: Final[dict[str, Any]] = {
    each.name: each.number for each in BaseCommand.DESCRIPTOR.fields if each.message_type is not None
}
NOWHERE: Final = 2**64 - 1
PORT: Final = 6650

Position = tuple[int, int]
Answer = Callable[[Any, "BrokerSession"], bytes | None]
"""Returns the frames to answer a command with; None: what the model answers."""


def frame(field_name: str, **values: Any) -> bytes:
    """Returns the frame of a command."""
    command = BaseCommand(type=TYPE_OF[field_name])
    given = {name: value for name, value in values.items() if value is not None}
    body: Any = getattr(command, field_name)
    body.MergeFrom(type(body)(**given))
    return encode_command(command)


def error_frame(request_id: int, code: ServerError.ValueType, message: str = "no") -> bytes:
    return frame("error", request_id=request_id, error=code, message=message)


@dataclass(slots=True)
class Entry:
    """A stored entry."""

    position: Position
    body: bytes
    messages: int
    is_batch: bool
    publish_time_ms: int


@dataclass(slots=True, eq=False)
class ModelProducer:
    session: BrokerSession
    producer_id: int
    name: str
    mode: ProducerAccessMode.ValueType


@dataclass(slots=True, eq=False)
class ModelConsumer:
    session: BrokerSession
    consumer_id: int
    permits: int = 0
    epoch: int = -1
    pending: dict[Position, int] = field(default_factory=dict)
    """Messages that were sent and not acknowledged, by entry."""


class Subscription:
    """Delivers entries of a topic."""

    def __init__(self, topic: Topic, kind: CommandSubscribe.SubType.ValueType, begin: Position) -> None:
        self.topic = topic
        self.kind = kind
        self.begin = begin
        """Entries before it are acknowledged."""
        self.acked: dict[Position, int] = {}
        self.consumers: list[ModelConsumer] = []
        self.redeliveries: dict[Position, int] = {}
        self.durable = True
        self._turn = -1

    @property
    def is_shared(self) -> bool:
        return self.kind in (CommandSubscribe.Shared, CommandSubscribe.Key_Shared)

    def is_done(self, entry: Entry) -> bool:
        return entry.position < self.begin or self.acked.get(entry.position, 0) == _whole(entry)

    def unacked(self) -> list[Position]:
        """The entries that are not acknowledged as a whole."""
        return [entry.position for entry in self.topic.entries if not self.is_done(entry)]

    def ack(self, consumer: ModelConsumer, command: CommandAck) -> None:
        for each in command.message_id:
            at = each.ledgerId, each.entryId
            entry = self.topic.at(at)
            if command.ack_type == CommandAck.Cumulative:
                for earlier in self.topic.entries:
                    if earlier.position < at:
                        self._acked(earlier, _whole(earlier))
            if entry is not None:
                bits = words_to_acked_bits(each.ack_set, entry.messages) if each.ack_set else _whole(entry)
                self._acked(entry, bits)

    def _acked(self, entry: Entry, bits: int) -> None:
        self.acked[entry.position] = self.acked.get(entry.position, 0) | bits
        if self.is_done(entry):
            for each in self.consumers:
                each.pending.pop(entry.position, None)

    def redeliver(self, consumer: ModelConsumer, positions: list[Position]) -> None:
        for at in positions or list(consumer.pending):
            if consumer.pending.pop(at, None) is not None:
                self.redeliveries[at] = self.redeliveries.get(at, 0) + 1
        self.dispatch()

    def remove(self, consumer: ModelConsumer) -> None:
        if consumer in self.consumers:
            self.consumers.remove(consumer)
            if self.is_shared:
                for at in consumer.pending:
                    self.redeliveries[at] = self.redeliveries.get(at, 0) + 1
        self.dispatch()

    def dispatch(self) -> None:
        out = {at for each in self.consumers for at in each.pending}
        for entry in self.topic.entries:
            if entry.position in out or self.is_done(entry):
                continue
            ready = self.consumers if self.is_shared else self.consumers[:1]
            ready = [each for each in ready if each.permits > 0]
            if not ready:
                return
            self._turn += 1
            self._send(ready[self._turn % len(ready)], entry)

    def _send(self, consumer: ModelConsumer, entry: Entry) -> None:
        ledger, number = entry.position
        command = BaseCommand(type=BaseCommand.MESSAGE)
        message = command.message
        message.consumer_id = consumer.consumer_id
        message.message_id.CopyFrom(MessageIdData(ledgerId=ledger, entryId=number))
        message.redelivery_count = self.redeliveries.get(entry.position, 0)
        acked = self.acked.get(entry.position, 0)
        if entry.is_batch and acked:
            message.ack_set.extend(acked_bits_to_words(acked, entry.messages))
        if not self.is_shared and consumer.epoch >= 0:
            message.consumer_epoch = consumer.epoch
        left = entry.messages - acked.bit_count()
        consumer.permits -= left
        consumer.pending[entry.position] = left
        consumer.session.send(encode_payload_command(command, entry.body))


class Topic:
    """Entries, and who uses them."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.entries: list[Entry] = []
        self.ledger = 1
        self.producers: list[ModelProducer] = []
        self.waiting: list[tuple[ModelProducer, int]] = []
        """Producers that wait for exclusive access, with their request ids."""
        self.epoch = 0
        self.subscriptions: dict[str, Subscription] = {}
        self.highest: dict[str, int] = {}
        self.chunks: set[tuple[str, int, int]] = set()

    @property
    def end(self) -> Position:
        """The position after the last entry."""
        if self.entries and self.entries[-1].position[0] == self.ledger:
            return self.ledger, self.entries[-1].position[1] + 1
        return self.ledger, 0

    def at(self, position: Position) -> Entry | None:
        return next((each for each in self.entries if each.position == position), None)

    def store(self, body: bytes, messages: int) -> Position:
        metadata = parse_metadata(body)
        is_batch = metadata.HasField("num_messages_in_batch")
        assert messages == (metadata.num_messages_in_batch if is_batch else 1)
        entry = Entry(self.end, body, messages, is_batch, metadata.publish_time)
        self.entries.append(entry)
        for each in self.subscriptions.values():
            each.dispatch()
        return entry.position


@dataclass(slots=True)
class Cluster:
    """Topics, and the brokers that own them."""

    partitions: dict[str, int] = field(default_factory=dict)
    topics: dict[str, Topic] = field(default_factory=dict)
    owners: dict[str, str] = field(default_factory=dict)
    """Names of brokers by topic; others are owned by the broker that is asked first."""
    brokers: dict[str, Broker] = field(default_factory=dict)
    deduplication: bool = False
    message_bytes_max: int = 5_242_880
    watches: bool = False
    """Whether clients may watch for topics."""

    def topic(self, name: str) -> Topic:
        if name not in self.topics:
            self.topics[name] = Topic(name)
        return self.topics[name]


class Broker:
    """A host of the network, by its name, at port 6650."""

    def __init__(self, cluster: Cluster, network: VirtualNetwork, name: str = "broker") -> None:
        self.cluster = cluster
        self.network = network
        self.name = name
        self.url = f"pulsar://{name}:{PORT}"
        self.sessions: list[BrokerSession] = []
        self.asked: list[tuple[str, Any]] = []
        self.answers: dict[str, Answer] = {}
        cluster.brokers[name] = self
        self.start()

    def start(self) -> None:
        self.network.hosts[self.name, PORT] = self._accept

    def kill(self) -> None:
        """Stops at once; topics go on in a new ledger."""
        self.network.hosts.pop((self.name, PORT), None)
        for session in list(self.sessions):
            session.wire.reset()
            session.closed()
        for topic in self.cluster.topics.values():
            topic.ledger += 1

    def of(self, field_name: str) -> list[Any]:
        """The commands of a kind that it was sent."""
        return [command for name, command in self.asked if name == field_name]

    def _accept(self, wire: Wire) -> BrokerSession:
        session = BrokerSession(self, wire)
        self.sessions.append(session)
        return session


class BrokerSession:
    """One connection at its broker."""

    def __init__(self, broker: Broker, wire: Wire) -> None:
        self.broker = broker
        self.wire = wire
        self.producers: dict[int, tuple[Topic, ModelProducer]] = {}
        self.consumers: dict[int, tuple[Subscription, ModelConsumer]] = {}
        self.watchers: list[int] = []
        self._decoder = FrameDecoder()
        self._over = False

    def send(self, data: bytes) -> None:
        self.wire.to_client(data)

    def receive(self, data: bytes) -> None:
        for each in self._decoder.receive_data(data):
            name = command_field(each.command)
            command = getattr(each.command, name)
            self.broker.asked.append((name, command))
            instead = self.broker.answers.get(name)
            answer = None if instead is None else instead(command, self)
            if answer is not None:
                self.send(answer)
                continue
            handler = getattr(self, f"on_{name}", None)
            assert handler is not None, f"the model does not know {name}"
            if name == "send":
                handler(command, each.entry)
            else:
                handler(command)

    def closed(self) -> None:
        if self._over:
            return
        self._over = True
        self.broker.sessions.remove(self)
        for number in list(self.producers):
            self._drop_producer(number)
        for number in list(self.consumers):
            self._drop_consumer(number)

    # The connection

    def on_connect(self, _: Any) -> None:
        flags = FeatureFlags(supports_topic_watchers=self.broker.cluster.watches)
        limit = self.broker.cluster.message_bytes_max
        self.send(
            frame(
                "connected",
                server_version="model",
                protocol_version=21,
                max_message_size=limit,
                feature_flags=flags,
            )
        )

    def on_ping(self, _: Any) -> None:
        self.send(frame("pong"))

    def on_pong(self, _: Any) -> None:
        pass

    def on_authResponse(self, _: Any) -> None:
        pass

    # Lookup

    def on_partitionMetadata(self, command: Any) -> None:
        count = self.broker.cluster.partitions.get(command.topic, 0)
        self.send(
            frame("partitionMetadataResponse", request_id=command.request_id, partitions=count, response=0)
        )

    def on_lookupTopic(self, command: Any) -> None:
        cluster = self.broker.cluster
        owner = cluster.brokers[cluster.owners.get(command.topic, self.broker.name)]
        self.send(lookup_answer(command.request_id, owner.url))

    def on_getTopicsOfNamespace(self, command: Any) -> None:
        topics = [name for name in self.broker.cluster.topics if f"://{command.namespace}/" in name]
        self.send(frame("getTopicsOfNamespaceResponse", request_id=command.request_id, topics=topics))

    def on_watchTopicList(self, command: Any) -> None:
        self.watchers.append(command.watcher_id)
        topics = [name for name in self.broker.cluster.topics if f"://{command.namespace}/" in name]
        self.send(
            frame(
                "watchTopicListSuccess",
                request_id=command.request_id,
                watcher_id=command.watcher_id,
                topic=topics,
                topics_hash="",
            )
        )

    def on_watchTopicListClose(self, command: Any) -> None:
        self.watchers.remove(command.watcher_id)

    # Producers

    def on_producer(self, command: Any) -> None:
        topic = self.broker.cluster.topic(command.topic)
        former = self.producers.get(command.producer_id)
        if former is not None:
            self._producer_opened(command.request_id, *former)
            return
        name = command.producer_name or f"made-up-{command.producer_id}"
        producer = ModelProducer(self, command.producer_id, name, command.producer_access_mode)
        if command.HasField("topic_epoch") and command.topic_epoch < topic.epoch:
            self.send(error_frame(command.request_id, ServerError.ProducerFenced, "a newer one"))
            return
        exclusive = command.producer_access_mode != ProducerAccessMode.Shared
        held = any(each.mode != ProducerAccessMode.Shared for each in topic.producers)
        if (exclusive and topic.producers) or held:
            if command.producer_access_mode == ProducerAccessMode.WaitForExclusive:
                topic.waiting.append((producer, command.request_id))
                self.send(
                    frame(
                        "producer_success",
                        request_id=command.request_id,
                        producer_name=name,
                        producer_ready=False,
                    )
                )
                return
            if command.producer_access_mode != ProducerAccessMode.ExclusiveWithFencing:
                self.send(error_frame(command.request_id, ServerError.ProducerBusy, "it is held"))
                return
            for other in list(topic.producers):
                other.session.close_producer(other.producer_id)
        if any(each.name == name for each in topic.producers):
            self.send(error_frame(command.request_id, ServerError.ProducerBusy, "the name is in use"))
            return
        self._admit(topic, producer, command.request_id)
        if command.initial_subscription_name:
            topic.subscriptions.setdefault(
                command.initial_subscription_name, Subscription(topic, CommandSubscribe.Shared, (0, 0))
            )

    def _admit(self, topic: Topic, producer: ModelProducer, request_id: int) -> None:
        topic.producers.append(producer)
        if producer.mode != ProducerAccessMode.Shared:
            topic.epoch += 1
        self.producers[producer.producer_id] = topic, producer
        self._producer_opened(request_id, topic, producer)

    def _producer_opened(self, request_id: int, topic: Topic, producer: ModelProducer) -> None:
        self.send(
            frame(
                "producer_success",
                request_id=request_id,
                producer_name=producer.name,
                last_sequence_id=topic.highest.get(producer.name, -1)
                if self.broker.cluster.deduplication
                else -1,
                schema_version=b"",
                topic_epoch=topic.epoch if producer.mode != ProducerAccessMode.Shared else None,
            )
        )

    def on_send(self, command: Any, body: bytes) -> None:
        found = self.producers.get(command.producer_id)
        if found is None:
            return  # As brokers do: the client learns from CloseProducer.
        topic, producer = found
        metadata = parse_metadata(body)
        sequence, highest = command.sequence_id, max(command.highest_sequence_id, command.sequence_id)
        assert metadata.sequence_id == sequence
        assert metadata.producer_name == producer.name
        is_chunk = metadata.num_chunks_from_msg > 1
        chunk = producer.name, sequence, metadata.chunk_id
        at: Position = NOWHERE, NOWHERE
        known = sequence <= topic.highest.get(producer.name, -1) or (is_chunk and chunk in topic.chunks)
        if not (self.broker.cluster.deduplication and known):
            at = topic.store(body, max(command.num_messages, 1))
            if is_chunk:
                topic.chunks.add(chunk)
            if not is_chunk or metadata.chunk_id == metadata.num_chunks_from_msg - 1:
                topic.highest[producer.name] = max(topic.highest.get(producer.name, -1), highest)
        self.send(receipt(command, at))

    def on_close_producer(self, command: Any) -> None:
        self._drop_producer(command.producer_id)
        self.send(frame("success", request_id=command.request_id))

    def close_producer(self, producer_id: int, assigned_url: str | None = None) -> None:
        """Closes a producer from here."""
        self._drop_producer(producer_id)
        self.send(
            frame(
                "close_producer",
                producer_id=producer_id,
                request_id=NOWHERE,
                assignedBrokerServiceUrl=assigned_url,
            )
        )

    def _drop_producer(self, producer_id: int) -> None:
        for topic in self.broker.cluster.topics.values():
            topic.waiting = [
                each
                for each in topic.waiting
                if each[0].session is not self or each[0].producer_id != producer_id
            ]
        found = self.producers.pop(producer_id, None)
        if found is None:
            return
        topic, producer = found
        topic.producers.remove(producer)
        if not topic.producers and topic.waiting:
            following, request_id = topic.waiting.pop(0)
            following.session._admit(topic, following, request_id)

    # Consumers

    def on_subscribe(self, command: Any) -> None:
        topic = self.broker.cluster.topic(command.topic)
        subscription = topic.subscriptions.get(command.subscription)
        if subscription is None or not command.durable:
            subscription = Subscription(topic, command.subType, _begin(topic, command))
            subscription.durable = command.durable
            topic.subscriptions[command.subscription] = subscription
        if subscription.consumers and command.subType == CommandSubscribe.Exclusive:
            self.send(error_frame(command.request_id, ServerError.ConsumerBusy, "it is in use"))
            return
        if not subscription.consumers:
            subscription.kind = command.subType
        epoch = command.consumer_epoch if command.HasField("consumer_epoch") else -1
        consumer = ModelConsumer(self, command.consumer_id, epoch=epoch)
        subscription.consumers.append(consumer)
        self.consumers[command.consumer_id] = subscription, consumer
        self.send(frame("success", request_id=command.request_id))

    def on_flow(self, command: Any) -> None:
        found = self.consumers.get(command.consumer_id)
        if found is not None:
            found[1].permits += command.messagePermits
            found[0].dispatch()

    def on_ack(self, command: Any) -> None:
        found = self.consumers.get(command.consumer_id)
        if found is not None:
            found[0].ack(found[1], command)
        if command.HasField("request_id"):
            self.send(frame("ackResponse", consumer_id=command.consumer_id, request_id=command.request_id))

    def on_redeliverUnacknowledgedMessages(self, command: Any) -> None:
        found = self.consumers.get(command.consumer_id)
        if found is not None:
            if command.HasField("consumer_epoch"):
                found[1].epoch = command.consumer_epoch
            found[0].redeliver(found[1], [(each.ledgerId, each.entryId) for each in command.message_ids])

    def on_seek(self, command: Any) -> None:
        subscription, _ = self.consumers[command.consumer_id]
        topic = subscription.topic
        if command.HasField("message_publish_time"):
            later = [
                each.position
                for each in topic.entries
                if each.publish_time_ms >= command.message_publish_time
            ]
            subscription.begin = later[0] if later else topic.end
        else:
            at = _signed(command.message_id.ledgerId), _signed(command.message_id.entryId)
            subscription.begin = min(max(at, (0, 0)), topic.end)
        subscription.acked.clear()
        for each in list(subscription.consumers):
            each.session.close_consumer(each.consumer_id)
        self.send(frame("success", request_id=command.request_id))

    def on_getLastMessageId(self, command: Any) -> None:
        subscription, _ = self.consumers[command.consumer_id]
        entries = subscription.topic.entries
        last = MessageIdData(ledgerId=NOWHERE, entryId=NOWHERE)
        if entries:
            entry = entries[-1]
            last = MessageIdData(ledgerId=entry.position[0], entryId=entry.position[1])
            if entry.is_batch:
                last.batch_index, last.batch_size = entry.messages - 1, entry.messages
        unacked = subscription.unacked()
        before = [each.position for each in entries if not unacked or each.position < unacked[0]]
        mark = before[-1] if before else (NOWHERE, NOWHERE)
        self.send(
            frame(
                "getLastMessageIdResponse",
                request_id=command.request_id,
                last_message_id=last,
                consumer_mark_delete_position=MessageIdData(ledgerId=mark[0], entryId=mark[1]),
            )
        )

    def on_unsubscribe(self, command: Any) -> None:
        subscription, _ = self.consumers[command.consumer_id]
        names = subscription.topic.subscriptions
        for name in [name for name, each in names.items() if each is subscription]:
            del names[name]
        self._drop_consumer(command.consumer_id)
        self.send(frame("success", request_id=command.request_id))

    def on_close_consumer(self, command: Any) -> None:
        self._drop_consumer(command.consumer_id)
        self.send(frame("success", request_id=command.request_id))

    def close_consumer(self, consumer_id: int, assigned_url: str | None = None) -> None:
        """Closes a consumer from here."""
        self._drop_consumer(consumer_id)
        self.send(
            frame(
                "close_consumer",
                consumer_id=consumer_id,
                request_id=NOWHERE,
                assignedBrokerServiceUrl=assigned_url,
            )
        )

    def _drop_consumer(self, consumer_id: int) -> None:
        found = self.consumers.pop(consumer_id, None)
        if found is not None:
            found[0].remove(found[1])


def receipt(command: Any, at: Position) -> bytes:
    """Returns the receipt of a Send."""
    return frame(
        "send_receipt",
        producer_id=command.producer_id,
        sequence_id=command.sequence_id,
        message_id=MessageIdData(ledgerId=at[0], entryId=at[1]),
    )


def lookup_answer(request_id: int, url: str, *, redirect: bool = False, **more: Any) -> bytes:
    """Returns the answer of a lookup."""
    kinds = CommandLookupTopicResponse
    return frame(
        "lookupTopicResponse",
        request_id=request_id,
        brokerServiceUrl=url,
        response=kinds.Redirect if redirect else kinds.Connect,
        **{"authoritative": True, **more},
    )


def _begin(topic: Topic, command: Any) -> Position:
    if not command.HasField("start_message_id"):
        return (0, 0) if command.initialPosition == CommandSubscribe.Earliest else topic.end
    start = command.start_message_id
    at = _signed(start.ledgerId), _signed(start.entryId)
    if at == (-1, -1):
        return 0, 0
    if start.HasField("batch_index"):
        return at
    return min((at[0], at[1] + 1), max(topic.end, (0, 0)))


def _whole(entry: Entry) -> int:
    return (1 << entry.messages) - 1


def _signed(number: int) -> int:
    return number - 2**64 if number >= 2**63 else number
