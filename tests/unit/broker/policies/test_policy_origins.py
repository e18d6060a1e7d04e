"""Each policy of a topic is explained with the level whose value holds."""

from __future__ import annotations

import json
from dataclasses import fields
from typing import Any

import pytest
from magnetar.broker.config import BrokerConfig
from magnetar.broker.policies.effective_policies import EffectivePolicies, resolve
from magnetar.broker.policies.policy_origins import FIELDS, PolicyOrigin, policy_origins
from magnetar.common.metadata.values import Policies

CONFIG = BrokerConfig()

SAMPLES: dict[str, dict[str, Any]] = {
    "retention": {"retention": Policies.Retention(time_min=7, size_mb=7)},
    "size_quota": {"size_quota": Policies.BacklogQuota(limit_bytes=7, policy=Policies.PRODUCER_EXCEPTION)},
    "time_quota": {"time_quota": Policies.BacklogQuota(limit_s=7)},
    "dispatch_rate": {"dispatch_rate": Policies.Rate(messages=7)},
    "subscription_dispatch_rate": {"subscription_dispatch_rate": Policies.Rate(messages=7)},
    "publish_rate": {"publish_rate": Policies.Rate(messages=7)},
    "subscribe_rate": {"subscribe_rate": Policies.SubscribeRate(per_consumer=7, period_s=7)},
    "inactive_topics": {
        "inactive_topics": Policies.InactiveTopics(
            inactive_s=7, mode=Policies.DELETE_WHEN_SUBSCRIPTIONS_CAUGHT_UP, delete=True
        )
    },
    "delayed_delivery": {"delayed_delivery": Policies.DelayedDelivery(tick_ms=7)},
    "subscription_types": {"subscription_types": Policies.SubscriptionTypes(names=["Shared"])},
    "persistence": {"persistence": Policies.Persistence(ensemble=1, write_quorum=1, ack_quorum=1)},
    "offload": {"offload": Policies.Offload(threshold_bytes=7)},
    "schemas": {"schema_compatibility": "FORWARD"},
    "deduplication": {"deduplication": True},
    "auto_subscription_creation": {"auto_subscription_creation": False},
    "encryption_required": {"encryption_required": True},
    "dispatch_rate_of_subscription": {"dispatch_rate_of_subscription": {"s": Policies.Rate(messages=7)}},
}
"""A value of each policy that is not a plain number, unlike the default."""

OF_BROKER = {"max_producers_same_address", "max_consumers_same_address"}
"""Policies that only the configuration has."""

OF_LEVELS = sorted(FIELDS.keys() - OF_BROKER)


def sample(name: str) -> Policies:
    return Policies(**SAMPLES.get(name, {name: 7}))


def origin(name: str, namespace: Policies, topic: Policies) -> PolicyOrigin:
    (found,) = [each for each in policy_origins(CONFIG, namespace, topic) if each.name == name]
    return found


def test_every_policy_in_effect_is_explained_once() -> None:
    explained = [field for of_policy in FIELDS.values() for field in of_policy]
    assert sorted(explained) == sorted(each.name for each in fields(EffectivePolicies))
    plain = policy_origins(CONFIG, Policies(), Policies())
    assert {each.level for each in plain} == {"broker"}
    assert json.dumps([each.value for each in plain])


@pytest.mark.parametrize("name", OF_LEVELS)
def test_the_level_and_what_would_hold_without_it(name: str) -> None:
    nothing, own = Policies(), sample(name)
    broker = origin(name, nothing, nothing)
    of_topic = origin(name, nothing, own)
    assert of_topic.level == "topic"
    assert of_topic.value != broker.value == of_topic.without_topic == of_topic.without_namespace
    if name != "dispatch_rate_of_subscription":
        of_namespace = origin(name, own, nothing)
        assert of_namespace.level == "namespace"
        assert of_namespace.value == of_namespace.without_topic == of_topic.value
        assert of_namespace.without_namespace == broker.value


@pytest.mark.parametrize("name", OF_LEVELS)
def test_a_policy_decides_its_own_fields_and_no_others(name: str) -> None:
    before, after = resolve(CONFIG, Policies(), Policies()), resolve(CONFIG, Policies(), sample(name))
    changed = {
        each.name
        for each in fields(EffectivePolicies)
        if getattr(before, each.name) != getattr(after, each.name)
    }
    assert changed
    assert changed <= set(FIELDS[name])


def test_a_topic_that_says_the_same_as_its_namespace_still_decides() -> None:
    own = sample("retention")
    found = origin("retention", own, own)
    assert (found.level, found.value) == ("topic", found.without_topic)
