"""Partitioned topics, dead letters and patterns with the PyPI client."""

from __future__ import annotations

import re
import time
import uuid
from collections.abc import Callable
from datetime import timedelta

import pulsar
import pytest

from tests.integration.clients import drain, drain_all, expect_nothing, publish, receive
from tests.integration.harness import eventually

SERVER_SETTINGS = {
    "allowAutoTopicCreationType": "partitioned",
    "defaultNumPartitions": "3",
    "delayedDeliveryTickTimeMillis": "100",
}

pytestmark = pytest.mark.usefixtures("server")

SHARED = pulsar.ConsumerType.Shared


def test_a_topic_that_is_created_by_its_first_client_has_partitions(
    client: pulsar.Client, topic: str
) -> None:
    names = [f"{topic}-partition-{index}" for index in range(3)]
    assert client.get_topic_partitions(topic) == names
    consumer = client.subscribe(topic, "sub")
    payloads = [b"%d" % number for number in range(300)]
    ids = publish(client, topic, payloads)
    assert {message_id.partition() for message_id in ids} == {0, 1, 2}
    assert sorted(drain(consumer, 300)) == sorted(payloads)
    expect_nothing(consumer)


def test_messages_of_one_key_are_in_one_partition_in_order(client: pulsar.Client, topic: str) -> None:
    consumer = client.subscribe(topic, "sub")
    producer = client.create_producer(topic)
    for number in range(60):
        producer.send(b"%d" % number, partition_key=f"key-{number % 6}")
    seen: dict[str, list[int]] = {}
    where: dict[str, set[int]] = {}
    for _ in range(60):
        message = consumer.receive(10_000)
        seen.setdefault(message.partition_key(), []).append(int(message.data()))
        where.setdefault(message.partition_key(), set()).add(message.message_id().partition())
    assert all(numbers == sorted(numbers) for numbers in seen.values())
    assert all(len(each) == 1 for each in where.values())
    assert len(set.union(*where.values())) > 1


def test_exclusive_holds_all_partitions_and_shared_divides_them(
    new_client: Callable[..., pulsar.Client], topic: str
) -> None:
    first = new_client().subscribe(topic, "exclusive")
    with pytest.raises(pulsar.ConsumerBusy):
        new_client().subscribe(topic, "exclusive")
    consumers = [new_client().subscribe(topic, "shared", SHARED) for _ in range(2)]
    payloads = [b"%d" % number for number in range(200)]
    publish(new_client(), topic, payloads)
    shares: list[list[bytes]] = [[] for _ in consumers]

    def all_came() -> bool:
        for share, consumer in zip(shares, consumers, strict=True):
            share += drain_all(consumer)
        return sum(map(len, shares)) >= len(payloads)

    eventually(all_came, "every message has come")
    assert sorted(shares[0] + shares[1]) == sorted(payloads)
    assert all(shares)
    assert sorted(drain(first, 200)) == sorted(payloads)


def test_a_pattern_consumer_takes_all_partitions_of_what_matches(client: pulsar.Client) -> None:
    unique = uuid.uuid4().hex[:8]
    names = [f"persistent://public/default/{unique}-{each}" for each in ("a", "b")]
    for name in names:
        client.create_producer(name).send(b"creates the topic")
    consumer = client.subscribe(re.compile(f"persistent://public/default/{unique}-.*"), "sub")
    for name in names:
        publish(client, name, [b"%d" % number for number in range(30)])
    assert sorted(drain(consumer, 60)) == sorted([b"%d" % number for number in range(30)] * 2)


def test_a_list_of_partitioned_topics_is_one_consumer(client: pulsar.Client, topic: str) -> None:
    names = [f"{topic}-{number}" for number in range(3)]
    consumer = client.subscribe(names, "sub")
    for name in names:
        publish(client, name, [name.encode()] * 9)
    assert sorted(drain(consumer, 27)) == sorted(name.encode() for name in names for _ in range(9))


def test_message_redelivered_too_often_becomes_a_dead_letter_without_loss(
    client: pulsar.Client, topic: str
) -> None:
    dead = topic + "-dead"
    consumer = client.subscribe(
        topic,
        "sub",
        SHARED,
        negative_ack_redelivery_delay_ms=50,
        dead_letter_policy=pulsar.ConsumerDeadLetterPolicy(
            max_redeliver_count=2, dead_letter_topic=dead, initial_subscription_name="kept"
        ),
    )
    publish(client, topic, [b"good", b"bad"])
    letters = client.subscribe(dead, "kept", SHARED)
    refused = []
    for _ in range(4):
        message = receive(consumer)
        if message.data() == b"good":
            consumer.acknowledge(message)
        else:
            refused.append(message.redelivery_count())
            consumer.negative_acknowledge(message)
    assert refused == [0, 1, 2], "maxRedeliverCount and one"
    letter = receive(letters)
    assert letter.data() == b"bad"
    assert letter.properties()["REAL_TOPIC"].startswith(topic)
    assert letter.properties()["ORIGIN_MESSAGE_ID"]
    expect_nothing(consumer, 1_000)


def test_a_retry_letter_comes_back_after_its_delay_and_then_is_a_dead_letter(
    client: pulsar.Client, topic: str
) -> None:
    """What clients with reconsumeLater do; this one has none, so it is done by hand.

    The broker owes the delay on a Shared subscription, and the properties as they were sent.
    """
    topic = topic + "-partition-0"
    retry_topic, dead_topic = f"{topic}-sub-RETRY", f"{topic}-sub-DLQ"
    consumer = client.subscribe([topic, retry_topic], "sub", SHARED)
    letters = client.subscribe(dead_topic, "letters", SHARED)
    retry, dead = client.create_producer(retry_topic), client.create_producer(dead_topic)
    client.create_producer(topic).send(b"stubborn", properties={"mine": "kept"})
    seen, waited, sent_at = [], [], 0.0
    for attempt in range(3):
        message = consumer.receive(10_000)
        if attempt:
            waited.append(time.monotonic() - sent_at)
        properties = dict(message.properties())
        seen.append(int(properties.get("RECONSUMETIMES", "0")))
        origin = str(message.message_id())
        properties |= {
            "REAL_TOPIC": properties.get("REAL_TOPIC", topic),
            "ORIGIN_MESSAGE_ID": properties.get("ORIGIN_MESSAGE_ID", origin),
            "RECONSUMETIMES": str(attempt + 1),
            "DELAY_TIME": "600",
        }
        if attempt < 2:
            sent_at = time.monotonic()
            retry.send(message.data(), properties=properties, deliver_after=timedelta(milliseconds=600))
        else:
            dead.send(message.data(), properties=properties)
        consumer.acknowledge(message)
    assert seen == [0, 1, 2]
    assert all(each >= 0.49 for each in waited), f"a tick of 0.1 s early at most: {waited}"
    letter = letters.receive(10_000)
    assert letter.data() == b"stubborn"
    assert letter.properties()["RECONSUMETIMES"] == "3"
    assert letter.properties()["REAL_TOPIC"] == topic
    assert letter.properties()["mine"] == "kept"
    expect_nothing(consumer)
