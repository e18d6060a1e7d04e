"""Reading without a durable subscription, and moving a subscription to another place."""

from __future__ import annotations

import time

import pulsar
import pytest

from tests.integration.clients import drain, expect_nothing, publish, receive

EARLIEST = pulsar.InitialPosition.Earliest
PAYLOADS = [b"%d" % n for n in range(10)]


def read_all(reader: pulsar.Reader) -> list[bytes]:
    payloads = []
    while reader.has_message_available():
        payloads.append(reader.read_next(10_000).data())
    return payloads


@pytest.fixture
def filled(client: pulsar.Client, topic: str) -> list[pulsar.MessageId]:
    """Ten unbatched messages on `topic`, kept by a subscription called 'keeper'; their ids."""
    client.subscribe(topic, "keeper").close()
    return publish(client, topic, PAYLOADS)


def test_a_reader_from_the_earliest_message_reads_everything(
    client: pulsar.Client, topic: str, filled: list[pulsar.MessageId]
) -> None:
    reader = client.create_reader(topic, pulsar.MessageId.earliest)
    assert read_all(reader) == PAYLOADS
    assert not reader.has_message_available()


def test_a_reader_from_the_latest_message_reads_only_what_comes(
    client: pulsar.Client, topic: str, filled: list[pulsar.MessageId]
) -> None:
    reader = client.create_reader(topic, pulsar.MessageId.latest)
    assert not reader.has_message_available()
    publish(client, topic, [b"new"])
    assert reader.has_message_available()
    assert read_all(reader) == [b"new"]


def test_a_reader_from_the_latest_message_inclusive_starts_with_it(
    client: pulsar.Client, topic: str, filled: list[pulsar.MessageId]
) -> None:
    reader = client.create_reader(topic, pulsar.MessageId.latest, start_message_id_inclusive=True)
    assert read_all(reader) == PAYLOADS[-1:]


def test_a_reader_from_an_id_starts_after_it_or_with_it(
    client: pulsar.Client, topic: str, filled: list[pulsar.MessageId]
) -> None:
    assert read_all(client.create_reader(topic, filled[4])) == PAYLOADS[5:]
    inclusive = client.create_reader(topic, filled[4], start_message_id_inclusive=True)
    assert read_all(inclusive) == PAYLOADS[4:]


def test_a_reader_can_start_inside_a_batch(client: pulsar.Client, topic: str) -> None:
    consumer = client.subscribe(topic, "keeper")
    publish(client, topic, PAYLOADS, batching=True, messages_per_batch=10)
    ids = [receive(consumer).message_id() for _ in PAYLOADS]
    assert len({(i.ledger_id(), i.entry_id()) for i in ids}) == 1
    assert read_all(client.create_reader(topic, ids[3])) == PAYLOADS[4:]
    inclusive = client.create_reader(topic, ids[3], start_message_id_inclusive=True)
    assert read_all(inclusive) == PAYLOADS[3:]


def test_a_reader_of_an_empty_topic_has_nothing(client: pulsar.Client, topic: str) -> None:
    reader = client.create_reader(topic, pulsar.MessageId.earliest)
    assert not reader.has_message_available()
    with pytest.raises(pulsar.Timeout):
        reader.read_next(200)


def test_a_reader_follows_what_is_published(client: pulsar.Client, topic: str) -> None:
    reader = client.create_reader(topic, pulsar.MessageId.earliest)
    producer = client.create_producer(topic)
    for n in range(20):
        producer.send(b"%d" % n)
        assert reader.read_next(10_000).data() == b"%d" % n


def test_a_reader_can_seek_by_id_and_by_time(
    client: pulsar.Client, topic: str, filled: list[pulsar.MessageId]
) -> None:
    time.sleep(0.02)
    between_ms = int(time.time() * 1000)
    time.sleep(0.02)
    publish(client, topic, [b"late"])
    reader = client.create_reader(topic, pulsar.MessageId.earliest)
    assert read_all(reader) == [*PAYLOADS, b"late"]
    reader.seek(filled[7])
    assert read_all(reader) == [*PAYLOADS[8:], b"late"]
    reader.seek(between_ms)
    assert read_all(reader) == [b"late"]
    reader.seek(pulsar.MessageId.earliest)
    assert read_all(reader) == [*PAYLOADS, b"late"]


def test_two_readers_do_not_share_messages(
    client: pulsar.Client, topic: str, filled: list[pulsar.MessageId]
) -> None:
    readers = [client.create_reader(topic, pulsar.MessageId.earliest) for _ in range(2)]
    assert [read_all(reader) for reader in readers] == [PAYLOADS, PAYLOADS]


def test_a_reader_leaves_no_subscription_behind(client: pulsar.Client, topic: str) -> None:
    """A second reader of the same name starts where it is told, not where the first one was."""
    client.subscribe(topic, "keeper").close()
    publish(client, topic, PAYLOADS)
    for _ in range(2):
        reader = client.create_reader(topic, pulsar.MessageId.earliest, reader_name="same")
        assert read_all(reader) == PAYLOADS
        reader.close()


def test_a_consumer_seeks_back_by_id_and_acknowledged_messages_return(
    client: pulsar.Client, topic: str, filled: list[pulsar.MessageId]
) -> None:
    consumer = client.subscribe(topic, "keeper", initial_position=EARLIEST)
    assert drain(consumer, 10) == PAYLOADS
    consumer.seek(filled[3])
    # The PyPI client's seek to an id is exclusive unless start_message_id_inclusive was asked for.
    assert drain(consumer, 6) == PAYLOADS[4:]
    expect_nothing(consumer)
    consumer.seek(pulsar.MessageId.earliest)
    assert drain(consumer, 10) == PAYLOADS
    consumer.seek(pulsar.MessageId.latest)
    expect_nothing(consumer)
    publish(client, topic, [b"new"])
    assert drain(consumer, 1) == [b"new"]


def test_an_inclusive_consumer_seeks_to_the_message_itself(
    client: pulsar.Client, topic: str, filled: list[pulsar.MessageId]
) -> None:
    consumer = client.subscribe(topic, "keeper", start_message_id_inclusive=True)
    consumer.seek(filled[3])
    assert drain(consumer, 7) == PAYLOADS[3:]


def test_a_seek_forward_skips_what_lies_between(
    client: pulsar.Client, topic: str, filled: list[pulsar.MessageId]
) -> None:
    consumer = client.subscribe(topic, "keeper")
    assert drain(consumer, 2) == PAYLOADS[:2]
    consumer.seek(filled[7])
    assert drain(consumer, 2) == PAYLOADS[8:]
    consumer.close()
    # Where it went is not acknowledged: an exclusive seek is the client's business, so that message returns.
    again = client.subscribe(topic, "keeper")
    assert drain(again, 1) == PAYLOADS[7:8]
    expect_nothing(again)


def test_a_seek_by_time_goes_to_the_first_message_published_then(client: pulsar.Client, topic: str) -> None:
    consumer = client.subscribe(topic, "keeper")
    publish(client, topic, [b"early-1", b"early-2"])
    time.sleep(0.02)
    between_ms = int(time.time() * 1000)
    time.sleep(0.02)
    publish(client, topic, [b"late-1", b"late-2"])
    assert drain(consumer, 4) == [b"early-1", b"early-2", b"late-1", b"late-2"]
    consumer.seek(between_ms)
    assert drain(consumer, 2) == [b"late-1", b"late-2"]
    consumer.seek(0)
    assert drain(consumer, 4) == [b"early-1", b"early-2", b"late-1", b"late-2"]


def test_the_last_message_id_is_that_of_the_last_message(client: pulsar.Client, topic: str) -> None:
    consumer = client.subscribe(topic, "keeper")
    ids = publish(client, topic, PAYLOADS)
    last = consumer.get_last_message_id()
    assert (last.ledger_id(), last.entry_id()) == (ids[-1].ledger_id(), ids[-1].entry_id())


def test_the_last_message_id_of_a_batch_names_its_last_message(client: pulsar.Client, topic: str) -> None:
    consumer = client.subscribe(topic, "keeper")
    publish(client, topic, PAYLOADS, batching=True, messages_per_batch=10)
    assert consumer.get_last_message_id().batch_index() == 9


def test_a_reader_starts_at_the_first_chunk_of_a_chunked_message(client: pulsar.Client, topic: str) -> None:
    consumer = client.subscribe(topic, "keeper")
    producer = client.create_producer(topic, chunking_enabled=True, batching_enabled=False)
    payload = bytes(range(256)) * 50_000
    producer.send(b"before")
    producer.send(payload)
    producer.send(b"after")
    ids = [receive(consumer).message_id() for _ in range(3)]
    reader = client.create_reader(topic, ids[1], start_message_id_inclusive=True)
    assert read_all(reader) == [payload, b"after"]


def test_a_table_view_shows_the_latest_value_of_each_key(client: pulsar.Client, topic: str) -> None:
    producer = client.create_producer(topic)
    client.subscribe(topic, "keeper").close()
    for key, value in [("a", b"1"), ("b", b"1"), ("a", b"2")]:
        producer.send(value, partition_key=key)
    view = client.create_table_view(topic)
    assert {key: view.get(key) for key in ("a", "b", "c")} == {"a": b"2", "b": b"1", "c": None}
    producer.send(b"3", partition_key="b")
    deadline = time.monotonic() + 30
    while view.get("b") != b"3" and time.monotonic() < deadline:
        time.sleep(0.02)
    assert view.get("b") == b"3"
    view.close()
