"""What a subscription owes its consumers: types, acknowledgements, redelivery, and who else may come in."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable

import pulsar
import pytest

from tests.integration.clients import drain, drain_all, expect_nothing, publish, receive

EARLIEST = pulsar.InitialPosition.Earliest
SHARED = pulsar.ConsumerType.Shared


def test_a_new_subscription_starts_at_the_latest_message_unless_asked(
    client: pulsar.Client, topic: str
) -> None:
    client.subscribe(topic, "keeps-the-data")
    publish(client, topic, [b"old"])
    latest = client.subscribe(topic, "latest")
    earliest = client.subscribe(topic, "earliest", initial_position=EARLIEST)
    publish(client, topic, [b"new"])
    assert drain(latest, 1) == [b"new"]
    assert drain(earliest, 2) == [b"old", b"new"]


def test_every_subscription_gets_every_message(client: pulsar.Client, topic: str) -> None:
    consumers = [client.subscribe(topic, f"sub-{n}") for n in range(5)]
    payloads = [b"%d" % n for n in range(20)]
    publish(client, topic, payloads)
    for consumer in consumers:
        assert drain(consumer, 20) == payloads


def test_a_second_exclusive_consumer_is_refused(new_client: Callable[..., pulsar.Client], topic: str) -> None:
    holder = new_client().subscribe(topic, "sub")
    with pytest.raises(pulsar.ConsumerBusy):
        new_client().subscribe(topic, "sub")
    holder.close()
    new_client().subscribe(topic, "sub")


def test_another_type_is_refused_while_a_consumer_is_connected(
    new_client: Callable[..., pulsar.Client], topic: str
) -> None:
    holder = new_client().subscribe(topic, "sub", SHARED)
    with pytest.raises(pulsar.ConsumerBusy):
        new_client().subscribe(topic, "sub")
    holder.close()
    new_client().subscribe(topic, "sub")


def test_shared_consumers_divide_the_messages(new_client: Callable[..., pulsar.Client], topic: str) -> None:
    consumers = [new_client().subscribe(topic, "sub", SHARED, receiver_queue_size=20) for _ in range(3)]
    payloads = [b"%d" % n for n in range(300)]
    publish(new_client(), topic, payloads)
    shares: list[list[bytes]] = [[] for _ in consumers]
    while sum(map(len, shares)) < 300:
        for share, consumer in zip(shares, consumers, strict=True):
            share += drain_all(consumer, quiet_ms=100)
    assert Counter(payload for share in shares for payload in share) == Counter(payloads)
    assert all(len(share) >= 20 for share in shares), [len(share) for share in shares]


@pytest.mark.parametrize("count", [2, 4])
def test_messages_that_come_one_at_a_time_go_round_shared_consumers(
    new_client: Callable[..., pulsar.Client], topic: str, count: int
) -> None:
    consumers = [new_client().subscribe(topic, "sub", SHARED) for _ in range(count)]
    producer = new_client().create_producer(topic, batching_enabled=False)
    gaps = random.Random(1)
    for number in range(100):
        producer.send(b"%d" % number)
        time.sleep(gaps.uniform(0, 0.02))
    shares = [drain_all(consumer) for consumer in consumers]
    assert sorted(int(payload) for share in shares for payload in share) == list(range(100))
    # Two that come within one turn of the broker's loop may go to one consumer.
    assert min(map(len, shares)) >= 80 / count, list(map(len, shares))


def test_messages_of_a_closed_shared_consumer_go_to_the_others(
    new_client: Callable[..., pulsar.Client], topic: str
) -> None:
    leaver = new_client().subscribe(topic, "sub", SHARED)
    payloads = [b"%d" % n for n in range(100)]
    publish(new_client(), topic, payloads)
    acked = drain(leaver, 10)
    held = drain(leaver, 30, acknowledge=False)
    stayer = new_client().subscribe(topic, "sub", SHARED)
    leaver.close()
    rest = drain(stayer, 90)
    assert sorted(rest) == sorted(set(payloads) - set(acked))
    assert set(held) <= set(rest)
    expect_nothing(stayer)


def test_a_reconnecting_durable_consumer_gets_just_what_it_did_not_acknowledge(
    new_client: Callable[..., pulsar.Client], topic: str
) -> None:
    client = new_client()
    consumer = client.subscribe(topic, "sub")
    payloads = [b"%d" % n for n in range(20)]
    publish(client, topic, payloads)
    messages = [receive(consumer) for _ in range(20)]
    for message in messages[:5] + messages[10:15]:
        consumer.acknowledge(message)
    client.close()
    again = new_client().subscribe(topic, "sub")
    assert drain(again, 10) == payloads[5:10] + payloads[15:]
    expect_nothing(again)


def test_a_cumulative_acknowledgement_covers_everything_before_it(
    new_client: Callable[..., pulsar.Client], topic: str
) -> None:
    client = new_client()
    consumer = client.subscribe(topic, "sub")
    payloads = [b"%d" % n for n in range(10)]
    publish(client, topic, payloads)
    messages = [receive(consumer) for _ in range(10)]
    consumer.acknowledge_cumulative(messages[6])
    consumer.close()
    again = client.subscribe(topic, "sub")
    assert drain(again, 3) == payloads[7:]
    expect_nothing(again)


def test_a_cumulative_acknowledgement_on_a_shared_subscription_is_refused_by_the_client(
    client: pulsar.Client, topic: str
) -> None:
    consumer = client.subscribe(topic, "sub", SHARED)
    publish(client, topic, [b"one"])
    message = receive(consumer)
    with pytest.raises(pulsar.CumulativeAcknowledgementNotAllowedError):
        consumer.acknowledge_cumulative(message)


@pytest.mark.parametrize("kind", ["Exclusive", "Shared"])
def test_only_the_unacknowledged_messages_of_a_batch_come_back(
    client: pulsar.Client, topic: str, kind: str
) -> None:
    consumer_type = getattr(pulsar.ConsumerType, kind)
    consumer = client.subscribe(topic, "sub", consumer_type, batch_index_ack_enabled=True)
    payloads = [b"%d" % n for n in range(10)]
    publish(client, topic, payloads, batching=True, messages_per_batch=10)
    messages = [receive(consumer) for _ in range(10)]
    assert len({m.message_id().entry_id() for m in messages}) == 1
    for index in (0, 2, 3, 7, 9):
        consumer.acknowledge(messages[index])
    consumer.close()
    again = client.subscribe(topic, "sub", consumer_type, batch_index_ack_enabled=True)
    assert drain(again, 5) == [payloads[index] for index in (1, 4, 5, 6, 8)]
    expect_nothing(again)
    again.close()
    last = client.subscribe(topic, "sub", consumer_type, batch_index_ack_enabled=True)
    expect_nothing(last)


def test_a_cumulative_acknowledgement_inside_a_batch_keeps_the_rest_of_it(
    client: pulsar.Client, topic: str
) -> None:
    consumer = client.subscribe(topic, "sub", batch_index_ack_enabled=True)
    payloads = [b"%d" % n for n in range(20)]
    publish(client, topic, payloads, batching=True, messages_per_batch=10)
    messages = [receive(consumer) for _ in range(20)]
    assert len({m.message_id().entry_id() for m in messages}) == 2
    consumer.acknowledge_cumulative(messages[13])
    consumer.close()
    again = client.subscribe(topic, "sub", batch_index_ack_enabled=True)
    assert drain(again, 6) == payloads[14:]
    expect_nothing(again)


def test_without_batch_index_acknowledgement_a_batch_comes_back_whole(
    client: pulsar.Client, topic: str
) -> None:
    consumer = client.subscribe(topic, "sub")
    payloads = [b"%d" % n for n in range(5)]
    publish(client, topic, payloads, batching=True, messages_per_batch=5)
    messages = [receive(consumer) for _ in range(5)]
    for message in messages[:4]:
        consumer.acknowledge(message)
    consumer.close()
    again = client.subscribe(topic, "sub")
    assert drain(again, 5) == payloads


def test_negative_acknowledgement_brings_the_message_back_with_a_rising_count(
    client: pulsar.Client, topic: str
) -> None:
    consumer = client.subscribe(topic, "sub", SHARED, negative_ack_redelivery_delay_ms=100)
    publish(client, topic, [b"again", b"fine"])
    for count in range(3):
        for _ in range(2 if count == 0 else 1):
            message = receive(consumer)
            if message.data() == b"fine":
                assert message.redelivery_count() == 0
                consumer.acknowledge(message)
            else:
                assert message.redelivery_count() == count
                consumer.negative_acknowledge(message)
    last = receive(consumer)
    assert (last.data(), last.redelivery_count()) == (b"again", 3)
    consumer.acknowledge(last)
    expect_nothing(consumer)


def test_negative_acknowledgement_of_a_batch_counts_for_all_of_it(client: pulsar.Client, topic: str) -> None:
    consumer = client.subscribe(topic, "sub", SHARED, negative_ack_redelivery_delay_ms=100)
    publish(client, topic, [b"a", b"b", b"c"], batching=True, messages_per_batch=3)
    messages = [receive(consumer) for _ in range(3)]
    consumer.negative_acknowledge(messages[1])
    again = [receive(consumer) for _ in range(3)]
    assert [(m.data(), m.redelivery_count()) for m in again] == [(b"a", 1), (b"b", 1), (b"c", 1)]


@pytest.mark.parametrize("kind", ["Exclusive", "Shared"])
def test_redeliver_unacknowledged_messages_brings_back_all_that_is_pending(
    client: pulsar.Client, topic: str, kind: str
) -> None:
    consumer = client.subscribe(topic, "sub", getattr(pulsar.ConsumerType, kind))
    payloads = [b"%d" % n for n in range(10)]
    publish(client, topic, payloads)
    messages = [receive(consumer) for _ in range(10)]
    consumer.acknowledge(messages[0])
    consumer.acknowledge(messages[5])
    consumer.redeliver_unacknowledged_messages()
    assert drain(consumer, 8) == payloads[1:5] + payloads[6:]
    expect_nothing(consumer)


@pytest.mark.full
def test_an_acknowledgement_timeout_brings_the_message_back(client: pulsar.Client, topic: str) -> None:
    consumer = client.subscribe(topic, "sub", SHARED, unacked_messages_timeout_ms=10_000)
    publish(client, topic, [b"slow"])
    receive(consumer)
    again = receive(consumer, 25_000)
    assert (again.data(), again.redelivery_count()) == (b"slow", 1)


def test_a_dead_letter_policy_moves_a_message_after_the_last_redelivery(
    client: pulsar.Client, topic: str
) -> None:
    dead = client.subscribe(topic + "-dead", "reader-of-the-dead")
    consumer = client.subscribe(
        topic,
        "sub",
        SHARED,
        negative_ack_redelivery_delay_ms=100,
        dead_letter_policy=pulsar.ConsumerDeadLetterPolicy(
            max_redeliver_count=2, dead_letter_topic=topic + "-dead"
        ),
    )
    publish(client, topic, [b"poison"])
    counts = []
    for _ in range(3):
        message = receive(consumer)
        counts.append(message.redelivery_count())
        consumer.negative_acknowledge(message)
    assert counts == [0, 1, 2]
    assert drain(dead, 1) == [b"poison"]
    expect_nothing(consumer)


def test_unsubscribe_forgets_the_backlog(client: pulsar.Client, topic: str) -> None:
    consumer = client.subscribe(topic, "sub")
    publish(client, topic, [b"unread"])
    consumer.unsubscribe()
    again = client.subscribe(topic, "sub")
    expect_nothing(again)
    publish(client, topic, [b"new"])
    assert drain(again, 1) == [b"new"]


def test_unsubscribe_of_a_shared_subscription_with_two_consumers_is_refused(
    new_client: Callable[..., pulsar.Client], topic: str
) -> None:
    one = new_client().subscribe(topic, "sub", SHARED)
    two = new_client().subscribe(topic, "sub", SHARED)
    with pytest.raises(pulsar.PulsarException):
        one.unsubscribe()
    two.close()
    one.unsubscribe()


def test_a_consumer_with_a_queue_of_zero_gets_one_message_at_a_time(
    new_client: Callable[..., pulsar.Client], topic: str
) -> None:
    slow = new_client().subscribe(topic, "sub", SHARED, receiver_queue_size=0)
    payloads = [b"%d" % n for n in range(10)]
    publish(new_client(), topic, payloads)
    first = slow.receive()
    quick = new_client().subscribe(topic, "sub", SHARED)
    assert drain(quick, 9) == payloads[1:]
    assert first.data() == payloads[0]
