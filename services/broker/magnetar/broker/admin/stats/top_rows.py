"""Rows of the busiest topics, subscriptions, namespaces and brokers, for tables that are shown live.

A column is a name and a function. While thousands of topics are passed, only the column that sorts is
computed; the others are for the rows that are shown.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Generic, TypeVar

from magnetar.broker.metrics.views import SubscriptionView, TopicView
from magnetar.broker.subscriptions.subscription import Subscription
from magnetar.broker.topics.persistent_topic import PersistentTopic
from magnetar.common.cluster.bookie_states import BookieState
from magnetar.common.wire.pulsar_pb2 import CommandSubscribe

T = TypeVar("T")

TopicColumns = Mapping[str, Callable[[TopicView], Any]]
SubscriptionColumns = Mapping[str, Callable[[TopicView, str, SubscriptionView], Any]]


def _backlog(topic: TopicView) -> int:
    return sum(each.backlog() for each in topic.subscriptions.values())


def _unacked(topic: TopicView) -> int:
    return sum(each.unacked_messages for each in topic.subscriptions.values())


def _consumers(topic: TopicView) -> int:
    return sum(each.consumer_count for each in topic.subscriptions.values())


SUMS: Final[TopicColumns] = {
    "subscriptions": lambda topic: len(topic.subscriptions),
    "producers": lambda topic: topic.producer_count,
    "consumers": _consumers,
    "msgRateIn": lambda topic: topic.stats.message_rate_in,
    "msgRateOut": lambda topic: topic.stats.message_rate_out,
    "msgThroughputIn": lambda topic: topic.stats.byte_rate_in,
    "msgThroughputOut": lambda topic: topic.stats.byte_rate_out,
    "msgInCounter": lambda topic: topic.stats.messages_in,
    "msgOutCounter": lambda topic: topic.stats.messages_out,
    "bytesInCounter": lambda topic: topic.stats.bytes_in,
    "bytesOutCounter": lambda topic: topic.stats.bytes_out,
    "msgBacklog": _backlog,
    "unackedMessages": _unacked,
    "backlogSize": lambda topic: topic.backlog_bytes,
    "storageSize": lambda topic: topic.storage_bytes,
}
"""Columns of a topic that add up over the topics of a namespace or a broker."""

TOPIC: Final[TopicColumns] = {
    "topic": lambda topic: topic.name.full,
    **SUMS,
    "oldestBacklogMessageAgeSeconds": lambda topic: topic.oldest_backlog_age_s,
}


def _kind(subscription: SubscriptionView) -> str:
    kind = getattr(subscription, "type", None)
    return "None" if kind is None else CommandSubscribe.SubType.Name(kind)


def _backlog_bytes(topic: TopicView, subscription: SubscriptionView) -> int:
    if isinstance(subscription, Subscription) and isinstance(topic, PersistentTopic):
        return topic.ledger.spans.bytes_after(subscription.cursor.mark_delete)
    return 0


SUBSCRIPTION: Final[SubscriptionColumns] = {
    "topic": lambda topic, name, its: topic.name.full,
    "subscription": lambda topic, name, its: name,
    "type": lambda topic, name, its: _kind(its),
    "consumers": lambda topic, name, its: its.consumer_count,
    "msgBacklog": lambda topic, name, its: its.backlog(),
    "backlogSize": lambda topic, name, its: _backlog_bytes(topic, its),
    "unackedMessages": lambda topic, name, its: its.unacked_messages,
    "msgRateIn": lambda topic, name, its: topic.stats.message_rate_in,
    "msgRateOut": lambda topic, name, its: its.stats.message_rate_out,
    "msgThroughputOut": lambda topic, name, its: its.stats.byte_rate_out,
    "messageAckRate": lambda topic, name, its: its.stats.ack_rate,
    "msgInCounter": lambda topic, name, its: topic.stats.messages_in,
    "msgOutCounter": lambda topic, name, its: its.stats.messages_out,
    "bytesOutCounter": lambda topic, name, its: its.stats.bytes_out,
    "ackCounter": lambda topic, name, its: its.stats.acks,
}

NAMESPACE: Final = ("namespace", "topics", *SUMS)
BROKER: Final = ("broker", "topics", *SUMS)
BOOKIE: Final = ("bookie", "state", "rack", "address", "freeBytes", "startedMs", "ledgersToMove")

COLUMNS: Final[Mapping[str, tuple[str, ...]]] = {
    "topics": tuple(TOPIC),
    "subscriptions": tuple(SUBSCRIPTION),
    "namespaces": NAMESPACE,
    "brokers": BROKER,
    "bookies": BOOKIE,
}
"""Columns that sort, by the kind of rows."""

NAMES: Final[Mapping[str, tuple[str, ...]]] = {
    "topics": ("topic",),
    "subscriptions": ("topic", "subscription"),
    "namespaces": ("namespace",),
    "brokers": ("broker",),
    "bookies": ("bookie",),
}
"""Members that together identify a row, by the kind of rows."""


def topic_row(topic: TopicView, broker: str) -> dict[str, Any]:
    """Returns all columns of a topic. `broker` is the id of its broker."""
    return {**{name: figure(topic) for name, figure in TOPIC.items()}, "broker": broker}


def subscription_row(topic: TopicView, name: str, its: SubscriptionView, broker: str) -> dict[str, Any]:
    """Returns all columns of a subscription. `broker` is the id of its broker."""
    row = {column: figure(topic, name, its) for column, figure in SUBSCRIPTION.items()}
    return {**row, "broker": broker}


def bookie_row(its: BookieState) -> dict[str, Any]:
    """Returns all columns of a bookie; freeBytes is -1, and others are empty, while it is down."""
    registration, request = its.registration, its.decommission
    return {
        "bookie": its.bookie_id,
        "state": its.state,
        "rack": registration.rack if registration else "",
        "address": registration.address if registration else "",
        "freeBytes": registration.free_bytes if registration else -1,
        "startedMs": registration.started_ms if registration else 0,
        "ledgersToMove": request.ledgers if request is not None and request.audited_ms else 0,
    }


async def held_up(topic: TopicView, its: SubscriptionView) -> dict[str, Any]:
    """Returns the reasons that stop a subscription, by their codes, and the publish time of its oldest
    unacknowledged message in ms; 0 without one, and for a topic without storage. May read one entry. Raises
    StorageError.
    """
    if not isinstance(its, Subscription) or not isinstance(topic, PersistentTopic):
        return {"codes": [], "oldestPublishTime": 0}
    codes = list(dict.fromkeys(str(each.code) for each in its.reasons() if each.stops))
    oldest_ms = await topic.backlog.publish_time_at(its.cursor.mark_delete)
    return {"codes": codes, "oldestPublishTime": oldest_ms or 0}


@dataclass(slots=True)
class Sums:
    """Summed columns of topics."""

    topics: int = 0
    figures: dict[str, float] = field(default_factory=lambda: dict.fromkeys(SUMS, 0))

    def add(self, topic: TopicView) -> None:
        self.topics += 1
        figures = self.figures
        for name, figure in SUMS.items():
            figures[name] += figure(topic)

    def row(self, kind: str, name: str) -> dict[str, Any]:
        """Returns the sums as a row of `kind`, "namespace" or "broker"."""
        return {kind: name, "topics": self.topics, **self.figures}


@dataclass(slots=True)
class Selection(Generic[T]):
    """Keeps the first items of an order, out of any number; equal ones by name. Bounded: keeps at most twice
    as many as wanted.
    """

    wanted: int
    ascending: bool = False
    total: int = 0
    """Number of items that were added."""
    _kept: list[tuple[Any, tuple[str, ...], T]] = field(default_factory=list)

    def add(self, key: Any, name: tuple[str, ...], item: T) -> None:
        self.total += 1
        self._kept.append((key, name, item))
        if len(self._kept) >= 2 * self.wanted:
            self._trim()

    def _trim(self) -> None:
        self._kept.sort(key=lambda each: each[1])
        self._kept.sort(key=lambda each: each[0], reverse=not self.ascending)
        del self._kept[self.wanted :]

    def items(self) -> list[T]:
        """Returns the first items, in order."""
        self._trim()
        return [item for _, _, item in self._kept]
