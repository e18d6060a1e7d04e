"""The keys of an entry's messages, by the rules of topic compaction.

Keys are compared as strings on the wire. A message without payload deletes its key: by `uncompressed_size`
where the client gave it, else by the payload's own length. Server markers do not exist for compaction.
Encrypted batches and entries that cannot be decoded are opaque: kept whole, and they shadow nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from struct import Struct
from typing import Final, NamedTuple

from google.protobuf.message import DecodeError
from magnetar.common.errors import DataCorruption
from magnetar.common.wire.batch import parse_metadata, payload_offset
from magnetar.common.wire.frame import ENTRY_HEADER_BYTES, MAGIC_CHECKSUM
from magnetar.common.wire.pulsar_pb2 import NONE, MessageMetadata, SingleMessageMetadata
from magnetar.ledger.ledger_store import RUN_MARKER
from magnetar.ledger.payload_codecs import decompress

BATCH_MESSAGES_MAX: Final = 100_000
"""Messages above which a batch is opaque: a few hundred bytes can hold a million empty messages."""

_ENTRY_HEADER: Final = Struct(">2s4xI")
"""Magic and length of the metadata."""


class EntryKind(Enum):
    """Kinds of entries."""

    MARKER = 0
    SINGLE = 1
    BATCH = 2
    CHUNK = 3
    OPAQUE = 4


@dataclass(slots=True)
class ExaminedEntry:
    """An entry's kind and what its metadata tells."""

    kind: EntryKind
    metadata: MessageMetadata | None = None
    """None if it cannot be parsed."""
    payload: bytes = b""
    """The uncompressed payload of a batch."""

    @property
    def encrypted(self) -> bool:
        """Whether its payload is encrypted."""
        return self.metadata is not None and bool(self.metadata.encryption_keys)


class BatchMessage(NamedTuple):
    """A message in a batch that was not compacted out."""

    batch_index: int
    key: str | None
    deletes: bool


def examine(entry: bytes, run_flags: int) -> ExaminedEntry:
    """Examines an entry. Batches are decompressed but not parsed: see `batch_messages`."""
    if run_flags & RUN_MARKER:
        return _MARKER
    try:
        metadata = parse_metadata(entry)
        if metadata.HasField("partition_key"):
            metadata.partition_key.encode()  # raises for what is no UTF-8
        if metadata.HasField("marker_type"):
            return _MARKER
        if metadata.num_chunks_from_msg > 1:
            metadata.uuid.encode()
            return ExaminedEntry(EntryKind.CHUNK, metadata)
        if not metadata.HasField("num_messages_in_batch"):
            return ExaminedEntry(EntryKind.SINGLE, metadata)
    except (DataCorruption, UnicodeError):
        return _UNREADABLE
    if metadata.encryption_keys or not 0 < metadata.num_messages_in_batch <= BATCH_MESSAGES_MAX:
        return ExaminedEntry(EntryKind.OPAQUE, metadata)
    payload = entry[payload_offset(entry) :]
    try:
        if metadata.compression != NONE:
            payload = decompress(metadata.compression, payload, metadata.uncompressed_size)
    except DataCorruption:
        return ExaminedEntry(EntryKind.OPAQUE, metadata)
    return ExaminedEntry(EntryKind.BATCH, metadata, payload)


def parse_single(entry: bytes, metadata: MessageMetadata) -> bool:
    """Parses an entry's metadata into `metadata`, which may be used again and again. Returns False unless the
    entry is surely an ordinary message outside of batches: `examine` decides about others.
    """
    if len(entry) < ENTRY_HEADER_BYTES:
        return False
    magic, size = _ENTRY_HEADER.unpack_from(entry)
    offset = ENTRY_HEADER_BYTES + size
    if magic != MAGIC_CHECKSUM or offset > len(entry):
        return False
    try:
        metadata.ParseFromString(entry[ENTRY_HEADER_BYTES:offset])
    except DecodeError:
        return False
    has = metadata.HasField
    return not (has("num_messages_in_batch") or has("num_chunks_from_msg") or has("marker_type")) and bool(
        metadata.IsInitialized()
    )


_MARKER: Final = ExaminedEntry(EntryKind.MARKER)
_UNREADABLE: Final = ExaminedEntry(EntryKind.OPAQUE)


def key_of(metadata: MessageMetadata | SingleMessageMetadata) -> str | None:
    """Returns a message's key; None without one. An empty key is a key."""
    return metadata.partition_key if metadata.HasField("partition_key") else None


def deletes_key(metadata: MessageMetadata, entry: bytes) -> bool:
    """Returns whether a message outside of batches deletes its key."""
    if metadata.HasField("uncompressed_size"):
        return metadata.uncompressed_size == 0
    return payload_offset(entry) == len(entry)


def batch_messages(payload: bytes, count: int, bodies: bool = True) -> Iterator[BatchMessage]:
    """Yields the messages of an uncompressed batch that were not compacted out; without `bodies`, of one that
    consists of its messages' metadata.

    Raises DataCorruption if the batch does not decode, possibly after some messages.
    """
    at, end = 0, len(payload)
    single = SingleMessageMetadata()
    for index in range(count):
        start = at + 4
        metadata_end = start + int.from_bytes(payload[at:start], "big")
        if start > end or metadata_end > end:
            raise DataCorruption(f"a batch of {count} messages ends in number {index}")
        try:
            single.ParseFromString(payload[start:metadata_end])
            size = single.payload_size
            key = key_of(single)
            if key is not None:
                key.encode()
        except (DecodeError, UnicodeError) as error:
            raise DataCorruption(f"invalid metadata of message {index} in a batch: {error}") from error
        at = metadata_end + size if bodies else metadata_end
        if not single.HasField("payload_size") or size < 0 or at > end:
            raise DataCorruption(f"message {index} does not fit into its batch")
        if not single.compacted_out:
            yield BatchMessage(index, key, size == 0)
    if at != end:
        raise DataCorruption(f"{end - at} bytes after the last of {count} messages of a batch")
