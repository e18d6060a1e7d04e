"""Keys: one path part a name, the order of numbers, back to what they name."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from magnetar.common.metadata.keys import (
    Keys,
    delete_ledger_intent_id,
    delete_namespace_intent_id,
    delete_tenant_intent_id,
    delete_topic_intent_id,
    encode_id,
    encode_name,
)
from magnetar.common.naming.bundle_range import BundleRange
from magnetar.common.naming.namespace_name import NamespaceName
from magnetar.common.naming.topic_name import TopicName

ROOT = "/magnetar/eu%2F1/v1/"
keys = Keys("eu/1")

ids = st.integers(0, 2**64 - 1)
topics = st.builds(
    TopicName.of,
    st.sampled_from(["persistent", "non-persistent"]),
    st.builds(NamespaceName, st.sampled_from(["a", "a.b", "a=:"]), st.sampled_from(["x", "x-y"])),
    st.text(st.characters(exclude_characters="/", exclude_categories=["Cs"]), min_size=1).filter(
        lambda text: not text.isspace()
    ),
)


@given(topics)
@example(TopicName.parse("100% sure?#é\n\0"))
@example(TopicName.parse(".."))
def test_any_topic_name_is_one_part_and_comes_back(topic: TopicName) -> None:
    key = keys.topic_head(topic)
    assert re.fullmatch(r"[A-Za-z0-9_.~%/-]+", key)
    assert key.count("/") == ROOT.count("/") + 4
    assert keys.topic_of_head(key) == topic
    assert keys.topic_of_partitioned(keys.partitioned_topic(topic)) == topic
    assert key.startswith(keys.topic_heads_prefix(topic.domain, topic.namespace))
    assert keys.topic_heads_prefix(topic.domain, topic.namespace).startswith(
        keys.topic_heads_prefix(topic.domain)
    )


@given(topics, topics)
def test_different_topics_have_different_keys(one: TopicName, other: TopicName) -> None:
    assert (keys.topic_head(one) == keys.topic_head(other)) == (one == other)


@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1), ids)
def test_bookie_and_under_replication_keys_are_read_back(bookie_id: str, ledger_id: int) -> None:
    assert keys.bookie_id_of(keys.bookie(bookie_id)) == bookie_id
    assert keys.cookie_of(keys.cookie(bookie_id)) == bookie_id
    assert keys.decommission_of(keys.decommission(bookie_id)) == bookie_id
    assert keys.bookie_of_rack(keys.bookie_rack(bookie_id)) == bookie_id
    assert keys.bookie_of_mark(keys.bookie_mark(bookie_id)) == bookie_id
    assert keys.cluster_of(keys.cluster(bookie_id)) == bookie_id
    assert keys.under_replicated_of(keys.under_replicated(ledger_id)) == ledger_id
    assert keys.ledger_decision_of(keys.ledger_decision(ledger_id)) == ledger_id


@given(ids, ids)
def test_the_order_of_keys_is_the_order_of_ids(one: int, other: int) -> None:
    assert (keys.ledger(one) < keys.ledger(other)) == (one < other)
    assert keys.ledger_id_of(keys.ledger(one)) == one
    assert keys.topic_ledger_ids_of(keys.topic_ledger(one, other)) == (one, other)
    assert keys.creation_id_of_view(keys.compacted_view(one)) == one
    assert keys.topic_ledger(one, other).startswith(keys.topic_ledgers_prefix(one))


@pytest.mark.parametrize("number", [-1, 2**64])
def test_invalid_id_is_refused(number: int) -> None:
    with pytest.raises(ValueError, match="unsigned 64-bit"):
        encode_id(number)


def test_a_prefix_does_not_reach_into_a_neighbor_with_a_longer_name() -> None:
    other = TopicName.parse("persistent://a/bc/t")
    assert not keys.topic_head(other).startswith(
        keys.topic_heads_prefix("persistent", NamespaceName("a", "b"))
    )
    assert not keys.namespace(NamespaceName("ab", "x")).startswith(keys.namespaces_prefix("a"))
    longer = TopicName.parse("t2")
    assert not keys.schema(longer, 0).startswith(keys.schemas_prefix(TopicName.parse("t")))


def test_tenants_and_namespaces_come_back() -> None:
    assert keys.tenant_of(keys.tenant("a=:b")) == "a=:b"
    namespace = NamespaceName("a=:", "b.c")
    assert keys.namespace_of(keys.namespace(namespace)) == namespace


def test_partitions_share_the_schemas_and_policies_of_their_topic() -> None:
    topic = TopicName.parse("orders")
    assert keys.topic_policies(topic.partition(3)) == keys.topic_policies(topic)
    assert keys.topic_of_policies(keys.topic_policies(topic)) == topic
    assert keys.schema(topic.partition(3), 7) == keys.schema(topic, 7)
    assert keys.topic_of_schema(keys.schema(topic.partition(3), 7)) == topic
    assert keys.schema(topic, 7).startswith(keys.schemas_family_prefix)


@pytest.mark.parametrize("key", ["", "/magnetar/other/v1/ledgers/1", f"{ROOT}ledgers/1/2", f"{ROOT}topics/1"])
def test_a_key_of_another_kind_is_not_read_as_a_ledger(key: str) -> None:
    with pytest.raises(ValueError, match="is not a key of"):
        keys.ledger_id_of(key)


def test_keys_of_brokers_and_of_owners_are_read_back() -> None:
    bundle = BundleRange(0x4000_0000, 0x8000_0000)
    namespace = NamespaceName("a", "b")
    assert keys.broker_id_of(keys.broker("[::1]:8080")) == "[::1]:8080"
    owner = keys.bundle_owner(namespace, bundle)
    assert owner == f"{ROOT}bundle-owners/a/b/0x40000000_0x80000000"
    assert keys.bundle_of_owner(owner) == (namespace, bundle)
    assert owner.startswith(keys.namespace_bundle_owners_prefix(namespace))


def test_every_key_is_documented() -> None:
    topic = TopicName.parse("t")
    examples = [
        keys.instance_id,
        keys.restoration,
        keys.cluster("us"),
        keys.dynamic_configuration,
        keys.default_resource_quota,
        keys.bookie_mark("bookie-1"),
        keys.bookie_rack("bookie-1"),
        keys.tenant("a"),
        keys.namespace(NamespaceName("a", "b")),
        keys.partitioned_topic(topic),
        keys.topic_head(topic),
        keys.topic_policies(topic),
        keys.topic_ledger(1, 2),
        keys.compacted_view(1),
        keys.transaction_log_head(0),
        keys.offload_location("s3://cold/acme"),
        keys.ledger(1),
        keys.ledger_id_counter,
        keys.creation_id_counter,
        keys.producer_name_counter,
        keys.bookie("bookie-1"),
        keys.cookie("bookie-1"),
        keys.auditor,
        keys.under_replicated(1),
        keys.replication_lock(1),
        keys.decommission("bookie-1"),
        keys.ledger_decision(1),
        keys.broker("10.0.0.5:8080"),
        keys.broker_leader,
        keys.bundle_owner(NamespaceName("a", "b"), BundleRange(0, 0x4000_0000)),
        keys.schema(topic, 0),
        keys.intent(delete_ledger_intent_id(1)),
        keys.intent(delete_topic_intent_id(1)),
        keys.intent(delete_namespace_intent_id(NamespaceName("a", "b"))),
        keys.intent(delete_tenant_intent_id("a")),
    ]
    text = (Path(__file__).parents[4] / "docs" / "metadata-keys.md").read_text(encoding="utf-8")
    documented = [
        re.sub(r"<[^>]+>", "[^/]+", pattern) for pattern in re.findall(r"^\| `([^`]+)`", text, re.MULTILINE)
    ]
    assert len(documented) == len(examples) - 3, "intents are four of the examples"
    for key in examples:
        rest = key.removeprefix(ROOT)
        assert [pattern for pattern in documented if re.fullmatch(pattern, rest)] != [], key


def test_names_are_encoded_as_the_document_says() -> None:
    assert encode_name("a b/ü-_.~") == "a%20b%2F%C3%BC-_.~"
