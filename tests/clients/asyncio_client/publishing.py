"""Scenarios of what is published: contents, fields, batches, chunks, encryption."""

from __future__ import annotations

import os
import time

from magnetar.client import (
    Batching,
    ClientError,
    ConsumerInterceptor,
    Message,
    MessageId,
    ProducerInterceptor,
)
from magnetar.client.errors import MessageTooLarge
from magnetar.client.messages import Outgoing

from tests.clients.asyncio_client.harness import (
    Scene,
    expect,
    expect_equal,
    expect_refused,
    expect_silence,
    numbered,
    receive,
    send,
    send_at_once,
    texts,
)


async def plain(scene: Scene) -> None:
    producer, consumer = await scene.producer(), await scene.consumer()
    expect(producer.name != "", "the producer has no name")
    sent = [await producer.send(content.encode()) for content in numbered(0, 10)]
    messages = await receive(consumer, 10)
    expect_equal(texts(messages), numbered(0, 10), "received")
    ids = [message.id for message in messages]
    expect(ids == sorted(set(ids)), f"ids do not ascend: {ids}")
    expect_equal(ids, sent, "ids of what was sent and received")
    expect_equal(await scene.ask("backlog", scene.topic(), "sub"), "10", "backlog before acknowledgements")
    await consumer.acknowledge(messages)
    await scene.backlog_is(0)


async def compress_lz4(scene: Scene) -> None:
    await _compressed(scene, "lz4")


async def compress_zlib(scene: Scene) -> None:
    await _compressed(scene, "zlib")


async def compress_zstd(scene: Scene) -> None:
    await _compressed(scene, "zstd")


async def compress_snappy(scene: Scene) -> None:
    await _compressed(scene, "snappy")


async def _compressed(scene: Scene, compression: str) -> None:
    contents = [f"{number} compressible ".ljust(20) * 500 for number in range(10)]
    expect_equal({len(content) for content in contents}, {10_000}, "sizes")
    consumer = await scene.consumer()
    await send(await scene.producer(compression=compression), contents)
    expect_equal(texts(await receive(consumer, 10)), contents, "received")


async def batches(scene: Scene) -> None:
    consumer = await scene.consumer()
    producer = await scene.producer(batching=Batching(max_messages=20, max_delay_s=0.5))
    sent = await send_at_once(producer, numbered(0, 100))
    messages = await receive(consumer, 100)
    expect_equal(texts(messages), numbered(0, 100), "received")
    ids = [message.id for message in messages]
    expect_equal(ids, sent, "ids of what was sent and received")
    expect_equal(max(each.batch_index for each in ids), 19, "the highest place in a batch")
    expect_equal(len({each.position for each in ids}), 5, "entries")


async def keys(scene: Scene) -> None:
    producer, consumer = await scene.producer(), await scene.consumer()
    await producer.send(b"keyed", key="a key")
    await producer.send(b"without")
    await producer.send(b"ordered", key="a key", ordering_key=b"an order")
    await producer.send(b"bytes", key=b"\xff\x00")
    messages = await receive(consumer, 4)
    found = [(message.key_bytes, message.ordering_key) for message in messages]
    expected = [(b"a key", None), (None, None), (b"a key", b"an order"), (b"\xff\x00", None)]
    expect_equal(found, expected, "keys and ordering keys")
    expect_equal([message.key for message in messages[:3]], ["a key", None, "a key"], "keys as text")


async def properties(scene: Scene) -> None:
    given = {"plain": "value", "empty": "", "größe": "中文 🚀", "a key with = & spaces": "line\nbreak\ttab"}
    producer, consumer = await scene.producer(), await scene.consumer()
    await producer.send(b"with", properties=given)
    await producer.send(b"without")
    expect_equal([message.properties for message in await receive(consumer, 2)], [given, {}], "properties")


async def event_time(scene: Scene) -> None:
    producer, consumer = await scene.producer(), await scene.consumer()
    await producer.send(b"dated", event_time_ms=1_234_567_890_123)
    await producer.send(b"undated")
    dated, undated = await receive(consumer, 2)
    expect_equal((dated.event_time_ms, undated.event_time_ms), (1_234_567_890_123, 0), "event times")
    age_ms = time.time() * 1000 - dated.publish_time_ms
    expect(abs(age_ms) < 10_000, f"published {age_ms:.0f} ms ago")


async def chunks(scene: Scene) -> None:
    content = os.urandom(12_000_000)
    consumer = await scene.consumer()
    producer = await scene.producer(chunking=True)
    sent = [await producer.send(each) for each in (b"before", content, b"after")]
    messages = await receive(consumer, 3)
    before, large, after = messages
    expect_equal((before.data, after.data), (b"before", b"after"), "the small ones")
    expect(large.data == content, f"other bytes: {len(large.data)} of 12000000 expected")
    expect_equal([message.id for message in messages], sent, "ids of what was sent and received")
    expect(large.id.first_chunk is not None, "the id of the large one has no first chunk")
    await consumer.acknowledge(messages)
    await scene.backlog_is(0)


async def too_large(scene: Scene) -> None:
    producer, consumer = await scene.producer(), await scene.consumer()
    await expect_refused("a message of 6,000,000 bytes", producer.send(bytes(6_000_000)), MessageTooLarge)
    await send(producer, ["small"])
    expect_equal(texts(await receive(consumer, 1)), ["small"], "received")


async def encryption(scene: Scene) -> None:
    public = (scene.keys / "public.pem").read_bytes()
    private = (scene.keys / "private.pem").read_bytes()
    with_key = await scene.consumer(subscription="with", read_key=lambda name, pairs: private)
    without = await scene.consumer(subscription="without")
    discarding = await scene.consumer(subscription="discarding", crypto_failure="discard")
    as_stored = await scene.consumer(subscription="as stored", crypto_failure="consume")
    producer = await scene.producer(public_keys={"key": public})
    await send(producer, numbered(0, 3))
    expect_equal(texts(await receive(with_key, 3)), numbered(0, 3), "received with the private key")
    for message in await receive(without, 3):
        expect_equal(message.data, b"", "payload without the private key")
        expect("encrypted" in message.unreadable, f"why it is unreadable: {message.unreadable!r}")
    await expect_silence(discarding, 0.5)
    for message in await receive(as_stored, 3):
        expect(b"message" not in message.data, f"stored in the clear: {message.data!r}")
        expect(message.encrypted is not None, "a message as stored has no encryption context")


class _Sent(ProducerInterceptor):
    def __init__(self) -> None:
        self.before: list[bytes] = []
        self.stored: list[tuple[MessageId | None, ClientError | None]] = []

    def before_send(self, topic: str, message: Outgoing) -> Outgoing:
        self.before.append(message.payload)
        message.properties = {**message.properties, "intercepted": topic}
        return message

    def on_sent(
        self, topic: str, message: Outgoing, message_id: MessageId | None, error: ClientError | None
    ) -> None:
        self.stored.append((message_id, error))


class _Consumed(ConsumerInterceptor):
    def __init__(self) -> None:
        self.received: list[MessageId] = []
        self.acknowledged: list[MessageId] = []

    def before_consume(self, message: Message) -> Message:
        self.received.append(message.id)
        return message

    def on_acknowledge(self, message: Message) -> None:
        self.acknowledged.append(message.id)


async def interceptors(scene: Scene) -> None:
    sent, consumed = _Sent(), _Consumed()
    producer = await scene.producer(interceptors=[sent])
    consumer = await scene.consumer(interceptors=[consumed])
    ids = [await producer.send(content.encode()) for content in numbered(0, 5)]
    messages = await receive(consumer, 5)
    await consumer.acknowledge(messages[:3])
    expect_equal(
        sent.before, [content.encode() for content in numbered(0, 5)], "messages before they are sent"
    )
    expect_equal(sent.stored, [(each, None) for each in ids], "results of sends")
    added = [message.properties for message in messages]
    expect_equal(added, [{"intercepted": scene.topic()}] * 5, "properties")
    expect_equal((consumed.received, consumed.acknowledged), (ids, ids[:3]), "received and acknowledged")
