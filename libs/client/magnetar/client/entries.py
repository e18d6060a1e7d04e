"""Entries as sent by producers: one message, or a batch."""

from __future__ import annotations

from collections.abc import Sequence

from magnetar.client.compression import compress
from magnetar.client.encryption import Encryptor
from magnetar.client.messages import Outgoing
from magnetar.common.wire.frame import encode_entry, encode_payload_command
from magnetar.common.wire.pulsar_pb2 import (
    BaseCommand,
    CommandSend,
    CompressionType,
    KeyValue,
    MessageMetadata,
)

NOT_REPLICATED = "__local__"
"""Value of replicate_to for messages that stay in their cluster."""


def send_frame(
    messages: Sequence[Outgoing],
    *,
    batched: bool,
    producer_id: int,
    producer_name: str,
    sequence_id: int,
    publish_time_ms: int,
    compression: CompressionType.ValueType,
    encryptor: Encryptor | None = None,
) -> bytes:
    """Encodes a Send of messages with one key and consecutive sequence ids; of a single message without
    `batched`.
    """
    first = messages[0]
    metadata = MessageMetadata(
        producer_name=producer_name, sequence_id=sequence_id, publish_time=publish_time_ms
    )
    send = CommandSend(producer_id=producer_id, sequence_id=sequence_id)
    if first.key is not None:
        metadata.partition_key = first.key
    if not first.replicated:
        metadata.replicate_to.append(NOT_REPLICATED)
    if batched:
        payload = b"".join([message.in_batch for message in messages])
        count = len(messages)
        metadata.num_messages_in_batch = send.num_messages = count
        metadata.highest_sequence_id = send.highest_sequence_id = sequence_id + count - 1
    else:
        payload = first.payload
        if first.event_time_ms:
            metadata.event_time = first.event_time_ms
        for name, value in first.properties.items():
            metadata.properties.append(KeyValue(key=name, value=value))
    if compression != CompressionType.NONE:
        metadata.compression = compression
        metadata.uncompressed_size = len(payload)
        payload = compress(compression, payload)
    if encryptor is not None:
        payload = encryptor.encrypt(metadata, payload)
    command = BaseCommand(type=BaseCommand.SEND, send=send)
    return encode_payload_command(command, encode_entry(metadata.SerializeToString(), payload))
