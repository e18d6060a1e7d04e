"""Scenarios of subscriptions: types, positions, several topics, readers, seeks."""

from __future__ import annotations

import asyncio
import re
import time
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import mmh3
from magnetar.client import Batching, Consumer, KeySharedPolicy, Message, MessageId, Reader
from magnetar.client.errors import ConsumerBusy

from tests.clients.asyncio_client.harness import (
    RECEIVE_S,
    Scene,
    expect,
    expect_equal,
    expect_refused,
    expect_silence,
    numbered,
    receive,
    receive_of_all,
    send,
    texts,
    until,
)


async def initial_position(scene: Scene) -> None:
    producer = await scene.producer()
    await send(producer, numbered(0, 5))
    earliest = await scene.consumer(subscription="earliest")
    latest = await scene.consumer(subscription="latest", initial_position="latest")
    await send(producer, numbered(5, 10))
    expect_equal(texts(await receive(earliest, 10)), numbered(0, 10), "received from Earliest")
    expect_equal(texts(await receive(latest, 5)), numbered(5, 10), "received from Latest")


async def exclusive(scene: Scene) -> None:
    first = await scene.consumer()
    await expect_refused("a second consumer", scene.consumer(), ConsumerBusy)
    await first.close()
    second = await scene.consumer()
    await send(await scene.producer(), ["for the second"])
    expect_equal(texts(await receive(second, 1)), ["for the second"], "received")


async def failover(scene: Scene) -> None:
    active: set[str] = set()

    def changes(name: str) -> Any:
        return lambda topic, is_active: active.add(name) if is_active else active.discard(name)

    consumers = [
        await scene.consumer(type="failover", name=name, on_active_change=changes(name)) for name in "ab"
    ]
    producer = await scene.producer()
    await send(producer, numbered(0, 20))
    by_consumer = await receive_of_all(consumers, 20)
    chosen = 0 if by_consumer[0] else 1
    expect_equal(texts(by_consumer[chosen]), numbered(0, 20), "received by the active consumer")
    expect_equal(active, {"ab"[chosen]}, "consumers that are told to be active")
    await consumers[chosen].acknowledge(by_consumer[chosen][:10])
    await consumers[chosen].close()
    standby = consumers[1 - chosen]
    expect_equal(texts(await receive(standby, 10)), numbered(10, 20), "received by the other")
    expect("ab"[1 - chosen] in active, "the other is not told to be active")
    await send(producer, numbered(20, 25))
    expect_equal(texts(await receive(standby, 5)), numbered(20, 25), "received by the other afterward")


async def shared(scene: Scene) -> None:
    consumers = [await scene.consumer(type="shared") for _ in range(2)]
    await send(await scene.producer(), numbered(0, 40))
    first, second = await receive_of_all(consumers, 40)
    expect(len(first) >= 5 and len(second) >= 1, f"got {len(first)} and {len(second)} messages")
    expect_equal(sorted(texts(first + second)), sorted(numbered(0, 40)), "received together")
    await consumers[0].acknowledge(first[:-5])
    await consumers[1].acknowledge(second)
    await consumers[0].close()
    expect_equal(sorted(texts(await receive(consumers[1], 5))), sorted(texts(first[-5:])), "received again")
    await expect_silence(consumers[1])


async def shared_turns(scene: Scene) -> None:
    received: list[list[str]] = [[], []]

    def listener(mine: list[str]) -> Any:
        async def got(consumer: Consumer[Any], message: Message) -> None:
            await consumer.acknowledge(message)
            mine.append(message.data.decode())

        return got

    for mine in received:
        await scene.consumer(type="shared", listener=listener(mine))
    producer = await scene.producer()
    for content in numbered(0, 100):
        await send(producer, [content])
        await asyncio.sleep(0.005)
    await until(lambda: sum(map(len, received)) >= 100, "100 messages are received")
    expect_equal(sorted(received[0] + received[1]), sorted(numbered(0, 100)), "received together")
    expect(min(map(len, received)) >= 30, f"turns of {len(received[0])} and {len(received[1])} messages")


async def key_shared(scene: Scene) -> None:
    consumers = [await scene.consumer(type="key_shared") for _ in range(2)]
    producer = await scene.producer()
    for number in range(100):
        await producer.send(str(number).encode(), key=f"key {number % 20}")
    by_consumer = await receive_of_all(consumers, 100)
    for consumer, messages in zip(consumers, by_consumer, strict=True):
        expect(bool(messages), "a consumer got nothing")
        await consumer.acknowledge(messages)
    first, second = (_numbers_by_key(messages) for messages in by_consumer)
    expect_equal(set(first) & set(second), set(), "keys with both consumers")
    expect_equal(first | second, {f"key {key}": list(range(key, 100, 20)) for key in range(20)}, "by key")
    await consumers[0].close()
    for number in range(100, 120):
        await producer.send(str(number).encode(), key=f"key {number % 20}")
    numbers = [int(message.data) for message in await receive(consumers[1], 20)]
    expect_equal(numbers, list(range(100, 120)), "received by the one that is left")


def _numbers_by_key(messages: Iterable[Message]) -> dict[str | None, list[int]]:
    found: dict[str | None, list[int]] = defaultdict(list)
    for message in messages:
        found[message.key].append(int(message.data))
    return found


async def sticky_ranges(scene: Scene) -> None:
    async def subscribe(low: int, high: int) -> Consumer[Any]:
        policy = KeySharedPolicy(sticky_ranges=[(low, high)])
        return await scene.consumer(type="key_shared", key_shared=policy)

    consumers = [await subscribe(0, 32767), await subscribe(32768, 65535)]
    await expect_refused("a consumer of slots in use", subscribe(0, 100))
    producer = await scene.producer()
    keys = [f"key {number}" for number in range(40)]
    for key in keys:
        await producer.send(b"", key=key)
    low, high = await receive_of_all(consumers, 40)
    expected = [key for key in keys if mmh3.hash(key, 0, signed=False) % 65536 < 32768]
    expect(0 < len(expected) < 40, "the keys are all on one side")
    expect_equal([message.key for message in low], expected, "keys of the lower slots")
    others = [key for key in keys if key not in expected]
    expect_equal([message.key for message in high], others, "keys of the upper slots")


async def unsubscribe(scene: Scene) -> None:
    producer, consumer = await scene.producer(), await scene.consumer()
    await send(producer, numbered(0, 5))
    await receive(consumer, 5)
    await consumer.unsubscribe()
    again = await scene.consumer(initial_position="latest")
    await send(producer, numbered(5, 8))
    expect_equal(texts(await receive(again, 3)), numbered(5, 8), "received by the new subscription")
    await expect_silence(again)


async def multi_topics(scene: Scene) -> None:
    topics = [scene.topic(f"-{number}") for number in range(3)]
    consumer: Consumer[bytes] = await scene.client.subscribe(topics, "sub", initial_position="earliest")
    for number, topic in enumerate(topics):
        await send(await scene.producer(f"-{number}"), [f"{topic} {each}" for each in range(10)])
    by_topic: dict[str, list[str]] = defaultdict(list)
    for message in await receive(consumer, 30):
        by_topic[message.topic].append(message.data.decode())
    expected = {topic: [f"{topic} {each}" for each in range(10)] for topic in topics}
    expect_equal(by_topic, expected, "received by topic")


async def pattern(scene: Scene) -> None:
    for suffix in ("-a", "-b"):
        await send(await scene.producer(suffix), [f"of {suffix}"])
    # The period of 60 s between looks for new topics stays: the broker tells of the third.
    consumer: Consumer[bytes] = await scene.client.subscribe(
        re.compile(scene.topic("-").replace(".", "\\.") + ".*"), "sub", initial_position="earliest"
    )
    expect_equal(sorted(texts(await receive(consumer, 2))), ["of -a", "of -b"], "received of two topics")
    await send(await scene.producer("-c"), ["of -c"])
    expect_equal(texts(await receive(consumer, 1)), ["of -c"], "received of the third topic")
    expect_equal(consumer.topics, [scene.topic(suffix) for suffix in ("-a", "-b", "-c")], "topics")


async def queue_size_zero(scene: Scene) -> None:
    consumer = await scene.consumer(queue_size=0)
    await send(await scene.producer(), numbered(0, 5))
    received = []
    for _ in range(5):
        (message,) = await receive(consumer, 1)
        received.append(message.data.decode())
        expect(not consumer.has_queued, "a message is here that no call has asked for")
        await consumer.acknowledge(message)
    expect_equal(received, numbered(0, 5), "received")


async def batch_receive(scene: Scene) -> None:
    consumer = await scene.consumer()
    await send(await scene.producer(), numbered(0, 15))
    first = await consumer.receive_batch(10, timeout_s=1.0)
    expect_equal(texts(first), numbered(0, 10), "the first batch")
    began = time.monotonic()
    second = await consumer.receive_batch(10, timeout_s=1.0)
    expect_equal(texts(second), numbered(10, 15), "the second batch")
    expect(time.monotonic() - began < 5, "the second batch took more than 5 s")


async def _read_all(reader: Reader[Any]) -> list[Message]:
    messages = []
    while await reader.has_message_available():
        messages.append(await reader.read(RECEIVE_S))
    return messages


async def reader(scene: Scene) -> None:
    await send(await scene.producer(), numbered(0, 10))
    earliest: Reader[bytes] = await scene.client.create_reader(scene.topic(), MessageId.EARLIEST)
    messages = await _read_all(earliest)
    expect_equal(texts(messages), numbered(0, 10), "read")
    fifth = MessageId.from_bytes(messages[4].id.to_bytes())
    for inclusive, expected in ((False, numbered(5, 10)), (True, numbered(4, 10))):
        after: Reader[bytes] = await scene.client.create_reader(
            scene.topic(), fifth, start_inclusive=inclusive
        )
        expect_equal(texts(await _read_all(after)), expected, f"read from the fifth, inclusive {inclusive}")


async def last_message_id(scene: Scene) -> None:
    producer, consumer = await scene.producer(), await scene.consumer()
    await send(producer, numbered(0, 9))
    for content in ("the last", "one more"):
        stored = await producer.send(content.encode())
        expect_equal(await consumer.last_message_ids(), {scene.topic(): stored}, f"id of {content}")


async def table_view(scene: Scene) -> None:
    producer = await scene.producer()
    for round_number in range(3):
        for key in "abcde":
            await producer.send(f"{key}{round_number}".encode(), key=key)
    view = await scene.client.create_table_view(scene.topic())
    expect_equal(dict(view.items()), {key: f"{key}2".encode() for key in "abcde"}, "latest values")
    await producer.send(b"updated", key="c")
    await until(lambda: view.get("c") == b"updated", "the view has the update")
    expect_equal(view["d"], b"d2", "a value that was not updated")
    await producer.send(None, key="d")
    await until(lambda: "d" not in view, "the view has lost a key whose value became null")
    expect_equal(len(view), 4, "keys")


async def read_compacted(scene: Scene) -> None:
    await _send_to_compact(scene)
    await scene.ask("compact", scene.topic())
    reader: Reader[bytes] = await scene.client.create_reader(
        scene.topic(), MessageId.EARLIEST, read_compacted=True
    )
    view = ["e1", "b2", "c2", "a3"]
    expect_equal(texts(await _read_all(reader)), view, "read of the compacted view")
    await (await scene.producer()).send(b"f1", key="f")
    expect_equal(texts(await _read_all(reader)), ["f1"], "read after the compacted view")
    consumer = await scene.consumer(read_compacted=True)
    expect_equal(texts(await receive(consumer, 5)), [*view, "f1"], "received of the compacted view")
    await expect_silence(consumer)
    everything = ["a1", "b1", "c1", "d1", "e1", "a2", "b2", "c2", "", "a3", "f1"]
    expect_equal(texts(await receive(await scene.consumer(subscription="all"), 11)), everything, "all")
    table = await scene.client.create_table_view(scene.topic())
    expected = {"a": b"a3", "b": b"b2", "c": b"c2", "e": b"e1", "f": b"f1"}
    expect_equal(dict(table.items()), expected, "values of the table view")


async def _send_to_compact(scene: Scene) -> None:
    """Send what the scenario compacts; an empty value in a batch counts with every library."""
    one_by_one = await scene.producer()
    for key in "abcde":
        await one_by_one.send(f"{key}1".encode(), key=key)
    batching = await scene.producer(batching=Batching(max_messages=100, max_delay_s=10))
    pairs = (("a", b"a2"), ("b", b"b2"), ("c", b"c2"), ("d", b""))
    sent = await asyncio.gather(*(batching.send(value, key=key) for key, value in pairs))
    expect_equal([each.batch_index for each in sent], [0, 1, 2, 3], "places in the batch")
    await one_by_one.send(b"a3", key="a")


async def seek_id(scene: Scene) -> None:
    consumer = await scene.consumer()
    await send(await scene.producer(), numbered(0, 10))
    messages = await receive(consumer, 10)
    await consumer.acknowledge(messages)
    await scene.backlog_is(0)
    await consumer.seek(messages[3].id)
    expect_equal(texts(await receive(consumer, 6)), numbered(4, 10), "received after the seek")
    await expect_silence(consumer)


async def seek_time(scene: Scene) -> None:
    producer, consumer = await scene.producer(), await scene.consumer()
    await send(producer, numbered(0, 5))
    await asyncio.sleep(0.05)
    between = int(time.time() * 1000)
    await asyncio.sleep(0.05)
    await send(producer, numbered(5, 10))
    await consumer.acknowledge(await receive(consumer, 10))
    await scene.backlog_is(0)
    await consumer.seek(between)
    expect_equal(texts(await receive(consumer, 5)), numbered(5, 10), "received after the seek")
    await expect_silence(consumer)
