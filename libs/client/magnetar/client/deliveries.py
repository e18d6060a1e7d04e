"""Decodes a Message command into its messages: decompressed, batches split, chunks reassembled."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from magnetar.client.chunks import Chunks
from magnetar.client.compression import decompress
from magnetar.client.errors import Unreadable
from magnetar.client.messages import EntryLeft, Incoming, MessageId
from magnetar.common.errors import DataCorruption
from magnetar.common.wire.ack_set import words_to_acked_bits
from magnetar.common.wire.batch import batch_messages, parse_metadata, payload_of
from magnetar.common.wire.pulsar_pb2 import CommandMessage, MessageMetadata


def messages_of(topic: str, command: CommandMessage, entry: bytes, chunks: Chunks) -> Iterator[Incoming]:
    """Yields the unacknowledged messages of an entry; none before the last chunk of a chunked message.

    Raises DataCorruption if the entry's metadata cannot be read.
    """
    metadata = parse_metadata(entry)
    at = command.message_id
    ids = [(at.ledgerId, at.entryId)]
    batched = metadata.HasField("num_messages_in_batch")
    size = metadata.num_messages_in_batch if batched else 0
    try:
        payload = bytes(payload_of(entry))
        if metadata.num_chunks_from_msg > 1:
            whole = chunks.add(metadata, ids[0], payload)
            if whole is None:
                return
            payload, ids = whole
        payload = _decoded(metadata, payload)
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


def _decoded(metadata: MessageMetadata, payload: bytes) -> bytes:
    """Returns the decoded payload. Raises Unreadable."""
    if metadata.encryption_keys:
        names = ", ".join(key.key for key in metadata.encryption_keys)
        raise Unreadable(f"it is encrypted with {names}: read it with a client that has the private key")
    return decompress(metadata.compression, payload, metadata.uncompressed_size)


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
