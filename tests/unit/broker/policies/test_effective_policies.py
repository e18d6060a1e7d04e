"""What holds for a topic: its own policy, else its namespace's, else the broker's configuration."""

from __future__ import annotations

from dataclasses import fields

import pytest
from magnetar.broker.config import BrokerConfig
from magnetar.broker.offload_policy.policy import OffloadPolicy
from magnetar.broker.policies.effective_policies import (
    EVICT,
    EXCEPTION,
    HOLD,
    MB,
    EffectivePolicies,
    Quota,
    Rate,
    resolve,
    resolve_namespace,
)
from magnetar.broker.schemas.rules import SchemaRules
from magnetar.common.config.loader import load
from magnetar.common.errors import ConfigError
from magnetar.common.metadata.values import Policies
from magnetar.common.schemas.rules import Strategy
from magnetar.ledger.managed_ledger.context import Persistence


def configured(**settings: object) -> BrokerConfig:
    """A broker's configuration with these keys."""
    return load(BrokerConfig, overrides=[f"{key}={value}" for key, value in settings.items()]).value


DEFAULTS = BrokerConfig()
NOTHING = Policies()

ONE_NUMBER = {
    "message_ttl_s": "message_ttl_s",
    "subscription_expiration_min": "subscription_expiration_min",
    "deduplication_snapshot_s": "deduplication_snapshot_s",
    "max_producers_per_topic": "max_producers",
    "max_consumers_per_topic": "max_consumers",
    "max_consumers_per_subscription": "max_consumers_per_subscription",
    "max_subscriptions_per_topic": "max_subscriptions",
    "max_message_bytes": "max_message_bytes",
    "max_unacked_per_consumer": "max_unacked_per_consumer",
    "max_unacked_per_subscription": "max_unacked_per_subscription",
    "compaction_threshold_bytes": "compaction_threshold_bytes",
}
"""Policies that are a number, and where it comes out."""


def numbers(name: str, value: int) -> Policies:
    return Policies(**{name: value})  # type: ignore[arg-type]


@pytest.mark.parametrize(("name", "comes_out"), ONE_NUMBER.items())
def test_a_number_of_the_topic_comes_before_that_of_its_namespace_and_of_the_broker(
    name: str, comes_out: str
) -> None:
    def value(namespace: Policies, topic: Policies) -> int:
        return int(getattr(resolve(DEFAULTS, namespace, topic), comes_out))

    of_broker = value(NOTHING, NOTHING)
    assert value(numbers(name, 11), numbers(name, 22)) == 22
    assert value(numbers(name, 11), NOTHING) == 11
    assert value(NOTHING, numbers(name, 22)) == 22
    assert of_broker not in (11, 22)


@pytest.mark.parametrize(
    "name",
    [name for name in ONE_NUMBER if name not in ("max_message_bytes",)],
)
def test_zero_is_said_and_not_missing(name: str) -> None:
    found = resolve(DEFAULTS, numbers(name, 11), numbers(name, 0))
    assert getattr(found, ONE_NUMBER[name]) == 0


@pytest.mark.parametrize(
    ("name", "comes_out"),
    [
        ("deduplication", "deduplication"),
        ("auto_subscription_creation", "auto_subscription_creation"),
        ("encryption_required", "encryption_required"),
    ],
)
@pytest.mark.parametrize("of_topic", [True, False])
def test_a_switch_of_the_topic_comes_before_that_of_its_namespace(
    name: str, comes_out: str, of_topic: bool
) -> None:
    topic, namespace = Policies(), Policies()
    setattr(topic, name, of_topic)
    setattr(namespace, name, not of_topic)
    assert getattr(resolve(DEFAULTS, namespace, topic), comes_out) is of_topic
    assert getattr(resolve(DEFAULTS, namespace, NOTHING), comes_out) is not of_topic


def test_the_broker_has_the_last_word_on_the_size_of_a_message() -> None:
    most = DEFAULTS.publish.message_bytes_max
    assert resolve(DEFAULTS, numbers("max_message_bytes", most + 1), NOTHING).max_message_bytes == most
    assert resolve(DEFAULTS, numbers("max_message_bytes", 0), NOTHING).max_message_bytes == most


@pytest.mark.parametrize("name", ["dispatch_rate", "subscription_dispatch_rate", "publish_rate"])
def test_a_rate_comes_whole_from_one_level(name: str) -> None:
    def rate(namespace: Policies, topic: Policies) -> Rate:
        found = getattr(resolve(DEFAULTS, namespace, topic), name)
        assert isinstance(found, Rate)
        return found

    topic = Policies(**{name: Policies.Rate(messages=5)})  # type: ignore[arg-type]
    namespace = Policies(
        **{name: Policies.Rate(messages=7, byte_count=9, period_s=3)}  # type: ignore[arg-type]
    )
    assert rate(namespace, topic) == Rate(5, 0, 1)
    assert rate(namespace, NOTHING) == Rate(7, 9, 3)
    assert not rate(NOTHING, NOTHING)
    nothing = Policies(**{name: Policies.Rate(messages=-1, byte_count=-1)})  # type: ignore[arg-type]
    assert not rate(namespace, nothing)


def test_the_rate_of_one_subscription_comes_before_that_of_all() -> None:
    topic = Policies(subscription_dispatch_rate=Policies.Rate(messages=5))
    topic.dispatch_rate_of_subscription["fast"].messages = 50
    found = resolve(DEFAULTS, NOTHING, topic)
    assert found.dispatch_rate_of("fast").messages == 50
    assert found.dispatch_rate_of("other").messages == 5


def test_retention_comes_whole_from_one_level_and_in_bytes() -> None:
    def kept(namespace: Policies, topic: Policies) -> tuple[int, int]:
        found = resolve(DEFAULTS, namespace, topic)
        return found.retention_time_min, found.retention_size_bytes

    topic = Policies(retention=Policies.Retention(time_min=5, size_mb=-1))
    namespace = Policies(retention=Policies.Retention(time_min=-1, size_mb=3))
    assert kept(namespace, topic) == (5, -1)
    assert kept(namespace, NOTHING) == (-1, 3 * MB)
    assert kept(NOTHING, NOTHING) == (0, 0)


def test_a_compaction_service_that_the_broker_does_not_have_stops_the_start() -> None:
    factory = "org.apache.pulsar.compaction.EventTimeCompactionServiceFactory"
    with pytest.raises(ConfigError, match="compactionServiceFactoryClassName"):
        configured(compactionServiceFactoryClassName=factory)
    own = "org.apache.pulsar.compaction.PulsarCompactionServiceFactory"
    assert configured(compactionServiceFactoryClassName=own) == DEFAULTS


def test_the_two_quotas_are_two_policies() -> None:
    topic = Policies(size_quota=Policies.BacklogQuota(limit_bytes=10, limit_s=-1, policy=EXCEPTION))
    namespace = Policies(
        size_quota=Policies.BacklogQuota(limit_bytes=20, limit_s=-1, policy=EVICT),
        time_quota=Policies.BacklogQuota(limit_bytes=-1, limit_s=30, policy=EVICT),
    )
    found = resolve(DEFAULTS, namespace, topic)
    assert (found.size_quota, found.time_quota) == (Quota(10, EXCEPTION), Quota(30, EVICT))
    found = resolve(DEFAULTS, NOTHING, NOTHING)
    assert (found.size_quota, found.time_quota) == (Quota(-1, HOLD), Quota(-1, HOLD))


def test_subscribe_rate_inactive_topics_delay_and_types_come_whole_from_one_level() -> None:
    topic = Policies(
        subscribe_rate=Policies.SubscribeRate(per_consumer=3),
        inactive_topics=Policies.InactiveTopics(inactive_s=7),
        delayed_delivery=Policies.DelayedDelivery(active=False, max_delay_ms=9),
        subscription_types=Policies.SubscriptionTypes(names=["Shared"]),
    )
    namespace = Policies(
        subscribe_rate=Policies.SubscribeRate(per_consumer=4, period_s=5),
        inactive_topics=Policies.InactiveTopics(
            inactive_s=8, delete=True, mode=Policies.DELETE_WHEN_SUBSCRIPTIONS_CAUGHT_UP
        ),
        delayed_delivery=Policies.DelayedDelivery(active=True, tick_ms=10),
        subscription_types=Policies.SubscriptionTypes(names=["Exclusive", "Failover"]),
    )

    def shown(found: EffectivePolicies) -> tuple[object, ...]:
        return (
            (found.subscribes_per_consumer, found.subscribe_period_s),
            (found.inactive_delete, found.inactive_mode, found.inactive_s),
            (found.delayed_delivery_active, found.delayed_delivery_tick_ms),
            found.delayed_delivery_max_delay_ms,
            found.subscription_types,
        )

    first, second = Policies.DELETE_WHEN_NO_SUBSCRIPTIONS, Policies.DELETE_WHEN_SUBSCRIPTIONS_CAUGHT_UP
    assert shown(resolve(DEFAULTS, namespace, topic)) == (
        (3, 30),
        (False, first, 7),
        (False, 1_000),
        9,
        frozenset({"Shared"}),
    )
    assert shown(resolve(DEFAULTS, namespace, NOTHING)) == (
        (4, 5),
        (True, second, 8),
        (True, 10),
        0,
        frozenset({"Exclusive", "Failover"}),
    )
    assert shown(resolve(DEFAULTS, NOTHING, NOTHING)) == (
        (0, 30),
        (True, first, 60),
        (True, 1_000),
        0,
        frozenset({"Exclusive", "Shared", "Failover", "Key_Shared"}),
    )


BROKER_SETTINGS = {
    "defaultRetentionTimeInMinutes": ("3", "retention_time_min", 3),
    "defaultRetentionSizeInMB": ("2", "retention_size_bytes", 2 * MB),
    "ttlDurationDefaultInSeconds": ("5", "message_ttl_s", 5),
    "subscriptionExpirationTimeMinutes": ("6", "subscription_expiration_min", 6),
    "backlogQuotaDefaultLimitBytes": ("7", "size_quota", Quota(7, HOLD)),
    "backlogQuotaDefaultLimitSecond": ("8", "time_quota", Quota(8, HOLD)),
    "brokerDeduplicationEnabled": ("true", "deduplication", True),
    "brokerDeduplicationSnapshotIntervalSeconds": ("9", "deduplication_snapshot_s", 9),
    "dispatchThrottlingRatePerTopicInMsg": ("10", "dispatch_rate", Rate(10)),
    "dispatchThrottlingRatePerSubscriptionInByte": ("11", "subscription_dispatch_rate", Rate(0, 11)),
    "maxPublishRatePerTopicInMessages": ("12", "publish_rate", Rate(12)),
    "subscribeThrottlingRatePerConsumer": ("13", "subscribes_per_consumer", 13),
    "subscribeRatePeriodPerConsumerInSecond": ("14", "subscribe_period_s", 14),
    "maxProducersPerTopic": ("15", "max_producers", 15),
    "maxConsumersPerTopic": ("16", "max_consumers", 16),
    "maxConsumersPerSubscription": ("17", "max_consumers_per_subscription", 17),
    "maxSubscriptionsPerTopic": ("18", "max_subscriptions", 18),
    "maxUnackedMessagesPerConsumer": ("19", "max_unacked_per_consumer", 19),
    "maxUnackedMessagesPerSubscription": ("20", "max_unacked_per_subscription", 20),
    "allowAutoSubscriptionCreation": ("false", "auto_subscription_creation", False),
    "brokerDeleteInactiveTopicsEnabled": ("false", "inactive_delete", False),
    "brokerDeleteInactiveTopicsMaxInactiveDurationSeconds": ("21", "inactive_s", 21),
    "delayedDeliveryEnabled": ("false", "delayed_delivery_active", False),
    "delayedDeliveryTickTimeMillis": ("22", "delayed_delivery_tick_ms", 22),
    "delayedDeliveryMaxDelayInMillis": ("23", "delayed_delivery_max_delay_ms", 23),
    "encryptionRequireOnProducer": ("true", "encryption_required", True),
    "managedLedgerOffloadThresholdInSeconds": (
        "24",
        "offload",
        OffloadPolicy(threshold_s=24, deletion_lag_ms=4 * 60 * 60 * 1000),
    ),
    "schemaCompatibilityStrategy": ("BACKWARD", "schemas", SchemaRules(Strategy.BACKWARD)),
    "isAllowAutoUpdateSchemaEnabled": ("false", "schemas", SchemaRules(may_update=False)),
    "isSchemaValidationEnforced": ("true", "schemas", SchemaRules(enforced=True)),
    "brokerServiceCompactionThresholdInBytes": ("25", "compaction_threshold_bytes", 25),
    "subscriptionTypesEnabled": ("Shared", "subscription_types", frozenset({"Shared"})),
    "subscriptionKeySharedEnable": (
        "false",
        "subscription_types",
        frozenset({"Exclusive", "Shared", "Failover"}),
    ),
}


@pytest.mark.parametrize("key", BROKER_SETTINGS)
def test_unset_policy_follows_the_broker_configuration(key: str) -> None:
    text, comes_out, value = BROKER_SETTINGS[key]
    assert getattr(resolve(configured(**{key: text}), NOTHING, NOTHING), comes_out) == value


@pytest.mark.parametrize(
    ("configured_so", "policy", "of_producers", "of_messages"),
    [
        ("false", None, False, False),
        ("true", None, True, False),
        ("true", False, True, False),
        ("false", True, True, True),
        ("true", True, True, True),
    ],
)
def test_encryption_is_required_by_either_and_of_messages_by_the_policy_alone(
    configured_so: str, policy: bool | None, of_producers: bool, of_messages: bool
) -> None:
    config = configured(encryptionRequireOnProducer=configured_so)
    found = resolve(config, Policies(encryption_required=policy), NOTHING)
    assert (found.encryption_required, found.messages_encrypted) == (of_producers, of_messages)


def test_every_policy_of_a_topic_is_looked_at_here() -> None:
    looked_at = {name for _, name, _ in BROKER_SETTINGS.values()} | {*ONE_NUMBER.values()}
    others = {"inactive_mode", "dispatch_rate_of_subscription", "persistence"}
    others |= {"max_producers_same_address", "max_consumers_same_address"}  # the broker's alone
    others.add("messages_encrypted")  # a policy's alone
    assert {field.name for field in fields(EffectivePolicies)} == looked_at | others


@pytest.mark.parametrize(
    ("settings", "own", "expected"),
    [
        ({}, None, (True, 0)),
        ({"allowAutoTopicCreation": "false"}, None, (False, 0)),
        ({"allowAutoTopicCreationType": "partitioned", "defaultNumPartitions": "3"}, None, (True, 3)),
        ({"allowAutoTopicCreationType": "partitioned"}, {"allowed": True}, (True, 0)),
        ({}, {"allowed": False}, (False, 0)),
        ({}, {"allowed": True, "partitioned": True, "partitions": 5}, (True, 5)),
        ({}, {"allowed": True, "partitioned": True}, (True, 1)),
    ],
)
def test_how_topics_are_made_in_a_namespace(
    settings: dict[str, object], own: dict[str, int] | None, expected: tuple[bool, int]
) -> None:
    policies = Policies()
    if own is not None:
        policies.auto_topic_creation.CopyFrom(Policies.AutoTopicCreation(**own))  # type: ignore[arg-type]
    found = resolve_namespace(configured(**settings), policies)
    assert (found.auto_topic_creation, found.auto_partitions) == expected


def test_how_many_topics_a_namespace_may_have() -> None:
    config = configured(maxTopicsPerNamespace=4)
    assert resolve_namespace(config, Policies()).max_topics == 4
    assert resolve_namespace(config, Policies(max_topics_per_namespace=0)).max_topics == 0


def test_how_ledgers_are_made_is_said_by_the_topic_its_namespace_or_the_configuration() -> None:
    def saying(ensemble: int) -> Policies:
        return Policies(
            persistence=Policies.Persistence(
                ensemble=ensemble, write_quorum=2, ack_quorum=1, mark_delete_rate=0.5
            )
        )

    assert resolve(DEFAULTS, NOTHING, NOTHING).persistence is None
    assert resolve(DEFAULTS, saying(3), NOTHING).persistence == Persistence(3, 2, 1, 0.5)
    assert resolve(DEFAULTS, saying(3), saying(4)).persistence == Persistence(4, 2, 1, 0.5)
