"""What persistent and non-persistent topics have in common: their producers, and the shape of the rest."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from magnetar.broker.dispatch.key_shared.dispatcher import KeySharedDispatcher
from magnetar.broker.peer import Peer
from magnetar.broker.policies.effective import EffectivePolicies
from magnetar.broker.stats import SubscriptionStats, TopicStats
from magnetar.broker.subscriptions.consumer import Consumer, ConsumerOptions
from magnetar.broker.subscriptions.membership import SubType
from magnetar.broker.topics.closed_clients import Departed
from magnetar.broker.topics.publish.pending_publish import part_of
from magnetar.broker.topics.publish.producer import Producer
from magnetar.broker.topics.publish.producers import Publishers
from magnetar.broker.topics.publish.publish_gate import FirstRefused, PublishLimits
from magnetar.broker.versions import tell_closed
from magnetar.common.errors import MagnetarError, NotAllowed, OwnershipLost
from magnetar.common.naming.position import Position
from magnetar.common.naming.topic_name import TopicName
from magnetar.common.wire import commands
from magnetar.common.wire.events import SendRun
from magnetar.ledger.managed_ledger.entry_cache import ReadCounts


class AnySubscription(Protocol):
    """What handlers and statistics need of a subscription of either kind of topic."""

    @property
    def name(self) -> str: ...
    @property
    def stats(self) -> SubscriptionStats: ...
    @property
    def properties(self) -> dict[str, str]: ...
    @property
    def type(self) -> SubType.ValueType | None: ...
    @property
    def consumers(self) -> list[Consumer]: ...
    @property
    def active_consumer(self) -> Consumer | None: ...
    @property
    def key_shared(self) -> KeySharedDispatcher[Consumer] | None: ...
    @property
    def consumer_count(self) -> int: ...
    @property
    def unacked_messages(self) -> int: ...
    @property
    def delayed(self) -> int: ...
    @property
    def acks_at_risk(self) -> int: ...
    @property
    def mark_deleted_ms(self) -> int: ...
    @property
    def in_replay(self) -> int: ...
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


class Topic(Publishers):
    """One topic as a broker serves it."""

    __slots__ = ("inactive_since", "stats")

    def __init__(
        self, name: TopicName, policies: EffectivePolicies, publish_limits: PublishLimits | None
    ) -> None:
        super().__init__(name, policies, publish_limits)
        self.stats = TopicStats()
        self.inactive_since: float | None = None
        """When housekeeping first saw that nobody uses it; None since a client came or went."""

    def _publish_in_part(self, producer: Producer, sends: SendRun, first: FirstRefused | None) -> None:
        """Take what comes before the first message that is refused; None: all are, and were answered."""
        if first is None:
            return
        before = part_of(sends, range(first.index))
        if before is not None:
            self.publish(producer, before)
        self.refuse(producer, first.messages)

    @property
    @abstractmethod
    def subscriptions(self) -> Mapping[str, AnySubscription]: ...

    @property
    @abstractmethod
    def storage_bytes(self) -> int:
        """Bytes of entries in storage, one copy."""

    @property
    @abstractmethod
    def copies(self) -> int:
        """Of each entry in storage, as ledgers are made now."""

    @property
    @abstractmethod
    def storage_entries(self) -> int:
        """Entries in storage."""

    @property
    def read_counts(self) -> ReadCounts | None:
        """What was read of it since the load; None when nothing was."""
        return None

    @property
    def offloaded_bytes(self) -> int:
        """Of the bytes in storage, those of ledgers that were offloaded."""
        return 0

    @property
    def backlog_bytes(self) -> int:
        """About how many bytes the slowest durable subscription is behind."""
        return 0

    @property
    def delayed_index_bytes(self) -> int:
        """Memory of the index of delayed entries; 0 where there are none."""
        return 0

    @property
    def oldest_backlog_age_s(self) -> int:
        """Age of the oldest message in a backlog; -1 without one, and when finding out would cost a read."""
        return -1

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
        self.inactive_since = None
        subscription.remove_consumer(consumer)

    @abstractmethod
    async def create_subscription(self, name: str) -> None:
        """Make sure that a durable subscription exists, at the earliest position when it is new."""

    async def new_subscription(self, name: str, position: Position, properties: dict[str, str]) -> bool:
        """Make a durable subscription at `position`; False when there is one of that name already."""
        raise NotAllowed(f"topic {self.name} is non-persistent: nothing of it is durable")

    @abstractmethod
    async def describe_subscription(self, subscription: AnySubscription, properties: dict[str, str]) -> None:
        """Give a subscription these properties and no others; durable on return where it is.

        Raises SubscriptionNotFound, StorageError.
        """

    async def adopt_subscriptions(self, other: Topic) -> None:
        """Make sure that the durable subscriptions of `other` exist here; new ones begin at the earliest."""
        return  # nothing of a non-persistent topic is durable

    @abstractmethod
    async def unsubscribe(self, subscription: AnySubscription, consumer: Consumer, *, force: bool) -> None:
        """Delete the subscription with its cursor and backlog, if this is its only consumer or by force."""

    @abstractmethod
    async def delete_unused(
        self, subscription: AnySubscription, expired: Callable[[], bool] = lambda: True
    ) -> bool:
        """Delete a subscription if it has no consumer and is `expired` by now; returns whether it did."""

    async def seek(
        self, subscription: AnySubscription, position: Position, unacked_words: Sequence[int] | None
    ) -> None:
        """Move a subscription so that the entry at `position` comes next."""
        raise NotAllowed(f"topic {self.name} is non-persistent: there is nothing to seek in")

    async def seek_time(self, subscription: AnySubscription, publish_time_ms: int) -> None:
        """Move a subscription to the first entry with publish time >= `publish_time_ms`."""
        raise NotAllowed(f"topic {self.name} is non-persistent: there is nothing to seek in")

    async def terminate(self) -> Position:
        """Take no more messages, for ever; returns the last position once that is durable. Idempotent.

        Producers are disconnected and none comes in any more; a consumer hears of the end of the topic once
        its subscription has everything acknowledged. Raises NotAllowed, ServiceNotReady, StorageError.
        """
        raise NotAllowed(f"topic {self.name} is non-persistent: it cannot be terminated")

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
        """Tell every producer and consumer that the topic closes; their connections stay, but those
        of clients too old to be told.
        """
        self.closing = True
        self.disconnect_producers()
        for subscription in list(self.subscriptions.values()):
            close_consumers(subscription)

    def is_written(self, within_ms: int) -> bool:
        """Whether something was stored in it within this time."""
        return False

    def expect_publish(self) -> None:
        """A publisher comes that was in the midst of it at the former owner: have it wait for nothing."""
        return  # nothing of a non-persistent topic is stored

    def depart(self) -> list[Departed]:
        """Take and give nothing more from now on: the topic goes to another broker. Its clients, which are
        returned, are told once that broker has it; those that wait to be its producers look it up again.
        """
        self.closing = True
        departed = self.depart_producers()
        for subscription in list(self.subscriptions.values()):
            for consumer in list(subscription.consumers):
                consumer.detach()
                subscription.remove_consumer(consumer)
                departed.append(Departed(consumer.peer, consumer.consumer_id, commands.close_consumer))
        return departed

    def abandon(self, error: OwnershipLost) -> None:
        """Another broker serves the topic from now on: stop at once, without a word to its storage."""
        self.disconnect_clients()

    @property
    def has_clients(self) -> bool:
        """True while a producer or a consumer is connected."""
        return bool(self.producers or self.access) or any(
            each.consumers for each in self.subscriptions.values()
        )

    @abstractmethod
    def prove_ownership(self) -> None:
        """Metadata does not say whose the topic is: see to it that it is still ours, or `abandon` it."""

    @abstractmethod
    async def close(self) -> None:
        """Tell the clients, wait until everything taken is confirmed, flush cursors, release the ledgers."""


def close_consumers(subscription: AnySubscription) -> None:
    """Tell every consumer of a subscription to subscribe again, and disconnect it; connections stay if their
    clients can be told.
    """
    closed = list(subscription.consumers)
    for consumer in closed:
        consumer.detach()
        subscription.remove_consumer(consumer)
    for consumer in closed:
        tell_closed(consumer.peer, commands.close_consumer(consumer.consumer_id))
