"""Who is connected to a subscription: its first consumer sets its type, the type its dispatcher."""

from __future__ import annotations

from collections.abc import Collection

from magnetar.broker.dispatch.exclusive import ExclusiveDispatcher
from magnetar.broker.dispatch.failover import FailoverDispatcher
from magnetar.broker.dispatch.key_shared.dispatcher import KeySharedDispatcher
from magnetar.broker.dispatch.key_shared.sticky_ranges import check_ranges
from magnetar.broker.dispatch.shared import SharedDispatcher
from magnetar.broker.subscriptions.config import DispatchConfig
from magnetar.broker.subscriptions.consumer import Consumer
from magnetar.common.errors import ConsumerBusy, NotAllowed
from magnetar.common.naming.topic_name import TopicName
from magnetar.common.wire.pulsar_pb2 import CommandSubscribe

SubType = CommandSubscribe.SubType

Dispatcher = (
    ExclusiveDispatcher[Consumer]
    | FailoverDispatcher[Consumer]
    | SharedDispatcher[Consumer]
    | KeySharedDispatcher[Consumer]
)


def check_allowed(sub_type: SubType.ValueType, allowed: Collection[str]) -> None:
    """Raises NotAllowed for a subscription type that is switched off; `allowed` are names."""
    name = SubType.Name(sub_type)
    if name not in allowed:
        raise NotAllowed(
            f"subscription type {name} is switched off here (subscriptionTypesEnabled, "
            f"subscriptionKeySharedEnable); use one of: {', '.join(sorted(allowed)) or 'none'}"
        )


class Membership:
    """The connected consumers of one subscription."""

    __slots__ = ("_config", "_topic", "dispatcher", "name", "type")

    def __init__(self, name: str, topic: str, config: DispatchConfig) -> None:
        """`topic` is the topic's full name."""
        self.name = name
        self.type: SubType.ValueType | None = None
        """Undefined while no consumer is connected."""
        self.dispatcher: Dispatcher | None = None
        self._topic = topic
        self._config = config

    @property
    def consumers(self) -> list[Consumer]:
        return [] if self.dispatcher is None else self.dispatcher.consumers

    @property
    def active(self) -> Consumer | None:
        """The one consumer that gets everything, on Exclusive and Failover."""
        if isinstance(self.dispatcher, ExclusiveDispatcher):
            return next(iter(self.dispatcher.consumers), None)
        return self.dispatcher.active if isinstance(self.dispatcher, FailoverDispatcher) else None

    @property
    def key_shared(self) -> KeySharedDispatcher[Consumer] | None:
        """Who owns which keys; None on other types."""
        return self.dispatcher if isinstance(self.dispatcher, KeySharedDispatcher) else None

    def add(self, consumer: Consumer, sub_type: SubType.ValueType) -> None:
        """Connect a consumer; nothing is changed when it is refused.

        Raises ConsumerBusy when another type, another way of sharing keys, or an exclusive holder forbids it,
        ConsumerAssignFailed when it names hash ranges that it cannot have.
        """
        dispatcher = self.dispatcher
        if dispatcher is None:
            dispatcher = self._dispatcher(consumer, sub_type)
        else:
            self._check_same_type(consumer, sub_type)
        if sub_type == SubType.Exclusive and consumer.hash_ranges:
            check_ranges(consumer.hash_ranges)
        dispatcher.add(consumer)
        self.dispatcher = dispatcher
        self.type = sub_type

    def _check_same_type(self, consumer: Consumer, sub_type: SubType.ValueType) -> None:
        if self.type is not None and self.type != sub_type:
            raise ConsumerBusy(
                f"subscription {self.name} is of different type: it is {SubType.Name(self.type)} "
                f"while consumers are connected, not {SubType.Name(sub_type)}"
            )
        if sub_type == SubType.Exclusive:
            raise ConsumerBusy(f"exclusive consumer is already connected to subscription {self.name}")
        if sub_type == SubType.Key_Shared:
            other = self.consumers[0]
            if consumer.sticky != other.sticky or consumer.allow_out_of_order != other.allow_out_of_order:
                raise ConsumerBusy(
                    f"subscription {self.name} is of different type: its consumers share keys "
                    f"{_sharing(other)}, not {_sharing(consumer)}"
                )

    def _dispatcher(self, first: Consumer, sub_type: SubType.ValueType) -> Dispatcher:
        if sub_type == SubType.Exclusive:
            return ExclusiveDispatcher()
        if sub_type == SubType.Failover:
            on_ring = self._config.failover_consistent_hashing
            partition_index = -1 if on_ring else TopicName.parse(self._topic).partition_index
            return FailoverDispatcher(self._topic, partition_index)
        if sub_type == SubType.Key_Shared:
            return KeySharedDispatcher(
                first,
                consistent_hashing=self._config.key_shared_consistent_hashing,
                points=self._config.key_shared_points,
            )
        return SharedDispatcher(self._config.round_robin_entries_max)

    def remove(self, consumer: Consumer) -> bool:
        """Disconnect a consumer; False when it was not connected."""
        dispatcher = self.dispatcher
        if dispatcher is None or consumer not in dispatcher.consumers:
            return False
        dispatcher.remove(consumer)
        if not dispatcher.consumers:
            self.dispatcher = None
            self.type = None
        return True


class WithMembers:
    """A subscription of either kind of topic, as far as its consumers go."""

    __slots__ = ("_members",)

    def __init__(self, members: Membership) -> None:
        self._members = members

    @property
    def type(self) -> SubType.ValueType | None:
        """The subscription type; None while no consumer is connected."""
        return self._members.type

    @property
    def consumers(self) -> list[Consumer]:
        return self._members.consumers

    @property
    def active_consumer(self) -> Consumer | None:
        """The one consumer that gets everything, on Exclusive and Failover."""
        return self._members.active

    @property
    def key_shared(self) -> KeySharedDispatcher[Consumer] | None:
        return self._members.key_shared

    @property
    def consumer_count(self) -> int:
        return len(self.consumers)


def _sharing(consumer: Consumer) -> str:
    mode = "STICKY" if consumer.sticky else "AUTO_SPLIT"
    return f"{mode} {'out of' if consumer.allow_out_of_order else 'in'} order"
