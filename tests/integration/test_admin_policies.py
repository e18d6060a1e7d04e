"""Policies over HTTP: each is set, shown and removed; they hold at once, and after a restart."""

from __future__ import annotations

from typing import Any

import pulsar
import pytest

from tests.integration.clients import publish
from tests.integration.conftest import Server
from tests.integration.harness import eventually
from tests.integration.rest import Rest

RATE = {
    "dispatchThrottlingRateInMsg": 100,
    "dispatchThrottlingRateInByte": 1000,
    "relativeToPublishRate": False,
    "ratePeriodInSecond": 1,
}
INACTIVE = {
    "inactiveTopicDeleteMode": "delete_when_no_subscriptions",
    "maxInactiveDurationSeconds": 3600,
    "deleteWhileInactive": True,
}
DELAYED = {"tickTime": 1000, "active": True, "maxDeliveryDelayInMillis": 0}
PERSISTENCE = {
    "bookkeeperEnsemble": 1,
    "bookkeeperWriteQuorum": 1,
    "bookkeeperAckQuorum": 1,
    "managedLedgerMaxMarkDeleteRate": 1.5,
}
RETENTION = {"retentionTimeInMinutes": 20, "retentionSizeInMB": 200}
SUBSCRIBE_RATE = {"subscribeThrottlingRatePerConsumer": 10, "ratePeriodInSecond": 30}
PUBLISH_RATE = {"publishThrottlingRateInMsg": 10, "publishThrottlingRateInByte": 1000}

NAMESPACE_POLICIES: dict[str, Any] = {
    "retention": RETENTION,
    "messageTTL": 120,
    "subscriptionExpirationTime": 10,
    "deduplication": True,
    "deduplicationSnapshotInterval": 500,
    "dispatchRate": RATE,
    "subscriptionDispatchRate": RATE,
    "publishRate": PUBLISH_RATE,
    "subscribeRate": SUBSCRIBE_RATE,
    "maxProducersPerTopic": 5,
    "maxConsumersPerTopic": 5,
    "maxConsumersPerSubscription": 5,
    "maxSubscriptionsPerTopic": 7,
    "maxUnackedMessagesPerConsumer": 100,
    "maxUnackedMessagesPerSubscription": 200,
    "maxTopicsPerNamespace": 100,
    "autoTopicCreation": {
        "allowAutoTopicCreation": True,
        "topicType": "partitioned",
        "defaultNumPartitions": 3,
    },
    "autoSubscriptionCreation": {"allowAutoSubscriptionCreation": False},
    "inactiveTopicPolicies": INACTIVE,
    "delayedDelivery": DELAYED,
    "encryptionRequired": True,
    "subscriptionTypesEnabled": ["Exclusive", "Shared"],
    "persistence": PERSISTENCE,
}
"""Each with a value that a recorded answer has."""

UNSET_NAMESPACE: dict[str, Any] = {
    "encryptionRequired": False,
    "maxTopicsPerNamespace": 0,
    "subscriptionTypesEnabled": [],
}
"""What is said where it is not set; nothing otherwise."""

NOT_DELETED = {"deduplicationSnapshotInterval", "encryptionRequired"}

TOPIC_POLICIES: dict[str, tuple[Any, Any]] = {
    "retention": (RETENTION, {"retentionTimeInMinutes": 0, "retentionSizeInMB": 0}),
    "messageTTL": (60, 0),
    "deduplicationEnabled": (True, False),
    "dispatchRate": (RATE, {**RATE, "dispatchThrottlingRateInMsg": 0, "dispatchThrottlingRateInByte": 0}),
    "subscriptionDispatchRate": (
        RATE,
        {**RATE, "dispatchThrottlingRateInMsg": 0, "dispatchThrottlingRateInByte": 0},
    ),
    "subscribeRate": (SUBSCRIBE_RATE, {**SUBSCRIBE_RATE, "subscribeThrottlingRatePerConsumer": 0}),
    "maxProducers": (5, 0),
    "maxConsumers": (5, 0),
    "maxUnackedMessagesOnConsumer": (5, 50_000),
    "maxUnackedMessagesOnSubscription": (5, 200_000),
    "autoSubscriptionCreation": (
        {"allowAutoSubscriptionCreation": False},
        {"allowAutoSubscriptionCreation": True},
    ),
    "inactiveTopicPolicies": (INACTIVE, {**INACTIVE, "maxInactiveDurationSeconds": 60}),
    "delayedDelivery": ({**DELAYED, "tickTime": 10}, DELAYED),
}
"""With a value, and with what a recorded broker says with `applied` where nobody set it."""

UNSET_TOPIC_204: dict[str, Any] = {
    "maxConsumersPerSubscription": 5,
    "maxMessageSize": 5000,
    "maxSubscriptionsPerTopic": 50,
    "publishRate": {"publishThrottlingRateInMsg": 1000, "publishThrottlingRateInByte": -1},
    "subscriptionTypesEnabled": ["Exclusive", "Shared", "Failover", "Key_Shared"],
}
"""For these 204 says that they are not set."""


@pytest.mark.parametrize("name", NAMESPACE_POLICIES)
def test_a_policy_of_a_namespace_is_set_shown_and_removed(rest: Rest, namespace: str, name: str) -> None:
    path, value = f"/namespaces/{namespace}/{name}", NAMESPACE_POLICIES[name]
    assert rest.get(path) == UNSET_NAMESPACE.get(name)
    rest.do("POST", path, value)
    assert rest.get(path) == value
    rest.do("POST", path, value)
    if name in NOT_DELETED:
        rest.do("POST", path, None)
    else:
        rest.do("DELETE", path)
    assert rest.get(path) == UNSET_NAMESPACE.get(name)
    assert rest.refused(404, "POST", f"/namespaces/public/nope/{name}", value) == "Namespace does not exist"


@pytest.mark.parametrize("name", TOPIC_POLICIES)
def test_a_policy_of_a_topic_is_set_shown_and_removed(rest: Rest, namespace: str, name: str) -> None:
    value, default = TOPIC_POLICIES[name]
    rest.do("PUT", f"/persistent/{namespace}/t")
    path = f"/persistent/{namespace}/t/{name}"
    assert rest.get(path) is None
    assert rest.get(f"{path}?applied=true") == default
    if name == "messageTTL":
        rest.do("POST", f"{path}?messageTTL={value}")
    else:
        rest.do("POST", path, value)
    assert rest.get(path) == rest.get(f"{path}?applied=true") == value
    rest.do("DELETE", path)
    assert rest.get(path) is None
    assert rest.get(f"{path}?applied=true") == default


@pytest.mark.parametrize("name", UNSET_TOPIC_204)
def test_some_policies_of_a_topic_answer_204_when_they_are_not_set(
    rest: Rest, namespace: str, name: str
) -> None:
    rest.do("PUT", f"/persistent/{namespace}/t")
    path = f"/persistent/{namespace}/t/{name}"
    for query in ("", "?applied=true"):
        assert rest.call("GET", f"{path}{query}").status == 204
    rest.do("POST", path, UNSET_TOPIC_204[name])
    assert rest.get(path) == UNSET_TOPIC_204[name]
    rest.do("DELETE", f"/persistent/{namespace}/t/policies")
    assert rest.call("GET", path).status == 204


def test_all_policies_of_a_namespace_are_shown_together(rest: Rest, namespace: str) -> None:
    for name, value in NAMESPACE_POLICIES.items():
        rest.do("POST", f"/namespaces/{namespace}/{name}", value)
    shown = rest.get(f"/namespaces/{namespace}")
    cluster = rest.endpoint.cluster
    for key, value in {
        "topicDispatchRate": {cluster: RATE},
        "clusterDispatchRate": {cluster: RATE},
        "subscriptionDispatchRate": {cluster: RATE},
        "clusterSubscribeRate": {cluster: SUBSCRIBE_RATE},
        "publishMaxMessageRate": {cluster: PUBLISH_RATE},
        "persistence": PERSISTENCE,
        "deduplicationEnabled": True,
        "autoTopicCreationOverride": NAMESPACE_POLICIES["autoTopicCreation"],
        "autoSubscriptionCreationOverride": {"allowAutoSubscriptionCreation": False},
        "message_ttl_in_seconds": 120,
        "subscription_expiration_time_minutes": 10,
        "retention_policies": RETENTION,
        "encryption_required": True,
        "delayed_delivery_policies": DELAYED,
        "inactive_topic_policies": INACTIVE,
        "max_producers_per_topic": 5,
        "max_consumers_per_topic": 5,
        "max_consumers_per_subscription": 5,
        "max_unacked_messages_per_consumer": 100,
        "max_unacked_messages_per_subscription": 200,
        "max_subscriptions_per_topic": 7,
        "max_topics_per_namespace": 100,
        "deduplicationSnapshotIntervalSeconds": 500,
        "subscription_types_enabled": ["Exclusive", "Shared"],
    }.items():
        assert shown[key] == value, key


def test_backlog_quotas_are_two_policies_under_one_name(rest: Rest, namespace: str) -> None:
    rest.do("PUT", f"/persistent/{namespace}/t")
    unset = {"limit": -1, "limitSize": -1, "limitTime": -1, "policy": "producer_request_hold"}
    for path in (f"/namespaces/{namespace}", f"/persistent/{namespace}/t"):
        assert rest.get(f"{path}/backlogQuotaMap") == {}
        size = {"limitSize": 1_000_000, "limitTime": -1, "policy": "producer_exception"}
        rest.do("POST", f"{path}/backlogQuota?backlogQuotaType=destination_storage", size)
        age = {"limit": -1, "limitTime": 3600, "policy": "consumer_backlog_eviction"}
        rest.do("POST", f"{path}/backlogQuota?backlogQuotaType=message_age", age)
        assert rest.get(f"{path}/backlogQuotaMap") == {
            "destination_storage": {**size, "limit": 1_000_000},
            "message_age": {**age, "limitSize": -1},
        }
        rest.do("DELETE", f"{path}/backlogQuota?backlogQuotaType=destination_storage")
        rest.do("DELETE", f"{path}/backlogQuota?backlogQuotaType=message_age")
        assert rest.get(f"{path}/backlogQuotaMap") == {}
        rest.refused(404, "POST", f"{path}/backlogQuota?backlogQuotaType=x", size)
    applied = rest.get(f"/persistent/{namespace}/t/backlogQuotaMap?applied=true")
    assert applied == {"destination_storage": unset, "message_age": unset}


def test_a_backlog_must_fit_into_the_retention(rest: Rest, namespace: str) -> None:
    path = f"/namespaces/{namespace}"
    rest.do("POST", f"{path}/retention", {"retentionTimeInMinutes": 10, "retentionSizeInMB": 10})
    quota = {"limitSize": 10 * 1024 * 1024, "policy": "producer_exception"}
    assert "exceeds configured retention" in rest.refused(412, "POST", f"{path}/backlogQuota", quota)
    rest.do("POST", f"{path}/backlogQuota", {**quota, "limitSize": 10 * 1024 * 1024 - 1})
    small = {"retentionTimeInMinutes": 10, "retentionSizeInMB": 9}
    rest.refused(412, "POST", f"{path}/retention", small)
    rest.do("POST", f"{path}/retention", {"retentionTimeInMinutes": -1, "retentionSizeInMB": -1})


def test_a_topics_backlog_must_fit_into_the_retention_that_holds_for_it(rest: Rest, namespace: str) -> None:
    topic = f"/persistent/{namespace}/t"
    ten, eight = ({"retentionTimeInMinutes": 10, "retentionSizeInMB": size} for size in (10, 8))
    quota = {"limitSize": 9 << 20, "policy": "producer_exception"}
    rest.do("PUT", topic)
    rest.do("POST", f"/namespaces/{namespace}/retention", eight)
    assert "exceeds configured retention" in rest.refused(412, "POST", f"{topic}/backlogQuota", quota)
    rest.do("POST", f"{topic}/retention", ten)
    rest.do("POST", f"{topic}/backlogQuota", quota)
    rest.refused(412, "POST", f"{topic}/retention", eight)
    rest.do("DELETE", f"{topic}/retention")  # taking away is always possible, and nothing else is kept back
    rest.do("POST", f"{topic}/maxProducers", 3)


@pytest.mark.parametrize(
    ("name", "value", "status", "reason"),
    [
        ("messageTTL", -1, 412, "Invalid value for message TTL, message TTL must >= 0"),
        ("maxProducersPerTopic", -1, 412, "maxProducersPerTopic must be 0 or more"),
        ("maxProducersPerTopic", "five", 400, "whole number"),
        ("maxProducersPerTopic", 2**31, 400, "out of range"),
        ("maxProducersPerTopic", "1.5", 400, "whole number"),
        ("maxProducersPerTopic", True, 400, "whole number"),
        ("maxProducersPerTopic", b"five", 400, "not JSON"),
        ("maxProducersPerTopic", b"", 400, "empty"),
        (
            "retention",
            {"retentionTimeInMinutes": 0, "retentionSizeInMB": 10},
            400,
            "Invalid retention policy",
        ),
        ("retention", {"retentionTimeInMinutes": -2, "retentionSizeInMB": 10}, 400, "Invalid retention"),
        ("retention", [], 400, "object"),
        ("deduplication", "yes", 400, "true or false"),
        ("dispatchRate", {"dispatchThrottlingRateInMsg": "fast"}, 400, "whole number"),
        ("subscribeRate", {"ratePeriodInSecond": 0}, 400, "more than 0"),
        (
            "persistence",
            {**PERSISTENCE, "bookkeeperWriteQuorum": 2},
            400,
            "Bookkeeper Ensemble (1) >= WriteQuorum (2) >= AckQuorum (1)",
        ),
        ("persistence", {**PERSISTENCE, "bookkeeperEnsemble": 6}, 400, "must be <= 5 and > 0."),
        (
            "autoTopicCreation",
            {"allowAutoTopicCreation": True, "topicType": "partitioned", "defaultNumPartitions": 0},
            412,
            "[defaultNumPartitions] cannot be less than 1 for partition type.",
        ),
        ("autoTopicCreation", {"allowAutoTopicCreation": True, "topicType": "x"}, 412, "topic type"),
        ("autoTopicCreation", {"allowAutoTopicCreation": []}, 400, "true or false"),
        ("autoTopicCreation", {"allowAutoTopicCreation": 0.0}, 400, "true or false"),
        ("dispatchRate", {"ratePeriodInSecond": -1}, 400, "ratePeriodInSecond must be 0 or more"),
        ("maxProducersPerTopic", b"1" + b"0" * 400, 400, "out of range"),
        ("messageTTL", b"NaN", 400, "not JSON"),
        ("messageTTL", b"1e999", 400, "not JSON"),
        ("inactiveTopicPolicies", {**INACTIVE, "inactiveTopicDeleteMode": "never"}, 400, "one of"),
        ("subscriptionTypesEnabled", ["Sharded"], 400, "'Sharded' is not one of"),
        ("subscriptionTypesEnabled", [{}], 400, "is not one of"),
        ("backlogQuota", {"limitSize": 1, "policy": "explode"}, 400, "one of"),
        ("backlogQuota", {"limitSize": 1}, 400, "one of"),
        ("backlogQuota", {"limitSize": [], "policy": "producer_exception"}, 400, "whole number"),
    ],
)
def test_a_value_that_cannot_be_is_refused_with_the_reason(
    rest: Rest, namespace: str, name: str, value: object, status: int, reason: str
) -> None:
    before = rest.get(f"/namespaces/{namespace}")
    assert reason in rest.refused(status, "POST", f"/namespaces/{namespace}/{name}", value)
    assert rest.get(f"/namespaces/{namespace}") == before


def test_policies_belong_to_the_partitioned_topic_and_not_to_its_partitions(
    rest: Rest, namespace: str
) -> None:
    path = f"/persistent/{namespace}/p"
    rest.do("PUT", f"{path}/partitions", 2)
    rest.do("POST", f"{path}/retention", RETENTION)
    assert rest.get(f"{path}/retention") == RETENTION
    refused = rest.refused(412, "POST", f"{path}-partition-0/retention", RETENTION)
    assert refused == "Not allowed to set/get topic policy for a partition"
    missing = rest.refused(404, "POST", f"/persistent/{namespace}/nope/retention", RETENTION)
    assert missing == f"Topic persistent://{namespace}/nope not found"


def test_the_dispatch_rate_of_one_subscription(rest: Rest, namespace: str) -> None:
    path = f"/persistent/{namespace}/t"
    rest.do("PUT", path)
    rest.do("POST", f"{path}/subscriptionDispatchRate", {**RATE, "dispatchThrottlingRateInMsg": 7})
    assert rest.get(f"{path}/s1/dispatchRate") is None
    assert rest.get(f"{path}/s1/dispatchRate?applied=true")["dispatchThrottlingRateInMsg"] == 7
    rest.do("POST", f"{path}/s1/dispatchRate", RATE)
    assert rest.get(f"{path}/s1/dispatchRate") == rest.get(f"{path}/s1/dispatchRate?applied=true") == RATE
    rest.do("DELETE", f"{path}/s1/dispatchRate")
    assert rest.get(f"{path}/s1/dispatchRate") is None


def test_a_limit_holds_at_once_and_the_topics_comes_before_the_namespaces(
    rest: Rest, namespace: str, client: pulsar.Client
) -> None:
    topic = f"persistent://{namespace}/t"
    first = client.create_producer(topic)
    rest.do("POST", f"/namespaces/{namespace}/maxProducersPerTopic", 1)
    with pytest.raises(pulsar.PulsarException):
        client.create_producer(topic)
    rest.do("POST", f"/persistent/{namespace}/t/maxProducers", 2)
    second = client.create_producer(topic)
    with pytest.raises(pulsar.PulsarException):
        client.create_producer(topic)
    second.close()
    rest.do("DELETE", f"/persistent/{namespace}/t/maxProducers")
    with pytest.raises(pulsar.PulsarException):
        client.create_producer(topic)
    rest.do("DELETE", f"/namespaces/{namespace}/maxProducersPerTopic")
    client.create_producer(topic)
    assert first.is_connected()


def test_namespace_policy_decides_how_topics_are_auto_created(
    rest: Rest, namespace: str, client: pulsar.Client
) -> None:
    three = {"allowAutoTopicCreation": True, "topicType": "partitioned", "defaultNumPartitions": 3}
    rest.do("POST", f"/namespaces/{namespace}/autoTopicCreation", three)
    publish(client, f"persistent://{namespace}/auto", [b"m"])
    assert rest.get(f"/persistent/{namespace}/auto/partitions")["partitions"] == 3
    rest.do("POST", f"/namespaces/{namespace}/autoTopicCreation", {"allowAutoTopicCreation": False})
    with pytest.raises(pulsar.PulsarException):
        client.create_producer(f"persistent://{namespace}/never")
    rest.do("POST", f"/namespaces/{namespace}/maxTopicsPerNamespace", 4)
    rest.do("PUT", f"/persistent/{namespace}/fourth")
    assert "Exceed maximum number" in rest.refused(412, "PUT", f"/persistent/{namespace}/fifth")


def test_policies_survive_a_restart_and_go_with_their_topic(
    server: Server, rest: Rest, namespace: str
) -> None:
    path = f"/persistent/{namespace}/t"
    rest.do("PUT", path)
    rest.do("POST", f"/namespaces/{namespace}/retention", RETENTION)
    rest.do("POST", f"{path}/maxProducers", 1)
    server.kill_and_start()
    assert rest.get(f"/namespaces/{namespace}/retention") == RETENTION
    assert rest.get(f"{path}/maxProducers") == 1
    client = pulsar.Client(rest.endpoint.service_url, operation_timeout_seconds=10)
    try:
        client.create_producer(f"persistent://{namespace}/t")
        with pytest.raises(pulsar.PulsarException):
            client.create_producer(f"persistent://{namespace}/t")
    finally:
        client.close()
    eventually(lambda: not rest.get(f"{path}/stats")["publishers"], "the producer is gone")
    rest.do("DELETE", path)
    rest.do("PUT", path)
    assert rest.get(f"{path}/maxProducers") is None
