"""A non-persistent topic: nothing is stored; a receipt says only that the broker saw the message.

Receipts come at once with the id 0:0, and what nobody can take is dropped (Pulsar's concepts, non-persistent
topics).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from magnetar.broker.config import BrokerConfig
from magnetar.broker.drops import NonPersistentTopicStats
from magnetar.broker.policies.effective import EffectivePolicies
from magnetar.broker.subscriptions.consumer import Consumer
from magnetar.broker.subscriptions.membership import check_allowed
from magnetar.broker.subscriptions.non_persistent import NonPersistentSubscription
from magnetar.broker.topics.publish.in_process_limit import InProcess
from magnetar.broker.topics.publish.pending_publish import part_of, run_of
from magnetar.broker.topics.publish.producer import Producer
from magnetar.broker.topics.publish.publish_gate import PublishLimits
from magnetar.broker.topics.subscribe.consumer_limits import (
    check_one_more_consumer,
    check_one_more_subscription,
)
from magnetar.broker.topics.subscribe.holder_liveness import holders_are_gone
from magnetar.broker.topics.topic import AnySubscription, SubscribeRequest, Topic, close_consumers
from magnetar.common.errors import (
    ConsumerAssignFailed,
    ConsumerBusy,
    OwnershipLost,
    SubscriptionNotFound,
    TooManyConsumers,
    UnsubscribeRefused,
)
from magnetar.common.naming.topic_name import TopicName
from magnetar.common.runtime.clock import Clock
from magnetar.common.wire.events import SendRun
from magnetar.common.wire.receipts import receipt


class NonPersistentTopic(Topic):
    """Producers and consumers of one topic that keeps nothing."""

    __slots__ = ("_clock", "_config", "_in_process", "_subscriptions", "_topic_epoch")

    stats: NonPersistentTopicStats

    def __init__(
        self,
        name: TopicName,
        policies: EffectivePolicies,
        config: BrokerConfig,
        clock: Clock,
        in_process: InProcess,
        *,
        publish_limits: PublishLimits | None = None,
    ) -> None:
        super().__init__(name, policies, publish_limits)
        self.stats = NonPersistentTopicStats()
        self._config = config
        self._clock = clock
        self._in_process = in_process
        self._subscriptions: dict[str, NonPersistentSubscription] = {}
        self._topic_epoch = 0

    @property
    def topic_epoch(self) -> int:
        return self._topic_epoch

    async def raise_topic_epoch(self, at_least: int) -> int:
        self._topic_epoch = max(self._topic_epoch + 1, at_least)
        return self._topic_epoch

    @property
    def subscriptions(self) -> Mapping[str, NonPersistentSubscription]:
        return self._subscriptions

    @property
    def storage_bytes(self) -> int:
        return 0

    @property
    def copies(self) -> int:
        return 0

    @property
    def storage_entries(self) -> int:
        return 0

    def publish(self, producer: Producer, sends: SendRun) -> None:
        if self.gate is not None:
            admitted = self.gate.admit(producer, sends)
            if not isinstance(admitted, SendRun):
                self._publish_in_part(producer, sends, admitted)
                return
        taken = self._in_process.take(producer.peer, len(sends.entries))
        if taken < len(sends.entries):
            self._publish_some(producer, sends, taken)
            return
        self._publish(producer, sends)

    def _publish_some(self, producer: Producer, sends: SendRun, taken: int) -> None:
        """The connection has too much in process: what is beyond the first `taken` entries is dropped."""
        part = part_of(sends, range(taken))
        if part is not None:
            self._publish(producer, part)
        counts = sends.message_counts
        dropped = len(sends.entries) - taken if counts is None else sum(counts[taken:])
        self.stats.count_drops(producer.name, dropped)
        for index in range(taken, len(sends.entries)):
            producer.peer.write(_receipt(producer.producer_id, sends, index, dropped=True))

    def remove_producer(self, producer: Producer) -> None:
        super().remove_producer(producer)
        if producer.name not in self.producers:
            self.stats.drops_by_producer.pop(producer.name, None)

    def _publish(self, producer: Producer, sends: SendRun) -> None:
        for subscription in self._subscriptions.values():
            subscription.publish(sends.entries, sends.message_counts)
        for index in range(len(sends.entries)):
            producer.peer.write(_receipt(producer.producer_id, sends, index))
        run = run_of(sends)
        self.stats.count_publish(run)
        producer.stats.count_publish(run)

    async def subscribe(self, request: SubscribeRequest) -> tuple[AnySubscription, Consumer]:
        check_allowed(request.type, self.policies.subscription_types)
        try:
            return self._subscribe(request)
        except TooManyConsumers:
            raise
        except (ConsumerBusy, ConsumerAssignFailed) as refusal:
            if not await holders_are_gone(self._subscriptions.get(request.subscription), request, refusal):
                raise
        return self._subscribe(request)

    def _subscribe(self, request: SubscribeRequest) -> tuple[AnySubscription, Consumer]:
        self.check_open()
        check_one_more_consumer(
            self.policies, self.name, self._subscriptions, request.subscription, request.peer
        )
        subscription = self._subscriptions.get(request.subscription)
        new = subscription is None
        if subscription is None:
            check_one_more_subscription(self.policies, self.name, len(self._subscriptions))
            subscription = self._new_subscription(
                request.subscription, request.properties, durable=request.durable
            )
            self._subscriptions[request.subscription] = subscription
        consumer = Consumer(
            request.options,
            request.peer,
            partition=self.name.partition_index,
            unacked_max=0,
            clock=self._clock,
            sends_entry_metadata=False,
        )
        try:
            subscription.add_consumer(consumer, request.type)
        except ConsumerAssignFailed:
            if new:
                del self._subscriptions[request.subscription]  # as if the consumer had never come
            raise
        return subscription, consumer

    def _new_subscription(
        self, name: str, properties: dict[str, str], *, durable: bool
    ) -> NonPersistentSubscription:
        return NonPersistentSubscription(
            name, self.name.full, self._config.dispatch, self.stats, properties, durable=durable
        )

    def remove_consumer(self, subscription: AnySubscription, consumer: Consumer) -> None:
        super().remove_consumer(subscription, consumer)
        ours = self._subscriptions.get(subscription.name)
        if ours is subscription and not ours.durable and not ours.consumers:
            # As on a persistent topic; otherwise every reader there ever was would leave one behind.
            del self._subscriptions[subscription.name]

    async def create_subscription(self, name: str) -> None:
        if name not in self._subscriptions:
            self._subscriptions[name] = self._new_subscription(name, {}, durable=True)

    async def describe_subscription(self, subscription: AnySubscription, properties: dict[str, str]) -> None:
        found = self._subscriptions.get(subscription.name)
        if found is None or found is not subscription:
            raise SubscriptionNotFound(f"subscription {subscription.name!r} is gone from {self.name}")
        found.properties = properties

    async def unsubscribe(self, subscription: AnySubscription, consumer: Consumer, *, force: bool) -> None:
        if self._subscriptions.get(subscription.name) is not subscription:
            raise SubscriptionNotFound(f"subscription {subscription.name!r} is gone from {self.name}")
        if not force and subscription.consumers != [consumer]:
            raise UnsubscribeRefused("Unconnected or shared consumer attempting to unsubscribe")
        close_consumers(subscription) if force else subscription.remove_consumer(consumer)
        del self._subscriptions[subscription.name]

    async def delete_unused(
        self, subscription: AnySubscription, expired: Callable[[], bool] = lambda: True
    ) -> bool:
        if self._subscriptions.get(subscription.name) is not subscription or subscription.consumers:
            return False
        del self._subscriptions[subscription.name]
        return True

    def prove_ownership(self) -> None:
        # It has no ledger that says whose it is.
        self.abandon(OwnershipLost(f"{self.name}: metadata has not said for too long that it is ours"))

    async def close(self) -> None:
        self.disconnect_clients()


def _receipt(producer_id: int, sends: SendRun, index: int, *, dropped: bool = False) -> bytes:
    highest = sends.highest_sequence_id(index) if sends.highest_varints is not None else 0
    where = -1 if dropped else 0
    return receipt(producer_id, sends.sequence_id(index), where, where, highest)
