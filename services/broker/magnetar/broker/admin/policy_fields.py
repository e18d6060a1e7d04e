"""Every policy that a namespace or a topic may have: its names, its shape, and what it comes to in the end.

The REST routes, the dump of a namespace's policies and the verbs of `magnetar admin` are made from it.
Backlog quotas, which are two policies under one name, and the dispatch rates of single subscriptions, which
are many, have routes of their own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from magnetar.broker.admin.offload_policies import OffloadPolicies
from magnetar.broker.admin.policy_json import (
    DELAYED_DELIVERY,
    INACTIVE_TOPICS,
    INT64_MAX,
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
from magnetar.broker.admin.policy_kinds import AutoTopicCreation
from magnetar.broker.policies.effective import MB, EffectivePolicies, Rate
from magnetar.common.metadata.values import Policies
from magnetar.ledger.managed_ledger.config import ManagedLedgerConfig

NUMBER: Final = Number()
FLAG: Final = Flag()

SCHEMA_COMPATIBILITIES: Final = (
    "UNDEFINED",
    "ALWAYS_INCOMPATIBLE",
    "ALWAYS_COMPATIBLE",
    "BACKWARD",
    "FORWARD",
    "FULL",
    "BACKWARD_TRANSITIVE",
    "FORWARD_TRANSITIVE",
    "FULL_TRANSITIVE",
)
AUTO_UPDATE_COMPATIBILITIES: Final = (
    "AutoUpdateDisabled",
    "Backward",
    "Forward",
    "Full",
    "AlwaysCompatible",
    "BackwardTransitive",
    "ForwardTransitive",
    "FullTransitive",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyField:
    """One policy."""

    proto: str
    """The field of `Policies` that keeps it."""
    kind: Kind
    namespace: str = ""
    """Its name in a namespace's paths; empty: namespaces do not have it."""
    topic: str = ""
    """Its name in a topic's paths; empty: topics do not have it."""
    dump: str = ""
    """Its key among all policies of a namespace; empty: it is not there."""
    by_cluster: bool = False
    """In the dump it stands under the name of the cluster."""
    applied: Callable[[EffectivePolicies], Any] | None = None
    """What it comes to; None where `applied` is ignored."""
    unset_is_204: bool = False
    """On a topic, 204 and not 200 says that it is not set."""
    unset: Any = None
    """What a namespace answers that does not set it; None is an empty body."""
    topic_unset: Any = None
    """The same of a topic."""
    otherwise: Any = None
    """What holds where nobody says anything; for those without `applied`."""
    configured: Callable[[ManagedLedgerConfig], Any] | None = None
    """The same, where the configuration says it."""
    never_removed: bool = False
    """A namespace has no DELETE for it: it is set to what is shown while it is unset."""
    removed_at: str = ""
    """Where a namespace's DELETE is, if elsewhere."""
    set_with: str = "POST"
    """The method that sets it on a namespace."""
    topic_set_with: str = "POST"
    namespace_unset_is_204: bool = False
    without_body: Any = None
    """What is meant when it is set without a body."""
    tenant_first: bool = False
    """Of a topic: see `Route.tenant_first`."""
    null_unsets_topic: bool = False
    """On a topic, null takes it away; of others it is 0 or false, as in Pulsar."""
    value_in_query: bool = False
    """On a topic the value is the parameter of that name, not the body."""
    kept: str = ""
    """What is to be known of a policy that is kept and shown, and changes nothing yet."""
    verb: str = ""
    """In the commands `set-<verb>`, `get-<verb>`, `remove-<verb>` of a namespace."""
    topic_verb: str = ""
    """Likewise of a topic, where it is another one."""

    def write(self, policies: Policies, value: Any, name: str) -> None:
        """Set it, or with None take it away. `name` is what a refusal calls it. Raises Refused."""
        if value is None:
            self.clear(policies)
        else:
            self.kind.put(policies, self.proto, value, name)

    def clear(self, policies: Policies) -> None:
        """It is not set any more."""
        policies.ClearField(self.proto)  # type: ignore[arg-type]


def rate_json(rate: Rate) -> dict[str, Any]:
    """A rate as it holds; 0 is no limit."""
    return {
        "dispatchThrottlingRateInMsg": rate.messages,
        "dispatchThrottlingRateInByte": rate.byte_count,
        "relativeToPublishRate": rate.relative_to_publish_rate,
        "ratePeriodInSecond": rate.period_s,
    }


def persistence_json(config: ManagedLedgerConfig) -> dict[str, Any]:
    """How ledgers are made where no policy says it."""
    return {
        "bookkeeperEnsemble": config.ensemble_size,
        "bookkeeperWriteQuorum": config.write_quorum,
        "bookkeeperAckQuorum": config.ack_quorum,
        "managedLedgerMaxMarkDeleteRate": 1 / config.cursor_flush_interval_s,
    }


_NO_COMPACTION: Final = " Kept and shown: nothing is compacted yet."
_OFFLOADING: Final = (
    " Threads, prefetching and sizes of blocks and buffers are kept and shown; credentials are refused: "
    "brokers and jobs take them from their environment."
)
_NO_SCHEMA_CHECKS: Final = " Kept and shown: schemas are not compared yet."
_NO_REPLICATION: Final = " Kept and shown: messages are not replicated between clusters yet."
_NO_AUTHORIZATION: Final = " Kept and shown: nobody is refused yet."
_NO_PAUSE: Final = " Kept and shown: the state of acknowledgements is always kept whole, so nothing pauses."

FIELDS: Final = (
    PolicyField(
        proto="retention",
        kind=RETENTION,
        namespace="retention",
        topic="retention",
        dump="retention_policies",
        verb="retention",
        applied=lambda policies: {
            "retentionTimeInMinutes": policies.retention_time_min,
            "retentionSizeInMB": policies.retention_size_bytes // MB
            if policies.retention_size_bytes > 0
            else policies.retention_size_bytes,
        },
    ),
    PolicyField(
        proto="message_ttl_s",
        kind=Number(below="Invalid value for message TTL, message TTL must >= 0"),
        namespace="messageTTL",
        topic="messageTTL",
        dump="message_ttl_in_seconds",
        verb="message-ttl",
        value_in_query=True,
        applied=lambda policies: policies.message_ttl_s,
    ),
    PolicyField(
        proto="subscription_expiration_min",
        kind=Number(below="Invalid value for subscription expiration time"),
        namespace="subscriptionExpirationTime",
        dump="subscription_expiration_time_minutes",
        verb="subscription-expiration-time",
    ),
    PolicyField(
        proto="deduplication",
        kind=FLAG,
        namespace="deduplication",
        topic="deduplicationEnabled",
        dump="deduplicationEnabled",
        verb="deduplication",
        null_unsets_topic=True,
        applied=lambda policies: policies.deduplication,
    ),
    PolicyField(
        proto="deduplication_snapshot_s",
        kind=Number(type_name="int?"),
        namespace="deduplicationSnapshotInterval",
        topic="deduplicationSnapshotInterval",
        dump="deduplicationSnapshotIntervalSeconds",
        never_removed=True,
        verb="deduplication-snapshot-interval",
    ),
    PolicyField(
        proto="dispatch_rate",
        kind=RATE,
        namespace="dispatchRate",
        topic="dispatchRate",
        dump="topicDispatchRate",
        by_cluster=True,
        verb="dispatch-rate",
        applied=lambda policies: rate_json(policies.dispatch_rate),
    ),
    PolicyField(
        proto="subscription_dispatch_rate",
        kind=RATE,
        namespace="subscriptionDispatchRate",
        topic="subscriptionDispatchRate",
        dump="subscriptionDispatchRate",
        by_cluster=True,
        verb="subscription-dispatch-rate",
        applied=lambda policies: rate_json(policies.subscription_dispatch_rate),
    ),
    PolicyField(
        proto="publish_rate",
        kind=PUBLISH_RATE,
        namespace="publishRate",
        topic="publishRate",
        dump="publishMaxMessageRate",
        by_cluster=True,
        unset_is_204=True,
        verb="publish-rate",
    ),
    PolicyField(
        proto="subscribe_rate",
        kind=SUBSCRIBE_RATE,
        namespace="subscribeRate",
        topic="subscribeRate",
        dump="clusterSubscribeRate",
        by_cluster=True,
        verb="subscribe-rate",
        applied=lambda policies: {
            "subscribeThrottlingRatePerConsumer": policies.subscribes_per_consumer,
            "ratePeriodInSecond": policies.subscribe_period_s,
        },
    ),
    PolicyField(
        proto="max_producers_per_topic",
        kind=NUMBER,
        namespace="maxProducersPerTopic",
        topic="maxProducers",
        dump="max_producers_per_topic",
        verb="max-producers-per-topic",
        topic_verb="max-producers",
        applied=lambda policies: policies.max_producers,
    ),
    PolicyField(
        proto="max_consumers_per_topic",
        kind=NUMBER,
        namespace="maxConsumersPerTopic",
        topic="maxConsumers",
        dump="max_consumers_per_topic",
        verb="max-consumers-per-topic",
        topic_verb="max-consumers",
        applied=lambda policies: policies.max_consumers,
    ),
    PolicyField(
        proto="max_consumers_per_subscription",
        kind=NUMBER,
        namespace="maxConsumersPerSubscription",
        topic="maxConsumersPerSubscription",
        dump="max_consumers_per_subscription",
        unset_is_204=True,
        verb="max-consumers-per-subscription",
    ),
    PolicyField(
        proto="max_subscriptions_per_topic",
        kind=NUMBER,
        namespace="maxSubscriptionsPerTopic",
        topic="maxSubscriptionsPerTopic",
        dump="max_subscriptions_per_topic",
        unset_is_204=True,
        verb="max-subscriptions-per-topic",
    ),
    PolicyField(
        proto="max_message_bytes",
        kind=NUMBER,
        topic="maxMessageSize",
        unset_is_204=True,
        tenant_first=True,
        verb="max-message-size",
    ),
    PolicyField(
        proto="max_unacked_per_consumer",
        kind=NUMBER,
        namespace="maxUnackedMessagesPerConsumer",
        topic="maxUnackedMessagesOnConsumer",
        dump="max_unacked_messages_per_consumer",
        verb="max-unacked-messages-per-consumer",
        null_unsets_topic=True,
        applied=lambda policies: policies.max_unacked_per_consumer,
    ),
    PolicyField(
        proto="max_unacked_per_subscription",
        kind=NUMBER,
        namespace="maxUnackedMessagesPerSubscription",
        topic="maxUnackedMessagesOnSubscription",
        dump="max_unacked_messages_per_subscription",
        verb="max-unacked-messages-per-subscription",
        null_unsets_topic=True,
        applied=lambda policies: policies.max_unacked_per_subscription,
    ),
    PolicyField(
        proto="max_topics_per_namespace",
        kind=NUMBER,
        unset=0,
        namespace="maxTopicsPerNamespace",
        dump="max_topics_per_namespace",
        verb="max-topics-per-namespace",
    ),
    PolicyField(
        proto="auto_topic_creation",
        kind=AutoTopicCreation(),
        namespace="autoTopicCreation",
        dump="autoTopicCreationOverride",
        verb="auto-topic-creation",
    ),
    PolicyField(
        proto="auto_subscription_creation",
        kind=WrappedFlag("allowAutoSubscriptionCreation", "AutoSubscriptionCreationOverride"),
        namespace="autoSubscriptionCreation",
        topic="autoSubscriptionCreation",
        dump="autoSubscriptionCreationOverride",
        verb="auto-subscription-creation",
        applied=lambda policies: {"allowAutoSubscriptionCreation": policies.auto_subscription_creation},
    ),
    PolicyField(
        proto="inactive_topics",
        kind=INACTIVE_TOPICS,
        namespace="inactiveTopicPolicies",
        topic="inactiveTopicPolicies",
        dump="inactive_topic_policies",
        verb="inactive-topic-policies",
        applied=lambda policies: {
            "inactiveTopicDeleteMode": Policies.InactiveMode.Name(policies.inactive_mode).lower(),
            "maxInactiveDurationSeconds": policies.inactive_s,
            "deleteWhileInactive": policies.inactive_delete,
        },
    ),
    PolicyField(
        proto="delayed_delivery",
        kind=DELAYED_DELIVERY,
        namespace="delayedDelivery",
        topic="delayedDelivery",
        dump="delayed_delivery_policies",
        verb="delayed-delivery",
        applied=lambda policies: {
            "tickTime": policies.delayed_delivery_tick_ms,
            "active": policies.delayed_delivery_active,
            "maxDeliveryDelayInMillis": policies.delayed_delivery_max_delay_ms,
        },
    ),
    PolicyField(
        proto="encryption_required",
        kind=FLAG,
        namespace="encryptionRequired",
        dump="encryption_required",
        unset=False,
        never_removed=True,
        verb="encryption-required",
    ),
    PolicyField(
        proto="subscription_types",
        kind=TypeNames(),
        namespace="subscriptionTypesEnabled",
        topic="subscriptionTypesEnabled",
        dump="subscription_types_enabled",
        unset_is_204=True,
        unset=[],
        verb="subscription-types-enabled",
    ),
    PolicyField(
        proto="persistence",
        kind=PERSISTENCE,
        namespace="persistence",
        topic="persistence",
        dump="persistence",
        verb="persistence",
        configured=persistence_json,
    ),
    PolicyField(
        proto="compaction_threshold_bytes",
        kept=_NO_COMPACTION,
        kind=Number(below="{name} must be 0 (never) or more bytes", type_name="long", maximum=INT64_MAX),
        namespace="compactionThreshold",
        topic="compactionThreshold",
        dump="compaction_threshold",
        set_with="PUT",
        otherwise=0,
        verb="compaction-threshold",
    ),
    PolicyField(
        proto="offload",
        kept=_OFFLOADING,
        kind=OffloadPolicies(),
        namespace="offloadPolicies",
        topic="offloadPolicies",
        dump="offload_policies",
        removed_at="removeOffloadPolicies",
        verb="offload-policies",
    ),
    PolicyField(
        proto="dispatcher_pause_on_ack_state",
        kept=_NO_PAUSE,
        kind=Flag("boolean?"),
        namespace="dispatcherPauseOnAckStatePersistent",
        topic="dispatcherPauseOnAckStatePersistent",
        dump="dispatcherPauseOnAckStatePersistentEnabled",
        unset=False,
        topic_unset=False,
        otherwise=False,
        without_body=True,
        verb="dispatcher-pause-on-ack-state-persistent",
    ),
    PolicyField(
        proto="schema_auto_update",
        kept=_NO_SCHEMA_CHECKS,
        kind=FLAG,
        namespace="isAllowAutoUpdateSchema",
        dump="is_allow_auto_update_schema",
        unset=True,
        never_removed=True,
        verb="is-allow-auto-update-schema",
    ),
    PolicyField(
        proto="schema_compatibility",
        kept=_NO_SCHEMA_CHECKS,
        kind=OneOf(SCHEMA_COMPATIBILITIES, "SchemaCompatibilityStrategy", nothing="UNDEFINED"),
        namespace="schemaCompatibilityStrategy",
        topic="schemaCompatibilityStrategy",
        dump="schema_compatibility_strategy",
        unset="UNDEFINED",
        otherwise="FULL",
        never_removed=True,
        set_with="PUT",
        topic_set_with="PUT",
        verb="schema-compatibility-strategy",
    ),
    PolicyField(
        proto="schema_auto_update_compatibility",
        kept=_NO_SCHEMA_CHECKS,
        kind=OneOf(AUTO_UPDATE_COMPATIBILITIES, "SchemaAutoUpdateCompatibilityStrategy"),
        namespace="schemaAutoUpdateCompatibilityStrategy",
        dump="schema_auto_update_compatibility_strategy",
        never_removed=True,
        set_with="PUT",
        namespace_unset_is_204=True,
        verb="schema-autoupdate-strategy",
    ),
    PolicyField(
        proto="schema_validation_enforced",
        kept=_NO_SCHEMA_CHECKS,
        kind=FLAG,
        namespace="schemaValidationEnforced",
        topic="schemaValidationEnforced",
        dump="schema_validation_enforced",
        unset=False,
        topic_unset=False,
        otherwise=False,
        never_removed=True,
        verb="schema-validation-enforce",
    ),
    PolicyField(
        proto="subscription_auth_mode",
        kept=_NO_AUTHORIZATION,
        kind=OneOf(("None", "Prefix"), "SubscriptionAuthMode", nothing="None"),
        namespace="subscriptionAuthMode",
        dump="subscription_auth_mode",
        unset="None",
        never_removed=True,
        verb="subscription-auth-mode",
    ),
    PolicyField(
        proto="replicator_dispatch_rate",
        kept=_NO_REPLICATION,
        kind=RATE,
        namespace="replicatorDispatchRate",
        topic="replicatorDispatchRate",
        dump="replicatorDispatchRate",
        by_cluster=True,
        otherwise=rate_json(Rate()),
        verb="replicator-dispatch-rate",
    ),
)
