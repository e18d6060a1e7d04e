"""Topic names: forms, refusals, partitions, reserved names."""

from __future__ import annotations

import string

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from magnetar.common.errors import InvalidName
from magnetar.common.naming.namespace_name import NamespaceName
from magnetar.common.naming.topic_name import (
    DOMAINS,
    TOPIC_NAME_BYTES_MAX,
    TopicName,
    is_heartbeat_topic,
    is_system_topic,
)

entity_names = st.text(string.ascii_letters + string.digits + "_-=:.", min_size=1, max_size=20)
local_names = st.text(st.characters(exclude_characters="/", exclude_categories=["Cs"]), min_size=1).filter(
    lambda text: not text.isspace()
)


@pytest.mark.parametrize(
    ("text", "full"),
    [
        ("t", "persistent://public/default/t"),
        ("a/b/c", "persistent://a/b/c"),
        ("persistent://a/b/c", "persistent://a/b/c"),
        ("non-persistent://a/b/c", "non-persistent://a/b/c"),
        ("my topic: free%text", "persistent://public/default/my topic: free%text"),
    ],
)
def test_short_and_full_forms(text: str, full: str) -> None:
    name = TopicName.parse(text)
    assert name.full == str(name) == full
    assert TopicName.parse(full) == name


def test_parts_of_a_name() -> None:
    name = TopicName.parse("non-persistent://acme/orders/eu")
    assert (name.domain, name.tenant, name.namespace, name.local_name) == (
        "non-persistent",
        "acme",
        NamespaceName("acme", "orders"),
        "eu",
    )
    assert not name.persistent
    assert TopicName.parse("eu").persistent


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "is not a topic name"),
        ("a/b", "is not a topic name"),
        ("persistent://t", "is not a topic name"),
        ("persistent://a/b", "is not a topic name"),
        ("durable://a/b/c", "unknown domain 'durable'"),
        ("://a/b/c", "unknown domain ''"),
        ("prop/cluster/ns/topic", "old names with a cluster"),
        ("persistent://prop/cluster/ns/topic", "old names with a cluster"),
        ("persistent://prop/cluster/ns/topic/more", "old names with a cluster"),
        ("persistent://a/b/", "empty local name"),
        ("persistent://a/b/ \t", "empty local name"),
        ("persistent:///b/c", "tenant name is empty"),
        ("persistent://a//c", "namespace name is empty"),
        ("persistent://a b/c/d", "tenant name 'a b' has a character"),
        ("persistent://a/b#/d", "namespace name 'b#' has a character"),
        ("persistent://\u00e9/b/d", "has a character"),
        ("persistent://a/b/\ud800", "not valid Unicode"),
        ("t" * TOPIC_NAME_BYTES_MAX, "bytes, at most"),
        ("a" * 513 + "/b/c", "has 513 characters"),
    ],
)
def test_a_bad_name_is_refused_with_its_reason(text: str, reason: str) -> None:
    with pytest.raises(InvalidName, match=reason):
        TopicName.parse(text)


@given(st.sampled_from(DOMAINS), entity_names, entity_names, local_names)
@example("persistent", "a", "b", "x-partition-7")
def test_every_name_survives_its_text_form(domain: str, tenant: str, namespace: str, local: str) -> None:
    name = TopicName.of(domain, NamespaceName(tenant, namespace), local)
    assert (name.domain, name.tenant, name.namespace.namespace, name.local_name) == (
        domain,
        tenant,
        namespace,
        local,
    )
    assert TopicName.parse(str(name)) == name


@given(st.text())
@example("persistent://a/b/c/d")
def test_any_text_is_a_name_or_is_refused(text: str) -> None:
    try:
        name = TopicName.parse(text)
    except InvalidName:
        return
    assert TopicName.parse(name.full) == name


@pytest.mark.parametrize(
    ("text", "index", "base"),
    [
        ("t", -1, "t"),
        ("t-partition-0", 0, "t"),
        ("t-partition-17", 17, "t"),
        ("t-partition-2147483647", 2147483647, "t"),
        ("t-partition-2147483648", -1, "t-partition-2147483648"),
        ("t-partition-01", -1, "t-partition-01"),
        ("t-partition--1", -1, "t-partition--1"),
        ("t-partition-", -1, "t-partition-"),
        ("t-partition-1x", -1, "t-partition-1x"),
        ("t-partition-\u0661", -1, "t-partition-\u0661"),
        ("t-partition-0-sub-DLQ", -1, "t-partition-0-sub-DLQ"),
        ("t-partition-0-partition-1", 1, "t-partition-0"),
        ("-partition-3", -1, "-partition-3"),
        ("two\nlines-partition-3", 3, "two\nlines"),
    ],
)
def test_a_partition_is_told_by_its_very_end(text: str, index: int, base: str) -> None:
    name = TopicName.parse(text)
    assert name.partition_index == index
    assert name.base == TopicName.parse(base)


def test_partitions_of_a_topic() -> None:
    name = TopicName.parse("non-persistent://a/b/t")
    assert name.partition(3).full == "non-persistent://a/b/t-partition-3"
    assert name.partition(3).base is name
    with pytest.raises(InvalidName, match="is a partition"):
        name.partition(3).partition(0)
    with pytest.raises(InvalidName, match="not a partition index"):
        name.partition(-1)


def test_the_hash_is_that_of_pulsar() -> None:
    assert TopicName.parse("my-topic").hash == 0x2BAD45F7


@pytest.mark.parametrize(
    "text",
    [
        "pulsar/system/transaction_coordinator_assign-partition-3",
        "pulsar/system/__transaction_log_7",
        "non-persistent://pulsar/system/resource-usage",
        "pulsar/localhost:8080/healthcheck",
        "a/b/__change_events",
        "a/b/__change_events-partition-1",
        "a/b/__transaction_buffer_snapshot",
        "a/b/__transaction_buffer_snapshot_segments",
        "a/b/__transaction_buffer_snapshot_indexes",
        "a/b/orders-sub__transaction_pending_ack",
    ],
)
def test_reserved_names_are_system_topics(text: str) -> None:
    assert is_system_topic(TopicName.parse(text))


@pytest.mark.parametrize(
    "text",
    ["t", "a/b/healthcheck", "pulsar/ns/healthcheck", "pulsar/h:1/other", "a/b/__change_events2", "a/b/__x"],
)
def test_other_names_are_not(text: str) -> None:
    assert not is_system_topic(TopicName.parse(text))


@pytest.mark.parametrize(
    ("broker_id", "full"),
    [
        ("127.0.0.1:8080", "persistent://pulsar/127.0.0.1:8080/healthcheck"),
        ("b-1.brokers.ns.svc:8080", "persistent://pulsar/b-1.brokers.ns.svc:8080/healthcheck"),
        ("[::1]:8080", "persistent://pulsar/::1:8080/healthcheck"),
    ],
)
def test_each_broker_has_a_topic_of_its_own_for_health_checks_that_is_reserved(
    broker_id: str, full: str
) -> None:
    name = TopicName.heartbeat(broker_id)
    assert name.full == full
    assert is_heartbeat_topic(name)
    assert is_system_topic(name)
    assert not is_heartbeat_topic(TopicName.parse("pulsar/system/healthcheck"))
