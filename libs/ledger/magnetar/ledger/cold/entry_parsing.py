"""Parsing of entries for later reassembly: the original bytes of their metadata are kept."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from google.protobuf.message import DecodeError
from google.protobuf.unknown_fields import UnknownFieldSet
from magnetar.common.errors import DataCorruption
from magnetar.common.wire.command_parser import missing_fields
from magnetar.common.wire.pulsar_pb2 import MessageMetadata, SingleMessageMetadata

_COMPRESSION_FIELD: Final = 8


def parse_stored(stored: bytes) -> MessageMetadata:
    """Parses stored metadata bytes, like `parse_metadata`."""
    metadata = MessageMetadata()
    try:
        metadata.ParseFromString(stored)
    except DecodeError as error:
        raise DataCorruption("the metadata of an entry is no protobuf message") from error
    if not metadata.IsInitialized():
        raise DataCorruption("metadata without " + missing_fields(metadata))
    return metadata


def unknown_compression(metadata: MessageMetadata) -> bool:
    """Returns an unknown compression; protobuf keeps unknown enum values among the unknown fields."""
    unknown: Any = UnknownFieldSet(metadata)  # its stubs do not know that it can be iterated
    return any(field.field_number == _COMPRESSION_FIELD for field in unknown)


def batch_parts(payload: bytes, message_count: int) -> Iterator[tuple[SingleMessageMetadata, bytes, bytes]]:
    """Yields (metadata, its bytes, payload) of each message. Raises DataCorruption if a message does not fit.

    Like `batch_messages`, which does not keep the metadata's bytes.
    """
    position, end = 0, len(payload)
    for index in range(message_count):
        start = position + 4
        metadata_end = start + int.from_bytes(payload[position:start], "big")
        if start > end or metadata_end > end:
            raise DataCorruption(f"a batch of {message_count} messages ends in number {index}")
        encoded = payload[start:metadata_end]
        single = SingleMessageMetadata()
        try:
            single.ParseFromString(encoded)
        except DecodeError as error:
            raise DataCorruption(f"the metadata of message {index} is no protobuf message") from error
        position = metadata_end + single.payload_size
        if not single.IsInitialized() or single.payload_size < 0 or position > end:
            raise DataCorruption(f"message {index} does not fit: {end - metadata_end} bytes are left")
        yield single, encoded, payload[metadata_end:position]
    if position != end:
        raise DataCorruption(f"{end - position} bytes after the last of {message_count} messages of a batch")
