"""What persistent and non-persistent topics have in common: their producers, and the shape of the rest."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from magnetar.broker.peer import Peer
from magnetar.broker.policies.effective import EffectivePolicies
from magnetar.broker.stats import SubscriptionStats, TopicStats
from magnetar.broker.subscriptions.consumer import Consumer, ConsumerOptions
from magnetar.broker.subscriptions.membership import SubType
from magnetar.broker.topics.producer import Producer
from magnetar.common.errors import MagnetarError, NotAllowed, OwnershipLost, ProducerBusy, ServiceNotReady
from magnetar.common.naming.position import Position
from magnetar.common.naming.topic_name import TopicName
from magnetar.common.wire import commands
from magnetar.common.wire.events import SendRun


class AnySubscription(Protocol):
    """What handlers and statistics need of a subscription of either kind of topic."""

    @property
    def name(self) -> str: ...
    @property
    def stats(self) -> SubscriptionStats: ...
    @property
    def type(self) -> SubType.ValueType | None: ...
    @property
    def consumers(self) -> list[Consumer]: ...
    @property
    def consumer_count(self) -> int: ...
    @property
    def unacked_messages(self) -> int: ...
    @property
    def blocked_on_unacked(self) -> bool: ...
    def backlog(self) -> int: ...
    def why_not_dispatching(self) -> str | None: ...
    def remove_consumer(self, consumer: Consumer) -> None: ...
    def add_permits(self, consumer: Consumer, permits: int) -> None: ...
    def wake(self) -> None: ...
    def ack(self, ledger_id: int, entry_id: int, consumer: Consumer) -> None: ...
    def ack_many(self, ledger_id: int, entry_ids: Sequence[int], consumer: Consumer) -> None: ...
    def ack_batch(
        self, ledger_id: int, entry_id: int, acked_bits: int, batch_size: int, consumer: Consumer
    ) -> None: ...
    def ack_cumulative(self, position: Position, consumer: Consumer) -> None: ...
    def when_persisted(self, done: Callable[[MagnetarError | None], None]) -> None: ...
    def redeliver(
        self, consumer: Consumer, positions: Sequence[Position] | None, epoch: int | None
    ) -> None: ...


@dataclass(frozen=True, slots=True)
class SubscribeRequest:
    """A Subscribe command, checked."""

    subscription: str
    type: SubType.ValueType
    durable: bool
    from_earliest: bool
    """The initial position of a subscription that does not exist yet; Latest otherwise."""
    start: Position | None
    """Where a non-durable subscription starts: the entry it names is the first one delivered."""
    rollback_s: int
    """Start this many seconds of publish time before now; 0: not."""
    properties: dict[str, str]
    options: ConsumerOptions
    peer: Peer
    sends_entry_metadata: bool


class Topic(ABC):
    """One topic as a broker serves it."""

    __slots__ = ("closing", "name", "policies", "producers", "stats")

    def __init__(self, name: TopicName, policies: EffectivePolicies) -> None:
        self.name = name
        self.policies = policies
        """Those that hold now; shared with the namespace's other topics that have none of their own."""
        self.stats = TopicStats()
        self.producers: dict[str, Producer] = {}
        self.closing = False

    @property
    @abstractmethod
    def subscriptions(self) -> Mapping[str, AnySubscription]: ...

    @property
    @abstractmethod
    def storage_bytes(self) -> int:
        """Bytes of entries in storage."""

    @property
    @abstractmethod
    def storage_entries(self) -> int:
        """Entries in storage."""

    @property
    def producer_count(self) -> int:
        return len(self.producers)

    def apply_policies(self, policies: EffectivePolicies) -> None:
        """Other policies hold from now on. Called from the event loop, also when nothing differs."""
        self.policies = policies

    def check_open(self) -> None:
        """Raises ServiceNotReady when the topic is going away."""
        if self.closing:
            raise ServiceNotReady(f"topic {self.name} is being closed; look it up again")

    async def add_producer(self, producer: Producer) -> None:
        """Connect a producer; its name is free, or its holder is replaced when it is dead or the same client.

        Raises ProducerBusy when a live producer has the name.
        """
        self.check_open()
        holder = self.producers.get(producer.name)
        if holder is not None and not _replaces(producer, holder):
            if await holder.peer.is_alive():
                raise ProducerBusy(
                    f"producer with name {producer.name!r} is already connected to topic {self.name}"
                )
            holder = self.producers.get(producer.name)
            if holder is not None and holder.peer.connected:
                raise ProducerBusy(
                    f"producer with name {producer.name!r} is already connected to topic {self.name}"
                )
        self.check_open()
        if holder is not None:
            holder.closed = True
        self.producers[producer.name] = producer

    def last_sequence_id(self, producer_name: str) -> int:
        """The highest persisted sequence id of a producer name; -1 when it is not kept or none is known."""
        return -1

    def remove_producer(self, producer: Producer) -> None:
        """Disconnect a producer; what it has pending is still confirmed."""
        producer.closed = True
        if self.producers.get(producer.name) is producer:
            del self.producers[producer.name]

    @abstractmethod
    def publish(self, producer: Producer, sends: SendRun) -> None:
        """Take a run of entries; receipts or errors go to the producer's client later or at once."""

    @abstractmethod
    async def subscribe(self, request: SubscribeRequest) -> tuple[AnySubscription, Consumer]:
        """Connect a consumer, creating its subscription when it does not exist.

        Raises ConsumerBusy, NotAllowed, SubscriptionNotFound, ServiceNotReady.
        """

    def remove_consumer(self, subscription: AnySubscription, consumer: Consumer) -> None:
        """A consumer's client closed it or went away; what it held is delivered again to others."""
        subscription.remove_consumer(consumer)

    @abstractmethod
    async def create_subscription(self, name: str) -> None:
        """Make sure that a durable subscription exists, at the earliest position when it is new."""

    @abstractmethod
    async def unsubscribe(self, subscription: AnySubscription, consumer: Consumer, *, force: bool) -> None:
        """Delete the subscription with its cursor and backlog, if this is its only consumer or by force."""

    async def seek(
        self, subscription: AnySubscription, position: Position, unacked_words: Sequence[int] | None
    ) -> None:
        """Move a subscription so that the entry at `position` comes next."""
        raise NotAllowed(f"topic {self.name} is non-persistent: there is nothing to seek in")

    async def seek_time(self, subscription: AnySubscription, publish_time_ms: int) -> None:
        """Move a subscription to the first entry with publish time >= `publish_time_ms`."""
        raise NotAllowed(f"topic {self.name} is non-persistent: there is nothing to seek in")

    async def last_message_id(self) -> tuple[Position, int]:
        """Position of the last entry and the batch index of its last message (-1 when it is no batch)."""
        raise NotAllowed(f"topic {self.name} is non-persistent: its messages have no ids")

    def mark_delete_position(self, subscription: AnySubscription) -> Position | None:
        """Everything up to here is acknowledged; None where nothing is stored."""
        return None

    async def messages_of(self, position: Position) -> int:
        """How many messages the entry at `position` holds."""
        return 1

    def disconnect_clients(self) -> None:
        """Tell every producer and consumer that the topic closes; their connections stay."""
        self.closing = True
        for producer in list(self.producers.values()):
            producer.peer.write(commands.close_producer(producer.producer_id))
            producer.detach()
            self.remove_producer(producer)
        for subscription in list(self.subscriptions.values()):
            close_consumers(subscription)

    def abandon(self, error: OwnershipLost) -> None:
        """Another broker serves the topic from now on: stop at once, without a word to its storage."""
        self.disconnect_clients()

    @property
    def has_clients(self) -> bool:
        """True while a producer or a consumer is connected."""
        return bool(self.producers) or any(each.consumers for each in self.subscriptions.values())

    @abstractmethod
    def prove_ownership(self) -> None:
        """Metadata does not say whose the topic is: see to it that it is still ours, or `abandon` it."""

    @abstractmethod
    async def close(self) -> None:
        """Tell the clients, wait until everything taken is confirmed, flush cursors, release the ledgers."""


def close_consumers(subscription: AnySubscription) -> None:
    """Tell every consumer of a subscription to subscribe again, and disconnect it; connections stay."""
    for consumer in list(subscription.consumers):
        consumer.peer.write(commands.close_consumer(consumer.consumer_id))
        consumer.detach()
        subscription.remove_consumer(consumer)


def _replaces(newcomer: Producer, holder: Producer) -> bool:
    """The same client reconnecting: same connection and producer id, with a higher epoch."""
    if not holder.peer.connected:
        return True
    return (
        newcomer.peer is holder.peer
        and newcomer.producer_id == holder.producer_id
        and newcomer.epoch > holder.epoch
    )
