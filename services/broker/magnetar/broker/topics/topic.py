"""The interface of a topic that connections, HTTP and housekeeping use, and what both kinds of topic have."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

from magnetar.broker.client_endings import EndCode
from magnetar.broker.policies.effective_policies import EffectivePolicies
from magnetar.broker.stats import TopicStats
from magnetar.broker.subscriptions.consumers.consumer import Consumer
from magnetar.broker.subscriptions.subscription import Subscription
from magnetar.broker.topics.closed_clients import ClosedClient
from magnetar.broker.topics.compaction_state import NEVER_COMPACTED, CompactionState
from magnetar.broker.topics.publish.producer import Producer
from magnetar.broker.topics.publish.producers import Producers
from magnetar.broker.topics.publish.publish_path import PublishPath
from magnetar.broker.topics.publish.refusals import Refusals
from magnetar.broker.topics.subscribe.any_subscription import AnySubscription
from magnetar.broker.topics.subscribe.topic_subscriptions import TopicSubscriptions
from magnetar.broker.topics.topic_state import TopicState
from magnetar.broker.topics.transaction_figures import NO_TRANSACTIONS, TransactionFigures
from magnetar.broker.versions import tell_closed
from magnetar.common.errors import NotAllowed, OwnershipLost
from magnetar.common.naming.position import Position
from magnetar.common.naming.topic_name import TopicName
from magnetar.common.wire import commands
from magnetar.ledger.managed_ledger.entry_cache import ReadCounts


class Topic(ABC):
    """One topic as a broker serves it; owns its producers, publish path, subscriptions and counters."""

    __slots__ = (
        "compaction",
        "inactive_since",
        "name",
        "producers",
        "publishing",
        "refusals",
        "state",
        "stats",
        "subscriptions",
    )

    state: TopicState
    stats: TopicStats
    producers: Producers
    refusals: Refusals
    publishing: PublishPath
    subscriptions: TopicSubscriptions[AnySubscription]

    def __init__(self, name: TopicName, policies: EffectivePolicies) -> None:
        self.name = name
        self.state = TopicState(name, policies)
        self.compaction: CompactionState = NEVER_COMPACTED
        """Its compactions since the load; replaced by a state of its own before the first run."""
        self.inactive_since: float | None = None
        """Monotonic time when housekeeping first found the topic unused; None since a client connected or
        left.
        """

    @property
    def policies(self) -> EffectivePolicies:
        """The policies in force."""
        return self.state.policies

    @property
    def closing(self) -> bool:
        """True once the topic is being closed, moved or lost."""
        return self.state.closing

    def check_open(self) -> None:
        """Raises ServiceNotReady when the topic is being closed."""
        self.state.check_open()

    @abstractmethod
    def apply_policies(self, policies: EffectivePolicies) -> None:
        """Puts these policies in force. Called from the event loop, also when nothing differs."""

    # Clients

    @property
    def has_clients(self) -> bool:
        """True while a producer or a consumer is connected."""
        return self.producers.present or self.subscriptions.have_consumers

    async def add_producer(self, producer: Producer, waits: Callable[[], None] = lambda: None) -> None:
        """Connects a producer; see `Producers.add` for `waits` and for the errors raised."""
        await self.producers.add(producer, waits)

    def remove_consumer(self, subscription: AnySubscription, consumer: Consumer) -> None:
        """Disconnects a consumer that its client closed; what it held is delivered again to others."""
        self.inactive_since = None
        self.subscriptions.remove_consumer(subscription, consumer)

    def disconnect_consumer(self, subscription: AnySubscription, consumer: Consumer, code: EndCode) -> None:
        """Disconnect a consumer and tell its client; one that is too old to be told is disconnected whole."""
        consumer.detach(code)
        self.remove_consumer(subscription, consumer)
        tell_closed(consumer.peer, commands.close_consumer(consumer.consumer_id))

    def disconnect_clients(self, code: EndCode) -> None:
        """Closes the topic to clients because of `code`, and notifies all producers and consumers.

        Their connections stay open, except those of clients too old for CloseProducer and CloseConsumer.
        """
        self.state.closing = True
        self.producers.disconnect_all(code)
        self.subscriptions.disconnect_all(code)

    def close_for_transfer(self) -> list[ClosedClient]:
        """Closes the topic to clients, because it moves to another broker.

        Returns the clients that the caller notifies once that broker owns the topic; producers that wait for
        exclusive access are notified at once.
        """
        self.state.closing = True
        return [*self.producers.close_all(), *self.subscriptions.close_all()]

    # Messages

    async def terminate(self) -> Position:
        """Terminates the topic: it permanently accepts no more messages. Returns the last position once that
        is durable. Idempotent.

        Producers are disconnected and new ones are refused; a consumer is notified of the end of the topic
        once its subscription has acknowledged everything. Raises NotAllowed, ServiceNotReady, StorageError.
        """
        raise NotAllowed(f"topic {self.name} is non-persistent: it cannot be terminated")

    async def last_message_id(self, *, compacted: bool = False) -> tuple[Position, int]:
        """Position of the last entry and the batch index of its last message (-1 when it is no batch).

        With `compacted` the last message that a consumer of the compacted view gets.
        """
        raise NotAllowed(f"topic {self.name} is non-persistent: its messages have no ids")

    async def messages_of(self, position: Position) -> int:
        """How many messages the entry at `position` holds."""
        return 1

    def is_written(self, within_ms: int) -> bool:
        """Whether an entry was stored within this time."""
        return False

    def expect_publish(self) -> None:
        """Prepares for a publisher that was active at the previous owner, so that its first publish does not
        wait.
        """
        return  # nothing of a non-persistent topic is stored

    # Figures

    @property
    def producer_count(self) -> int:
        """Connected producers."""
        return len(self.producers)

    @property
    def times_rate_limited(self) -> int:
        """Times that a connection was left unread because of a publish rate, since there is a rate."""
        return self.publishing.times_rate_limited

    @property
    @abstractmethod
    def storage_bytes(self) -> int:
        """Bytes of entries in storage, one copy."""

    @property
    @abstractmethod
    def storage_entries(self) -> int:
        """Entries in storage."""

    @property
    @abstractmethod
    def copies(self) -> int:
        """Copies of each entry in storage, for ledgers that are created now."""

    @property
    def read_counts(self) -> ReadCounts | None:
        """Statistics of reads since the topic was loaded; None without reads."""
        return None

    @property
    def offloaded_bytes(self) -> int:
        """Bytes in storage that belong to offloaded ledgers."""
        return 0

    @property
    def transactions(self) -> TransactionFigures:
        """Its transactions since the load."""
        return NO_TRANSACTIONS

    @property
    def blocked_by_transaction_s(self) -> float:
        """Age in seconds of the open transaction that readers wait for; 0 without one."""
        return 0.0

    @property
    def compacted_entries(self) -> int:
        """Entries in the compacted view."""
        return 0

    def compaction_subscription(self) -> Subscription | None:
        """The subscription `__compaction` to show; None for a topic that is not compacted."""
        return None

    @property
    def compacted_bytes(self) -> int:
        """Estimated bytes of the entries in the compacted view, one copy."""
        return 0

    @property
    def backlog_bytes(self) -> int:
        """Approximate backlog of the slowest durable subscription, in bytes."""
        return 0

    @property
    def delayed_index_bytes(self) -> int:
        """Memory of the index of delayed entries; 0 without any."""
        return 0

    @property
    def oldest_backlog_age_s(self) -> int:
        """Age in seconds of the oldest message in a backlog; -1 without one, or when it would have to be
        read.
        """
        return -1

    # Ownership

    @abstractmethod
    def prove_ownership(self) -> None:
        """Checks that this broker still owns the topic while metadata is unreachable; calls `abandon` if it
        does not.
        """

    def abandon(self, error: OwnershipLost) -> None:
        """Stops at once, without writing: another broker serves the topic from now on."""
        self.disconnect_clients(EndCode.OWNERSHIP_LOST)

    @abstractmethod
    async def close(self) -> None:
        """Notifies the clients, waits until everything published is confirmed, flushes cursors, releases the
        ledgers.
        """
