"""Figures of topics, subscriptions and the broker, as protocols that tests can imitate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from magnetar.broker.config import BrokerConfig
from magnetar.broker.health.readiness import ReadinessSource
from magnetar.broker.stats import SubscriptionStats, TopicStats
from magnetar.broker.subscriptions.consumers.consumer import Consumer
from magnetar.broker.topics.compaction_state import CompactionState
from magnetar.broker.topics.publish.producer import Producer
from magnetar.broker.topics.transaction_figures import TransactionFigures
from magnetar.common.naming.topic_name import TopicName


class SubscriptionView(Protocol):
    """The figures of one subscription."""

    @property
    def stats(self) -> SubscriptionStats: ...

    @property
    def consumer_count(self) -> int: ...

    @property
    def consumers(self) -> Sequence[Consumer]: ...

    @property
    def in_replay(self) -> int:
        """Entries that were read and wait for delivery."""
        ...

    @property
    def unacked_messages(self) -> int: ...

    @property
    def blocked_on_unacked(self) -> bool: ...

    def backlog(self) -> int:
        """Unacknowledged entries."""
        ...

    @property
    def delayed(self) -> int:
        """Delayed entries in the backlog, not due yet."""
        ...

    @property
    def acks_at_risk(self) -> int:
        """Acknowledged entries whose acknowledgement is not on disk yet."""
        ...

    @property
    def mark_deleted_ms(self) -> int:
        """Time when its mark-delete position last moved on disk, ms since 1970 UTC; 0: not since the load."""
        ...


class TopicView(Protocol):
    """The figures of one loaded topic."""

    @property
    def name(self) -> TopicName: ...

    @property
    def stats(self) -> TopicStats: ...

    @property
    def producer_count(self) -> int: ...

    @property
    def producers(self) -> Mapping[str, Producer]: ...

    @property
    def times_rate_limited(self) -> int:
        """Number of times that a publish rate paused reading from a producer's connection."""
        ...

    @property
    def storage_bytes(self) -> int:
        """Stored bytes, one copy."""
        ...

    @property
    def copies(self) -> int:
        """Copies of each entry in new ledgers; older ledgers may have another number."""
        ...

    @property
    def storage_entries(self) -> int: ...

    @property
    def offloaded_bytes(self) -> int:
        """Stored bytes of ledgers that were offloaded."""
        ...

    @property
    def compaction(self) -> CompactionState:
        """Its compactions since the load."""
        ...

    @property
    def compacted_entries(self) -> int:
        """Entries in the compacted view."""
        ...

    @property
    def compacted_bytes(self) -> int:
        """Estimated bytes of the entries in the compacted view, one copy."""
        ...

    @property
    def transactions(self) -> TransactionFigures:
        """Its transactions since the load."""
        ...

    @property
    def blocked_by_transaction_s(self) -> float:
        """Age in seconds of the open transaction that readers wait for; 0 without one."""
        ...

    @property
    def backlog_bytes(self) -> int: ...

    @property
    def delayed_index_bytes(self) -> int:
        """Bytes of memory of the index of delayed entries."""
        ...

    @property
    def oldest_backlog_age_s(self) -> int: ...

    @property
    def subscriptions(self) -> Mapping[str, SubscriptionView]: ...

    def compaction_subscription(self) -> SubscriptionView | None:
        """The subscription `__compaction` to show; None for a topic that is not compacted."""
        ...


class MetricsSource(ReadinessSource, Protocol):
    """The figures of one broker."""

    @property
    def config(self) -> BrokerConfig: ...

    @property
    def topics(self) -> Mapping[str, TopicView]:
        """Loaded topics by full name."""
        ...

    @property
    def connections(self) -> int:
        """Client connections open now."""
        ...

    @property
    def connections_accepted(self) -> int:
        """Client connections since the start, open or not."""
        ...
