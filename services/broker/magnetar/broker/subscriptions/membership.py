"""Who is connected to a subscription: its first consumer sets its type, the type its dispatcher."""

from __future__ import annotations

from magnetar.broker.dispatch.exclusive import ExclusiveDispatcher
from magnetar.broker.dispatch.shared import SharedDispatcher
from magnetar.broker.subscriptions.consumer import Consumer
from magnetar.common.errors import ConsumerBusy, NotSupportedYet
from magnetar.common.wire.pulsar_pb2 import CommandSubscribe

SubType = CommandSubscribe.SubType


def check_supported(sub_type: SubType.ValueType) -> None:
    """Raises NotSupportedYet for the subscription types that this version does not serve."""
    if sub_type not in (SubType.Exclusive, SubType.Shared):
        raise NotSupportedYet(
            f"subscription type {SubType.Name(sub_type)} is not supported by this version; "
            "use Exclusive or Shared"
        )


class Membership:
    """The connected consumers of one subscription."""

    __slots__ = ("_round_robin_entries_max", "dispatcher", "name", "type")

    def __init__(self, name: str, round_robin_entries_max: int) -> None:
        self.name = name
        self.type: SubType.ValueType | None = None
        """Undefined while no consumer is connected."""
        self.dispatcher: ExclusiveDispatcher[Consumer] | SharedDispatcher[Consumer] | None = None
        self._round_robin_entries_max = round_robin_entries_max

    @property
    def consumers(self) -> list[Consumer]:
        return [] if self.dispatcher is None else self.dispatcher.consumers

    def add(self, consumer: Consumer, sub_type: SubType.ValueType) -> None:
        """Connect a consumer. Raises ConsumerBusy when another type or an exclusive holder forbids it."""
        if self.dispatcher is not None:
            if self.type is not None and self.type != sub_type:
                raise ConsumerBusy(
                    f"subscription {self.name} is of different type: it is {SubType.Name(self.type)} "
                    f"while consumers are connected, not {SubType.Name(sub_type)}"
                )
            if sub_type == SubType.Exclusive:
                raise ConsumerBusy(f"exclusive consumer is already connected to subscription {self.name}")
        elif sub_type == SubType.Exclusive:
            self.dispatcher = ExclusiveDispatcher()
        else:
            self.dispatcher = SharedDispatcher(self._round_robin_entries_max)
        self.type = sub_type
        self.dispatcher.add(consumer)

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
