"""Scenarios of what is published: contents, fields, batches, chunks, encryption."""

from __future__ import annotations

import os
import time

import pulsar

from tests.clients.python.harness import (
    RECEIVE_MILLISECONDS,
    Lacks,
    Scene,
    acknowledge,
    expect,
    expect_equal,
    expect_refused,
    expect_silence,
    numbered,
    place,
    receive,
    send,
    send_at_once,
    takes,
    texts,
    until,
)


def plain(scene: Scene) -> None:
    producer, consumer = scene.producer(), scene.consumer()
    expect(producer.producer_name() != "", "the producer has no name")
    send(producer, numbered(0, 10))
    messages = receive(consumer, 10)
    expect_equal(texts(messages), numbered(0, 10), "received")
    ids = [place(message.message_id()) for message in messages]
    expect(ids == sorted(set(ids)), f"ids do not ascend: {ids}")
    expect_equal(scene.ask("backlog", scene.topic(), "sub"), "10", "backlog before acknowledgements")
    acknowledge(consumer, messages)
    until(lambda: scene.ask("backlog", scene.topic(), "sub") == "0", "the backlog is 0")


def compress_lz4(scene: Scene) -> None:
    _compressed(scene, pulsar.CompressionType.LZ4)


def compress_zlib(scene: Scene) -> None:
    _compressed(scene, pulsar.CompressionType.ZLib)


def compress_zstd(scene: Scene) -> None:
    _compressed(scene, pulsar.CompressionType.ZSTD)


def compress_snappy(scene: Scene) -> None:
    _compressed(scene, pulsar.CompressionType.SNAPPY)


def _compressed(scene: Scene, compression: pulsar.CompressionType) -> None:
    contents = [f"{number} compressible ".ljust(20) * 500 for number in range(10)]
    expect_equal({len(content) for content in contents}, {10_000}, "sizes")
    consumer = scene.consumer()
    send(scene.producer(compression_type=compression), contents)
    expect_equal(texts(receive(consumer, 10)), contents, "received")


def batches(scene: Scene) -> None:
    consumer = scene.consumer()
    producer = scene.producer(
        batching_enabled=True, batching_max_messages=20, batching_max_publish_delay_ms=500
    )
    send_at_once(producer, numbered(0, 100))
    messages = receive(consumer, 100)
    expect_equal(texts(messages), numbered(0, 100), "received")
    ids = [place(message.message_id()) for message in messages]
    expect_equal(max(index for _, _, index in ids), 19, "the highest place in a batch")
    expect_equal(len({(ledger, entry) for ledger, entry, _ in ids}), 5, "entries")


def keys(scene: Scene) -> None:
    producer, consumer = scene.producer(), scene.consumer()
    producer.send(b"keyed", partition_key="a key")
    producer.send(b"without")
    keyed, without = receive(consumer, 2)
    expect_equal((keyed.partition_key(), without.partition_key()), ("a key", ""), "partition keys")
    if not takes(producer.send, "ordering_key"):
        raise Lacks("no ordering key in this version of the client")
    producer.send(b"ordered", partition_key="a key", ordering_key="an order")
    (ordered,) = receive(consumer, 1)
    expect_equal((ordered.partition_key(), ordered.ordering_key()), ("a key", "an order"), "keys")
    expect_equal((keyed.ordering_key(), without.ordering_key()), ("", ""), "ordering keys of the others")


def properties(scene: Scene) -> None:
    given = {"plain": "value", "empty": "", "größe": "中文 🚀", "a key with = & spaces": "line\nbreak\ttab"}
    producer, consumer = scene.producer(), scene.consumer()
    producer.send(b"with", properties=given)
    producer.send(b"without")
    expect_equal([message.properties() for message in receive(consumer, 2)], [given, {}], "properties")


def event_time(scene: Scene) -> None:
    producer, consumer = scene.producer(), scene.consumer()
    producer.send(b"dated", event_timestamp=1_234_567_890_123)
    producer.send(b"undated")
    dated, undated = receive(consumer, 2)
    expect_equal((dated.event_timestamp(), undated.event_timestamp()), (1_234_567_890_123, 0), "event times")
    age = time.time() * 1000 - dated.publish_timestamp()
    expect(abs(age) < 10_000, f"published {age:.0f} ms ago")


def chunks(scene: Scene) -> None:
    content = os.urandom(12_000_000)
    consumer = scene.consumer()
    producer = scene.producer(chunking_enabled=True)
    producer.send(b"before")
    producer.send(content)
    producer.send(b"after")
    before, large, after = receive(consumer, 3)
    expect_equal((before.data(), after.data()), (b"before", b"after"), "the small ones")
    expect(large.data() == content, f"other bytes: {len(large.data())} of 12000000 expected")


def too_large(scene: Scene) -> None:
    producer, consumer = scene.producer(), scene.consumer()
    expect_refused("a message of 6,000,000 bytes", lambda: producer.send(bytes(6_000_000)))
    send(producer, ["small"])
    expect_equal(texts(receive(consumer, 1)), ["small"], "received")


def encryption(scene: Scene) -> None:
    reader = pulsar.CryptoKeyReader(str(scene.keys / "public.pem"), str(scene.keys / "private.pem"))
    with_key = scene.consumer(subscription="with", crypto_key_reader=reader)
    without = scene.consumer(subscription="without")
    producer = scene.producer(encryption_key="key", crypto_key_reader=reader)
    send(producer, numbered(0, 3))
    expect_equal(texts(receive(with_key, 3)), numbered(0, 3), "received with the private key")
    expect_silence(without, milliseconds=500)
    without.close()
    if not takes(scene.client.subscribe, "crypto_failure_action"):
        return
    as_stored = scene.consumer(
        subscription="as stored", crypto_failure_action=pulsar.ConsumerCryptoFailureAction.CONSUME
    )
    stored = as_stored.receive(timeout_millis=RECEIVE_MILLISECONDS).data()
    expect(b"message" not in stored, f"stored in the clear: {stored!r}")


def interceptors(scene: Scene) -> None:
    raise Lacks("no interceptors in this client")
