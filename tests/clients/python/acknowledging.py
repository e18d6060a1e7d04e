"""Scenarios of acknowledgements, redelivery, dead letters and delayed messages."""

from __future__ import annotations

import time
from datetime import timedelta

import pulsar

from tests.clients.python.harness import (
    RECEIVE_MILLISECONDS,
    Lacks,
    Scene,
    acknowledge,
    expect,
    expect_equal,
    expect_silence,
    need,
    numbered,
    place,
    receive,
    send,
    send_at_once,
    texts,
)

SHARED = pulsar.ConsumerType.Shared


def ack_individual(scene: Scene) -> None:
    consumer = scene.consumer()
    send(scene.producer(), numbered(0, 10))
    messages = receive(consumer, 10)
    acknowledge(consumer, messages[1::2])
    consumer.close()
    following = scene.consumer()
    expect_equal(texts(receive(following, 5)), texts(messages[::2]), "received by the next consumer")
    expect_silence(following)


def ack_cumulative(scene: Scene) -> None:
    consumer = scene.consumer()
    send(scene.producer(), numbered(0, 10))
    consumer.acknowledge_cumulative(receive(consumer, 10)[4])
    consumer.close()
    following = scene.consumer()
    expect_equal(texts(receive(following, 5)), numbered(5, 10), "received by the next consumer")
    expect_silence(following)


def ack_batch_index(scene: Scene) -> None:
    need(scene.client.subscribe, "batch_index_ack_enabled", "acknowledgement by batch index")
    consumer = scene.consumer(batch_index_ack_enabled=True)
    producer = scene.producer(
        batching_enabled=True, batching_max_messages=10, batching_max_publish_delay_ms=500
    )
    send_at_once(producer, numbered(0, 10))
    messages = receive(consumer, 10)
    expect_equal(len({place(message.message_id())[:2] for message in messages}), 1, "entries")
    acknowledge(consumer, messages[::2])
    consumer.close()
    following = scene.consumer(batch_index_ack_enabled=True)
    expect_equal(texts(receive(following, 5)), texts(messages[1::2]), "received by the next consumer")
    expect_silence(following)


def nack(scene: Scene) -> None:
    consumer = scene.consumer(consumer_type=SHARED, negative_ack_redelivery_delay_ms=100)
    send(scene.producer(), ["given back"])
    counts = []
    for _ in range(2):
        (message,) = receive(consumer, 1)
        counts.append(message.redelivery_count())
        consumer.negative_acknowledge(message)
    (message,) = receive(consumer, 1)
    counts.append(message.redelivery_count())
    expect_equal(counts, [0, 1, 2], "redelivery counts")
    expect_equal(message.data(), b"given back", "content")
    consumer.acknowledge(message)
    expect_silence(consumer)


def dead_letter(scene: Scene) -> None:
    need(scene.client.subscribe, "dead_letter_policy", "dead letter policy")
    letters = scene.consumer("-dead", "letters")
    policy = pulsar.ConsumerDeadLetterPolicy(2, scene.topic("-dead"))
    consumer = scene.consumer(
        consumer_type=SHARED, negative_ack_redelivery_delay_ms=100, dead_letter_policy=policy
    )
    scene.producer().send(b"undeliverable", properties={"kept": "yes"})
    for count in range(3):
        (message,) = receive(consumer, 1)
        expect_equal(message.redelivery_count(), count, "redelivery count")
        consumer.negative_acknowledge(message)
    (letter,) = receive(letters, 1)
    expect_equal(letter.data(), b"undeliverable", "content of the dead letter")
    expect_equal(letter.properties().get("kept"), "yes", "its property")
    expect_silence(consumer)


def retry_letter(scene: Scene) -> None:
    raise Lacks("no retry letter topic in this client")


def delayed(scene: Scene) -> None:
    consumer = scene.consumer(consumer_type=SHARED)
    producer = scene.producer()
    began = time.monotonic()
    producer.send(b"delayed", deliver_after=timedelta(seconds=2))
    producer.send(b"behind")
    expect_equal(texts(receive(consumer, 1)), ["behind"], "received first")
    expect(time.monotonic() - began < 1.5, "the one behind came late")
    message = consumer.receive(timeout_millis=RECEIVE_MILLISECONDS)
    seconds = time.monotonic() - began
    expect_equal(message.data(), b"delayed", "received second")
    expect(1.5 <= seconds <= 10, f"delivered after {seconds:.1f} s")
