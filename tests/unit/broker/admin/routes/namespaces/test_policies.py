"""Policies of namespaces and topics over HTTP: verbs, shapes and statuses as Pulsar has them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from magnetar.broker.config import BrokerConfig
from magnetar.broker.policies.config import PolicyConfig, TopicCreationConfig
from magnetar.broker.policies.policy_store import PolicyStore
from magnetar.broker.topics.config import PublishConfig
from magnetar.common.metadata.values import TopicHead, encode
from magnetar.common.naming.topic_name import TopicName

from tests.unit.broker.admin.fake_broker import KEYS
from tests.unit.broker.admin.policies.test_policy_fields import OFFLOAD

if TYPE_CHECKING:
    from tests.unit.broker.admin.conftest import Serving
    from tests.unit.broker.admin.fake_broker import Http

NS = "/namespaces/acme/demo"
TOPIC = "/persistent/acme/demo/single"
RATE = {
    "dispatchThrottlingRateInMsg": 100,
    "dispatchThrottlingRateInByte": 1000,
    "relativeToPublishRate": False,
    "ratePeriodInSecond": 1,
}
NO_RATE = {**RATE, "dispatchThrottlingRateInMsg": 0, "dispatchThrottlingRateInByte": 0}

OF_NAMESPACES: list[tuple[str, str, Any, Any]] = [
    ("compactionThreshold", "PUT", 1_000_000, None),
    ("offloadPolicies", "POST", OFFLOAD, None),
    ("dispatcherPauseOnAckStatePersistent", "POST", True, False),
    ("isAllowAutoUpdateSchema", "POST", False, True),
    ("schemaCompatibilityStrategy", "PUT", "FULL", "UNDEFINED"),
    ("schemaAutoUpdateCompatibilityStrategy", "PUT", "Backward", None),
    ("schemaValidationEnforced", "POST", True, False),
    ("subscriptionAuthMode", "POST", "Prefix", "None"),
    ("replicatorDispatchRate", "POST", RATE, None),
]
"""Name, the method that sets it, a value, and what is said where it is not set."""

OF_TOPICS: list[tuple[str, str, Any, Any, Any]] = [
    ("compactionThreshold", "POST", 5000, None, 0),
    ("offloadPolicies", "POST", OFFLOAD, None, None),
    ("dispatcherPauseOnAckStatePersistent", "POST", True, False, False),
    ("schemaCompatibilityStrategy", "PUT", "BACKWARD", None, "FULL"),
    ("schemaValidationEnforced", "POST", True, False, False),
    ("replicatorDispatchRate", "POST", RATE, None, NO_RATE),
]
"""The same, and what holds then."""


async def shown(http: Http, path: str) -> Any:
    """The JSON of an answer, None when it is empty."""
    status, text = await http.send("GET", path)
    assert status in (200, 204), (path, status, text)
    return json.loads(text) if text else None


async def add_topic(http: Http) -> None:
    await http.store.put(
        KEYS.topic_head(TopicName.parse("persistent://acme/demo/single")), encode(TopicHead())
    )
    http.broker.unloaded.append("persistent://acme/demo/single")


@pytest.mark.parametrize(("name", "method", "value", "unset"), OF_NAMESPACES)
def test_a_policy_of_a_namespace_is_set_shown_and_taken_away(
    serving: Serving, name: str, method: str, value: Any, unset: Any
) -> None:
    removed = {"offloadPolicies": "removeOffloadPolicies"}.get(name, name)
    has_delete = name in (
        "compactionThreshold",
        "offloadPolicies",
        "dispatcherPauseOnAckStatePersistent",
        "replicatorDispatchRate",
    )

    async def body(http: Http) -> None:
        path = f"{NS}/{name}"
        assert await shown(http, path) == unset
        for _ in range(2):
            assert await http.send(method, path, value) == (204, "")
            assert await shown(http, path) == value
        for _ in range(2):
            if has_delete:
                assert await http.send("DELETE", f"{NS}/{removed}") == (204, "")
            else:
                assert await http.send(method, path, b"null") == (204, "")
            # Null is false there, as in Apache Pulsar.
            assert await shown(http, path) == (False if name == "isAllowAutoUpdateSchema" else unset)
        reason = await http.reason(404, method, f"/namespaces/acme/nope/{name}", value)
        assert reason == "Namespace does not exist"
        assert await http.reason(404, "GET", f"/namespaces/acme/nope/{name}") == "Namespace does not exist"

    serving(body)


@pytest.mark.parametrize(("name", "method", "value", "unset", "applied"), OF_TOPICS)
def test_a_policy_of_a_topic_comes_before_its_namespaces(
    serving: Serving, name: str, method: str, value: Any, unset: Any, applied: Any
) -> None:
    (of_namespace,) = [each for each in OF_NAMESPACES if each[0] == name]

    async def body(http: Http) -> None:
        await add_topic(http)
        path = f"{TOPIC}/{name}"
        assert await shown(http, path) == unset
        assert await shown(http, f"{path}?applied=true") == applied
        assert await http.send(of_namespace[1], f"{NS}/{name}", of_namespace[2]) == (204, "")
        assert await shown(http, path) == unset
        assert await shown(http, f"{path}?applied=true") == of_namespace[2]
        assert await http.send(method, path, value) == (204, "")
        assert await shown(http, path) == await shown(http, f"{path}?applied=true") == value
        for _ in range(2):
            assert await http.send("DELETE", path) == (204, "")
        assert await shown(http, path) == unset
        assert await shown(http, f"{path}?applied=true") == of_namespace[2]
        missing = await http.reason(404, method, f"/persistent/acme/demo/nope/{name}", value)
        assert missing == "Topic persistent://acme/demo/nope not found"

    serving(body)


def test_the_strategy_that_is_not_set_answers_204(serving: Serving) -> None:
    async def body(http: Http) -> None:
        assert await http.send("GET", f"{NS}/schemaAutoUpdateCompatibilityStrategy") == (204, "")

    serving(body)


@pytest.mark.parametrize("given", [b"", b'""', b"true"])
@pytest.mark.parametrize("path", [NS, TOPIC])
def test_pausing_on_the_state_of_acknowledgements_needs_no_body(
    serving: Serving, path: str, given: bytes
) -> None:
    async def body(http: Http) -> None:
        await add_topic(http)
        name = f"{path}/dispatcherPauseOnAckStatePersistent"
        assert await http.send("POST", name, given) == (204, "")
        assert await http.ask(name) is True

    serving(body)


def test_limits_of_offloading_are_members_of_its_policies(serving: Serving) -> None:
    async def body(http: Http) -> None:
        for name, unset, value, status in (
            ("offloadThreshold", -1, 2_000_000, 204),
            ("offloadThresholdInSeconds", -1, 600, 200),
            ("offloadDeletionLagMs", None, 1000, 204),
        ):
            assert await shown(http, f"{NS}/{name}") == unset
            assert await http.send("PUT", f"{NS}/{name}", value) == (status, "")
            assert await shown(http, f"{NS}/{name}") == value
        found = await http.ask(f"{NS}/offloadPolicies")
        assert found["managedLedgerOffloadThresholdInBytes"] == 2_000_000
        assert found["managedLedgerOffloadThresholdInSeconds"] == 600
        assert found["managedLedgerOffloadDeletionLagInMillis"] == 1000
        for _ in range(2):
            assert await http.send("DELETE", f"{NS}/offloadDeletionLagMs") == (204, "")
            assert await shown(http, f"{NS}/offloadDeletionLagMs") is None
        assert await http.send("DELETE", f"{NS}/removeOffloadPolicies") == (204, "")
        assert await shown(http, f"{NS}/offloadPolicies") is None
        assert await shown(http, f"{NS}/offloadThreshold") == -1
        assert await http.send("DELETE", f"{NS}/offloadDeletionLagMs") == (204, "")
        assert await shown(http, f"{NS}/offloadPolicies") is None
        assert await http.send("POST", f"{NS}/offloadPolicies", OFFLOAD) == (204, "")
        assert await shown(http, f"{NS}/offloadThreshold") == 1000
        assert "Invalid bundle range" in await http.reason(412, "DELETE", f"{NS}/offloadPolicies")

    serving(body)


@pytest.mark.parametrize(
    ("method", "name", "given", "status", "reason"),
    [
        ("PUT", "compactionThreshold", -1, 412, "compactionThreshold must be 0 (never) or more"),
        ("PUT", "compactionThreshold", 2**63, 400, "out of range"),
        ("PUT", "offloadThreshold", -2, 412, "offloadThreshold value is not valid"),
        ("PUT", "offloadThreshold", "1G", 400, "whole number"),
        ("PUT", "offloadThreshold", b"", 400, "empty"),
        ("PUT", "offloadThresholdInSeconds", "1.5", 400, "whole number"),
        ("PUT", "offloadDeletionLagMs", None, 400, "empty"),
        ("POST", "offloadPolicies", {"managedLedgerOffloadDriver": "bogus"}, 412, "driver is not supported"),
        ("POST", "offloadPolicies", [], 400, "object"),
        ("POST", "isAllowAutoUpdateSchema", "yes", 400, "true or false"),
        ("POST", "dispatcherPauseOnAckStatePersistent", 3.0, 400, "true or false"),
        ("PUT", "schemaCompatibilityStrategy", "BOGUS", 400, "UNDEFINED, ALWAYS_INCOMPATIBLE"),
        ("PUT", "schemaCompatibilityStrategy", b"FULL", 400, "not JSON"),
        ("PUT", "schemaAutoUpdateCompatibilityStrategy", "FULL", 400, "AutoUpdateDisabled"),
        ("POST", "schemaValidationEnforced", "1", 400, "true or false"),
        ("POST", "subscriptionAuthMode", "prefix", 400, "None, Prefix"),
        ("POST", "subscriptionAuthMode", b"None", 400, "not JSON"),
        ("POST", "replicatorDispatchRate", {"ratePeriodInSecond": "1s"}, 400, "whole number"),
    ],
)
def test_a_value_that_cannot_be_is_refused_with_the_reason(
    serving: Serving, method: str, name: str, given: Any, status: int, reason: str
) -> None:
    async def body(http: Http) -> None:
        before = await http.ask(NS)
        assert reason in await http.reason(status, method, f"{NS}/{name}", given)
        assert await http.ask(NS) == before

    serving(body)


def test_unsupported_policy_is_refused_and_not_stored(serving: Serving) -> None:
    async def body(http: Http) -> None:
        await add_topic(http)
        http.broker.config = BrokerConfig(
            publish=PublishConfig(message_bytes_max=1_000),
            policies=PolicyConfig(topic_creation=TopicCreationConfig(partitions_max=8)),
        )
        size = f"{TOPIC}/maxMessageSize"
        assert "at most 1000" in await http.reason(412, "POST", size, 1_001)
        assert await http.send("GET", size) == (204, "")
        assert await http.send("POST", size, 1_000) == (204, "")
        nine, eight = (
            {"allowAutoTopicCreation": True, "topicType": "partitioned", "defaultNumPartitions": count}
            for count in (9, 8)
        )
        assert "at most 8" in await http.reason(406, "POST", f"{NS}/autoTopicCreation", nine)
        assert await shown(http, f"{NS}/autoTopicCreation") is None
        assert await http.send("POST", f"{NS}/autoTopicCreation", eight) == (204, "")
        new = "/namespaces/acme/new"
        assert "at most 8" in await http.reason(406, "PUT", new, {"autoTopicCreationOverride": nine})
        assert await http.send("PUT", new, {"autoTopicCreationOverride": eight}) == (204, "")

    serving(body)


def test_persistence_defaults_to_the_broker_configuration(serving: Serving) -> None:
    async def body(http: Http) -> None:
        await add_topic(http)
        path = f"{TOPIC}/persistence"
        assert await shown(http, path) is None
        assert await shown(http, f"{path}?applied=true") == {
            "bookkeeperEnsemble": 1,
            "bookkeeperWriteQuorum": 1,
            "bookkeeperAckQuorum": 1,
            "managedLedgerMaxMarkDeleteRate": 1.0,
        }

    serving(body)


def test_unset_values_have_the_form_that_pulsar_clients_need(serving: Serving) -> None:
    """The client in Java reads a number in any case; the one in Go sends texts for nothing, and for flags."""

    async def body(http: Http) -> None:
        assert await http.ask(f"{NS}/maxTopicsPerNamespace") == 0
        unset = {
            "schema_compatibility_strategy": "",
            "subscription_auth_mode": "",
            "message_ttl_in_seconds": 7,
        }
        assert (await http.send("PUT", "/namespaces/acme/from-go", unset))[0] == 204
        assert await http.ask("/namespaces/acme/from-go/schemaCompatibilityStrategy") == "UNDEFINED"
        assert await http.ask("/namespaces/acme/from-go/messageTTL") == 7
        for flag in (True, False):
            assert (await http.send("POST", f"{NS}/encryptionRequired", str(flag).lower()))[0] == 204
            assert await http.ask(f"{NS}/encryptionRequired") is flag

    serving(body)


@pytest.mark.parametrize("name", ["compactionThreshold", "isAllowAutoUpdateSchema"])
def test_another_method_than_pulsars_is_405(serving: Serving, name: str) -> None:
    async def body(http: Http) -> None:
        other = "POST" if name == "compactionThreshold" else "PUT"
        status, _ = await http.send(other, f"{NS}/{name}", 1)
        assert status == 405
        status, _ = await http.send("GET", f"{NS}/noSuchThing")
        assert status == 405

    serving(body)


def test_a_namespace_of_which_nothing_was_said(serving: Serving) -> None:
    async def body(http: Http) -> None:
        assert await http.ask(NS) == {
            "auth_policies": {"namespace_auth": {}, "destination_auth": {}, "subscription_auth_roles": {}},
            "replication_clusters": ["standalone"],
            "allowed_clusters": [],
            "bundles": {
                "boundaries": ["0x00000000", "0x40000000", "0x80000000", "0xc0000000", "0xffffffff"],
                "numBundles": 4,
            },
            "backlog_quota_map": {},
            "clusterDispatchRate": {},
            "topicDispatchRate": {},
            "subscriptionDispatchRate": {},
            "replicatorDispatchRate": {},
            "clusterSubscribeRate": {},
            "publishMaxMessageRate": {},
            "latency_stats_sample_rate": {},
            "deleted": False,
            "encryption_required": False,
            "subscription_auth_mode": "None",
            "offload_threshold": -1,
            "offload_threshold_in_seconds": -1,
            "schema_compatibility_strategy": "UNDEFINED",
            "is_allow_auto_update_schema": True,
            "schema_validation_enforced": False,
            "subscription_types_enabled": [],
            "properties": {},
            "migrated": False,
        }

    serving(body)


def test_all_that_was_said_of_a_namespace_is_shown_together(serving: Serving) -> None:
    async def body(http: Http) -> None:
        for name, method, value, _ in OF_NAMESPACES:
            assert await http.send(method, f"{NS}/{name}", value) == (204, "")
        assert await http.send("POST", f"{NS}/permissions/role1", ["produce", "consume"]) == (204, "")
        assert await http.send("POST", f"{NS}/permissions/subscription/sub1", ["role1"]) == (204, "")
        found = await http.ask(NS)
        for key, value in {
            "auth_policies": {
                "namespace_auth": {"role1": ["consume", "produce"]},
                "destination_auth": {},
                "subscription_auth_roles": {"sub1": ["role1"]},
            },
            "replicatorDispatchRate": {"standalone": RATE},
            "subscription_auth_mode": "Prefix",
            "compaction_threshold": 1_000_000,
            "offload_threshold": -1,
            "offload_threshold_in_seconds": -1,
            "schema_auto_update_compatibility_strategy": "Backward",
            "schema_compatibility_strategy": "FULL",
            "is_allow_auto_update_schema": False,
            "schema_validation_enforced": True,
            "offload_policies": OFFLOAD,
            "dispatcherPauseOnAckStatePersistentEnabled": True,
        }.items():
            assert found[key] == value, key
        assert await http.send("PUT", "/tenants/copy", {"allowedClusters": ["standalone"]}) == (204, "")
        assert await http.send("PUT", "/namespaces/copy/ns", found) == (204, "")
        assert await http.ask("/namespaces/copy/ns") == found

    serving(body)


DISABLED = "Topic level policies is disabled, to enable the topic level policy and retry."


@pytest.mark.parametrize(
    ("name", "method"),
    [
        *((name, "POST") for name in ("retention", "maxProducers", "backlogQuota", "replication")),
        *((name, "GET") for name in ("retention", "backlogQuotaMap", "replication", "entryFilters")),
        *((name, "DELETE") for name in ("retention", "policies", "shadowTopics", "subscribeRate")),
        ("retention?applied=true", "GET"),
        ("s/dispatchRate", "GET"),
    ],
)
def test_topic_policy_calls_are_refused_with_topic_policies_disabled(
    serving: Serving, name: str, method: str
) -> None:
    async def body(http: Http) -> None:
        await add_topic(http)
        http.broker.config = BrokerConfig(policies=PolicyConfig(of_topics=False))
        body = 1 if method == "POST" else None
        assert await http.reason(405, method, f"{TOPIC}/{name}", body) == DISABLED

    serving(body)


def test_a_policy_of_a_topic_does_not_hold_where_topics_have_none(serving: Serving) -> None:
    async def body(http: Http) -> None:
        await add_topic(http)
        assert await http.send("POST", f"{NS}/maxProducersPerTopic", 7) == (204, "")
        assert await http.send("POST", f"{TOPIC}/maxProducers", 3) == (204, "")
        name = TopicName.parse("persistent://acme/demo/single")
        for of_topics, producers in ((True, 3), (False, 7)):
            config = BrokerConfig(policies=PolicyConfig(of_topics=of_topics))
            policies = await PolicyStore(config, http.store, KEYS).of_topic(name)
            assert policies.max_producers == producers

    serving(body)
