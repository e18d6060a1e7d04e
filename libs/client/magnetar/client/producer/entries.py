"""Encoding of what producers send: Send frames of one message, of a batch, or of a chunk.

Metadata and command are put together by hand where they have only the fields that each entry has: for one
message an entry that is half of the cost.
"""

from __future__ import annotations

from typing import Final

from magnetar.client.compression import compress
from magnetar.client.encryption import Encryptor
from magnetar.client.messages import Outgoing
from magnetar.common.wire.checksum import crc32c
from magnetar.common.wire.frame import MAGIC_CHECKSUM, SIZES
from magnetar.common.wire.pulsar_pb2 import (
    CommandSend,
    CompressionType,
    KeyValue,
    MessageMetadata,
    SingleMessageMetadata,
)
from magnetar.common.wire.varint import BLOCK, SHORT, encode_varint

NOT_REPLICATED: Final = ("__local__",)
"""Value of replicate_to for messages that stay in their cluster."""

ENCRYPTION_BYTES: Final = 64
"""Bytes by which encryption makes a payload longer, at most."""


def plain_in_batch(payload: bytes, sequence_id: int) -> bytes:
    """Returns a message that has only a payload as part of a batch."""
    size = len(payload)
    head = b"\x18%b\x40%b" % (
        SHORT[size] if size < BLOCK else encode_varint(size),
        SHORT[sequence_id] if sequence_id < BLOCK else encode_varint(sequence_id),
    )
    return b"\0\0\0%c%b%b" % (len(head), head, payload)


def single_in_batch(message: Outgoing, sequence_id: int) -> bytes:
    """Returns a message as part of a batch: size, SingleMessageMetadata, payload."""
    payload = message.payload
    if message.is_plain:
        return plain_in_batch(payload, sequence_id)
    metadata = SingleMessageMetadata(payload_size=len(payload), sequence_id=sequence_id)
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
    for name, value in message.properties.items():
        metadata.properties.append(KeyValue(key=name, value=value))
    head = metadata.SerializeToString()
    return len(head).to_bytes(4, "big") + head + payload


class EntryEncoder:
    """Encodes the entries of one producer, which is known to the broker by a name and an id."""

    __slots__ = (
        "_compression",
        "_encryptor",
        "_is_bare",
        "_name",
        "_producer_id",
        "_time",
        "_time_ms",
        "schema_version",
    )

    def __init__(
        self,
        producer_id: int,
        producer_name: str,
        compression: CompressionType.ValueType,
        encryptor: Encryptor | None,
    ) -> None:
        name = producer_name.encode()
        self._name = b"\x0a" + encode_varint(len(name)) + name + b"\x10"
        self._producer_id = b"\x08" + encode_varint(producer_id) + b"\x10"
        self._compression = compression
        self._encryptor = encryptor
        self._is_bare = compression == CompressionType.NONE and encryptor is None
        """Whether payloads are sent as they are."""
        self._time_ms = 0
        self._time = b""
        """The field publish_time of the last entry, which often is that of the next one."""
        self.schema_version = b""

    def batch(
        self,
        parts: list[bytes],
        first: Outgoing,
        sequence_id: int,
        highest_sequence_id: int,
        publish_time_ms: int,
    ) -> bytes:
        """Encodes a batch of messages that are encoded already; `first` is the one that gives the batch its
        key. Without a range of sequence ids, both are the same.

        Raises ClientError if the codec's package is missing.
        """
        count = len(parts)
        metadata, send = MessageMetadata(num_messages_in_batch=count), CommandSend(num_messages=count)
        if highest_sequence_id != sequence_id:
            metadata.highest_sequence_id = send.highest_sequence_id = highest_sequence_id
        _add_entry_fields(metadata, send, first)
        payload = self._packed(metadata, b"".join(parts))
        return self._frame(sequence_id, publish_time_ms, metadata.SerializePartialToString(), payload, send)

    def single(self, message: Outgoing, sequence_id: int, publish_time_ms: int) -> bytes:
        """Encodes one message as an entry. Raises ClientError if the codec's package is missing."""
        if self._is_bare and message.is_plain and not message.schema_version:
            return self._frame(sequence_id, publish_time_ms, b"", message.payload, None)
        metadata, send = MessageMetadata(), CommandSend()
        _add_message_fields(metadata, message)
        _add_entry_fields(metadata, send, message)
        payload = self._packed(metadata, message.payload)
        return self._frame(sequence_id, publish_time_ms, metadata.SerializePartialToString(), payload, send)

    def chunks(
        self, message: Outgoing, sequence_id: int, publish_time_ms: int, chunk_bytes: int, uuid: str
    ) -> list[bytes]:
        """Encodes a message as entries of at most `chunk_bytes` of payload each; one if it is small enough
        after compression.
        """
        metadata, send = MessageMetadata(), CommandSend()
        _add_message_fields(metadata, message)
        _add_entry_fields(metadata, send, message)
        payload = message.payload
        if self._compression != CompressionType.NONE and payload:
            metadata.compression = self._compression
            metadata.uncompressed_size = len(payload)
            payload = compress(self._compression, payload)
        if self._encryptor is not None:
            chunk_bytes -= ENCRYPTION_BYTES
        count = -(-len(payload) // chunk_bytes)
        if count > 1:
            metadata.uuid = uuid
            metadata.num_chunks_from_msg = count
            metadata.total_chunk_msg_size = len(payload)
            send.is_chunk = True
        frames = []
        for number in range(max(count, 1)):
            each = MessageMetadata()
            each.CopyFrom(metadata)
            if count > 1:
                each.chunk_id = number
            part = payload[number * chunk_bytes : (number + 1) * chunk_bytes]
            if self._encryptor is not None:
                part = self._encryptor.encrypt(each, part)
            frames.append(
                self._frame(sequence_id, publish_time_ms, each.SerializePartialToString(), part, send)
            )
        return frames

    def _packed(self, metadata: MessageMetadata, payload: bytes) -> bytes:
        """Returns the payload compressed and encrypted, as it says in `metadata`. An empty one is not
        compressed: the C++ library drops what is empty after ZLIB as unreadable.
        """
        if self._compression != CompressionType.NONE and payload:
            metadata.compression = self._compression
            metadata.uncompressed_size = len(payload)
            payload = compress(self._compression, payload)
        if self._encryptor is not None:
            payload = self._encryptor.encrypt(metadata, payload)
        return payload

    def _frame(
        self,
        sequence_id: int,
        publish_time_ms: int,
        more_metadata: bytes,
        payload: bytes,
        more_of_send: CommandSend | None,
    ) -> bytes:
        """Returns a Send frame: the fields that each entry has, then the others in the order of their
        numbers.
        """
        sequence = encode_varint(sequence_id)
        if publish_time_ms != self._time_ms:
            self._time_ms, self._time = publish_time_ms, b"\x18" + encode_varint(publish_time_ms)
        metadata = b"%b%b%b%b" % (self._name, sequence, self._time, more_metadata)
        head = len(metadata).to_bytes(4, "big") + metadata
        send = self._producer_id + sequence
        if more_of_send is not None:
            send += more_of_send.SerializePartialToString()
        command = b"\x08\x06\x32%c%b" % (len(send), send)  # Its fields are less than 128 bytes.
        command_size = len(command)
        return b"".join(
            (
                SIZES.pack(command_size + len(head) + len(payload) + 10, command_size),
                command,
                MAGIC_CHECKSUM,
                crc32c(payload, crc32c(head)).to_bytes(4, "big"),
                head,
                payload,
            )
        )


def _add_message_fields(metadata: MessageMetadata, message: Outgoing) -> None:
    """Adds what a batch has for each of its messages."""
    if message.event_time_ms:
        metadata.event_time = message.event_time_ms
    if message.is_null:
        metadata.null_value = True
    if message.is_null_key:
        metadata.null_partition_key = True
    if message.deliver_at_ms:
        metadata.deliver_at_time = message.deliver_at_ms
    for name, value in message.properties.items():
        metadata.properties.append(KeyValue(key=name, value=value))


def _add_entry_fields(metadata: MessageMetadata, send: CommandSend, first: Outgoing) -> None:
    """Adds what an entry has once, by its first message."""
    if first.key is not None:
        metadata.partition_key = first.key
        if first.key_is_base64:
            metadata.partition_key_b64_encoded = True
    if first.ordering_key is not None:
        metadata.ordering_key = first.ordering_key
    if first.replicate_to:
        metadata.replicate_to.extend(first.replicate_to)
    if first.schema_version:
        metadata.schema_version = first.schema_version
    if first.txn is not None:
        metadata.txnid_most_bits = send.txnid_most_bits = first.txn.most
        metadata.txnid_least_bits = send.txnid_least_bits = first.txn.least
