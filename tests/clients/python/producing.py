"""Scenarios of producers and their topics: names, access modes, partitions, deduplication, termination."""

from __future__ import annotations

import threading
from collections import defaultdict
from typing import Any

import pulsar

from tests.clients.python.harness import (
    Lacks,
    Scene,
    acknowledge,
    expect,
    expect_equal,
    expect_refused,
    expect_silence,
    need,
    numbered,
    place,
    receive,
    send,
    texts,
    until,
)


def producer_name(scene: Scene) -> None:
    first = scene.producer(producer_name="taken")
    other = scene.new_client()
    expect_refused(
        "a second producer of that name",
        lambda: other.create_producer(scene.topic(), producer_name="taken"),
    )
    first.close()
    second = other.create_producer(scene.topic(), producer_name="taken")
    expect_equal(second.producer_name(), "taken", "the second producer's name")
    send(second, ["stored"])


def access_exclusive(scene: Scene) -> None:
    need(scene.client.create_producer, "access_mode", "access mode of a producer")
    mode = pulsar.ProducerAccessMode.Exclusive
    first = scene.producer(access_mode=mode)
    expect_refused("a second Exclusive producer", lambda: scene.producer(access_mode=mode))
    send(first, ["of the first"])
    first.close()
    send(scene.producer(access_mode=mode), ["of the second"])
    received = texts(receive(scene.consumer(), 2))
    expect_equal(received, ["of the first", "of the second"], "received")


def access_wait(scene: Scene) -> None:
    need(scene.client.create_producer, "access_mode", "access mode of a producer")
    holder = scene.producer(access_mode=pulsar.ProducerAccessMode.Exclusive)
    ready: list[Any] = []

    def wait() -> None:
        ready.append(scene.producer(access_mode=pulsar.ProducerAccessMode.WaitForExclusive))

    waiting = threading.Thread(target=wait, daemon=True)
    waiting.start()
    waiting.join(0.5)
    expect(not ready, "the second producer is ready while the first holds the topic")
    send(holder, ["of the holder"])
    holder.close()
    until(lambda: bool(ready), "the second producer is ready after the first was closed")
    send(ready[0], ["of the second"])
    received = texts(receive(scene.consumer(), 2))
    expect_equal(received, ["of the holder", "of the second"], "received")


def access_fencing(scene: Scene) -> None:
    need(scene.client.create_producer, "access_mode", "access mode of a producer")
    holder = scene.producer(access_mode=pulsar.ProducerAccessMode.Exclusive)
    send(holder, ["of the holder"])
    taker = scene.new_client().create_producer(
        scene.topic(), access_mode=pulsar.ProducerAccessMode.ExclusiveWithFencing
    )
    expect_refused("a send of the fenced producer", lambda: send(holder, ["fenced"]))
    send(taker, ["of the taker"])
    consumer = scene.consumer()
    expect_equal(texts(receive(consumer, 2)), ["of the holder", "of the taker"], "received")
    expect_silence(consumer)


def partitioned(scene: Scene) -> None:
    scene.ask("partition", scene.topic(), 3)
    producer, consumer = scene.producer(), scene.consumer()
    for number in range(50):
        producer.send(str(number).encode(), partition_key=f"key {number % 10}")
    partitions: dict[str, set[int]] = defaultdict(set)
    numbers: dict[str, list[int]] = defaultdict(list)
    for message in receive(consumer, 50):
        partitions[message.partition_key()].add(message.message_id().partition())
        numbers[message.partition_key()].append(int(message.data()))
    expect_equal({key: len(found) for key, found in partitions.items() if len(found) > 1}, {}, "spread keys")
    expect(len(set.union(*partitions.values())) > 1, "all keys are in one partition")
    orders = {f"key {key}": list(range(key, 50, 10)) for key in range(10)}
    expect_equal(numbers, orders, "messages by key")
    send(producer, numbered(0, 60))
    messages = receive(consumer, 60)
    expect_equal(sorted(texts(messages)), sorted(numbered(0, 60)), "received without key")
    used = {message.message_id().partition() for message in messages}
    expect_equal(used, {0, 1, 2}, "partitions of messages without key")


def partitions_grow(scene: Scene) -> None:
    scene.ask("partition", scene.topic(), 2)
    before, consumer = scene.producer(), scene.consumer()
    send(before, numbered(0, 10))
    first = receive(consumer, 10)
    expect_equal({message.message_id().partition() for message in first}, {0, 1}, "partitions before")
    acknowledge(consumer, first)
    before.close()
    consumer.close()
    scene.ask("partition", scene.topic(), 4)
    after, consumer = scene.producer(), scene.consumer()
    send(after, numbered(10, 50))
    messages = receive(consumer, 40)
    expect_equal(sorted(texts(messages)), sorted(numbered(10, 50)), "received after")
    used = {message.message_id().partition() for message in messages}
    expect_equal(used, {0, 1, 2, 3}, "partitions after")


def non_persistent(scene: Scene) -> None:
    topic = scene.topic().replace("persistent://", "non-persistent://")
    consumer = scene.client.subscribe(topic, "sub")
    send(scene.client.create_producer(topic), numbered(0, 10))
    expect_equal(texts(receive(consumer, 10)), numbered(0, 10), "received")


def deduplication(scene: Scene) -> None:
    scene.ask("deduplicate", scene.topic())
    consumer = scene.consumer()
    for begin, end in ((0, 10), (5, 15)):
        producer = scene.producer(producer_name="deduplicated")
        for number in range(begin, end):
            producer.send(f"message {number}".encode(), sequence_id=number)
        producer.close()
    expect_equal(texts(receive(consumer, 15)), numbered(0, 15), "received")
    expect_silence(consumer)


def end_of_topic(scene: Scene) -> None:
    producer, consumer = scene.producer(send_timeout_millis=3000), scene.consumer()
    send(producer, numbered(0, 5))
    scene.ask("terminate", scene.topic())
    try:
        send(producer, ["too late"])
    except pulsar.PulsarException:  # 3.1.0 has no better one for it than a timeout
        pass
    else:
        raise AssertionError("a send to a terminated topic did not fail")
    expect_equal(texts(receive(consumer, 5)), numbered(0, 5), "received")
    expect_silence(consumer)
    last = place(consumer.get_last_message_id())
    expect(last[0] >= 0, f"the terminated topic's last id is {last}")
    raise Lacks("no call or event says that a topic ended in this client; sends fail, consumers drain")
