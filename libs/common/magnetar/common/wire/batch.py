"""Inside an entry: its metadata, and the messages of a batch.

    entry           0x0e01 CRC32-C(4) metadataSize(4) MessageMetadata payload
    batch payload   { size(4) SingleMessageMetadata payload_size bytes }   num_messages_in_batch times

Only for those who need it: the publish and dispatch paths do not look inside. Stored entries were verified on
arrival, so what does not fit here is DataCorruption, or a client's lie that its checksum covered.
"""

from __future__ import annotations

from collections.abc import Iterator

from google.protobuf.message import DecodeError
from magnetar.common.errors import DataCorruption
from magnetar.common.wire.command_parser import missing_fields
from magnetar.common.wire.frame import ENTRY_HEADER_BYTES, MAGIC_CHECKSUM
from magnetar.common.wire.pulsar_pb2 import MessageMetadata, SingleMessageMetadata


def payload_offset(entry: bytes) -> int:
    """Returns the payload's offset, after the metadata. Raises DataCorruption."""
    if entry[:2] != MAGIC_CHECKSUM or len(entry) < ENTRY_HEADER_BYTES:
        raise DataCorruption(f"{len(entry)} bytes that do not begin as an entry")
    offset = ENTRY_HEADER_BYTES + int.from_bytes(entry[6:10], "big")
    if offset > len(entry):
        raise DataCorruption(f"metadata up to byte {offset} in an entry of {len(entry)}")
    return offset


def parse_metadata(entry: bytes) -> MessageMetadata:
    """Parses the metadata of an entry. Raises DataCorruption."""
    metadata = MessageMetadata()
    try:
        metadata.ParseFromString(entry[ENTRY_HEADER_BYTES : payload_offset(entry)])
    except DecodeError as error:
        raise DataCorruption("the metadata of an entry is no protobuf message") from error
    if not metadata.IsInitialized():
        raise DataCorruption("metadata without " + missing_fields(metadata))
    return metadata


def payload_of(entry: bytes) -> memoryview:
    """Returns the payload of an entry as stored, possibly compressed or encrypted. Raises DataCorruption."""
    return memoryview(entry)[payload_offset(entry) :]


def batch_messages(
    payload: bytes | memoryview, message_count: int
) -> Iterator[tuple[SingleMessageMetadata, memoryview]]:
    """Yields the messages of a batch with their metadata; payloads are views into `payload`.

    `payload` is uncompressed; `message_count` is num_messages_in_batch. Raises DataCorruption if a message
    does not fit, and at the end if bytes are left.
    """
    view = memoryview(payload)
    position, end = 0, len(view)
    for index in range(message_count):
        start = position + 4
        if start > end:
            raise DataCorruption(f"a batch of {message_count} messages ends after {index}")
        size = int.from_bytes(view[position:start], "big")
        metadata, metadata_end = SingleMessageMetadata(), start + size
        if metadata_end > end:
            raise DataCorruption(f"metadata of {size} bytes in message {index}, {end - start} are left")
        try:
            metadata.ParseFromString(view[start:metadata_end].tobytes())
        except DecodeError as error:
            raise DataCorruption(f"the metadata of message {index} is no protobuf message") from error
        position = metadata_end + metadata.payload_size
        if not metadata.IsInitialized() or metadata.payload_size < 0 or position > end:
            raise DataCorruption(
                f"message {index} of {metadata.payload_size} bytes, {end - metadata_end} are left"
            )
        yield metadata, view[metadata_end:position]
    if position != end:
        raise DataCorruption(f"{end - position} bytes after the last of {message_count} messages of a batch")
