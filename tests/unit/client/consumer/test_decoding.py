"""Entries decoded into messages: whatever producers send comes back, and what is damaged is told."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from magnetar.client.connection.frames import Delivery, Entry, Run, parse_entry
from magnetar.client.consumer.chunks import ChunkAssembler
from magnetar.client.consumer.decoding import EntryDecoder, counted_messages
from magnetar.client.errors import Unreadable
from magnetar.client.messages import Message, Outgoing, Receiver
from magnetar.client.producer.entries import EntryEncoder, single_in_batch
from magnetar.common.wire.ack_set import acked_bits_to_words
from magnetar.common.wire.frame import FrameDecoder, encode_entry
from magnetar.common.wire.pulsar_pb2 import (
    BrokerEntryMetadata,
    CompressionType,
    EncryptionKeys,
    KeyValue,
    MessageMetadata,
    SingleMessageMetadata,
)

from tests.examples import examples
from tests.unit.client.scene import batch_of, entry_of

TOPIC = "persistent://public/default/t"


@dataclass
class Place:
    """The consumer, as far as messages ask it."""

    topic: str = TOPIC
    partition: int = -1

    def decode(self, message: Message) -> bytes:
        return message.data


def decoder(chunks: ChunkAssembler | None = None) -> EntryDecoder:
    receiver = cast(Receiver, Place())
    return EntryDecoder(receiver, chunks or ChunkAssembler(10, 0), None, "fail", lambda: 0.0)


def delivery(body: bytes, entry_id: int = 9, ack_set: tuple[int, ...] = ()) -> Delivery:
    return Delivery(1, 3, entry_id, 2, ack_set, -1, parse_entry(body))


def decoded(body: bytes, ack_set: tuple[int, ...] = ()) -> tuple[list[Message], int]:
    return decoder().messages(delivery(body, ack_set=ack_set))


@pytest.mark.parametrize(
    "compression",
    [
        CompressionType.NONE,
        CompressionType.ZLIB,
        CompressionType.LZ4,
        CompressionType.ZSTD,
        CompressionType.SNAPPY,
    ],
)
def test_a_batch_comes_back_message_by_message(compression: CompressionType.ValueType) -> None:
    messages = [Outgoing(b"a" * 100, "k", {"x": "1"}, 55), Outgoing(b"", "k"), Outgoing(b"c", is_plain=True)]
    parts = [single_in_batch(message, 40 + number) for number, message in enumerate(messages)]
    data = EntryEncoder(7, "p", compression, None).batch(parts, messages[0], 40, 42, 1_000)
    (frame,) = FrameDecoder().receive_data(data)
    found, counted = decoded(frame.entry)
    assert counted == 3
    assert [message.data for message in found] == [b"a" * 100, b"", b"c"]
    first, second, third = found
    assert (first.key, first.properties, first.event_time_ms) == ("k", {"x": "1"}, 55)
    assert (second.key, third.key, third.properties) == ("k", None, {})
    assert [message.sequence_id for message in found] == [40, 41, 42]
    assert {message.publish_time_ms for message in found} == {1_000}
    assert {message.redelivery_count for message in found} == {2}
    assert str(third.id) == "3:9:-1:2"
    assert first.entry is third.entry


def test_messages_of_a_batch_that_were_acknowledged_do_not_come_again_and_do_not_count() -> None:
    words = tuple(acked_bits_to_words(0b101, 3))
    found, counted = decoded(batch_of(b"a", b"b", b"c"), words)
    assert [message.data for message in found] == [b"b"]
    assert counted == counted_messages(delivery(batch_of(b"a", b"b", b"c"), ack_set=words)) == 1
    assert found[0].entry.unacked == 1


def own(data: bytes, **fields: Any) -> bytes:
    encoded = SingleMessageMetadata(payload_size=len(data), **fields).SerializeToString()
    return len(encoded).to_bytes(4, "big") + encoded + data


@pytest.mark.parametrize("last", [b"", b"x", b" "])
def test_the_last_message_of_a_batch_may_have_the_least_metadata(last: bytes) -> None:
    body = entry_of(own(b"a") + own(b"") + own(last), num_messages_in_batch=3)
    found, counted = decoded(body)
    assert counted == 3
    assert [(message.data, message.unreadable) for message in found] == [(b"a", ""), (b"", ""), (last, "")]


def test_messages_that_compaction_removed_are_left_out_and_acknowledged() -> None:
    body = entry_of(
        own(b"a", partition_key="k") + own(b"", compacted_out=True) + own(b"c"), num_messages_in_batch=3
    )
    found, counted = decoded(body)
    assert [(message.data, message.batch_index) for message in found] == [(b"a", 0), (b"c", 2)]
    assert counted == 3
    assert found[0].entry.acked_bits == 0b010


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (entry_of(b"x", encryption_keys=[EncryptionKeys(key="secret-1", value=b"x")]), "secret-1"),
        (entry_of(b"no zlib", compression=CompressionType.ZLIB, uncompressed_size=10), "no ZLIB data"),
        (entry_of(own(b"a"), num_messages_in_batch=2), "a batch of 2 messages"),
        (entry_of(own(b"a") + b"rest", num_messages_in_batch=1), "after the last of 1 messages"),
        (entry_of(b"a")[:-1] + b"b", "CRC32-C"),
        (encode_entry(b"\xff\xff", b"a"), ""),
        (b"", "metadata"),
    ],
)
def test_what_cannot_be_decoded_is_one_message_that_says_why(body: bytes, reason: str) -> None:
    (message,), _ = decoded(body)
    assert message.data == b""
    assert message.unreadable
    assert reason in message.unreadable
    with pytest.raises(Unreadable, match=r"persistent://public/default/t, 3:9:-1: "):
        _ = message.value


FIELDS = st.fixed_dictionaries(
    {
        "producer_name": st.sampled_from(["", "p", "n" * 127, "n" * 128]),
        "sequence_id": st.sampled_from([0, 1, 127, 128, 2**32, 2**63, 2**64 - 1]),
        "publish_time": st.sampled_from([0, 1, 2**34, 2**35 - 1, 2**35, 1_700_000_000_000, 2**42 - 1, 2**42]),
    },
    optional={
        "partition_key": st.just("k"),
        "properties": st.just([KeyValue(key="a", value="b")]),
        "replicated_from": st.just("c"),
        "event_time": st.just(5),
        "ordering_key": st.just(b"o"),
        "null_value": st.booleans(),
        "schema_version": st.just(b"\0\1"),
        "deliver_at_time": st.just(7),
    },
)


@settings(max_examples=examples(200))
@given(st.lists(FIELDS, min_size=1, max_size=5))
def test_metadata_that_is_not_parsed_at_once_is_what_it_is_when_parsed(
    all_fields: list[dict[str, Any]],
) -> None:
    coder = decoder()
    for fields in all_fields:
        metadata = MessageMetadata(**fields)
        serialized = metadata.SerializeToString()
        (message,), counted = coder.messages(delivery(encode_entry(serialized, b"x")))
        assert counted == 1
        assert (message.data, message.unreadable, message.batch_index) == (b"x", "", -1)
        assert message._metadata == metadata
        assert message.key == (metadata.partition_key if metadata.HasField("partition_key") else None)
        assert message.is_null == metadata.null_value
        run = Run(1, 3, 9, -1, [(serialized, b"x")])
        plain = coder.plain_messages(run)
        if {"producer_name", "sequence_id", "publish_time"} == fields.keys():
            assert [each._metadata for each in plain] == [metadata] * len(plain)
        else:
            assert plain == []


def test_a_run_is_taken_up_to_the_first_message_that_has_more() -> None:
    def metadata(number: int, **more: Any) -> bytes:
        whole = MessageMetadata(producer_name="p", sequence_id=number, publish_time=1_700_000_000_000, **more)
        return whole.SerializeToString()

    entries = [(metadata(0), b"a"), (metadata(1), b"b"), (metadata(2, partition_key="k"), b"c")]
    found = decoder().plain_messages(Run(1, 3, 7, 0, entries))
    assert [(message.data, str(message.id)) for message in found] == [(b"a", "3:7:-1"), (b"b", "3:8:-1")]
    assert [message.sequence_id for message in found] == [0, 1]


def test_indexes_count_the_messages_of_a_topic() -> None:
    stamp = BrokerEntryMetadata(index=12, broker_timestamp=99).SerializeToString()
    (single,), _ = decoder().messages(Delivery(1, 3, 9, 0, (), -1, _with(entry_of(b"a"), stamp)))
    batch, _ = decoder().messages(Delivery(1, 3, 9, 0, (), -1, _with(batch_of(b"a", b"b"), stamp)))
    assert (single.index, single.broker_publish_time_ms) == (12, 99)
    assert [message.index for message in batch] == [11, 12]
    (plain,), _ = decoded(entry_of(b"a"))
    assert (plain.index, plain.broker_publish_time_ms) == (None, None)


def _with(body: bytes, broker_metadata: bytes) -> Entry:
    return parse_entry(b"\x0e\x02" + len(broker_metadata).to_bytes(4, "big") + broker_metadata + body)


@settings(max_examples=examples(300))
@given(
    st.binary(max_size=40),
    st.binary(max_size=40),
    st.sampled_from([(), (5,), (-1, 3)]),
    st.sampled_from([None, 0, 1, 3, -1, 2**31 - 1]),
)
@example(b"", b"", (5,), 2**31 - 1)
def test_no_bytes_of_a_peer_raise_anything(
    metadata: bytes, payload: bytes, ack_set: tuple[int, ...], count: int | None
) -> None:
    if count is not None:
        fields = MessageMetadata(
            producer_name="p", sequence_id=1, publish_time=1, num_messages_in_batch=count
        )
        metadata = fields.SerializeToString() + metadata
    for body in (encode_entry(metadata, payload), metadata + payload):
        found, _ = decoded(body, ack_set)
        assert all(message.id.position == (3, 9) for message in found)
        counted_messages(delivery(body, ack_set=ack_set))
