"""Scenarios of producers and their topics: names, access modes, partitions, deduplication, termination."""

from __future__ import annotations

import asyncio
from collections import defaultdict

from magnetar.client.errors import ProducerBusy, ProducerFenced, TopicTerminated

from tests.clients.asyncio_client.harness import (
    Scene,
    expect,
    expect_equal,
    expect_refused,
    expect_silence,
    numbered,
    receive,
    send,
    texts,
    until,
)


async def producer_name(scene: Scene) -> None:
    first = await scene.producer(name="taken")
    other = scene.new_client()
    await expect_refused(
        "a second producer of that name", other.create_producer(scene.topic(), name="taken"), ProducerBusy
    )
    await first.close()
    second = await other.create_producer(scene.topic(), name="taken")
    expect_equal(second.name, "taken", "the second producer's name")
    await send(second, ["stored"])


async def access_exclusive(scene: Scene) -> None:
    first = await scene.producer(access_mode="exclusive")
    await expect_refused(
        "a second Exclusive producer",
        scene.producer(access_mode="exclusive"),
        (ProducerBusy, ProducerFenced),  # the broker's error is ProducerFenced
    )
    await send(first, ["of the first"])
    await first.close()
    await send(await scene.producer(access_mode="exclusive"), ["of the second"])
    received = texts(await receive(await scene.consumer(), 2))
    expect_equal(received, ["of the first", "of the second"], "received")


async def access_wait(scene: Scene) -> None:
    holder = await scene.producer(access_mode="exclusive")
    waiting = asyncio.create_task(scene.producer(access_mode="wait_for_exclusive"))
    await asyncio.sleep(0.5)
    expect(not waiting.done(), "the second producer is ready while the first holds the topic")
    await send(holder, ["of the holder"])
    await holder.close()
    async with asyncio.timeout(10):
        second = await waiting
    await send(second, ["of the second"])
    received = texts(await receive(await scene.consumer(), 2))
    expect_equal(received, ["of the holder", "of the second"], "received")


async def access_fencing(scene: Scene) -> None:
    holder = await scene.producer(access_mode="exclusive")
    await send(holder, ["of the holder"])
    other = scene.new_client()
    taker = await other.create_producer(scene.topic(), access_mode="exclusive_with_fencing")
    await expect_refused("a send of the fenced producer", holder.send(b"fenced"), ProducerFenced)
    await send(taker, ["of the taker"])
    consumer = await scene.consumer()
    expect_equal(texts(await receive(consumer, 2)), ["of the holder", "of the taker"], "received")
    await expect_silence(consumer)


async def partitioned(scene: Scene) -> None:
    await scene.ask("partition", scene.topic(), 3)
    producer, consumer = await scene.producer(), await scene.consumer()
    expect_equal(producer.partitions, 3, "partitions")
    for number in range(50):
        await producer.send(str(number).encode(), key=f"key {number % 10}")
    partitions: dict[str | None, set[int]] = defaultdict(set)
    numbers: dict[str | None, list[int]] = defaultdict(list)
    for message in await receive(consumer, 50):
        partitions[message.key].add(message.id.partition)
        numbers[message.key].append(int(message.data))
    expect_equal({key: len(found) for key, found in partitions.items() if len(found) > 1}, {}, "spread keys")
    expect(len(set.union(*partitions.values())) > 1, "all keys are in one partition")
    orders = {f"key {key}": list(range(key, 50, 10)) for key in range(10)}
    expect_equal(numbers, orders, "messages by key")
    await send(producer, numbered(0, 60))
    messages = await receive(consumer, 60)
    expect_equal(sorted(texts(messages)), sorted(numbered(0, 60)), "received without key")
    used = {message.id.partition for message in messages}
    expect_equal(used, {0, 1, 2}, "partitions of messages without key")


async def partitions_grow(scene: Scene) -> None:
    await scene.ask("partition", scene.topic(), 2)
    before, consumer = await scene.producer(), await scene.consumer()
    await send(before, numbered(0, 10))
    first = await receive(consumer, 10)
    expect_equal({message.id.partition for message in first}, {0, 1}, "partitions before")
    await consumer.acknowledge(first)
    await before.close()
    await consumer.close()
    await scene.ask("partition", scene.topic(), 4)
    after, consumer = await scene.producer(), await scene.consumer()
    await send(after, numbered(10, 50))
    messages = await receive(consumer, 40)
    expect_equal(sorted(texts(messages)), sorted(numbered(10, 50)), "received after")
    expect_equal({message.id.partition for message in messages}, {0, 1, 2, 3}, "partitions after")


async def non_persistent(scene: Scene) -> None:
    topic = scene.topic().replace("persistent://", "non-persistent://")
    consumer = await scene.client.subscribe(topic, "sub")
    producer = await scene.client.create_producer(topic)
    await send(producer, numbered(0, 10))
    expect_equal(texts(await receive(consumer, 10)), numbered(0, 10), "received")


async def deduplication(scene: Scene) -> None:
    await scene.ask("deduplicate", scene.topic())
    consumer = await scene.consumer()
    for begin, end in ((0, 10), (5, 15)):
        producer = await scene.producer(name="deduplicated")
        expect_equal(producer.last_sequence_id, -1 if begin == 0 else 9, "last sequence id of the name")
        for number in range(begin, end):
            await producer.send(f"message {number}".encode(), sequence_id=number)
        await producer.close()
    expect_equal(texts(await receive(consumer, 15)), numbered(0, 15), "received")
    await expect_silence(consumer)


async def end_of_topic(scene: Scene) -> None:
    ended: list[str] = []
    producer, consumer = await scene.producer(), await scene.consumer(on_end_of_topic=ended.append)
    await send(producer, numbered(0, 5))
    expect(not consumer.has_reached_end, "a topic that goes on has ended")
    await scene.ask("terminate", scene.topic())
    await expect_refused("a send to a terminated topic", producer.send(b"too late"), TopicTerminated)
    messages = await receive(consumer, 5)
    expect_equal(texts(messages), numbered(0, 5), "received")
    await consumer.acknowledge(messages)  # brokers tell of the end once nothing is left to acknowledge
    await until(lambda: consumer.has_reached_end, "the consumer is told that the topic has ended")
    expect_equal(ended, [scene.topic()], "topics whose end the callback was told")
    await expect_silence(consumer)
