"""Scenarios of acknowledgements, redelivery, dead letters and delayed messages."""

from __future__ import annotations

import time

from magnetar.client import Batching, DeadLetterPolicy, RedeliveryDelay

from tests.clients.asyncio_client.harness import (
    Scene,
    expect,
    expect_equal,
    expect_silence,
    numbered,
    receive,
    send,
    send_at_once,
    texts,
)

SOON = RedeliveryDelay(0.1, 0.1)


async def ack_individual(scene: Scene) -> None:
    consumer = await scene.consumer()
    await send(await scene.producer(), numbered(0, 10))
    messages = await receive(consumer, 10)
    await consumer.acknowledge(messages[1::2])
    await consumer.close()
    following = await scene.consumer()
    expect_equal(texts(await receive(following, 5)), texts(messages[::2]), "received by the next consumer")
    await expect_silence(following)


async def ack_cumulative(scene: Scene) -> None:
    consumer = await scene.consumer(ack_receipts=True)
    await send(await scene.producer(), numbered(0, 10))
    await consumer.acknowledge_cumulative((await receive(consumer, 10))[4])
    await scene.backlog_is(5)  # at once: the broker's receipt was waited for
    await consumer.close()
    following = await scene.consumer()
    expect_equal(texts(await receive(following, 5)), numbered(5, 10), "received by the next consumer")
    await expect_silence(following)


async def ack_batch_index(scene: Scene) -> None:
    consumer = await scene.consumer(batch_index_ack=True)
    producer = await scene.producer(batching=Batching(max_messages=10, max_delay_s=0.5))
    await send_at_once(producer, numbered(0, 10))
    messages = await receive(consumer, 10)
    expect_equal(len({message.id.position for message in messages}), 1, "entries")
    await consumer.acknowledge(messages[::2])
    await consumer.close()
    following = await scene.consumer(batch_index_ack=True)
    expect_equal(texts(await receive(following, 5)), texts(messages[1::2]), "received by the next consumer")
    await expect_silence(following)


async def nack(scene: Scene) -> None:
    consumer = await scene.consumer(type="shared", negative_ack_delay=SOON)
    await send(await scene.producer(), ["given back"])
    counts = []
    for _ in range(2):
        (message,) = await receive(consumer, 1)
        counts.append(message.redelivery_count)
        consumer.negative_acknowledge(message)
    (message,) = await receive(consumer, 1)
    counts.append(message.redelivery_count)
    expect_equal(counts, [0, 1, 2], "redelivery counts")
    expect_equal(message.data, b"given back", "content")
    await consumer.acknowledge(message)
    await expect_silence(consumer)


async def dead_letter(scene: Scene) -> None:
    letters = await scene.consumer("-dead", "letters")
    policy = DeadLetterPolicy(redeliveries_max=2, topic=scene.topic("-dead"))
    consumer = await scene.consumer(type="shared", negative_ack_delay=SOON, dead_letter=policy)
    await (await scene.producer()).send(b"undeliverable", properties={"kept": "yes"})
    for count in range(3):
        (message,) = await receive(consumer, 1)
        expect_equal(message.redelivery_count, count, "redelivery count")
        consumer.negative_acknowledge(message)
    (letter,) = await receive(letters, 1)
    expect_equal(letter.data, b"undeliverable", "content of the dead letter")
    expect_equal(letter.properties.get("kept"), "yes", "its property")
    await expect_silence(consumer)
    await scene.backlog_is(0)


async def retry_letter(scene: Scene) -> None:
    retry = scene.topic("-retry")
    policy = DeadLetterPolicy(redeliveries_max=2, retry_topic=retry)
    consumer = await scene.consumer(type="shared", dead_letter=policy, retry_letters=True)
    await (await scene.producer()).send(b"later", properties={"kept": "yes"})
    (message,) = await receive(consumer, 1)
    await consumer.reconsume_later(message, 1.0)  # Apache Pulsar delivers up to a tick of 1 s early
    (again,) = await receive(consumer, 1)
    expect_equal((again.data, again.topic), (b"later", retry), "message that came again, and its topic")
    names = ("kept", "RECONSUMETIMES", "REAL_TOPIC", "DELAY_TIME")
    found = {name: again.properties.get(name) for name in names}
    expected = {"kept": "yes", "RECONSUMETIMES": "1", "REAL_TOPIC": scene.topic(), "DELAY_TIME": "1000"}
    expect_equal(found, expected, "its properties")
    await consumer.acknowledge(again)
    await scene.backlog_is(0)


async def delayed(scene: Scene) -> None:
    consumer = await scene.consumer(type="shared")
    producer = await scene.producer()
    began = time.monotonic()
    await producer.send(b"delayed", deliver_after_s=2)
    await producer.send(b"behind")
    expect_equal(texts(await receive(consumer, 1)), ["behind"], "received first")
    expect(time.monotonic() - began < 1.5, "the one behind came late")
    (message,) = await receive(consumer, 1)
    seconds = time.monotonic() - began
    expect_equal(message.data, b"delayed", "received second")
    expect(1.5 <= seconds <= 10, f"delivered after {seconds:.1f} s")
