"""Decodes a Message command into its messages: decrypted, chunks reassembled, decompressed, batches split."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from magnetar.client.chunks import Chunks
from magnetar.client.compression import decompress
from magnetar.client.encryption import CryptoFailure, Decryptor, key_names
from magnetar.client.errors import Undecryptable, Unreadable
from magnetar.client.messages import EncryptionContext, EntryLeft, Incoming, MessageId
from magnetar.common.errors import DataCorruption
from magnetar.common.wire.ack_set import words_to_acked_bits
from magnetar.common.wire.batch import batch_messages, parse_metadata, payload_of
from magnetar.common.wire.pulsar_pb2 import CommandMessage, MessageMetadata


def messages_of(
    topic: str,
    command: CommandMessage,
    entry: bytes,
    chunks: Chunks,
    decryptor: Decryptor | None = None,
    on_failure: CryptoFailure = "fail",
) -> Iterator[Incoming]:
    """Yields the unacknowledged messages of an entry; none before the last chunk of a chunked message.

    An entry that cannot be decrypted, a batch or a chunk too, is one message: unreadable, or with its
    ciphertext as payload if `on_failure` is consume. Raises DataCorruption if the entry's metadata cannot be
    read.
    """
    metadata = parse_metadata(entry)
    at = command.message_id
    ids = [(at.ledgerId, at.entryId)]
    batched = metadata.HasField("num_messages_in_batch")
    size = metadata.num_messages_in_batch if batched else 0
    try:
        payload = bytes(payload_of(entry))
        if metadata.encryption_keys:
            try:
                payload = _decrypted(metadata, payload, decryptor)
            except Undecryptable as error:
                yield _undecrypted(topic, metadata, command, payload, str(error), on_failure)
                return
        if metadata.num_chunks_from_msg > 1:
            whole = chunks.add(metadata, ids[0], payload)
            if whole is None:
                return
            payload, ids = whole
        payload = decompress(metadata.compression, payload, metadata.uncompressed_size)
        inside = list(batch_messages(payload, size)) if batched else []
    except (Unreadable, DataCorruption) as error:
        one = MessageId(at.ledgerId, at.entryId, at.partition)
        yield _incoming(topic, one, metadata, metadata, command, EntryLeft(ids, 0), b"", str(error))
        return
    if not batched:
        one = MessageId(at.ledgerId, at.entryId, at.partition)
        yield _incoming(topic, one, metadata, metadata, command, EntryLeft(ids, 0), payload)
        return
    left = EntryLeft(ids, size)
    if command.ack_set:
        left.acked_bits = words_to_acked_bits(command.ack_set, size)
    for index, (single, part) in enumerate(inside):
        if single.compacted_out:
            left.acked_bits |= 1 << index
        if not left.acked_bits >> index & 1:
            one = MessageId(at.ledgerId, at.entryId, at.partition, index)
            yield _incoming(topic, one, metadata, single, command, left, bytes(part))


def _decrypted(metadata: MessageMetadata, payload: bytes, decryptor: Decryptor | None) -> bytes:
    """Returns the plaintext. Raises Undecryptable."""
    if decryptor is None:
        raise Undecryptable(
            f"it is encrypted with {key_names(metadata)}: give the private key of one of these names"
        )
    return decryptor.decrypt(metadata, payload)


def _undecrypted(
    topic: str,
    metadata: MessageMetadata,
    command: CommandMessage,
    payload: bytes,
    reason: str,
    on_failure: CryptoFailure,
) -> Incoming:
    """Builds the message of an entry that cannot be decrypted."""
    at = command.message_id
    one, left = MessageId(at.ledgerId, at.entryId, at.partition), EntryLeft([(at.ledgerId, at.entryId)], 0)
    if on_failure == "consume":
        message = _incoming(topic, one, metadata, metadata, command, left, payload)
    else:
        message = _incoming(topic, one, metadata, metadata, command, left, b"", reason)
    message.encrypted = EncryptionContext(
        {key.key: key.value for key in metadata.encryption_keys},
        metadata.encryption_param,
        metadata.compression,
        metadata.uncompressed_size,
        metadata.num_messages_in_batch if metadata.HasField("num_messages_in_batch") else 0,
    )
    return message


def _incoming(
    topic: str,
    message_id: MessageId,
    metadata: MessageMetadata,
    own: Any,
    command: CommandMessage,
    entry: EntryLeft,
    payload: bytes,
    unreadable: str = "",
) -> Incoming:
    """Builds one message. `own` carries key, properties and event time: SingleMessageMetadata inside
    a batch.
    """
    return Incoming(
        topic,
        message_id,
        payload,
        own.partition_key if own.HasField("partition_key") else None,
        {pair.key: pair.value for pair in own.properties} if own.properties else {},
        metadata.publish_time,
        own.event_time,
        metadata.producer_name,
        metadata.sequence_id + max(message_id.batch_index, 0),
        command.redelivery_count,
        entry,
        unreadable,
    )
