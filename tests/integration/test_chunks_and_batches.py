"""Large messages in chunks from several producers at once, and batches by key, with the PyPI client."""

from __future__ import annotations

import random
from collections.abc import Callable

import pulsar
import pytest

from tests.integration.clients import receive
from tests.integration.harness import Endpoint
from tests.integration.raw.transcript import batch_messages, line

SERVER_SETTINGS = {"maxMessageSize": "65536"}

pytestmark = pytest.mark.usefixtures("server")


def content(producer: int, number: int) -> bytes:
    """From half a chunk to about eight, the same each time."""
    chosen = random.Random(producer * 1_000 + number)
    return b"%d-%d:" % (producer, number) + chosen.randbytes(chosen.randrange(30_000, 500_000))


def test_chunks_of_several_producers_are_put_together_whole_and_in_order(
    new_client: Callable[..., pulsar.Client], topic: str
) -> None:
    count, messages = 4, 6
    consumer = new_client().subscribe(topic, "sub", max_pending_chunked_message=count + 1)
    producers = [
        new_client().create_producer(topic, chunking_enabled=True, batching_enabled=False)
        for _ in range(count)
    ]
    sent = []
    for number in range(messages):
        for index, producer in enumerate(producers):
            producer.send_async(content(index, number), lambda result, _: sent.append(result))
    for producer in producers:
        producer.flush()
    got: dict[int, list[int]] = {}
    for _ in range(count * messages):
        message = receive(consumer)
        index, number = (int(part) for part in message.data().partition(b":")[0].split(b"-"))
        assert message.data() == content(index, number)
        got.setdefault(index, []).append(number)
        consumer.acknowledge(message)
    assert got == {index: list(range(messages)) for index in range(count)}
    assert sent == [pulsar.Result.Ok] * (count * messages)
    # All chunks were acknowledged: nothing comes again.
    consumer.close()
    again = new_client().subscribe(topic, "sub")
    with pytest.raises(pulsar.Timeout):
        again.receive(300)


def test_a_reader_starts_at_the_first_chunk(new_client: Callable[..., pulsar.Client], topic: str) -> None:
    producer = new_client().create_producer(topic, chunking_enabled=True, batching_enabled=False)
    ids = [producer.send(content(1, number)) for number in range(3)]
    reader = new_client().create_reader(topic, ids[1], start_message_id_inclusive=True)
    assert [reader.read_next(10_000).data() for _ in range(2)] == [content(1, 1), content(1, 2)]


def test_a_batch_by_key_holds_one_key(
    endpoint: Endpoint, new_client: Callable[..., pulsar.Client], topic: str
) -> None:
    producer = new_client().create_producer(
        topic,
        batching_enabled=True,
        batching_type=pulsar.BatchingType.KeyBased,
        batching_max_publish_delay_ms=50,
    )
    for number in range(60):
        producer.send_async(b"%d" % number, lambda result, _: None, partition_key=f"key-{number % 3}")
    producer.flush()
    with line(endpoint) as c:
        c.subscribe(topic)
        c.flow(1_000)
        by_key: dict[str, list[bytes]] = {}
        while sum(map(len, by_key.values())) < 60:
            frame = c.expect("message")
            assert frame.metadata is not None
            by_key.setdefault(frame.metadata.partition_key, []).extend(batch_messages(frame.payload))
    assert by_key == {
        f"key-{key}": [b"%d" % number for number in range(60) if number % 3 == key] for key in range(3)
    }
