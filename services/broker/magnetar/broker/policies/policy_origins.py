"""The origin of each policy in effect for a topic: the topic, its namespace, or the configuration.

The values and their levels are those that `resolve` found, so that they cannot differ from what holds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, is_dataclass
from enum import Enum
from typing import Any, Final

from magnetar.broker.policies.config import PolicyDefaults
from magnetar.broker.policies.effective_policies import (
    BROKER,
    NAMESPACE,
    NOTHING,
    TOPIC,
    EffectivePolicies,
    resolve,
)
from magnetar.common.metadata.values import Policies

FIELDS: Final[Mapping[str, tuple[str, ...]]] = {
    "retention": ("retention_time_min", "retention_size_bytes"),
    "message_ttl_s": ("message_ttl_s",),
    "size_quota": ("size_quota",),
    "time_quota": ("time_quota",),
    "subscription_expiration_min": ("subscription_expiration_min",),
    "deduplication": ("deduplication",),
    "deduplication_snapshot_s": ("deduplication_snapshot_s",),
    "dispatch_rate": ("dispatch_rate",),
    "subscription_dispatch_rate": ("subscription_dispatch_rate",),
    "dispatch_rate_of_subscription": ("dispatch_rate_of_subscription",),
    "publish_rate": ("publish_rate",),
    "subscribe_rate": ("subscribes_per_consumer", "subscribe_period_s"),
    "max_producers_per_topic": ("max_producers",),
    "max_producers_same_address": ("max_producers_same_address",),
    "max_consumers_per_topic": ("max_consumers",),
    "max_consumers_same_address": ("max_consumers_same_address",),
    "max_consumers_per_subscription": ("max_consumers_per_subscription",),
    "max_subscriptions_per_topic": ("max_subscriptions",),
    "max_message_bytes": ("max_message_bytes",),
    "max_unacked_per_consumer": ("max_unacked_per_consumer",),
    "max_unacked_per_subscription": ("max_unacked_per_subscription",),
    "auto_subscription_creation": ("auto_subscription_creation",),
    "inactive_topics": ("inactive_delete", "inactive_mode", "inactive_s"),
    "delayed_delivery": (
        "delayed_delivery_active",
        "delayed_delivery_tick_ms",
        "delayed_delivery_max_delay_ms",
    ),
    "encryption_required": ("encryption_required", "messages_encrypted"),
    "subscription_types": ("subscription_types",),
    "compaction_threshold_bytes": ("compaction_threshold_bytes",),
    "persistence": ("persistence",),
    "offload": ("offload",),
    "schemas": ("schemas",),
}
"""The policies by their names in metadata, with the fields of `EffectivePolicies` that each decides."""

_ENUMS: Final = {"inactive_mode": Policies.InactiveMode, "policy": Policies.QuotaPolicy}


@dataclass(frozen=True, slots=True)
class PolicyOrigin:
    """One policy in effect for a topic."""

    name: str
    level: str
    """TOPIC, NAMESPACE or BROKER: the level whose value holds."""
    value: Any
    """The value in effect, as JSON; an object where a policy has several parts."""
    without_topic: Any
    """The value that would hold without the topic's own policy."""
    without_namespace: Any
    """The value that would hold without the topic's and the namespace's policies: the broker's."""


def policy_origins(config: PolicyDefaults, namespace: Policies, topic: Policies) -> list[PolicyOrigin]:
    """Returns every policy of a topic with the level that it comes from, by name.

    A policy that several levels merge is of the most specific level that makes a difference.
    """
    levels: dict[str, str] = {}
    effective = resolve(config, namespace, topic, levels)
    of_namespace = resolve(config, namespace, NOTHING)
    of_broker = resolve(config, NOTHING, NOTHING)
    found = []
    for name in sorted(FIELDS):
        values = [policy_value(name, each) for each in (effective, of_namespace, of_broker)]
        level = levels.get(name)
        if level is None:
            level = TOPIC if values[0] != values[1] else NAMESPACE if values[1] != values[2] else BROKER
        found.append(PolicyOrigin(name, level, *values))
    return found


def policy_value(name: str, policies: EffectivePolicies) -> Any:
    """Returns the value of a policy as JSON; an object by field where it has several."""
    fields = FIELDS[name]
    parts = {each: _json(each, getattr(policies, each)) for each in fields}
    return parts if len(fields) > 1 else parts[fields[0]]


def _json(name: str, value: Any) -> Any:
    if isinstance(value, Enum):
        return value.name
    if name in _ENUMS:
        return _ENUMS[name].Name(value)
    if is_dataclass(value) and not isinstance(value, type):
        return {key: _json(key, each) for key, each in asdict(value).items()}
    if isinstance(value, dict):
        return {str(key): _json(str(key), each) for key, each in value.items()}
    if isinstance(value, frozenset | set | list | tuple):
        return sorted(map(str, value))
    return value if isinstance(value, str | int | float | bool | None) else str(value)
