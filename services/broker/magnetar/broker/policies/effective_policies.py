"""The policies in effect for one topic: its own, else its namespace's, else the broker's configuration.

`resolve` is pure and its result is immutable: its holders read limits from it at the moment of use, and get
another one when a policy changes. Topics without policies of their own share their namespace's.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from magnetar.broker.offload_policy.policy import NEVER, OffloadPolicy, resolve_offload
from magnetar.broker.policies.config import PolicyDefaults, QuotaConfig, RateConfig
from magnetar.broker.policies.schema_policies import resolve_schemas
from magnetar.broker.schemas.rules import DEFAULT_RULES, SchemaRules
from magnetar.common.metadata.values import Policies
from magnetar.ledger.managed_ledger.context import Persistence

MB: Final = 1024 * 1024

HOLD: Final = Policies.PRODUCER_REQUEST_HOLD
EXCEPTION: Final = Policies.PRODUCER_EXCEPTION
EVICT: Final = Policies.CONSUMER_BACKLOG_EVICTION

DELETE_WHEN_NO_SUBSCRIPTIONS: Final = Policies.DELETE_WHEN_NO_SUBSCRIPTIONS


@dataclass(frozen=True, slots=True)
class Rate:
    """At most `messages` and `byte_count` in each `period_s`; 0 is no limit."""

    messages: int = 0
    byte_count: int = 0
    period_s: int = 1
    relative_to_publish_rate: bool = False

    def __bool__(self) -> bool:
        return self.messages > 0 or self.byte_count > 0


@dataclass(frozen=True, slots=True)
class Quota:
    """A limit of a backlog: bytes for the size quota, seconds for the time quota; -1 is no limit."""

    limit: int = -1
    policy: Policies.QuotaPolicy.ValueType = HOLD


@dataclass(frozen=True, slots=True, kw_only=True)
class EffectivePolicies:
    """Resolved policies: topic, then namespace, then broker. A maximum number of 0 is no limit."""

    retention_time_min: int
    """Minutes; -1 is unlimited."""
    retention_size_bytes: int
    """Bytes; -1 is unlimited."""
    message_ttl_s: int
    """Seconds; 0 disables it."""
    size_quota: Quota
    time_quota: Quota
    subscription_expiration_min: int
    """Minutes; 0 disables it."""
    deduplication: bool
    deduplication_snapshot_s: int
    dispatch_rate: Rate
    subscription_dispatch_rate: Rate
    dispatch_rate_of_subscription: dict[str, Rate]
    """Dispatch rates of single subscriptions; they override `subscription_dispatch_rate`."""
    publish_rate: Rate
    subscribes_per_consumer: int
    subscribe_period_s: int
    max_producers: int
    max_producers_same_address: int
    max_consumers: int
    max_consumers_same_address: int
    max_consumers_per_subscription: int
    max_subscriptions: int
    max_message_bytes: int
    """Maximum bytes of one message or batch; never above the broker's limit."""
    max_unacked_per_consumer: int
    max_unacked_per_subscription: int
    auto_subscription_creation: bool
    inactive_delete: bool
    inactive_mode: Policies.InactiveMode.ValueType
    inactive_s: int
    delayed_delivery_active: bool
    delayed_delivery_tick_ms: int
    delayed_delivery_max_delay_ms: int
    encryption_required: bool
    """Whether producers must say that they encrypt: by the namespace's policy or by configuration."""
    subscription_types: frozenset[str]
    compaction_threshold_bytes: int = 0
    """Bytes not compacted yet beyond which the topic is compacted; 0: never by itself."""
    persistence: Persistence | None = None
    """Persistence of its ledgers; None: the defaults of managed ledgers."""
    messages_encrypted: bool = False
    """Whether each message must have encryption keys: by the namespace's policy alone, as in Pulsar."""
    offload: OffloadPolicy = NEVER
    """Offload policy of its closed ledgers."""
    schemas: SchemaRules = DEFAULT_RULES
    """Rules for the schemas of its producers and consumers."""

    def dispatch_rate_of(self, subscription: str) -> Rate:
        """Returns the dispatch rate of one subscription; the topic's rate applies in addition."""
        return self.dispatch_rate_of_subscription.get(subscription, self.subscription_dispatch_rate)


@dataclass(frozen=True, slots=True, kw_only=True)
class NamespacePolicies:
    """The policies in effect for a namespace, and for its topics without own policies."""

    own: Policies
    """The namespace's own policies."""
    of_topics: EffectivePolicies
    auto_topic_creation: bool
    auto_partitions: int
    """Partitions of automatically created topics; 0: they are not partitioned."""
    max_topics: int
    properties: dict[str, str] = field(default_factory=dict)


NOTHING: Final = Policies()
"""No policies at all."""

TOPIC: Final = "topic"
NAMESPACE: Final = "namespace"
BROKER: Final = "broker"
# Levels of policies, the most specific one first.


def resolve_namespace(
    config: PolicyDefaults, namespace: Policies, properties: dict[str, str] | None = None
) -> NamespacePolicies:
    """Resolves a namespace's policies from its own ones and the configuration."""
    creation = config.policies.topic_creation
    allowed = config.topics.auto_creation
    partitions = creation.partitions if creation.type == "partitioned" else 0
    if namespace.HasField("auto_topic_creation"):
        own = namespace.auto_topic_creation
        allowed = own.allowed
        partitions = max(1, own.partitions) if own.partitioned else 0
    return NamespacePolicies(
        own=namespace,
        of_topics=resolve(config, namespace, NOTHING),
        auto_topic_creation=allowed,
        auto_partitions=partitions,
        max_topics=(
            namespace.max_topics_per_namespace
            if namespace.HasField("max_topics_per_namespace")
            else config.policies.limits.topics_per_namespace_max
        ),
        properties=properties or {},
    )


def resolve(
    config: PolicyDefaults,
    namespace: Policies,
    topic: Policies,
    levels: dict[str, str] | None = None,
) -> EffectivePolicies:
    """Resolves a topic's policies from its own ones, its namespace's and the configuration.

    `levels` gets the level of each policy that comes from a single one, by its name in metadata.
    """
    defaults = config.policies

    def level_with(name: str) -> Policies | None:
        found = next((level for level in (topic, namespace) if _says(level, name)), None)
        if levels is not None:
            levels[name] = BROKER if found is None else TOPIC if found is topic else NAMESPACE
        return found

    def number(name: str, default: int) -> int:
        level = level_with(name)
        return default if level is None else int(getattr(level, name))

    retention = level_with("retention")
    inactive = level_with("inactive_topics")
    delayed = level_with("delayed_delivery")
    types = level_with("subscription_types")
    subscribe = level_with("subscribe_rate")
    bytes_max = config.publish.message_bytes_max
    own_bytes_max = number("max_message_bytes", 0)
    messages_encrypted = bool(number("encryption_required", 0))
    return EffectivePolicies(
        retention_time_min=retention.retention.time_min if retention else defaults.retention.time_min,
        retention_size_bytes=_bytes_of(
            retention.retention.size_mb if retention else defaults.retention.size_mb
        ),
        message_ttl_s=number("message_ttl_s", defaults.retention.ttl_s),
        size_quota=_size_quota(level_with("size_quota"), defaults.quotas),
        time_quota=_time_quota(level_with("time_quota"), defaults.quotas),
        subscription_expiration_min=number(
            "subscription_expiration_min", defaults.retention.subscription_expiration_min
        ),
        deduplication=bool(number("deduplication", config.deduplication.enabled)),
        deduplication_snapshot_s=number("deduplication_snapshot_s", config.deduplication.snapshot_interval_s),
        dispatch_rate=_rate(level_with("dispatch_rate"), "dispatch_rate", _topic_dispatch(defaults.rates)),
        subscription_dispatch_rate=_rate(
            level_with("subscription_dispatch_rate"),
            "subscription_dispatch_rate",
            _subscription_dispatch(defaults.rates),
        ),
        dispatch_rate_of_subscription={
            name: rate_of(rate) for name, rate in topic.dispatch_rate_of_subscription.items()
        },
        publish_rate=_rate(
            level_with("publish_rate"),
            "publish_rate",
            Rate(max(0, defaults.rates.topic_publish_messages), max(0, defaults.rates.topic_publish_bytes)),
        ),
        subscribes_per_consumer=max(
            0,
            subscribe.subscribe_rate.per_consumer if subscribe else defaults.rates.subscribes_per_consumer,
        ),
        subscribe_period_s=(
            (subscribe.subscribe_rate.period_s or 30) if subscribe else defaults.rates.subscribe_period_s
        ),
        max_producers=number("max_producers_per_topic", defaults.limits.producers_per_topic_max),
        max_producers_same_address=defaults.limits.producers_same_address_max,
        max_consumers_same_address=defaults.limits.consumers_same_address_max,
        max_consumers=number("max_consumers_per_topic", defaults.limits.consumers_per_topic_max),
        max_consumers_per_subscription=number(
            "max_consumers_per_subscription", defaults.limits.consumers_per_subscription_max
        ),
        max_subscriptions=number("max_subscriptions_per_topic", defaults.limits.subscriptions_per_topic_max),
        max_message_bytes=min(own_bytes_max, bytes_max) if own_bytes_max > 0 else bytes_max,
        max_unacked_per_consumer=number("max_unacked_per_consumer", config.dispatch.consumer_unacked_max),
        max_unacked_per_subscription=number(
            "max_unacked_per_subscription", config.dispatch.subscription_unacked_max
        ),
        auto_subscription_creation=bool(
            number("auto_subscription_creation", config.topics.auto_subscription_creation)
        ),
        inactive_delete=inactive.inactive_topics.delete if inactive else defaults.inactive_topics.enabled,
        inactive_mode=(
            inactive.inactive_topics.mode
            if inactive
            else Policies.InactiveMode.Value(defaults.inactive_topics.mode.upper())
        ),
        inactive_s=(
            inactive.inactive_topics.inactive_s
            if inactive
            else defaults.inactive_topics.inactive_s or defaults.inactive_topics.check_interval_s
        ),
        delayed_delivery_active=(
            delayed.delayed_delivery.active if delayed else defaults.delayed_delivery.enabled
        ),
        delayed_delivery_tick_ms=(
            (delayed.delayed_delivery.tick_ms if delayed else 0) or defaults.delayed_delivery.tick_ms
        ),
        delayed_delivery_max_delay_ms=(
            delayed.delayed_delivery.max_delay_ms if delayed else defaults.delayed_delivery.max_delay_ms
        ),
        encryption_required=messages_encrypted or defaults.limits.encryption_required,
        messages_encrypted=messages_encrypted,
        subscription_types=_types(config, types),
        compaction_threshold_bytes=number("compaction_threshold_bytes", defaults.compaction.threshold_bytes),
        persistence=_persistence(level_with("persistence")),
        offload=resolve_offload(config.offload, config.cluster_name, namespace, topic),
        schemas=resolve_schemas(defaults.schemas, namespace, topic),
    )


def _says(level: Any, name: str) -> bool:
    return bool(level.HasField(name))


def rate_of(rate: Policies.Rate) -> Rate:
    """Converts a stored rate; a value of 0 or less is no limit."""
    return Rate(
        max(0, rate.messages), max(0, rate.byte_count), max(1, rate.period_s), rate.relative_to_publish_rate
    )


def _rate(level: Policies | None, name: str, default: Rate) -> Rate:
    return default if level is None else rate_of(getattr(level, name))


def _topic_dispatch(rates: RateConfig) -> Rate:
    return Rate(
        max(0, rates.topic_dispatch_messages),
        max(0, rates.topic_dispatch_bytes),
        relative_to_publish_rate=rates.relative_to_publish_rate,
    )


def _subscription_dispatch(rates: RateConfig) -> Rate:
    return Rate(
        max(0, rates.subscription_dispatch_messages),
        max(0, rates.subscription_dispatch_bytes),
        relative_to_publish_rate=rates.relative_to_publish_rate,
    )


def _bytes_of(megabytes: int) -> int:
    return megabytes * MB if megabytes > 0 else megabytes


def _size_quota(level: Policies | None, defaults: QuotaConfig) -> Quota:
    if level is None:
        return Quota(defaults.limit_bytes, Policies.QuotaPolicy.Value(defaults.policy.upper()))
    return Quota(level.size_quota.limit_bytes, level.size_quota.policy)


def _time_quota(level: Policies | None, defaults: QuotaConfig) -> Quota:
    if level is None:
        return Quota(defaults.limit_s, Policies.QuotaPolicy.Value(defaults.policy.upper()))
    return Quota(level.time_quota.limit_s, level.time_quota.policy)


def _persistence(level: Policies | None) -> Persistence | None:
    if level is None:
        return None
    own = level.persistence
    return Persistence(own.ensemble, own.write_quorum, own.ack_quorum, own.mark_delete_rate)


def _types(config: PolicyDefaults, level: Policies | None) -> frozenset[str]:
    limits = config.policies.limits
    names = frozenset(level.subscription_types.names if level else limits.subscription_types)
    return names if limits.key_shared_enabled else names - {"Key_Shared"}
