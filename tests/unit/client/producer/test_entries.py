"""Send frames put together by hand, byte for byte against those that protobuf makes."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from magnetar.client.messages import Outgoing
from magnetar.client.producer.entries import EntryEncoder, single_in_batch
from magnetar.common.naming.txn_id import TxnId
from magnetar.common.wire.batch import parse_metadata, payload_of
from magnetar.common.wire.frame import FrameDecoder, encode_entry, encode_payload_command
from magnetar.common.wire.pulsar_pb2 import (
    BaseCommand,
    CommandSend,
    CompressionType,
    KeyValue,
    MessageMetadata,
    SingleMessageMetadata,
)

from tests.examples import examples

NUMBERS = st.sampled_from([0, 1, 127, 128, 16_383, 16_384, 2**31, 2**63 - 1])
TIME = 1_700_000_000_123
TEXT = st.text(max_size=5)
MESSAGES = st.builds(
    Outgoing,
    st.binary(max_size=200),
    st.none() | TEXT,
    st.dictionaries(TEXT, TEXT, max_size=2),
    st.sampled_from([0, 5, 2**40]),
    st.none() | st.binary(max_size=3),
    st.sampled_from([0, 2**41]),
    key_is_base64=st.booleans(),
    is_null=st.booleans(),
    replicate_to=st.sampled_from([(), ("a", "b")]),
    txn=st.none() | st.builds(TxnId, st.integers(0, 2**40), st.integers(0, 2**40)),
    schema_version=st.sampled_from([b"", b"\0\1"]),
    is_null_key=st.booleans(),
)
PLAIN = st.builds(Outgoing, st.binary(max_size=200), is_plain=st.just(True))


def encoder(name: str = "p", producer_id: int = 7) -> EntryEncoder:
    return EntryEncoder(producer_id, name, CompressionType.NONE, None)


def own_metadata(message: Outgoing, sequence_id: int) -> SingleMessageMetadata:
    metadata = SingleMessageMetadata(payload_size=len(message.payload), sequence_id=sequence_id)
    if message.key is not None:
        metadata.partition_key = message.key
        if message.key_is_base64:
            metadata.partition_key_b64_encoded = True
    if message.event_time_ms:
        metadata.event_time = message.event_time_ms
    if message.ordering_key is not None:
        metadata.ordering_key = message.ordering_key
    if message.is_null:
        metadata.null_value = True
    if message.is_null_key:
        metadata.null_partition_key = True
    metadata.properties.extend(KeyValue(key=key, value=value) for key, value in message.properties.items())
    return metadata


def entry_metadata(message: Outgoing, sequence_id: int, name: str) -> MessageMetadata:
    """The metadata that a batch and a single message have alike."""
    metadata = MessageMetadata(producer_name=name, sequence_id=sequence_id, publish_time=TIME)
    if message.key is not None:
        metadata.partition_key = message.key
        if message.key_is_base64:
            metadata.partition_key_b64_encoded = True
    if message.ordering_key is not None:
        metadata.ordering_key = message.ordering_key
    metadata.replicate_to.extend(message.replicate_to)
    if message.schema_version:
        metadata.schema_version = message.schema_version
    if message.txn is not None:
        metadata.txnid_most_bits, metadata.txnid_least_bits = message.txn.most, message.txn.least
    return metadata


def send_command(message: Outgoing, producer_id: int, sequence_id: int) -> BaseCommand:
    send = CommandSend(producer_id=producer_id, sequence_id=sequence_id)
    if message.txn is not None:
        send.txnid_most_bits, send.txnid_least_bits = message.txn.most, message.txn.least
    return BaseCommand(type=BaseCommand.SEND, send=send)


@settings(max_examples=examples(90))
@given(st.one_of(MESSAGES, PLAIN), NUMBERS, st.sampled_from(["", "p", "n" * 200]), st.sampled_from([0, 300]))
def test_a_single_message_is_what_protobuf_makes(
    message: Outgoing, sequence_id: int, name: str, producer_id: int
) -> None:
    metadata = entry_metadata(message, sequence_id, name)
    if message.event_time_ms:
        metadata.event_time = message.event_time_ms
    if message.is_null:
        metadata.null_value = True
    if message.is_null_key:
        metadata.null_partition_key = True
    if message.deliver_at_ms:
        metadata.deliver_at_time = message.deliver_at_ms
    metadata.properties.extend(KeyValue(key=key, value=value) for key, value in message.properties.items())
    command = send_command(message, producer_id, sequence_id)
    found = encoder(name, producer_id).single(message, sequence_id, TIME)
    (frame,) = FrameDecoder().receive_data(found)
    # Properties come before the fields that follow them, which is all that may differ.
    assert parse_metadata(frame.entry) == metadata
    assert payload_of(frame.entry) == message.payload
    assert frame.command == command
    if not message.properties:
        entry = encode_entry(metadata.SerializeToString(), message.payload)
        assert found == encode_payload_command(command, entry)


@settings(max_examples=examples(90))
@given(
    st.lists(st.one_of(MESSAGES, PLAIN), min_size=1, max_size=4),
    NUMBERS,
    st.booleans(),
)
def test_a_batch_is_what_protobuf_makes(messages: list[Outgoing], sequence_id: int, ranged: bool) -> None:
    sequence_id = min(sequence_id, 2**63 - 10)
    parts, payload = [], b""
    for number, message in enumerate(messages):
        parts.append(single_in_batch(message, sequence_id + number))
        own = own_metadata(message, sequence_id + number).SerializeToString()
        assert parts[-1] == len(own).to_bytes(4, "big") + own + message.payload
        payload += parts[-1]
    first, last = messages[0], sequence_id + len(messages) - 1 if ranged else sequence_id
    metadata = entry_metadata(first, sequence_id, "p")
    metadata.num_messages_in_batch = len(messages)
    command = send_command(first, 7, sequence_id)
    command.send.num_messages = len(messages)
    if last != sequence_id:
        metadata.highest_sequence_id = command.send.highest_sequence_id = last
    found = encoder().batch(parts, first, sequence_id, last, TIME)
    assert found == encode_payload_command(command, encode_entry(metadata.SerializeToString(), payload))


@pytest.mark.parametrize("compression", [CompressionType.NONE, CompressionType.ZLIB])
def test_chunks_have_the_metadata_of_the_whole_and_their_numbers(
    compression: CompressionType.ValueType,
) -> None:
    message = Outgoing(bytes(range(256)) * 8, "k", {"x": "1"}, 55)
    coder = EntryEncoder(7, "p", compression, None)
    frames = coder.chunks(message, 40, TIME, 100, "u")
    found = [FrameDecoder().receive_data(frame)[0] for frame in frames]
    metadata = [parse_metadata(frame.entry) for frame in found]
    whole = b"".join(payload_of(frame.entry) for frame in found)
    for number, (frame, each) in enumerate(zip(found, metadata, strict=True)):
        assert (each.chunk_id, each.num_chunks_from_msg) == (number, len(frames))
        assert (each.uuid, each.total_chunk_msg_size, each.sequence_id) == ("u", len(whole), 40)
        assert (each.partition_key, each.event_time, each.properties[0].value) == ("k", 55, "1")
        assert each.compression == compression
        assert each.uncompressed_size == (2_048 if compression else 0)
        assert len(payload_of(frame.entry)) <= 100
        assert frame.command.send.is_chunk
    if not compression:
        assert whole == message.payload


def test_what_fits_into_one_chunk_is_no_chunk() -> None:
    (data,) = encoder().chunks(Outgoing(b"x" * 100), 1, TIME, 100, "u")
    (frame,) = FrameDecoder().receive_data(data)
    assert not parse_metadata(frame.entry).HasField("num_chunks_from_msg")
    assert not frame.command.send.is_chunk
    (empty,) = encoder().chunks(Outgoing(b""), 1, TIME, 100, "u")
    assert not len(payload_of(FrameDecoder().receive_data(empty)[0].entry))


def test_the_publish_time_is_that_of_each_call() -> None:
    coder = encoder()
    times = [TIME, TIME, TIME + 1, TIME]
    frames = [coder.single(Outgoing(b"", is_plain=True), number, time) for number, time in enumerate(times)]
    found = [parse_metadata(FrameDecoder().receive_data(frame)[0].entry).publish_time for frame in frames]
    assert found == times
