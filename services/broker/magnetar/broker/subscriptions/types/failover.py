"""Failover: delivery to the active consumer, and the switch to another one.

The new active consumer gets everything unacknowledged, in order, from the mark-delete position on. The switch
(rewind, notify all consumers, continue) happens a delay after the decision, and dispatch pauses until then:
acknowledgements in flight still arrive, and consumers that start together cause one switch.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import ClassVar

from magnetar.broker.dispatch.eligibility import IDLE_SHOWN_MAX, Code, reason
from magnetar.broker.dispatch.failover import FailoverDispatcher
from magnetar.broker.reason import Reason, iso_time
from magnetar.broker.subscriptions.config import DispatchConfig
from magnetar.broker.subscriptions.consumers.consumer import Consumer
from magnetar.broker.subscriptions.types.ordered_delivery import OrderedDelivery
from magnetar.broker.subscriptions.types.subscription_type import DeliveryParts, SubscriptionType, SubType
from magnetar.common.naming.position import Position
from magnetar.common.naming.topic_name import TopicName


class FailoverType(SubscriptionType[FailoverDispatcher[Consumer]]):
    """Failover subscriptions."""

    __slots__ = ()

    sub_type: ClassVar[SubType.ValueType] = SubType.Failover
    individual: ClassVar[bool] = False
    announces_active: ClassVar[bool] = True

    def dispatcher(self, first: Consumer, topic: str, config: DispatchConfig) -> FailoverDispatcher[Consumer]:
        on_ring = config.failover_consistent_hashing
        return FailoverDispatcher(topic, -1 if on_ring else TopicName.parse(topic).partition_index)

    def delivery(self, dispatcher: FailoverDispatcher[Consumer], parts: DeliveryParts) -> FailoverDelivery:
        return FailoverDelivery(dispatcher, parts)

    def choose(self, dispatcher: FailoverDispatcher[Consumer], entry: bytes) -> tuple[Consumer, int] | None:
        return dispatcher.next()

    def active(self, dispatcher: FailoverDispatcher[Consumer]) -> Consumer | None:
        return dispatcher.active


class FailoverDelivery(OrderedDelivery):
    """Delivery to the active consumer of a Failover subscription. Implements delivery.Delivery."""

    __slots__ = (
        "_chosen",
        "_delay_s",
        "_failover",
        "_now_ms",
        "_served",
        "_switch",
        "_switches_ms",
        "_wake",
    )

    def __init__(self, dispatcher: FailoverDispatcher[Consumer], parts: DeliveryParts) -> None:
        super().__init__(dispatcher, parts)
        self._failover = dispatcher
        self._delay_s = parts.config.failover_delay_ms / 1000
        self._wake = parts.wake
        self._chosen: Consumer | None = None
        """The active consumer at the last check of the dispatcher."""
        self._served: Consumer | None = None
        """The consumer that got the last entries, in order; None when delivery has to restart anyway."""
        self._switch: asyncio.TimerHandle | None = None
        self._now_ms = parts.now_ms
        self._switches_ms = 0

    @property
    def paused_by(self) -> Reason | None:
        if self._switch is None:
            return None
        return reason(
            Code.SWITCHING_CONSUMER,
            "another consumer is about to become the active one",
            consumer=None if self._chosen is None else self._chosen.name,
            until=iso_time(self._switches_ms),
        )

    @property
    def candidates(self) -> Sequence[Consumer]:
        return [] if self._chosen is None else [self._chosen]

    def idle(self) -> list[Reason]:
        chosen = self._chosen
        return [
            reason(
                Code.NOT_ACTIVE_CONSUMER,
                f"consumer {each.name} is not the active one, which is {chosen.name}",
                stops=False,
                consumer=each.name,
                address=each.peer.address,
                active=chosen.name,
            )
            for each in self._failover.consumers[:IDLE_SHOWN_MAX]
            if chosen is not None and each is not chosen
        ]

    def step(self, entries_max: int, bytes_max: int) -> tuple[int, int] | None:
        return super().step(entries_max, bytes_max) if self._switch is None else None

    def consumer_added(self, consumer: Consumer) -> None:
        if not self._changed():
            # Sent after the response to its Subscribe, which is written in this turn of the event loop.
            asyncio.get_running_loop().call_soon(consumer.tell_active, False)

    def consumer_removed(self, consumer: Consumer) -> None:
        self._changed()

    def _changed(self) -> bool:
        """Schedules a switch if the last join or leave changed the active consumer; True if it did."""
        if self._failover.active is self._chosen:
            return False
        self._chosen = self._failover.active
        if self._switch is None:
            self._switches_ms = self._now_ms() + int(self._delay_s * 1000)
            self._switch = asyncio.get_running_loop().call_later(self._delay_s, self._go_on)
        return True

    def _go_on(self) -> None:
        self._switch = None
        if self._served is not self._chosen:
            self._served = self._chosen
            if self._chosen is None:
                self.rewind()
            else:
                self.begin_for(self._chosen)
        tell_active(self._failover.consumers, self._chosen)
        self._wake()

    def redeliver(self, consumer: Consumer, positions: Sequence[Position] | None, epoch: int | None) -> None:
        """Redelivers to the active consumer, ignoring requests of others; a pending switch rewinds anyway."""
        if self._switch is not None:
            self._served = None
        if consumer is self._served:
            super().redeliver(consumer, positions, epoch)
        elif epoch is not None:
            consumer.epoch = epoch

    def close(self) -> None:
        if self._switch is not None:
            self._switch.cancel()


def tell_active(consumers: Iterable[Consumer], active: Consumer | None) -> None:
    """Notifies each consumer whether it is the active one."""
    for consumer in consumers:
        consumer.tell_active(consumer is active)
