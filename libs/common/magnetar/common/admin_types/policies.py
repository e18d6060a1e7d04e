"""The policies of namespaces and topics in the admin API.

Brokers build REST routes from this table, and `magnetar admin` builds commands from it. Brokers alone
validate and interpret the values.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

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
class PolicyApi:
    """The paths, methods and command names of one policy."""

    proto: str
    """The field of `Policies` in metadata that stores the policy; unique."""
    namespace: str = ""
    """The policy's name in namespace paths; empty if namespaces do not have it."""
    topic: str = ""
    """The policy's name in topic paths; empty if topics do not have it."""
    verb: str
    """The verb in a namespace's commands `set-<verb>`, `get-<verb>` and `remove-<verb>`."""
    topic_verb: str = ""
    """The verb in a topic's commands; empty means the same as `verb`."""
    set_with: str = "POST"
    """The HTTP method that sets the policy on a namespace."""
    topic_set_with: str = "POST"
    """The HTTP method that sets the policy on a topic."""
    value_in_query: bool = False
    """Whether a topic takes the value as a query parameter of that name instead of a body."""
    never_removed: bool = False
    """True if a namespace has no DELETE for the policy; it is set to `unset` instead."""
    removed_at: str = ""
    """The last path segment of a namespace's DELETE; empty means the same as `namespace`."""
    unset: Any = None
    """The value returned for a namespace without the policy; None is an empty body."""


POLICIES: Final = {
    policy.proto: policy
    for policy in (
        PolicyApi(
            proto="retention",
            namespace="retention",
            topic="retention",
            verb="retention",
        ),
        PolicyApi(
            proto="message_ttl_s",
            namespace="messageTTL",
            topic="messageTTL",
            verb="message-ttl",
            value_in_query=True,
        ),
        PolicyApi(
            proto="subscription_expiration_min",
            namespace="subscriptionExpirationTime",
            verb="subscription-expiration-time",
        ),
        PolicyApi(
            proto="deduplication",
            namespace="deduplication",
            topic="deduplicationEnabled",
            verb="deduplication",
        ),
        PolicyApi(
            proto="deduplication_snapshot_s",
            namespace="deduplicationSnapshotInterval",
            topic="deduplicationSnapshotInterval",
            verb="deduplication-snapshot-interval",
            never_removed=True,
        ),
        PolicyApi(
            proto="dispatch_rate",
            namespace="dispatchRate",
            topic="dispatchRate",
            verb="dispatch-rate",
        ),
        PolicyApi(
            proto="subscription_dispatch_rate",
            namespace="subscriptionDispatchRate",
            topic="subscriptionDispatchRate",
            verb="subscription-dispatch-rate",
        ),
        PolicyApi(
            proto="publish_rate",
            namespace="publishRate",
            topic="publishRate",
            verb="publish-rate",
        ),
        PolicyApi(
            proto="subscribe_rate",
            namespace="subscribeRate",
            topic="subscribeRate",
            verb="subscribe-rate",
        ),
        PolicyApi(
            proto="max_producers_per_topic",
            namespace="maxProducersPerTopic",
            topic="maxProducers",
            verb="max-producers-per-topic",
            topic_verb="max-producers",
        ),
        PolicyApi(
            proto="max_consumers_per_topic",
            namespace="maxConsumersPerTopic",
            topic="maxConsumers",
            verb="max-consumers-per-topic",
            topic_verb="max-consumers",
        ),
        PolicyApi(
            proto="max_consumers_per_subscription",
            namespace="maxConsumersPerSubscription",
            topic="maxConsumersPerSubscription",
            verb="max-consumers-per-subscription",
        ),
        PolicyApi(
            proto="max_subscriptions_per_topic",
            namespace="maxSubscriptionsPerTopic",
            topic="maxSubscriptionsPerTopic",
            verb="max-subscriptions-per-topic",
        ),
        PolicyApi(
            proto="max_message_bytes",
            topic="maxMessageSize",
            verb="max-message-size",
        ),
        PolicyApi(
            proto="max_unacked_per_consumer",
            namespace="maxUnackedMessagesPerConsumer",
            topic="maxUnackedMessagesOnConsumer",
            verb="max-unacked-messages-per-consumer",
        ),
        PolicyApi(
            proto="max_unacked_per_subscription",
            namespace="maxUnackedMessagesPerSubscription",
            topic="maxUnackedMessagesOnSubscription",
            verb="max-unacked-messages-per-subscription",
        ),
        PolicyApi(
            proto="max_topics_per_namespace",
            namespace="maxTopicsPerNamespace",
            verb="max-topics-per-namespace",
            unset=0,
        ),
        PolicyApi(
            proto="auto_topic_creation",
            namespace="autoTopicCreation",
            verb="auto-topic-creation",
        ),
        PolicyApi(
            proto="auto_subscription_creation",
            namespace="autoSubscriptionCreation",
            topic="autoSubscriptionCreation",
            verb="auto-subscription-creation",
        ),
        PolicyApi(
            proto="inactive_topics",
            namespace="inactiveTopicPolicies",
            topic="inactiveTopicPolicies",
            verb="inactive-topic-policies",
        ),
        PolicyApi(
            proto="delayed_delivery",
            namespace="delayedDelivery",
            topic="delayedDelivery",
            verb="delayed-delivery",
        ),
        PolicyApi(
            proto="encryption_required",
            namespace="encryptionRequired",
            verb="encryption-required",
            never_removed=True,
            unset=False,
        ),
        PolicyApi(
            proto="subscription_types",
            namespace="subscriptionTypesEnabled",
            topic="subscriptionTypesEnabled",
            verb="subscription-types-enabled",
            unset=[],
        ),
        PolicyApi(
            proto="persistence",
            namespace="persistence",
            topic="persistence",
            verb="persistence",
        ),
        PolicyApi(
            proto="compaction_threshold_bytes",
            namespace="compactionThreshold",
            topic="compactionThreshold",
            verb="compaction-threshold",
            set_with="PUT",
        ),
        PolicyApi(
            proto="offload",
            namespace="offloadPolicies",
            topic="offloadPolicies",
            verb="offload-policies",
            removed_at="removeOffloadPolicies",
        ),
        PolicyApi(
            proto="dispatcher_pause_on_ack_state",
            namespace="dispatcherPauseOnAckStatePersistent",
            topic="dispatcherPauseOnAckStatePersistent",
            verb="dispatcher-pause-on-ack-state-persistent",
            unset=False,
        ),
        PolicyApi(
            proto="schema_auto_update",
            namespace="isAllowAutoUpdateSchema",
            verb="is-allow-auto-update-schema",
            never_removed=True,
            unset=True,
        ),
        PolicyApi(
            proto="schema_compatibility",
            namespace="schemaCompatibilityStrategy",
            topic="schemaCompatibilityStrategy",
            verb="schema-compatibility-strategy",
            set_with="PUT",
            topic_set_with="PUT",
            never_removed=True,
            unset="UNDEFINED",
        ),
        PolicyApi(
            proto="schema_auto_update_compatibility",
            namespace="schemaAutoUpdateCompatibilityStrategy",
            verb="schema-autoupdate-strategy",
            set_with="PUT",
            never_removed=True,
        ),
        PolicyApi(
            proto="schema_validation_enforced",
            namespace="schemaValidationEnforced",
            topic="schemaValidationEnforced",
            verb="schema-validation-enforce",
            never_removed=True,
            unset=False,
        ),
        PolicyApi(
            proto="subscription_auth_mode",
            namespace="subscriptionAuthMode",
            verb="subscription-auth-mode",
            never_removed=True,
            unset="None",
        ),
        PolicyApi(
            proto="replicator_dispatch_rate",
            namespace="replicatorDispatchRate",
            topic="replicatorDispatchRate",
            verb="replicator-dispatch-rate",
        ),
    )
}
"""Every policy whose routes are built from this table, by its field in `Policies`."""
