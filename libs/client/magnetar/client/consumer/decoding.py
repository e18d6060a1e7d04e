"""Decodes a Message command into its messages: decrypted, chunks reassembled, decompressed, batches split."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, cast

from google.protobuf.message import DecodeError
from magnetar.client.compression import decompress
from magnetar.client.connection.frames import Delivery, Run
from magnetar.client.consumer.chunks import ChunkAssembler
from magnetar.client.encryption import CryptoFailure, Decryptor, key_names
from magnetar.client.errors import Undecryptable, Unreadable
from magnetar.client.messages import EncryptionContext, EntryLeft, Message, Problem, Receiver
from magnetar.common.errors import DataCorruption, MalformedFrame
from magnetar.common.wire.ack_set import words_to_acked_bits
from magnetar.common.wire.batch import batch_messages
from magnetar.common.wire.pulsar_pb2 import (
    CompressionType,
    MessageMetadata,
    SingleMessageMetadata,
)

_NO_COMPRESSION = CompressionType.NONE


class EntryDecoder:
    """Decodes the entries of one topic's consumer."""

    __slots__ = ("_chunks", "_consumer", "_decryptor", "_now", "_on_failure", "_plain_begin")

    def __init__(
        self,
        consumer: Receiver,
        chunks: ChunkAssembler,
        decryptor: Decryptor | None,
        on_failure: CryptoFailure,
        now: Callable[[], float],
    ) -> None:
        self._consumer = consumer
        self._chunks = chunks
        self._decryptor = decryptor
        self._on_failure = on_failure
        self._now = now
        self._plain_begin = b"\x00"
        """The beginning of metadata of the last producer: its name, and the tag of the sequence id."""

    def messages(self, delivery: Delivery) -> tuple[list[Message], int]:
        """Returns the unacknowledged messages of an entry, and the number of messages that the broker counts
        for it. There are none before the last chunk of a chunked message.

        What cannot be decoded is one message that is unreadable, or that has its ciphertext as payload if
        entries that cannot be decrypted are to be consumed.
        """
        _, ledger_id, entry_id, redelivered, ack_set, _, stored = delivery
        position = ledger_id, entry_id
        serialized, payload, broker_metadata, problem = stored
        if problem:
            return [self._unreadable(MessageMetadata(), delivery, [position], problem)], 1
        if self._is_plain(serialized):
            left = EntryLeft((position,), 0)
            return [
                Message(self._consumer, left, serialized, None, payload, -1, redelivered, broker_metadata)
            ], 1
        try:
            metadata = MessageMetadata.FromString(serialized)
        except DecodeError as error:
            return [self._unreadable(MessageMetadata(), delivery, [position], str(error))], 1
        batched = metadata.HasField("num_messages_in_batch")
        size = metadata.num_messages_in_batch if batched else 0
        try:
            acked_bits = words_to_acked_bits(ack_set, size) if ack_set and size else 0
        except MalformedFrame as error:
            return [self._unreadable(metadata, delivery, [position], str(error))], 1
        counted = size - acked_bits.bit_count() if batched else 1
        if metadata.encryption_keys:
            try:
                payload = self._decrypted(metadata, payload)
            except Undecryptable as error:
                return [self._undecrypted(metadata, delivery, payload, str(error))], counted
        ids: Sequence[tuple[int, int]] = (position,)
        if metadata.num_chunks_from_msg > 1:
            whole = self._chunks.add(metadata, position, payload, self._now())
            if whole is None:
                return [], counted
            payload, ids = whole
        if metadata.compression != _NO_COMPRESSION:
            try:
                payload = decompress(metadata.compression, payload, metadata.uncompressed_size)
            except Unreadable as error:
                return [self._unreadable(metadata, delivery, ids, str(error))], counted
        consumer = self._consumer
        left = EntryLeft(ids, size, acked_bits)
        if not batched:
            return [Message(consumer, left, metadata, None, payload, -1, redelivered, broker_metadata)], 1
        try:
            parts = _batch(payload, size)
        except DataCorruption as error:
            return [self._unreadable(metadata, delivery, ids, str(error))], counted
        found = []
        for index, (own, data) in enumerate(parts):
            if own is None:
                left.acknowledge(index)
            elif not acked_bits or not acked_bits >> index & 1:
                found.append(
                    Message(consumer, left, metadata, own, data, index, redelivered, broker_metadata)
                )
        return found, counted

    def plain_messages(self, run: Run) -> list[Message]:
        """Returns the messages of a run up to the first entry that is more than one plain message."""
        consumer, ledger_id, entry_id = self._consumer, run.ledger_id, run.first_entry_id
        found: list[Message] = []
        for metadata, payload in run.entries:
            if not self._is_plain(metadata):
                break
            left = EntryLeft(((ledger_id, entry_id),), 0)
            found.append(Message(consumer, left, metadata, None, payload, -1, 0, b""))
            entry_id += 1
        return found

    def _is_plain(self, metadata: bytes) -> bool:
        """Returns whether metadata has only what each message has: producer name, sequence id and publish
        time, in this order. It need not be parsed then before the application asks.
        """
        begin = self._plain_begin
        if not metadata.startswith(begin):
            if len(metadata) < 4 or metadata[0] != 0x0A or metadata[1] > 0x7F:
                return False
            begin = self._plain_begin = metadata[: 2 + metadata[1]] + b"\x10"
            if not metadata.startswith(begin):
                return False
        rest = metadata[len(begin) :]
        shape = _SHAPES.get(len(rest))
        return shape is not None and int.from_bytes(rest, "big") & shape[0] == shape[1]

    def _decrypted(self, metadata: MessageMetadata, payload: bytes) -> bytes:
        """Returns the plaintext. Raises Undecryptable."""
        if self._decryptor is None:
            raise Undecryptable(
                f"it is encrypted with {key_names(metadata)}: give the private key of one of these names"
            )
        return self._decryptor.decrypt(metadata, payload)

    def _undecrypted(
        self, metadata: MessageMetadata, delivery: Delivery, payload: bytes, reason: str
    ) -> Message:
        """Builds the message of an entry that cannot be decrypted."""
        batched = metadata.HasField("num_messages_in_batch")
        context = EncryptionContext(
            {key.key: key.value for key in metadata.encryption_keys},
            metadata.encryption_param,
            metadata.compression,
            metadata.uncompressed_size,
            metadata.num_messages_in_batch if batched else 0,
        )
        ids = [(delivery.ledger_id, delivery.entry_id)]
        if self._on_failure == "consume":
            return self._whole(metadata, delivery, ids, payload, Problem("", context))
        return self._whole(metadata, delivery, ids, b"", Problem(reason, context))

    def _unreadable(
        self, metadata: MessageMetadata, delivery: Delivery, ids: Sequence[tuple[int, int]], reason: str
    ) -> Message:
        return self._whole(metadata, delivery, ids, b"", Problem(reason))

    def _whole(
        self,
        metadata: MessageMetadata,
        delivery: Delivery,
        ids: Sequence[tuple[int, int]],
        payload: bytes,
        problem: Problem,
    ) -> Message:
        """Builds one message of a whole entry."""
        left = EntryLeft(ids, 0)
        redelivered = delivery.redelivery_count
        return Message(self._consumer, left, metadata, None, payload, -1, redelivered, b"", problem)


def counted_messages(delivery: Delivery) -> int:
    """Returns the number of messages that the broker counts for an entry that is not decoded."""
    try:
        size = MessageMetadata.FromString(delivery.entry.metadata).num_messages_in_batch
        return size - words_to_acked_bits(delivery.ack_set, size).bit_count() if delivery.ack_set else size
    except (DecodeError, MalformedFrame):
        return 1


@dataclass(frozen=True, slots=True)
class _Stored:
    """The place of entries that no consumer received."""

    topic: str
    partition: int = -1

    def decode(self, message: Message) -> bytes:
        return message.data


def stored_entry_decoder(topic: str) -> EntryDecoder:
    """Returns a decoder for entries that are read from storage."""
    place = cast(Receiver, _Stored(topic))  # Messages ask it for no more than that.
    return EntryDecoder(place, ChunkAssembler(messages_max=10, expire_s=0), None, "fail", lambda: 0.0)


def _batch(payload: bytes, size: int) -> list[tuple[bytes | SingleMessageMetadata | None, bytes]]:
    """Splits a batch into messages with their metadata, None for those that compaction removed.

    Metadata is parsed only where it begins with something else than the size of the payload. Fields come in
    the order of their numbers, so that one byte then shows that compaction did not remove the message.
    Raises DataCorruption.
    """
    found: list[tuple[bytes | SingleMessageMetadata | None, bytes]] = []
    position, end = 0, len(payload)
    try:
        for _ in range(size):
            start = position + 4
            metadata_end = start + int.from_bytes(payload[position:start], "big")
            if (
                payload[start] == 0x18
                and payload[start + 1] < 0x80
                and payload[start + 2 : start + 3] != b"\x20"
            ):
                position = metadata_end + payload[start + 1]
                own: bytes | SingleMessageMetadata | None = payload[start:metadata_end]
            else:
                own = parsed = SingleMessageMetadata.FromString(payload[start:metadata_end])
                position = metadata_end + parsed.payload_size
                if parsed.compacted_out:
                    own = None
            if metadata_end > end or not metadata_end <= position <= end:
                break
            found.append((own, payload[metadata_end:position]))
    except (DecodeError, IndexError):
        pass
    if len(found) != size or position != end:
        list(batch_messages(payload, size))  # Raises the error that says where.
        raise DataCorruption(f"a batch of {size} messages has {len(found)}")
    return found


def _shape(sequence_bytes: int) -> tuple[int, int]:
    """Returns (mask, value) of the bytes after a producer's name: a varint, the tag of the publish time, and
    a varint of 6 bytes, which the time needs from 2004 to 2109.
    """
    mask = b"\x80" * sequence_bytes + b"\xff" + b"\x80" * 6
    value = b"\x80" * (sequence_bytes - 1) + b"\x00" + b"\x18" + b"\x80" * 5 + b"\x00"
    return int.from_bytes(mask, "big"), int.from_bytes(value, "big")


_SHAPES: Final = {count + 7: _shape(count) for count in range(1, 10)}
