"""Counters of dropped messages of non-persistent topics, by producer, topic and subscription."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from magnetar.broker.stats import SubscriptionStats, TopicStats
from magnetar.common.obs.metrics import REGISTRY
from prometheus_client import Counter

DROPPED_MESSAGES: Final = Counter(
    "magnetar_dropped_messages_total",
    "Dropped messages of non-persistent topics: over the limit of their connection, or without a "
    "consumer that could receive them.",
    ["where"],
    registry=REGISTRY,
)
DROPPED_AT_CONNECTION: Final = DROPPED_MESSAGES.labels("connection")
DROPPED_AT_SUBSCRIPTION: Final = DROPPED_MESSAGES.labels("subscription")


@dataclass(slots=True, eq=False)
class Drops:
    """A counter and its rate."""

    messages: int = 0
    rate: float = 0.0
    """Dropped messages per second, over the last complete period."""
    _sampled: int = 0

    def sample(self, elapsed_s: float) -> None:
        """Computes the rate over the `elapsed_s` seconds since the last call."""
        self.rate = (self.messages - self._sampled) / elapsed_s
        self._sampled = self.messages


@dataclass(slots=True, eq=False)
class NonPersistentSubscriptionStats(SubscriptionStats):
    """Figures of a subscription, including messages dropped because no consumer had permits."""

    drops: Drops = field(default_factory=Drops)

    def sample(self, elapsed_s: float) -> None:
        SubscriptionStats.sample(self, elapsed_s)
        self.drops.sample(elapsed_s)


@dataclass(slots=True, eq=False)
class NonPersistentTopicStats(TopicStats):
    """Figures of a topic, including messages dropped because a producer's connection sent too many at
    once.
    """

    drops: Drops = field(default_factory=Drops)
    drops_by_producer: dict[str, Drops] = field(default_factory=dict)
    """Drops of connected producers, by producer name."""

    def forget_producer(self, producer: str) -> None:
        """Removes the drops of a disconnected producer."""
        self.drops_by_producer.pop(producer, None)

    def count_drops(self, producer: str, messages: int) -> None:
        """Counts dropped messages of a producer."""
        DROPPED_AT_CONNECTION.inc(messages)
        self.drops.messages += messages
        self.drops_by_producer.setdefault(producer, Drops()).messages += messages

    def sample(self, elapsed_s: float) -> None:
        TopicStats.sample(self, elapsed_s)
        self.drops.sample(elapsed_s)
        for drops in self.drops_by_producer.values():
            drops.sample(elapsed_s)
