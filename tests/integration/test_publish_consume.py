"""What a producer sends is what a consumer gets: every way in which the PyPI client can send a message."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future

import pulsar
import pytest

from tests.integration.clients import drain, publish, receive
from tests.integration.harness import eventually

MESSAGE_BYTES_MAX = 5 * 1024 * 1024


def test_messages_come_back_in_order_and_unchanged(client: pulsar.Client, topic: str) -> None:
    consumer = client.subscribe(topic, "sub")
    producer = client.create_producer(topic)
    payloads = [b"", b"\x00", b"first", "t\u00eate-\u00e0-t\u00eate".encode(), bytes(range(256)) * 100]
    for payload in payloads:
        producer.send(payload)
    assert drain(consumer, len(payloads)) == payloads


def test_asynchronous_sends_are_confirmed_in_order_with_rising_ids(client: pulsar.Client, topic: str) -> None:
    producer = client.create_producer(topic, batching_enabled=False, block_if_queue_full=True)
    confirmed: list[tuple[int, int]] = []
    done: Future[None] = Future()

    def on_sent(result: pulsar.Result, message_id: pulsar.MessageId) -> None:
        if result != pulsar.Result.Ok:
            done.set_exception(AssertionError(str(result)))
            return
        confirmed.append((message_id.ledger_id(), message_id.entry_id()))
        if len(confirmed) == 2_000:
            done.set_result(None)

    for n in range(2_000):
        producer.send_async(b"%d" % n, on_sent)
    done.result(20)
    assert confirmed == sorted(set(confirmed))


def test_last_sequence_id_counts_from_zero(client: pulsar.Client, topic: str) -> None:
    producer = client.create_producer(topic)
    assert producer.last_sequence_id() == -1
    producer.send(b"0")
    producer.send(b"1")
    assert producer.last_sequence_id() == 1


@pytest.mark.parametrize("batching", [False, True], ids=["unbatched", "batched"])
def test_a_thousand_messages_keep_their_order(client: pulsar.Client, topic: str, batching: bool) -> None:
    consumer = client.subscribe(topic, "sub")
    payloads = [b"message-%d" % n for n in range(1_000)]
    publish(client, topic, payloads, batching=batching)
    assert drain(consumer, len(payloads)) == payloads


def test_a_batch_is_one_entry_whose_messages_have_batch_indexes(client: pulsar.Client, topic: str) -> None:
    consumer = client.subscribe(topic, "sub")
    publish(client, topic, [b"%d" % n for n in range(10)], batching=True, messages_per_batch=10)
    messages = [receive(consumer) for _ in range(10)]
    assert len({(m.message_id().ledger_id(), m.message_id().entry_id()) for m in messages}) == 1
    assert [m.message_id().batch_index() for m in messages] == list(range(10))


def test_key_based_batches_keep_each_key_in_order(client: pulsar.Client, topic: str) -> None:
    consumer = client.subscribe(topic, "sub")
    producer = client.create_producer(
        topic,
        batching_enabled=True,
        batching_max_publish_delay_ms=50,
        batching_type=pulsar.BatchingType.KeyBased,
        block_if_queue_full=True,
    )
    for n in range(60):
        producer.send_async(b"%d" % n, lambda *_: None, partition_key=f"key-{n % 3}")
    producer.flush()
    by_key: dict[str, list[int]] = {}
    for _ in range(60):
        message = receive(consumer)
        by_key.setdefault(message.partition_key(), []).append(int(message.data()))
    assert by_key == {f"key-{k}": list(range(k, 60, 3)) for k in range(3)}


@pytest.mark.parametrize("batching", [False, True], ids=["unbatched", "batched"])
@pytest.mark.parametrize("compression", ["LZ4", "ZLib", "ZSTD", "SNAPPY"])
def test_compressed_messages_come_back(
    client: pulsar.Client, topic: str, compression: str, batching: bool
) -> None:
    consumer = client.subscribe(topic, "sub")
    payloads = [b"the same words again and again " * 200 + b"%d" % n for n in range(50)]
    publish(
        client,
        topic,
        payloads,
        batching=batching,
        compression_type=getattr(pulsar.CompressionType, compression),
    )
    assert drain(consumer, len(payloads)) == payloads


def test_a_topic_mixes_compressions_freely(client: pulsar.Client, topic: str) -> None:
    consumer = client.subscribe(topic, "sub")
    names = ["NONE", "LZ4", "ZLib", "ZSTD", "SNAPPY"]
    payloads = [name.encode() * 1_000 for name in names]
    for name, payload in zip(names, payloads, strict=True):
        client.create_producer(topic, compression_type=getattr(pulsar.CompressionType, name)).send(payload)
    assert drain(consumer, len(payloads)) == payloads


def test_a_message_of_the_maximum_size_passes(client: pulsar.Client, topic: str) -> None:
    consumer = client.subscribe(topic, "sub")
    producer = client.create_producer(topic, compression_type=pulsar.CompressionType.NONE)
    # The client counts its metadata against the limit, so leave room for it.
    payload = bytes(range(256)) * (MESSAGE_BYTES_MAX // 256 - 1)
    producer.send(payload)
    assert receive(consumer).data() == payload


def test_a_message_over_the_limit_fails_and_the_producer_lives(client: pulsar.Client, topic: str) -> None:
    consumer = client.subscribe(topic, "sub")
    producer = client.create_producer(topic)
    with pytest.raises(pulsar.MessageTooBig):
        producer.send(b"x" * (MESSAGE_BYTES_MAX + 1))
    producer.send(b"still here")
    assert drain(consumer, 1) == [b"still here"]


def test_a_chunked_message_is_put_together_again(client: pulsar.Client, topic: str) -> None:
    consumer = client.subscribe(topic, "sub")
    producer = client.create_producer(topic, chunking_enabled=True, batching_enabled=False)
    payloads = [b"before", bytes(range(256)) * 50_000, b"after"]
    for payload in payloads:
        producer.send(payload)
    assert drain(consumer, 3) == payloads


def test_chunks_of_several_producers_interleave(client: pulsar.Client, topic: str) -> None:
    consumer = client.subscribe(topic, "sub")
    payloads = {bytes([65 + n]) * 11_000_000 for n in range(3)}
    producers = [
        client.create_producer(topic, chunking_enabled=True, batching_enabled=False) for _ in payloads
    ]
    failures: list[str] = []
    for producer, payload in zip(producers, payloads, strict=True):
        producer.send_async(
            payload, lambda result, _: failures.append(str(result)) if result != pulsar.Result.Ok else None
        )
    for producer in producers:
        producer.flush()
    assert not failures
    assert set(drain(consumer, 3)) == payloads


def test_key_properties_event_time_and_ordering_key_come_back(client: pulsar.Client, topic: str) -> None:
    consumer = client.subscribe(topic, "sub")
    producer = client.create_producer(topic, producer_name="named-producer-" + topic[-8:])
    before_ms = int(time.time() * 1000)
    producer.send(
        b"payload",
        properties={"color": "green", "empty": "", "unicode": "\u65e5\u672c"},
        partition_key="the-key",
        ordering_key="the-ordering-key",
        event_timestamp=1_234_567_890_123,
    )
    message = receive(consumer)
    assert message.properties() == {"color": "green", "empty": "", "unicode": "\u65e5\u672c"}
    assert message.partition_key() == "the-key"
    assert message.ordering_key() == "the-ordering-key"
    assert message.event_timestamp() == 1_234_567_890_123
    assert before_ms <= message.publish_timestamp() <= int(time.time() * 1000)
    assert message.producer_name() == producer.producer_name()
    assert message.topic_name() == topic


def test_keys_and_properties_survive_in_a_batch(client: pulsar.Client, topic: str) -> None:
    consumer = client.subscribe(topic, "sub")
    producer = client.create_producer(topic, batching_enabled=True, batching_max_publish_delay_ms=50)
    for n in range(5):
        producer.send_async(b"%d" % n, lambda *_: None, partition_key=f"k{n}", properties={"n": str(n)})
    producer.flush()
    messages = [receive(consumer) for _ in range(5)]
    assert [m.partition_key() for m in messages] == [f"k{n}" for n in range(5)]
    assert [m.properties() for m in messages] == [{"n": str(n)} for n in range(5)]


def test_many_producers_on_one_topic_each_keep_their_order(
    new_client: Callable[..., pulsar.Client], topic: str
) -> None:
    client = new_client()
    consumer = client.subscribe(topic, "sub")
    producers = [client.create_producer(topic, block_if_queue_full=True) for _ in range(20)]
    assert len({producer.producer_name() for producer in producers}) == 20
    for n in range(50):
        for number, producer in enumerate(producers):
            producer.send_async(b"%d:%d" % (number, n), lambda *_: None)
    for producer in producers:
        producer.flush()
    by_producer: dict[int, list[int]] = {}
    for payload in drain(consumer, 1_000):
        sender, count = payload.split(b":")
        by_producer.setdefault(int(sender), []).append(int(count))
    assert by_producer == {number: list(range(50)) for number in range(20)}


def test_two_clients_see_each_other(new_client: Callable[..., pulsar.Client], topic: str) -> None:
    one, two = new_client(), new_client()
    consumer_of_one = one.subscribe(topic, "one")
    consumer_of_two = two.subscribe(topic, "two")
    one.create_producer(topic).send(b"from one")
    two.create_producer(topic).send(b"from two")
    assert drain(consumer_of_one, 2) == [b"from one", b"from two"]
    assert drain(consumer_of_two, 2) == [b"from one", b"from two"]


def test_a_message_listener_gets_every_message(client: pulsar.Client, topic: str) -> None:
    got: list[bytes] = []
    lock = threading.Lock()

    def listen(consumer: pulsar.Consumer, message: pulsar.Message) -> None:
        with lock:
            got.append(message.data())
        consumer.acknowledge(message)

    consumer = client.subscribe(topic, "sub", message_listener=listen)
    payloads = [b"%d" % n for n in range(200)]
    publish(client, topic, payloads)
    eventually(lambda: len(got) == 200, "the listener saw 200 messages")
    assert got == payloads
    consumer.close()


def test_batch_receive_returns_what_is_there(client: pulsar.Client, topic: str) -> None:
    consumer = client.subscribe(
        topic, "sub", batch_receive_policy=pulsar.ConsumerBatchReceivePolicy(10, 0, 5_000)
    )
    publish(client, topic, [b"%d" % n for n in range(20)], batching=False)
    assert [m.data() for m in consumer.batch_receive()] == [b"%d" % n for n in range(10)]
    assert [m.data() for m in consumer.batch_receive()] == [b"%d" % n for n in range(10, 20)]


def test_a_second_producer_of_the_same_name_is_refused(
    new_client: Callable[..., pulsar.Client], topic: str
) -> None:
    name = "only-one-" + topic[-8:]
    producer = new_client().create_producer(topic, producer_name=name)
    with pytest.raises(pulsar.ProducerBusy):
        new_client().create_producer(topic, producer_name=name)
    producer.send(b"the first one lives")
    producer.close()
    new_client().create_producer(topic, producer_name=name).send(b"and the name is free again")
