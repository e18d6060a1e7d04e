"""Table of all policies of a namespace or topic: names, JSON shape, and effective value.

The REST routes and the JSON of a namespace's policies are built from it. Names are those of
`magnetar.common.admin_types`, which the command line shares. Backlog quotas (two policies under one name) and
the dispatch rates of single subscriptions have their own routes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from magnetar.broker.admin.edge.json_types import INT64_MAX
from magnetar.broker.admin.policies.offload_policies import OffloadPolicies
from magnetar.broker.admin.policies.policy_json import (
    DELAYED_DELIVERY,
    INACTIVE_TOPICS,
    PERSISTENCE,
    PUBLISH_RATE,
    RATE,
    RETENTION,
    SUBSCRIBE_RATE,
    Flag,
    Kind,
    Number,
    OneOf,
    TypeNames,
    WrappedFlag,
)
from magnetar.broker.admin.policies.policy_kinds import AutoTopicCreation
from magnetar.broker.config import BrokerConfig
from magnetar.broker.policies.effective_policies import MB, EffectivePolicies, Rate
from magnetar.common.admin_types.policies import (
    AUTO_UPDATE_COMPATIBILITIES,
    POLICIES,
    SCHEMA_COMPATIBILITIES,
    PolicyApi,
)
from magnetar.common.metadata.values import Policies
from magnetar.ledger.managed_ledger.config import ManagedLedgerConfig

NUMBER: Final = Number()
FLAG: Final = Flag()


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyField:
    """One policy of the table."""

    api: PolicyApi
    """Its names in the admin API."""
    kind: Kind
    dump: str = ""
    """Its key in the JSON of all policies of a namespace; empty: not included."""
    by_cluster: bool = False
    """Whether that JSON nests it under the name of the cluster."""
    applied: Callable[[EffectivePolicies], Any] | None = None
    """Returns the value in effect; None where `applied` is ignored."""
    unset_is_204: bool = False
    """Whether a topic without it is answered with 204 instead of 200."""
    topic_unset: Any = None
    """The value shown for a topic that does not set it."""
    otherwise: Any = None
    """The default when no level sets the policy; for fields without `applied`."""
    configured: Callable[[ManagedLedgerConfig], Any] | None = None
    """The same default, read from the configuration."""
    namespace_unset_is_204: bool = False
    namespace_default: Callable[[BrokerConfig], Any] | None = None
    """Returns the value shown for a namespace that does not set it, where the configuration has it."""
    without_body: Any = None
    """The value of a request without a body."""
    tenant_first: bool = False
    """The `Route.tenant_first` of the topic's routes."""
    null_unsets_topic: bool = False
    """Whether null removes it from a topic; for other fields null is 0 or false, as in Pulsar."""
    kept: str = ""
    """A note in the documentation of a policy that is stored and returned, but has no effect yet."""

    def write(self, policies: Policies, value: Any, name: str) -> None:
        """Sets it, or removes it with None. `name` is used in error messages. Raises Refused."""
        if value is None:
            self.clear(policies)
        else:
            self.kind.put(policies, self.api.proto, value, name)

    def clear(self, policies: Policies) -> None:
        """Removes it."""
        policies.ClearField(self.api.proto)  # type: ignore[arg-type]


def rate_json(rate: Rate) -> dict[str, Any]:
    """Returns an effective rate; 0 is no limit."""
    return {
        "dispatchThrottlingRateInMsg": rate.messages,
        "dispatchThrottlingRateInByte": rate.byte_count,
        "relativeToPublishRate": rate.relative_to_publish_rate,
        "ratePeriodInSecond": rate.period_s,
    }


def persistence_json(config: ManagedLedgerConfig) -> dict[str, Any]:
    """Returns the persistence of ledgers where no policy sets it."""
    return {
        "bookkeeperEnsemble": config.ensemble_size,
        "bookkeeperWriteQuorum": config.write_quorum,
        "bookkeeperAckQuorum": config.ack_quorum,
        "managedLedgerMaxMarkDeleteRate": 1 / config.cursor_flush_interval_s,
    }


_OFFLOADING: Final = (
    " Threads, prefetching and sizes of blocks and buffers are stored and returned only. Credentials are "
    "refused: brokers and jobs take them from their environment."
)
_NO_REPLICATION: Final = " Stored and returned only: replication between clusters is not supported yet."
_NO_PAUSE: Final = (
    " Stored and returned only: acknowledgement state is always stored completely, so dispatch never pauses."
)

FIELDS: Final = (
    PolicyField(
        api=POLICIES["retention"],
        kind=RETENTION,
        dump="retention_policies",
        applied=lambda policies: {
            "retentionTimeInMinutes": policies.retention_time_min,
            "retentionSizeInMB": policies.retention_size_bytes // MB
            if policies.retention_size_bytes > 0
            else policies.retention_size_bytes,
        },
    ),
    PolicyField(
        api=POLICIES["message_ttl_s"],
        kind=Number(below="Invalid value for message TTL, message TTL must >= 0"),
        dump="message_ttl_in_seconds",
        applied=lambda policies: policies.message_ttl_s,
    ),
    PolicyField(
        api=POLICIES["subscription_expiration_min"],
        kind=Number(below="Invalid value for subscription expiration time"),
        dump="subscription_expiration_time_minutes",
    ),
    PolicyField(
        api=POLICIES["deduplication"],
        kind=FLAG,
        dump="deduplicationEnabled",
        null_unsets_topic=True,
        applied=lambda policies: policies.deduplication,
    ),
    PolicyField(
        api=POLICIES["deduplication_snapshot_s"],
        kind=Number(type_name="int?"),
        dump="deduplicationSnapshotIntervalSeconds",
    ),
    PolicyField(
        api=POLICIES["dispatch_rate"],
        kind=RATE,
        dump="topicDispatchRate",
        by_cluster=True,
        applied=lambda policies: rate_json(policies.dispatch_rate),
    ),
    PolicyField(
        api=POLICIES["subscription_dispatch_rate"],
        kind=RATE,
        dump="subscriptionDispatchRate",
        by_cluster=True,
        applied=lambda policies: rate_json(policies.subscription_dispatch_rate),
    ),
    PolicyField(
        api=POLICIES["publish_rate"],
        kind=PUBLISH_RATE,
        dump="publishMaxMessageRate",
        by_cluster=True,
        unset_is_204=True,
    ),
    PolicyField(
        api=POLICIES["subscribe_rate"],
        kind=SUBSCRIBE_RATE,
        dump="clusterSubscribeRate",
        by_cluster=True,
        applied=lambda policies: {
            "subscribeThrottlingRatePerConsumer": policies.subscribes_per_consumer,
            "ratePeriodInSecond": policies.subscribe_period_s,
        },
    ),
    PolicyField(
        api=POLICIES["max_producers_per_topic"],
        kind=NUMBER,
        dump="max_producers_per_topic",
        applied=lambda policies: policies.max_producers,
    ),
    PolicyField(
        api=POLICIES["max_consumers_per_topic"],
        kind=NUMBER,
        dump="max_consumers_per_topic",
        applied=lambda policies: policies.max_consumers,
    ),
    PolicyField(
        api=POLICIES["max_consumers_per_subscription"],
        kind=NUMBER,
        dump="max_consumers_per_subscription",
        unset_is_204=True,
    ),
    PolicyField(
        api=POLICIES["max_subscriptions_per_topic"],
        kind=NUMBER,
        dump="max_subscriptions_per_topic",
        unset_is_204=True,
    ),
    PolicyField(
        api=POLICIES["max_message_bytes"],
        kind=NUMBER,
        unset_is_204=True,
        tenant_first=True,
    ),
    PolicyField(
        api=POLICIES["max_unacked_per_consumer"],
        kind=NUMBER,
        dump="max_unacked_messages_per_consumer",
        null_unsets_topic=True,
        applied=lambda policies: policies.max_unacked_per_consumer,
    ),
    PolicyField(
        api=POLICIES["max_unacked_per_subscription"],
        kind=NUMBER,
        dump="max_unacked_messages_per_subscription",
        null_unsets_topic=True,
        applied=lambda policies: policies.max_unacked_per_subscription,
    ),
    PolicyField(
        api=POLICIES["max_topics_per_namespace"],
        kind=NUMBER,
        dump="max_topics_per_namespace",
    ),
    PolicyField(
        api=POLICIES["auto_topic_creation"],
        kind=AutoTopicCreation(),
        dump="autoTopicCreationOverride",
    ),
    PolicyField(
        api=POLICIES["auto_subscription_creation"],
        kind=WrappedFlag("allowAutoSubscriptionCreation", "AutoSubscriptionCreationOverride"),
        dump="autoSubscriptionCreationOverride",
        applied=lambda policies: {"allowAutoSubscriptionCreation": policies.auto_subscription_creation},
    ),
    PolicyField(
        api=POLICIES["inactive_topics"],
        kind=INACTIVE_TOPICS,
        dump="inactive_topic_policies",
        applied=lambda policies: {
            "inactiveTopicDeleteMode": Policies.InactiveMode.Name(policies.inactive_mode).lower(),
            "maxInactiveDurationSeconds": policies.inactive_s,
            "deleteWhileInactive": policies.inactive_delete,
        },
    ),
    PolicyField(
        api=POLICIES["delayed_delivery"],
        kind=DELAYED_DELIVERY,
        dump="delayed_delivery_policies",
        applied=lambda policies: {
            "tickTime": policies.delayed_delivery_tick_ms,
            "active": policies.delayed_delivery_active,
            "maxDeliveryDelayInMillis": policies.delayed_delivery_max_delay_ms,
        },
    ),
    PolicyField(
        api=POLICIES["encryption_required"],
        kind=FLAG,
        dump="encryption_required",
    ),
    PolicyField(
        api=POLICIES["subscription_types"],
        kind=TypeNames(),
        dump="subscription_types_enabled",
        unset_is_204=True,
    ),
    PolicyField(
        api=POLICIES["persistence"],
        kind=PERSISTENCE,
        dump="persistence",
        configured=persistence_json,
    ),
    PolicyField(
        api=POLICIES["compaction_threshold_bytes"],
        kind=Number(below="{name} must be 0 (never) or more bytes", type_name="long", maximum=INT64_MAX),
        dump="compaction_threshold",
        otherwise=0,
        applied=lambda policies: policies.compaction_threshold_bytes,
    ),
    PolicyField(
        api=POLICIES["offload"],
        kept=_OFFLOADING,
        kind=OffloadPolicies(),
        dump="offload_policies",
    ),
    PolicyField(
        api=POLICIES["dispatcher_pause_on_ack_state"],
        kept=_NO_PAUSE,
        kind=Flag("boolean?"),
        dump="dispatcherPauseOnAckStatePersistentEnabled",
        topic_unset=False,
        otherwise=False,
        without_body=True,
    ),
    PolicyField(
        api=POLICIES["schema_auto_update"],
        kind=FLAG,
        dump="is_allow_auto_update_schema",
        namespace_default=lambda config: config.policies.schemas.auto_update,
    ),
    PolicyField(
        api=POLICIES["schema_compatibility"],
        kind=OneOf(SCHEMA_COMPATIBILITIES, "SchemaCompatibilityStrategy", nothing="UNDEFINED"),
        dump="schema_compatibility_strategy",
        applied=lambda policies: policies.schemas.strategy.value,
    ),
    PolicyField(
        api=POLICIES["schema_auto_update_compatibility"],
        kind=OneOf(AUTO_UPDATE_COMPATIBILITIES, "SchemaAutoUpdateCompatibilityStrategy"),
        dump="schema_auto_update_compatibility_strategy",
        namespace_unset_is_204=True,
    ),
    PolicyField(
        api=POLICIES["schema_validation_enforced"],
        kind=FLAG,
        dump="schema_validation_enforced",
        topic_unset=False,
        applied=lambda policies: policies.schemas.enforced,
    ),
    PolicyField(
        api=POLICIES["subscription_auth_mode"],
        kind=OneOf(("None", "Prefix"), "SubscriptionAuthMode", nothing="None"),
        dump="subscription_auth_mode",
    ),
    PolicyField(
        api=POLICIES["replicator_dispatch_rate"],
        kept=_NO_REPLICATION,
        kind=RATE,
        dump="replicatorDispatchRate",
        by_cluster=True,
        otherwise=rate_json(Rate()),
    ),
)
