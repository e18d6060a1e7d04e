"""The subscriptions of one topic by name, and the interface to create, connect to and delete them."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, ItemsView, Iterator, Mapping, Sequence, ValuesView
from typing import TypeVar

from magnetar.broker.client_endings import EndCode
from magnetar.broker.subscriptions.consumers.consumer import Consumer
from magnetar.broker.topics.closed_clients import ClosedClient
from magnetar.broker.topics.subscribe.any_subscription import AnySubscription, close_consumers
from magnetar.broker.topics.subscribe.subscribe_request import SubscribeRequest
from magnetar.broker.topics.topic_state import TopicState
from magnetar.common.errors import NotAllowed
from magnetar.common.naming.position import Position
from magnetar.common.wire import commands

S_co = TypeVar("S_co", bound=AnySubscription, covariant=True)


class TopicSubscriptions(Mapping[str, S_co]):
    """The subscriptions of a persistent or a non-persistent topic."""

    __slots__ = ("_by_name", "_state")

    def __init__(self, state: TopicState) -> None:
        self._state = state
        self._by_name: dict[str, S_co] = {}

    def __getitem__(self, name: str) -> S_co:
        return self._by_name[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._by_name)

    def __len__(self) -> int:
        return len(self._by_name)

    def values(self) -> ValuesView[S_co]:
        return self._by_name.values()

    def items(self) -> ItemsView[str, S_co]:
        return self._by_name.items()

    @property
    def have_consumers(self) -> bool:
        """True while a consumer is connected to any of them."""
        return any(each.consumers for each in self._by_name.values())

    @abstractmethod
    async def subscribe(self, request: SubscribeRequest) -> tuple[AnySubscription, Consumer]:
        """Connects a consumer, creating its subscription when it does not exist.

        Raises ConsumerBusy, NotAllowed, SubscriptionNotFound, ServiceNotReady.
        """

    @abstractmethod
    async def create(self, name: str) -> None:
        """Makes sure that a durable subscription exists, at the earliest position when it is new."""

    async def create_at(self, name: str, position: Position, properties: dict[str, str]) -> bool:
        """Creates a durable subscription at `position`; False when one of that name exists already."""
        raise NotAllowed(f"topic {self._state.name} is non-persistent: it has no durable subscriptions")

    @abstractmethod
    async def describe(self, subscription: AnySubscription, properties: dict[str, str]) -> None:
        """Replaces the properties of a subscription; durable on return where the subscription is.

        Raises SubscriptionNotFound, StorageError.
        """

    async def adopt(self, others: Mapping[str, AnySubscription]) -> None:
        """Creates those durable subscriptions of another topic that are missing, at the earliest position."""
        return  # nothing of a non-persistent topic is durable

    @abstractmethod
    async def unsubscribe(self, subscription: AnySubscription, consumer: Consumer, *, force: bool) -> None:
        """Deletes a subscription with its cursor and backlog, if this is its only consumer or by force."""

    @abstractmethod
    async def delete_unused(
        self, subscription: AnySubscription, expired: Callable[[], bool] = lambda: True
    ) -> bool:
        """Deletes a subscription if it has no consumer and is `expired` by now; returns whether it did."""

    @abstractmethod
    def remove_consumer(self, subscription: AnySubscription, consumer: Consumer) -> None:
        """Disconnects a consumer; what it held is delivered again to others.

        A subscription that is not durable is deleted with its last consumer.
        """

    async def seek(
        self, subscription: AnySubscription, position: Position, unacked_words: Sequence[int] | None
    ) -> None:
        """Moves a subscription so that the entry at `position` comes next."""
        raise NotAllowed(f"topic {self._state.name} is non-persistent: there is nothing to seek in")

    async def seek_time(self, subscription: AnySubscription, publish_time_ms: int) -> None:
        """Moves a subscription to the first entry with publish time >= `publish_time_ms`."""
        raise NotAllowed(f"topic {self._state.name} is non-persistent: there is nothing to seek in")

    def mark_delete_position(self, subscription: AnySubscription) -> Position | None:
        """The position up to which everything is acknowledged; None where nothing is stored."""
        return None

    def disconnect_all(self, code: EndCode) -> None:
        """Disconnects all consumers and makes their clients subscribe again."""
        for subscription in list(self._by_name.values()):
            close_consumers(subscription, code)

    def close_all(self) -> list[ClosedClient]:
        """Removes all consumers without notifying their clients; the caller notifies them later."""
        closed = []
        for subscription in list(self._by_name.values()):
            for consumer in list(subscription.consumers):
                consumer.detach(EndCode.MOVED)
                subscription.remove_consumer(consumer)
                closed.append(ClosedClient(consumer.peer, consumer.consumer_id, commands.close_consumer))
        return closed
