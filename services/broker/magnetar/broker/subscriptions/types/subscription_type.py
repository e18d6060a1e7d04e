"""The parts of a subscription type. Each type is a subclass in a module of its own; `table` lists them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Generic, Protocol, TypeVar

from magnetar.broker.byte_budget import ByteBudget
from magnetar.broker.dispatch.key_shared.dispatcher import KeySharedDispatcher
from magnetar.broker.stats import SubscriptionStats
from magnetar.broker.subscriptions.config import DispatchConfig
from magnetar.broker.subscriptions.consumers.consumer import Consumer
from magnetar.broker.subscriptions.delivery.delivery import Delivery
from magnetar.broker.subscriptions.delivery.outlet import Outlet
from magnetar.broker.subscriptions.entries.entry_reader import EntryReader
from magnetar.broker.subscriptions.entries.entry_source import EntrySource
from magnetar.common.wire.pulsar_pb2 import CommandSubscribe
from magnetar.ledger.managed_ledger.cursor import Cursor

SubType = CommandSubscribe.SubType


class Dispatcher(Protocol):
    """The connected consumers of one subscription, with the operations that every type has."""

    @property
    def consumers(self) -> list[Consumer]: ...
    def add(self, consumer: Consumer) -> None:
        """Connects a consumer. Raises ConsumerAssignFailed for hash ranges that it cannot have."""
        ...

    def remove(self, consumer: Consumer) -> None: ...


D = TypeVar("D", bound=Dispatcher)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryParts:
    """The parts of a subscription that a delivery may use; the subscription owns them."""

    source: EntrySource
    cursor: Cursor
    outlet: Outlet
    stats: SubscriptionStats
    config: DispatchConfig
    budget: ByteBudget
    wake: Callable[[], None]
    """Schedules a turn of the subscription."""
    now_ms: Callable[[], int]
    """The wall clock, ms since 1970 UTC."""
    reader_for: Callable[[Consumer], EntryReader]
    """Returns where the entries of a consumer are read: the topic, or its compacted view."""


class SubscriptionType(ABC, Generic[D]):
    """One subscription type: its dispatcher, its delivery, and the rules for its consumers.

    Instances have no state; the state of a subscription is in its dispatcher and delivery.
    """

    __slots__ = ()

    sub_type: ClassVar[SubType.ValueType]
    """The number of the type on the wire."""

    individual: ClassVar[bool]
    """True when each consumer holds its own entries until it acknowledges them one by one.

    Otherwise one consumer gets every entry in order, and may acknowledge cumulatively.
    """

    announces_active: ClassVar[bool] = False
    """True when consumers are notified which of them is the active one."""

    turn_entries_max: ClassVar[int] = 1_000
    """Maximum entries delivered before other tasks get the event loop (about half a millisecond)."""

    @property
    def name(self) -> str:
        """The name of the type on the wire, in policies and in statistics."""
        return SubType.Name(self.sub_type)

    @abstractmethod
    def dispatcher(self, first: Consumer, topic: str, config: DispatchConfig) -> D:
        """Makes the dispatcher of a subscription; `first` is its first consumer, which is not added yet.

        `topic` is the full name of the topic.
        """

    @abstractmethod
    def delivery(self, dispatcher: D, parts: DeliveryParts) -> Delivery:
        """Makes the delivery of a subscription of a persistent topic."""

    @abstractmethod
    def choose(self, dispatcher: D, entry: bytes) -> tuple[Consumer, int] | None:
        """Chooses the consumer of one entry of a non-persistent topic; returns it with its free permits.

        Returns None when no consumer has permits. Choosing a consumer uses its turn.
        """

    def admit(self, subscription: str, consumer: Consumer, connected: Sequence[Consumer]) -> None:
        """Checks a new consumer against the connected ones; `subscription` is the name.

        Raises ConsumerBusy when one of those excludes it, ConsumerAssignFailed for invalid hash ranges.
        """
        return

    def active(self, dispatcher: D) -> Consumer | None:
        """Returns the one consumer that gets every entry; None on types that have none."""
        return None

    def key_shared(self, dispatcher: D) -> KeySharedDispatcher[Consumer] | None:
        """Returns the dispatcher of types that map keys to consumers, for statistics and liveness probes."""
        return None
