"""The connected consumers of a subscription: the first one sets its type, and the type its dispatcher."""

from __future__ import annotations

from typing import Any

from magnetar.broker.dispatch.key_shared.dispatcher import KeySharedDispatcher
from magnetar.broker.subscriptions.config import DispatchConfig
from magnetar.broker.subscriptions.consumers.consumer import Consumer
from magnetar.broker.subscriptions.types.subscription_type import Dispatcher, SubscriptionType, SubType
from magnetar.broker.subscriptions.types.table import TYPES
from magnetar.common.errors import ConsumerBusy


class Membership:
    """The connected consumers of one subscription, with its type and dispatcher while any is connected."""

    __slots__ = ("_config", "_topic", "dispatcher", "individual", "kind", "name")

    def __init__(self, name: str, topic: str, config: DispatchConfig) -> None:
        """`topic` is the topic's full name."""
        self.name = name
        self.kind: SubscriptionType[Any] | None = None
        """None while no consumer is connected, as `dispatcher` is."""
        self.individual = False
        """Equals `kind.individual`; False without connected consumers."""
        self.dispatcher: Dispatcher | None = None
        self._topic = topic
        self._config = config

    @property
    def type(self) -> SubType.ValueType | None:
        """The type on the wire; None while no consumer is connected."""
        return None if self.kind is None else self.kind.sub_type

    @property
    def consumers(self) -> list[Consumer]:
        return [] if self.dispatcher is None else self.dispatcher.consumers

    @property
    def active(self) -> Consumer | None:
        """The one consumer that gets every entry, on Exclusive and Failover."""
        return None if self.kind is None else self.kind.active(self.dispatcher)

    @property
    def announced(self) -> Consumer | None:
        """The active consumer on types that announce it to their consumers (Failover)."""
        return self.active if self.kind is not None and self.kind.announces_active else None

    @property
    def key_shared(self) -> KeySharedDispatcher[Consumer] | None:
        """The dispatcher that maps keys to consumers; None on other types."""
        return None if self.kind is None else self.kind.key_shared(self.dispatcher)

    def choose(self, entry: bytes) -> tuple[Consumer, int] | None:
        """See `SubscriptionType.choose`; None also while no consumer is connected."""
        return None if self.kind is None else self.kind.choose(self.dispatcher, entry)

    def add(self, consumer: Consumer, sub_type: SubType.ValueType) -> None:
        """Connects a consumer; changes nothing when it is refused.

        Raises ConsumerBusy when the connected consumers have another type, another mode of sharing keys, or
        exclusive access; ConsumerAssignFailed for hash ranges that it cannot have.
        """
        wanted = TYPES[sub_type]
        if self.kind is not None and self.kind is not wanted:
            raise ConsumerBusy(
                f"subscription {self.name} is of different type: it is {self.kind.name} "
                f"while consumers are connected, not {wanted.name}"
            )
        wanted.admit(self.name, consumer, self.consumers)
        dispatcher = self.dispatcher
        if dispatcher is None:
            dispatcher = wanted.dispatcher(consumer, self._topic, self._config)
        dispatcher.add(consumer)
        self.dispatcher = dispatcher
        self.kind = wanted
        self.individual = wanted.individual

    def remove(self, consumer: Consumer) -> bool:
        """Disconnects a consumer; False when it was not connected."""
        dispatcher = self.dispatcher
        if dispatcher is None or consumer not in dispatcher.consumers:
            return False
        dispatcher.remove(consumer)
        if not dispatcher.consumers:
            self.dispatcher = None
            self.kind = None
            self.individual = False
        return True


class WithMembers:
    """The consumers of a subscription, for persistent and non-persistent topics."""

    __slots__ = ("_members",)

    def __init__(self, members: Membership) -> None:
        self._members = members

    @property
    def type(self) -> SubType.ValueType | None:
        """The subscription type on the wire; None while no consumer is connected."""
        return self._members.type

    @property
    def individual(self) -> bool:
        """True while each consumer holds its own entries, on Shared and Key_Shared."""
        return self._members.individual

    @property
    def consumers(self) -> list[Consumer]:
        return self._members.consumers

    @property
    def active_consumer(self) -> Consumer | None:
        """The one consumer that gets every entry, on Exclusive and Failover."""
        return self._members.active

    @property
    def key_shared(self) -> KeySharedDispatcher[Consumer] | None:
        """The dispatcher that maps keys to consumers; None on other types."""
        return self._members.key_shared

    @property
    def consumer_count(self) -> int:
        return len(self.consumers)
