"""How many messages of non-persistent topics were dropped: by producer, topic and subscription."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from magnetar.broker.stats import SubscriptionStats, TopicStats
from magnetar.common.obs.metrics import REGISTRY
from prometheus_client import Counter

DROPPED_MESSAGES: Final = Counter(
    "magnetar_dropped_messages_total",
    "Messages of non-persistent topics that were dropped: at the limit of their connection, or for a "
    "subscription of which nobody could take them.",
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
    """Messages per second, over the last complete period."""
    _sampled: int = 0

    def sample(self, elapsed_s: float) -> None:
        """Compute the rate over the `elapsed_s` since the last call."""
        self.rate = (self.messages - self._sampled) / elapsed_s
        self._sampled = self.messages


@dataclass(slots=True, eq=False)
class NonPersistentSubscriptionStats(SubscriptionStats):
    """A subscription's figures with its dropped messages: no consumer had permits."""

    drops: Drops = field(default_factory=Drops)

    def sample(self, elapsed_s: float) -> None:
        SubscriptionStats.sample(self, elapsed_s)
        self.drops.sample(elapsed_s)


@dataclass(slots=True, eq=False)
class NonPersistentTopicStats(TopicStats):
    """A topic's figures with what it dropped unseen: its producers' connections sent too much at once."""

    drops: Drops = field(default_factory=Drops)
    drops_by_producer: dict[str, Drops] = field(default_factory=dict)
    """Connected producers with dropped messages."""

    def forget_producer(self, producer: str) -> None:
        """Forget the drops of a producer that is no longer connected."""
        self.drops_by_producer.pop(producer, None)

    def count_drops(self, producer: str, messages: int) -> None:
        """Messages of a producer were dropped."""
        DROPPED_AT_CONNECTION.inc(messages)
        self.drops.messages += messages
        self.drops_by_producer.setdefault(producer, Drops()).messages += messages

    def sample(self, elapsed_s: float) -> None:
        TopicStats.sample(self, elapsed_s)
        self.drops.sample(elapsed_s)
        for drops in self.drops_by_producer.values():
            drops.sample(elapsed_s)
