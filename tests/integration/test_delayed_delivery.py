"""Delayed messages come at their time to Shared and Key_Shared consumers, whatever happens meanwhile."""

from __future__ import annotations

import time
import urllib.request
from datetime import timedelta

import pulsar
import pytest

from tests.integration.clients import drain, drain_all, expect_nothing, publish, receive
from tests.integration.harness import Endpoint, StandaloneServer, eventually

SHARED = pulsar.ConsumerType.Shared
INDIVIDUAL = [SHARED, pulsar.ConsumerType.KeyShared]


def now_ms() -> int:
    return int(time.time() * 1000)


def publish_at(client: pulsar.Client, topic: str, *times_ms: int) -> None:
    """One message for each time (0: none), its payload its number."""
    producer = client.create_producer(topic, batching_enabled=False)
    send_at(producer, *times_ms)
    producer.close()


def send_at(producer: pulsar.Producer, *times_ms: int) -> None:
    for number, time_ms in enumerate(times_ms):
        options = {"deliver_at": time_ms} if time_ms else {}
        producer.send_async(b"%d" % number, None, partition_key=f"k{number % 3}", **options)
    producer.flush()


@pytest.mark.parametrize("consumer_type", INDIVIDUAL)
def test_each_message_comes_at_its_time_and_not_before(
    client: pulsar.Client, topic: str, consumer_type: pulsar.ConsumerType
) -> None:
    consumer = client.subscribe(topic, "s", consumer_type)
    producer = client.create_producer(topic, batching_enabled=False)
    start = now_ms()  # all has to be stored before the first time has come
    times = [0, start + 4_000, start + 3_000, 0, start + 3_500, start + 3_000]
    send_at(producer, *times)
    came: dict[int, int] = {}
    order = []
    for _ in times:
        message = receive(consumer)
        number = int(message.data())
        came[number] = now_ms()
        order.append(number)
        consumer.acknowledge(message)
    assert order == [0, 3, 2, 5, 4, 1], "by time, ties by position"
    for number, time_ms in enumerate(times):
        if time_ms:
            assert came[number] >= time_ms
    expect_nothing(consumer)


def test_a_delay_counts_from_the_sending(client: pulsar.Client, topic: str) -> None:
    consumer = client.subscribe(topic, "s", SHARED)
    producer = client.create_producer(topic)
    start = now_ms()
    producer.send(b"later", deliver_after=timedelta(seconds=3))
    producer.send(b"now")
    assert drain(consumer, 2) == [b"now", b"later"]
    assert now_ms() - start >= 3_000


@pytest.mark.parametrize("consumer_type", [pulsar.ConsumerType.Exclusive, pulsar.ConsumerType.Failover])
def test_ordered_types_deliver_at_once(
    client: pulsar.Client, topic: str, consumer_type: pulsar.ConsumerType
) -> None:
    consumer = client.subscribe(topic, "s", consumer_type)
    publish_at(client, topic, 0, now_ms() + 3_600_000, 0)
    assert drain(consumer, 3) == [b"0", b"1", b"2"]


@pytest.mark.full
def test_every_subscription_gets_each_once_also_one_that_comes_later(
    client: pulsar.Client, topic: str
) -> None:
    first = client.subscribe(topic, "first", SHARED)
    due = now_ms() + 2_000
    publish_at(client, topic, *[due] * 200)
    later = client.subscribe(
        topic, "later", SHARED, initial_position=pulsar.InitialPosition.Earliest, receiver_queue_size=50
    )
    for consumer in (first, later):
        numbers = [int(receive(consumer).data())]
        assert now_ms() >= due
        numbers += map(int, drain(consumer, 199))
        assert sorted(numbers) == list(range(200))
        expect_nothing(consumer)


@pytest.mark.full
def test_consumers_that_share_get_each_once(client: pulsar.Client, topic: str) -> None:
    consumers = [client.subscribe(topic, "s", SHARED, consumer_name=name) for name in "abc"]
    start = now_ms()
    publish_at(client, topic, *[start + 500 + number % 7 * 100 for number in range(210)])
    payloads: list[bytes] = []

    def all_came() -> bool:
        for consumer in consumers:
            payloads.extend(drain_all(consumer))
        return len(payloads) >= 210

    eventually(all_came, "every message has come")
    for consumer in consumers:
        expect_nothing(consumer)
    assert sorted(map(int, payloads)) == list(range(210))


@pytest.mark.parametrize("how", [pytest.param("restart", marks=pytest.mark.full), "kill_and_start"])
def test_delayed_messages_survive_the_server(
    server: StandaloneServer, client: pulsar.Client, topic: str, how: str
) -> None:
    consumer = client.subscribe(topic, "s", SHARED)
    due = now_ms() + 8_000
    times = [0 if number % 10 == 0 else due + number for number in range(300)]
    publish_at(client, topic, *times)
    assert sorted(map(int, drain(consumer, 30))) == list(range(0, 300, 10))
    consumer.close()
    getattr(server, how)()
    consumer = client.subscribe(topic, "s", SHARED)
    delayed: list[int] = []
    while len(delayed) < 270:
        message = receive(consumer)
        number = int(message.data())
        assert now_ms() >= times[number]
        if times[number]:  # acknowledgements just before a crash may be lost, so that others come again
            delayed.append(number)
        consumer.acknowledge(message)
    assert sorted(delayed) == [number for number in range(300) if number % 10]
    expect_nothing(consumer)


def test_delayed_message_acknowledged_early_or_seeked_past_is_not_delivered(
    client: pulsar.Client, topic: str
) -> None:
    consumer = client.subscribe(topic, "s", SHARED)
    start = now_ms()
    publish_at(client, topic, start + 1_000, start + 1_000)
    consumer.seek(pulsar.MessageId.latest)
    expect_nothing(consumer, 1_500)
    consumer.seek(pulsar.MessageId.earliest)
    assert sorted(drain(consumer, 2)) == [b"0", b"1"], "their time is over"


def test_a_message_that_is_not_acknowledged_comes_again_without_another_delay(
    client: pulsar.Client, topic: str
) -> None:
    consumer = client.subscribe(topic, "s", SHARED, negative_ack_redelivery_delay_ms=100)
    publish_at(client, topic, now_ms() + 1_000)
    first = receive(consumer)
    assert first.redelivery_count() == 0
    consumer.negative_acknowledge(first)
    second = receive(consumer, 3_000)
    assert second.data() == b"0"
    assert second.redelivery_count() == 1


def test_a_retry_letter_topic_holds_messages_back(client: pulsar.Client, topic: str) -> None:
    # What reconsumeLater of the Java client does: publish to the retry topic with a time, acknowledge.
    retry = f"{topic}-s-RETRY"
    consumer = client.subscribe([topic, retry], "s", SHARED)
    publish(client, topic, [b"try me"])
    message = receive(consumer)
    producer = client.create_producer(retry, batching_enabled=False)
    due = now_ms() + 1_000
    producer.send(message.data(), deliver_at=due, properties={"RECONSUMETIMES": "1", "REAL_TOPIC": topic})
    consumer.acknowledge(message)
    again = receive(consumer)
    assert (again.data(), again.properties()["RECONSUMETIMES"]) == (b"try me", "1")
    assert now_ms() >= due


def test_delayed_messages_count_in_the_backlog_and_in_the_metrics(
    endpoint: Endpoint, our_contract: None, client: pulsar.Client, topic: str
) -> None:
    client.subscribe(topic, "s", SHARED)
    publish_at(client, topic, *[now_ms() + 3_600_000] * 40, 0)

    def sample(name: str) -> float:
        with urllib.request.urlopen(f"{endpoint.http_url}/metrics/", timeout=10) as response:
            text = response.read().decode()
        lines = [each for each in text.splitlines() if each.startswith(name + "{") and f'"{topic}"' in each]
        assert len(lines) == 1, lines
        return float(lines[0].split()[-1])

    deadline = time.monotonic() + 20
    while sample("pulsar_subscription_delayed") != 40:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert sample("pulsar_subscription_back_log") == 41
    assert sample("pulsar_subscription_back_log_no_delayed") == 1
    assert sample("pulsar_delayed_message_index_size_bytes") > 0
