"""What producers encode is what consumers decode."""

from __future__ import annotations

import pytest
from magnetar.client.chunks import MESSAGES_MAX, Chunks
from magnetar.client.compression import decompress
from magnetar.client.deliveries import messages_of
from magnetar.client.entries import NOT_REPLICATED, send_frame
from magnetar.client.errors import Refused, Unreadable
from magnetar.client.messages import Incoming, Outgoing
from magnetar.client.producer import java_string_hash
from magnetar.common.wire.ack_set import acked_bits_to_words
from magnetar.common.wire.batch import parse_metadata
from magnetar.common.wire.frame import Frame, FrameDecoder, encode_entry
from magnetar.common.wire.pulsar_pb2 import (
    CommandMessage,
    CompressionType,
    EncryptionKeys,
    MessageIdData,
    MessageMetadata,
    ServerError,
)

TOPIC = "persistent://public/default/t"


def sent(
    messages: list[Outgoing], *, batched: bool, compression: CompressionType.ValueType = CompressionType.NONE
) -> Frame:
    data = send_frame(
        messages,
        batched=batched,
        producer_id=7,
        producer_name="p",
        sequence_id=40,
        publish_time_ms=1_000,
        compression=compression,
    )
    (frame,) = FrameDecoder().receive_data(data)
    return frame


def delivered(entry: bytes, acked_bits: int = 0, batch_size: int = 0) -> list[Incoming]:
    command = CommandMessage(consumer_id=1, message_id=MessageIdData(ledgerId=3, entryId=9))
    if acked_bits:
        command.ack_set.extend(acked_bits_to_words(acked_bits, batch_size))
    return list(messages_of(TOPIC, command, entry, Chunks()))


@pytest.mark.parametrize("compression", [CompressionType.NONE, CompressionType.ZLIB])
def test_a_batch_comes_back_message_by_message(compression: CompressionType.ValueType) -> None:
    messages = [Outgoing(b"a" * 100, "k", {"x": "1"}, 55), Outgoing(b"", "k"), Outgoing(b"c", "k")]
    frame = sent(messages, batched=True, compression=compression)
    assert frame.command.send.num_messages == 3
    assert (frame.command.send.sequence_id, frame.command.send.highest_sequence_id) == (40, 42)
    first, second, third = delivered(frame.entry)
    assert [each.payload for each in (first, second, third)] == [b"a" * 100, b"", b"c"]
    assert (first.key, first.properties, first.event_time_ms, first.sequence_id) == ("k", {"x": "1"}, 55, 40)
    assert str(third.id) == "3:9:-1:2"
    assert first.entry is third.entry


def test_a_message_alone_is_no_batch() -> None:
    frame = sent([Outgoing(b"a", None, {"x": "1"}, replicated=False)], batched=False)
    metadata = parse_metadata(frame.entry)
    assert not metadata.HasField("num_messages_in_batch")
    assert list(metadata.replicate_to) == [NOT_REPLICATED]
    (message,) = delivered(frame.entry)
    assert (message.payload, message.key, message.properties) == (b"a", None, {"x": "1"})
    assert str(message.id) == "3:9:-1"


def test_messages_of_a_batch_that_were_acknowledged_are_not_delivered_again() -> None:
    frame = sent([Outgoing(b"a"), Outgoing(b"b"), Outgoing(b"c")], batched=True)
    assert [each.payload for each in delivered(frame.entry, 0b101, 3)] == [b"b"]


def test_unreadable_entry_says_why() -> None:
    metadata = MessageMetadata(producer_name="p", sequence_id=1, publish_time=2)
    metadata.encryption_keys.append(EncryptionKeys(key="secret-1", value=b"x"))
    (encrypted,) = delivered(encode_entry(metadata.SerializeToString(), b"x"))
    assert encrypted.payload == b""
    assert "secret-1" in encrypted.unreadable
    metadata.ClearField("encryption_keys")
    metadata.compression, metadata.uncompressed_size = CompressionType.ZLIB, 10
    (damaged,) = delivered(encode_entry(metadata.SerializeToString(), b"no zlib"))
    assert "ZLIB" in damaged.unreadable


def test_a_lie_about_the_size_is_found() -> None:
    import zlib

    with pytest.raises(Unreadable, match="5 bytes after decompression, 6"):
        decompress(CompressionType.ZLIB, zlib.compress(b"hello"), 6)


def chunk(uuid: str, number: int, total: int) -> MessageMetadata:
    return MessageMetadata(
        producer_name="p",
        sequence_id=1,
        publish_time=2,
        uuid=uuid,
        chunk_id=number,
        num_chunks_from_msg=total,
    )


def test_chunks_come_together_and_their_number_is_bounded() -> None:
    chunks = Chunks()
    assert chunks.add(chunk("a", 0, 2), (1, 0), b"x") is None
    assert chunks.add(chunk("b", 1, 2), (1, 1), b"lost beginning") is None
    assert chunks.add(chunk("a", 1, 2), (1, 2), b"y") == (b"xy", [(1, 0), (1, 2)])
    for number in range(MESSAGES_MAX + 1):
        assert chunks.add(chunk(f"m{number}", 0, 2), (2, number), b"x") is None
    assert chunks.add(chunk("m0", 1, 2), (3, 0), b"y") is None
    assert chunks.add(chunk("m1", 1, 2), (3, 1), b"y") is not None


def test_keys_are_hashed_as_java_does() -> None:
    """Values of java.lang.String.hashCode, without the sign."""
    assert java_string_hash("") == 0
    assert java_string_hash("a") == 97
    assert java_string_hash("hello") == 99_162_322
    assert java_string_hash("polygenelubricants") == 0  # its hash code is the smallest integer


def test_a_refusal_says_what_to_do_next() -> None:
    error = Refused(ServerError.ConsumerBusy, "Exclusive consumer is already connected", TOPIC)
    assert str(error).startswith(f"{TOPIC}: Exclusive consumer is already connected (ConsumerBusy); ")
    assert "--subscription-name" in str(error)
    assert not error.may_pass
    missing = Refused(ServerError.TopicNotFound, "namespace a/b does not exist; create it first", TOPIC)
    assert "topics create" not in str(missing)
    assert Refused(ServerError.ServiceNotReady, "").may_pass
