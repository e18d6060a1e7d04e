"""Topics: names, automatic creation, several at once, and the ones that store nothing."""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable

import pulsar
import pytest

from tests.integration.admin_calls import admin, path_of
from tests.integration.clients import drain, drain_all, expect_nothing, publish
from tests.integration.harness import Endpoint, eventually

SHARED = pulsar.ConsumerType.Shared


def test_a_short_name_is_the_persistent_topic_of_public_default(client: pulsar.Client, topic: str) -> None:
    short = topic.removeprefix("persistent://public/default/")
    consumer = client.subscribe(topic, "sub")
    client.create_producer(short).send(b"one")
    client.create_producer(f"public/default/{short}").send(b"two")
    assert drain(consumer, 2) == [b"one", b"two"]


def test_names_with_unusual_characters_are_topics_of_their_own(client: pulsar.Client, topic: str) -> None:
    names = [topic + suffix for suffix in ("", " with space", "-\u00fcml\u00e4ut", "%2F", "+plus", ".dot")]
    consumers = [client.subscribe(name, "sub") for name in names]
    for name in names:
        client.create_producer(name).send(name.encode())
    for name, consumer in zip(names, consumers, strict=True):
        assert drain(consumer, 1) == [name.encode()]
        expect_nothing(consumer, 100)


def test_a_topic_without_partitions_has_one_partition_name(client: pulsar.Client, topic: str) -> None:
    client.create_producer(topic).send(b"exists")
    assert client.get_topic_partitions(topic) == [topic]


@pytest.mark.parametrize("name", ["public/missing-namespace/t", "missing-tenant/default/t"])
def test_a_missing_namespace_is_not_created(new_client: Callable[..., pulsar.Client], name: str) -> None:
    client = new_client()
    with pytest.raises((pulsar.TopicNotFound, pulsar.BrokerMetadataError, pulsar.AuthorizationError)):
        client.create_producer(f"persistent://{name}")
    with pytest.raises((pulsar.TopicNotFound, pulsar.BrokerMetadataError, pulsar.AuthorizationError)):
        client.subscribe(f"persistent://{name}", "sub")


def test_one_consumer_of_several_topics(client: pulsar.Client, topic: str) -> None:
    names = [f"{topic}-{n}" for n in range(3)]
    consumer = client.subscribe(names, "sub")
    for name in names:
        publish(client, name, [name.encode() + b"%d" % n for n in range(5)])
    expected = sorted(name.encode() + b"%d" % n for name in names for n in range(5))
    assert sorted(drain(consumer, 15)) == expected


def test_a_pattern_consumer_sees_the_topics_that_match(client: pulsar.Client) -> None:
    unique = uuid.uuid4().hex[:8]
    prefix = f"persistent://public/default/pattern-{unique}"
    strangers = [
        f"persistent://public/default/other-{unique}",
        f"non-persistent://public/default/pattern-{unique}-x",
    ]
    for name in [f"{prefix}-a", f"{prefix}-b", *strangers]:
        client.create_producer(name).send(b"creates the topic")
    consumer = client.subscribe(re.compile(f"{prefix}-.*"), "sub")
    for name in (f"{prefix}-a", f"{prefix}-b", *strangers):
        publish(client, name, [name.encode()])
    assert sorted(drain(consumer, 2)) == [f"{prefix}-a".encode(), f"{prefix}-b".encode()]
    expect_nothing(consumer)


def test_a_non_persistent_topic_delivers_to_who_is_there(client: pulsar.Client, volatile_topic: str) -> None:
    producer = client.create_producer(volatile_topic)
    producer.send(b"nobody is here")
    consumer = client.subscribe(volatile_topic, "sub")
    payloads = [b"%d" % n for n in range(100)]
    for payload in payloads:
        producer.send(payload)
    assert drain(consumer, 100) == payloads
    expect_nothing(consumer)


def test_a_non_persistent_shared_subscription_divides_the_messages(
    new_client: Callable[..., pulsar.Client], volatile_topic: str
) -> None:
    consumers = [new_client().subscribe(volatile_topic, "sub", SHARED) for _ in range(2)]
    payloads = [b"%d" % n for n in range(100)]
    publish(new_client(), volatile_topic, payloads)
    shares: list[list[bytes]] = [[] for _ in consumers]

    def all_came() -> bool:
        for share, consumer in zip(shares, consumers, strict=True):
            share += drain_all(consumer, quiet_ms=100)
        return sum(map(len, shares)) >= len(payloads)

    eventually(all_came, "every message has come")
    assert sorted(shares[0] + shares[1]) == sorted(payloads)
    assert all(shares)


def test_a_non_persistent_topic_keeps_nothing_for_a_subscription_without_consumer(
    client: pulsar.Client, volatile_topic: str
) -> None:
    client.subscribe(volatile_topic, "sub").close()
    publish(client, volatile_topic, [b"lost"])
    consumer = client.subscribe(volatile_topic, "sub")
    expect_nothing(consumer)


def test_persistent_and_non_persistent_topics_of_one_name_are_two(client: pulsar.Client, topic: str) -> None:
    volatile = topic.replace("persistent://", "non-persistent://")
    stored = client.subscribe(topic, "sub")
    passing = client.subscribe(volatile, "sub")
    client.create_producer(topic).send(b"stored")
    client.create_producer(volatile).send(b"passing")
    assert drain(stored, 1) == [b"stored"]
    assert drain(passing, 1) == [b"passing"]


def test_a_hundred_topics_at_once(client: pulsar.Client, topic: str) -> None:
    consumers = [client.subscribe(f"{topic}-{n}", "sub") for n in range(100)]
    producers = [client.create_producer(f"{topic}-{n}", block_if_queue_full=True) for n in range(100)]
    confirmed: list[pulsar.Result] = []
    for n, producer in enumerate(producers):
        producer.send_async(b"%d" % n, lambda result, _: confirmed.append(result))
    eventually(lambda: len(confirmed) == 100, "a hundred receipts")
    assert set(confirmed) == {pulsar.Result.Ok}
    assert [drain(consumer, 1) for consumer in consumers] == [[b"%d" % n] for n in range(100)]


def test_a_deleted_topic_is_gone_with_its_messages_and_its_clients_find_a_new_one(
    client: pulsar.Client, endpoint: Endpoint, topic: str
) -> None:
    consumer = client.subscribe(topic, "sub")
    producer = client.create_producer(topic)
    producer.send(b"before")
    status, answer = admin(endpoint, "DELETE", path_of(topic))
    assert status == 412, answer
    status, answer = admin(endpoint, "DELETE", path_of(topic) + "?force=true")
    assert status == 204, answer

    def subscribed_again() -> bool:
        # Not as the client tells it: that may not have heard of the deletion.
        status, stats = admin(endpoint, "GET", path_of(topic) + "/stats")
        return status == 200 and bool(stats["subscriptions"].get("sub", {}).get("consumers"))

    eventually(subscribed_again, "the consumer is back")
    producer.send(b"after")
    got = drain(consumer, 1)
    if got == [b"before"]:  # what was on its way to the consumer may come
        got = drain(consumer, 1)
    assert got == [b"after"]
    expect_nothing(consumer)
    late = client.subscribe(topic, "late", initial_position=pulsar.InitialPosition.Earliest)
    assert drain(late, 1) == [b"after"]
    expect_nothing(late)
