"""Scenarios of subscriptions: types, positions, several topics, readers, seeks."""

from __future__ import annotations

import re
import threading
import time
from collections import defaultdict
from typing import Any

import pulsar

from tests.clients.python.harness import (
    LATEST,
    RECEIVE_MILLISECONDS,
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
    receive_of_all,
    send,
    takes,
    texts,
    until,
)

FAILOVER = pulsar.ConsumerType.Failover
SHARED = pulsar.ConsumerType.Shared
KEY_SHARED = pulsar.ConsumerType.KeyShared


def initial_position(scene: Scene) -> None:
    producer = scene.producer()
    send(producer, numbered(0, 5))
    earliest = scene.consumer(subscription="earliest")
    latest = scene.consumer(subscription="latest", initial_position=LATEST)
    send(producer, numbered(5, 10))
    expect_equal(texts(receive(earliest, 10)), numbered(0, 10), "received from Earliest")
    expect_equal(texts(receive(latest, 5)), numbered(5, 10), "received from Latest")


def exclusive(scene: Scene) -> None:
    first = scene.consumer()
    expect_refused("a second consumer", scene.consumer)
    first.close()
    second = scene.consumer()
    send(scene.producer(), ["for the second"])
    expect_equal(texts(receive(second, 1)), ["for the second"], "received")


def failover(scene: Scene) -> None:
    consumers = [scene.consumer(consumer_type=FAILOVER, consumer_name=name) for name in "ab"]
    producer = scene.producer()
    send(producer, numbered(0, 20))
    by_consumer = receive_of_all(consumers, 20)
    active = 0 if by_consumer[0] else 1
    expect_equal(texts(by_consumer[active]), numbered(0, 20), "received by the active consumer")
    acknowledge(consumers[active], by_consumer[active][:10])
    consumers[active].close()
    standby = consumers[1 - active]
    expect_equal(texts(receive(standby, 10)), numbered(10, 20), "received by the other")
    send(producer, numbered(20, 25))
    expect_equal(texts(receive(standby, 5)), numbered(20, 25), "received by the other afterward")


def shared(scene: Scene) -> None:
    consumers = [scene.consumer(consumer_type=SHARED) for _ in range(2)]
    send(scene.producer(), numbered(0, 40))
    first, second = receive_of_all(consumers, 40)
    expect(len(first) >= 5 and len(second) >= 1, f"got {len(first)} and {len(second)} messages")
    expect_equal(sorted(texts(first + second)), sorted(numbered(0, 40)), "received together")
    acknowledge(consumers[0], first[:-5])
    acknowledge(consumers[1], second)
    consumers[0].close()
    expect_equal(sorted(texts(receive(consumers[1], 5))), sorted(texts(first[-5:])), "received again")
    expect_silence(consumers[1])


def shared_turns(scene: Scene) -> None:
    received: list[list[str]] = [[], []]
    lock = threading.Lock()

    def listener(mine: list[str]) -> Any:
        def got(consumer: Any, message: Any) -> None:
            consumer.acknowledge(message)
            with lock:
                mine.append(message.data().decode())

        return got

    for mine in received:
        scene.consumer(consumer_type=SHARED, message_listener=listener(mine))
    producer = scene.producer()
    for content in numbered(0, 100):
        send(producer, [content])
        time.sleep(0.005)
    until(lambda: sum(map(len, received)) >= 100, "100 messages are received")
    expect_equal(sorted(received[0] + received[1]), sorted(numbered(0, 100)), "received together")
    expect(min(map(len, received)) >= 30, f"turns of {len(received[0])} and {len(received[1])} messages")


def key_shared(scene: Scene) -> None:
    consumers = [scene.consumer(consumer_type=KEY_SHARED) for _ in range(2)]
    producer = scene.producer()
    for number in range(100):
        producer.send(str(number).encode(), partition_key=f"key {number % 20}")
    by_consumer = receive_of_all(consumers, 100)
    for consumer, messages in zip(consumers, by_consumer, strict=True):
        expect(bool(messages), "a consumer got nothing")
        acknowledge(consumer, messages)
    first, second = (_numbers_by_key(messages) for messages in by_consumer)
    expect_equal(set(first) & set(second), set(), "keys with both consumers")
    expect_equal(first | second, {f"key {key}": list(range(key, 100, 20)) for key in range(20)}, "by key")
    consumers[0].close()
    for number in range(100, 120):
        producer.send(str(number).encode(), partition_key=f"key {number % 20}")
    numbers = [int(message.data()) for message in receive(consumers[1], 20)]
    expect_equal(numbers, list(range(100, 120)), "received by the one that is left")


def _numbers_by_key(messages: list[Any]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = defaultdict(list)
    for message in messages:
        found[message.partition_key()].append(int(message.data()))
    return found


def sticky_ranges(scene: Scene) -> None:
    need(scene.client.subscribe, "key_shared_policy", "sticky hash ranges")

    def subscribe(low: int, high: int) -> Any:
        policy = pulsar.ConsumerKeySharedPolicy(pulsar.KeySharedMode.Sticky, False, [(low, high)])
        return scene.consumer(consumer_type=KEY_SHARED, key_shared_policy=policy)

    consumers = [subscribe(0, 32767), subscribe(32768, 65535)]
    expect_refused("a consumer of slots in use", lambda: subscribe(0, 100))
    producer = scene.producer()
    keys = [f"key {number}" for number in range(40)]
    for key in keys:
        producer.send(b"", partition_key=key)
    low, high = receive_of_all(consumers, 40)
    expected = [key for key in keys if _murmur3_32(key.encode()) % 65536 < 32768]
    expect(0 < len(expected) < 40, "the keys are all on one side")
    expect_equal([message.partition_key() for message in low], expected, "keys of the lower slots")
    others = [key for key in keys if key not in expected]
    expect_equal([message.partition_key() for message in high], others, "keys of the upper slots")


def _murmur3_32(data: bytes) -> int:
    """Hash with MurmurHash3, x86, 32 bits, seed 0."""
    mask = 0xFFFFFFFF

    def rotated(value: int, bits: int) -> int:
        return ((value << bits) | (value >> (32 - bits))) & mask

    value = 0
    for begin in range(0, len(data), 4):
        block = data[begin : begin + 4]
        mixed = rotated(int.from_bytes(block, "little") * 0xCC9E2D51 & mask, 15) * 0x1B873593 & mask
        value ^= mixed
        if len(block) == 4:
            value = (rotated(value, 13) * 5 + 0xE6546B64) & mask
    value ^= len(data)
    value = (value ^ (value >> 16)) * 0x85EBCA6B & mask
    value = (value ^ (value >> 13)) * 0xC2B2AE35 & mask
    return value ^ (value >> 16)


def unsubscribe(scene: Scene) -> None:
    producer, consumer = scene.producer(), scene.consumer()
    send(producer, numbered(0, 5))
    receive(consumer, 5)
    consumer.unsubscribe()
    again = scene.consumer(initial_position=LATEST)
    send(producer, numbered(5, 8))
    expect_equal(texts(receive(again, 3)), numbered(5, 8), "received by the new subscription")
    expect_silence(again)


def multi_topics(scene: Scene) -> None:
    topics = [scene.topic(f"-{number}") for number in range(3)]
    consumer = scene.client.subscribe(topics, "sub", initial_position=pulsar.InitialPosition.Earliest)
    for topic in topics:
        send(scene.client.create_producer(topic), [f"{topic} {number}" for number in range(10)])
    by_topic: dict[str, list[str]] = defaultdict(list)
    for message in receive(consumer, 30):
        by_topic[message.topic_name()].append(message.data().decode())
    expected = {topic: [f"{topic} {number}" for number in range(10)] for topic in topics}
    expect_equal(by_topic, expected, "received by topic")


def pattern(scene: Scene) -> None:
    for suffix in ("-a", "-b"):
        send(scene.producer(suffix), [f"of {suffix}"])
    consumer = scene.client.subscribe(
        re.compile(re.escape(scene.topic("-")).replace("\\-", "-") + ".*"),
        "sub",
        initial_position=pulsar.InitialPosition.Earliest,
        pattern_auto_discovery_period=1,
    )
    expect_equal(sorted(texts(receive(consumer, 2))), ["of -a", "of -b"], "received of two topics")
    send(scene.producer("-c"), ["of -c"])
    try:
        message = consumer.receive(timeout_millis=3000)
    except pulsar.Timeout:
        # Both versions check the argument of the period and then do not hand it on to the C++ library, whose
        # own is 60 s: against Apache Pulsar, too, the third topic's message comes a minute later.
        raise Lacks("client: pattern_auto_discovery_period has no effect; two topics work") from None
    expect_equal(message.data(), b"of -c", "received of the third topic")


def queue_size_zero(scene: Scene) -> None:
    consumer = scene.consumer(receiver_queue_size=0)
    send(scene.producer(), numbered(0, 5))
    received = []
    for _ in range(5):
        message = consumer.receive()  # this library has no bound for it; the scenario has
        received.append(message.data().decode())
        consumer.acknowledge(message)
    expect_equal(received, numbered(0, 5), "received")


def batch_receive(scene: Scene) -> None:
    policy = pulsar.ConsumerBatchReceivePolicy(10, -1, 1000)
    consumer = scene.consumer(batch_receive_policy=policy)
    send(scene.producer(), numbered(0, 15))
    expect_equal(texts(consumer.batch_receive()), numbered(0, 10), "the first batch")
    began = time.monotonic()
    second = texts(consumer.batch_receive())
    if pulsar.__version__ == "3.1.0" and second == numbered(11, 15):
        # That version takes the message that a full batch has no room for off its queue and drops it: against
        # Apache Pulsar, too, and the message comes again once the consumer has been closed.
        consumer.close()
        expect("message 10" in texts(receive(scene.consumer(), 15)), "message 10 is lost")
        raise Lacks("client: 3.1.0 drops the message behind a full batch")
    expect_equal(second, numbered(10, 15), "the second batch")
    expect(time.monotonic() - began < 5, "the second batch took more than 5 s")


def reader(scene: Scene) -> None:
    send(scene.producer(), numbered(0, 10))
    earliest = scene.client.create_reader(scene.topic(), pulsar.MessageId.earliest)
    messages = []
    while earliest.has_message_available():
        messages.append(earliest.read_next(timeout_millis=RECEIVE_MILLISECONDS))
    expect_equal(texts(messages), numbered(0, 10), "read")
    fifth = messages[4].message_id()
    after = scene.client.create_reader(scene.topic(), fifth)
    message = after.read_next(timeout_millis=RECEIVE_MILLISECONDS)
    expect_equal(message.data(), b"message 5", "read after the fifth")
    if takes(scene.client.create_reader, "start_message_id_inclusive"):
        including = scene.client.create_reader(scene.topic(), fifth, start_message_id_inclusive=True)
        message = including.read_next(timeout_millis=RECEIVE_MILLISECONDS)
        expect_equal(message.data(), b"message 4", "read from the fifth")


def last_message_id(scene: Scene) -> None:
    producer, consumer = scene.producer(), scene.consumer()
    send(producer, numbered(0, 10))
    last = receive(consumer, 10)[-1].message_id()
    expect_equal(place(consumer.get_last_message_id())[:2], place(last)[:2], "ledger and entry of the last")
    send(producer, ["one more"])
    more = receive(consumer, 1)[0].message_id()
    expect_equal(place(consumer.get_last_message_id())[:2], place(more)[:2], "ledger and entry of one more")


def table_view(scene: Scene) -> None:
    if not hasattr(scene.client, "create_table_view"):
        raise Lacks("no table view in this version of the client")
    producer = scene.producer()
    for round_number in range(3):
        for key in "abcde":
            producer.send(f"{key}{round_number}".encode(), partition_key=key)
    view = scene.client.create_table_view(scene.topic())
    values = {key: view.get(key) for key in "abcde"}
    expect_equal(values, {key: f"{key}2".encode() for key in "abcde"}, "latest values")
    expect_equal(len(view), 5, "keys")
    producer.send(b"updated", partition_key="c")
    until(lambda: view.get("c") == b"updated", "the view has the update")
    expect_equal(view.get("d"), b"d2", "a value that was not updated")
    view.close()


def read_compacted(scene: Scene) -> None:
    _send_to_compact(scene)
    scene.ask("compact", scene.topic())
    reader = scene.client.create_reader(scene.topic(), pulsar.MessageId.earliest, is_read_compacted=True)
    view = ["e1", "b2", "c2", "a3"]
    # The C++ library hands on what is compacted out of a batch as messages without a value, on both services.
    expect_equal(list(filter(None, _read_all(reader))), view, "read of the compacted view")
    scene.producer().send(b"f1", partition_key="f")
    until(reader.has_message_available, "the reader is told of a message after the view")
    expect_equal(_read_all(reader), ["f1"], "read after the compacted view")
    consumer = scene.consumer(is_read_compacted=True)
    expect_equal(
        list(filter(None, texts(receive(consumer, 7)))), [*view, "f1"], "received of the compacted view"
    )
    expect_silence(consumer)
    everything = ["a1", "b1", "c1", "d1", "e1", "a2", "b2", "c2", "", "a3", "f1"]
    expect_equal(texts(receive(scene.consumer(subscription="all"), 11)), everything, "received of all")
    if hasattr(scene.client, "create_table_view"):
        table = scene.client.create_table_view(scene.topic())
        values = {key: table.get(key) for key in "abcdef"}
        expected = {"a": b"a3", "b": b"b2", "c": b"c2", "d": None, "e": b"e1", "f": b"f1"}
        expect_equal(values, expected, "values of the table view")
        table.close()


def _send_to_compact(scene: Scene) -> None:
    """Send what the scenario compacts; an empty value in a batch counts with every library."""
    one_by_one = scene.producer()
    for key in "abcde":
        one_by_one.send(f"{key}1".encode(), partition_key=key)
    batching = scene.producer(
        batching_enabled=True, batching_max_publish_delay_ms=10_000, batching_max_messages=100
    )
    results: list[Any] = []
    for key, value in (("a", b"a2"), ("b", b"b2"), ("c", b"c2"), ("d", b"")):
        batching.send_async(value, lambda result, _: results.append(result), partition_key=key)
    batching.flush()
    until(lambda: len(results) == 4, "every send has a result")
    expect_equal(results, [pulsar.Result.Ok] * 4, "results of the batch")
    one_by_one.send(b"a3", partition_key="a")


def _read_all(reader: Any) -> list[str]:
    messages = []
    while reader.has_message_available():
        messages.append(reader.read_next(timeout_millis=RECEIVE_MILLISECONDS))
    return texts(messages)


def seek_id(scene: Scene) -> None:
    consumer = scene.consumer()
    send(scene.producer(), numbered(0, 10))
    messages = receive(consumer, 10)
    acknowledge(consumer, messages)
    until(lambda: scene.ask("backlog", scene.topic(), "sub") == "0", "the backlog is 0")
    consumer.seek(messages[3].message_id())
    again = receive(consumer, 6)
    if again[0].data() == b"message 3":
        again = again[1:] + receive(consumer, 1)
    expect_equal(texts(again), numbered(4, 10), "received after the seek")
    expect_silence(consumer)


def seek_time(scene: Scene) -> None:
    producer, consumer = scene.producer(), scene.consumer()
    send(producer, numbered(0, 5))
    time.sleep(0.05)
    between = int(time.time() * 1000)
    time.sleep(0.05)
    send(producer, numbered(5, 10))
    acknowledge(consumer, receive(consumer, 10))
    until(lambda: scene.ask("backlog", scene.topic(), "sub") == "0", "the backlog is 0")
    consumer.seek(between)
    expect_equal(texts(receive(consumer, 5)), numbered(5, 10), "received after the seek")
    expect_silence(consumer)
