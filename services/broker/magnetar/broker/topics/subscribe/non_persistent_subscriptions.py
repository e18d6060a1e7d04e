"""Subscriptions of a non-persistent topic, which store nothing except their consumers."""

from __future__ import annotations

from collections.abc import Callable

from magnetar.broker.client_endings import EndCode
from magnetar.broker.message_drops import NonPersistentTopicStats
from magnetar.broker.subscriptions.config import DispatchConfig
from magnetar.broker.subscriptions.consumers.consumer import Consumer
from magnetar.broker.subscriptions.non_persistent_subscription import NonPersistentSubscription
from magnetar.broker.subscriptions.types.table import check_allowed
from magnetar.broker.topics.subscribe.any_subscription import AnySubscription, close_consumers
from magnetar.broker.topics.subscribe.consumer_limits import (
    check_one_more_consumer,
    check_one_more_subscription,
)
from magnetar.broker.topics.subscribe.holder_liveness import holders_are_gone
from magnetar.broker.topics.subscribe.subscribe_request import SubscribeRequest
from magnetar.broker.topics.subscribe.topic_subscriptions import TopicSubscriptions
from magnetar.broker.topics.topic_state import TopicState
from magnetar.common.errors import (
    ConsumerAssignFailed,
    ConsumerBusy,
    SubscriptionNotFound,
    TooManyConsumers,
    UnsubscribeRefused,
)
from magnetar.common.runtime.clock import Clock


class NonPersistentSubscriptions(TopicSubscriptions[NonPersistentSubscription]):
    """Creates and deletes subscriptions in memory and connects consumers to them."""

    __slots__ = ("_clock", "_config", "_stats")

    def __init__(
        self, state: TopicState, config: DispatchConfig, stats: NonPersistentTopicStats, clock: Clock
    ) -> None:
        """`stats` are those of the topic; borrowed."""
        super().__init__(state)
        self._config = config
        self._stats = stats
        self._clock = clock

    async def subscribe(self, request: SubscribeRequest) -> tuple[AnySubscription, Consumer]:
        check_allowed(request.type, self._state.policies.subscription_types)
        try:
            return self._connect(request)
        except TooManyConsumers:
            raise
        except (ConsumerBusy, ConsumerAssignFailed) as refusal:
            if not await holders_are_gone(self._by_name.get(request.subscription), request, refusal):
                raise
        return self._connect(request)

    def _connect(self, request: SubscribeRequest) -> tuple[AnySubscription, Consumer]:
        self._state.check_open()
        check_one_more_consumer(
            self._state.policies, self._state.name, self._by_name, request.subscription, request.peer
        )
        subscription = self._by_name.get(request.subscription)
        new = subscription is None
        if subscription is None:
            check_one_more_subscription(self._state.policies, self._state.name, len(self._by_name))
            subscription = self._new(request.subscription, request.properties, durable=request.durable)
            self._by_name[request.subscription] = subscription
        consumer = Consumer(
            request.options,
            request.peer,
            partition=self._state.name.partition_index,
            unacked_max=0,
            clock=self._clock,
            sends_entry_metadata=False,
        )
        try:
            subscription.add_consumer(consumer, request.type)
        except ConsumerAssignFailed:
            if new:
                del self._by_name[request.subscription]  # as if the consumer had never connected
            raise
        return subscription, consumer

    def _new(self, name: str, properties: dict[str, str], *, durable: bool) -> NonPersistentSubscription:
        return NonPersistentSubscription(
            name, self._state.name.full, self._config, self._stats, properties, durable=durable
        )

    def remove_consumer(self, subscription: AnySubscription, consumer: Consumer) -> None:
        subscription.remove_consumer(consumer)
        ours = self._by_name.get(subscription.name)
        if ours is subscription and not ours.durable and not ours.consumers:
            # As on a persistent topic; otherwise every reader would leave a subscription behind.
            del self._by_name[subscription.name]

    async def create(self, name: str) -> None:
        if name not in self._by_name:
            self._by_name[name] = self._new(name, {}, durable=True)

    async def describe(self, subscription: AnySubscription, properties: dict[str, str]) -> None:
        found = self._by_name.get(subscription.name)
        if found is None or found is not subscription:
            raise SubscriptionNotFound(
                f"subscription {subscription.name!r} of {self._state.name} was deleted"
            )
        found.properties = properties

    async def unsubscribe(self, subscription: AnySubscription, consumer: Consumer, *, force: bool) -> None:
        if self._by_name.get(subscription.name) is not subscription:
            raise SubscriptionNotFound(
                f"subscription {subscription.name!r} of {self._state.name} was deleted"
            )
        if not force and subscription.consumers != [consumer]:
            raise UnsubscribeRefused("Unconnected or shared consumer attempting to unsubscribe")
        if force:
            close_consumers(subscription, EndCode.UNSUBSCRIBED)
        else:
            subscription.remove_consumer(consumer)
        del self._by_name[subscription.name]

    async def delete_unused(
        self, subscription: AnySubscription, expired: Callable[[], bool] = lambda: True
    ) -> bool:
        if self._by_name.get(subscription.name) is not subscription or subscription.consumers:
            return False
        del self._by_name[subscription.name]
        return True
