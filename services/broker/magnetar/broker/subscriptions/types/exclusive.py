"""Exclusive: one consumer gets every entry in order; a second one is refused while it is connected."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from magnetar.broker.dispatch.eligibility import Code, reason
from magnetar.broker.dispatch.exclusive import ExclusiveDispatcher
from magnetar.broker.dispatch.key_shared.sticky_ranges import check_ranges
from magnetar.broker.reason import Reason
from magnetar.broker.subscriptions.config import DispatchConfig
from magnetar.broker.subscriptions.consumers.consumer import Consumer
from magnetar.broker.subscriptions.filters.hash_range_gate import HashRangeGate
from magnetar.broker.subscriptions.types.ordered_delivery import OrderedDelivery
from magnetar.broker.subscriptions.types.subscription_type import DeliveryParts, SubscriptionType, SubType
from magnetar.common.errors import ConsumerBusy


class ExclusiveType(SubscriptionType[ExclusiveDispatcher[Consumer]]):
    """Exclusive subscriptions."""

    __slots__ = ()

    sub_type: ClassVar[SubType.ValueType] = SubType.Exclusive
    individual: ClassVar[bool] = False

    def dispatcher(
        self, first: Consumer, topic: str, config: DispatchConfig
    ) -> ExclusiveDispatcher[Consumer]:
        return ExclusiveDispatcher()

    def delivery(self, dispatcher: ExclusiveDispatcher[Consumer], parts: DeliveryParts) -> ExclusiveDelivery:
        return ExclusiveDelivery(dispatcher, parts)

    def choose(self, dispatcher: ExclusiveDispatcher[Consumer], entry: bytes) -> tuple[Consumer, int] | None:
        return dispatcher.next()

    def admit(self, subscription: str, consumer: Consumer, connected: Sequence[Consumer]) -> None:
        if connected:
            raise ConsumerBusy(f"exclusive consumer is already connected to subscription {subscription}")
        if consumer.hash_ranges:
            check_ranges(consumer.hash_ranges)

    def active(self, dispatcher: ExclusiveDispatcher[Consumer]) -> Consumer | None:
        return next(iter(dispatcher.consumers), None)


class ExclusiveDelivery(OrderedDelivery):
    """Delivery to the one consumer of an Exclusive subscription. Implements delivery.Delivery."""

    __slots__ = ("_exclusive",)

    def __init__(self, dispatcher: ExclusiveDispatcher[Consumer], parts: DeliveryParts) -> None:
        super().__init__(dispatcher, parts)
        self._exclusive = dispatcher

    @property
    def candidates(self) -> Sequence[Consumer]:
        return self._exclusive.consumers

    def kept_back(self) -> list[Reason]:
        return [
            reason(
                Code.OUTSIDE_HASH_RANGES,
                f"consumer {each.name} gets only keys in its {len(each.hash_ranges)} hash ranges",
                consumer=each.name,
                hashRanges=[list(both) for both in each.hash_ranges],
            )
            for each in self.candidates
            if each.hash_ranges
        ]

    def consumer_added(self, consumer: Consumer) -> None:
        """Begins at the mark-delete position; limits the consumer to its hash ranges, if it has any."""
        self.begin_for(consumer)
        if consumer.hash_ranges:
            self._source.add_gate(HashRangeGate(consumer.hash_ranges))

    def consumer_removed(self, consumer: Consumer) -> None:
        raise AssertionError("an Exclusive subscription has no other consumer when one leaves")
