"""The column `entry_metadata`: what an entry has beside its messages, on its first row.

    0  1  format (1)
    1  1  compression that the client had used: a CompressionType
    2  2  run flags
    4  4  messages that the entry counts as
    8 ..  MessageMetadata, as the entry is rebuilt with; nothing in raw rows

Numbers are little-endian. The metadata is the client's, byte for byte, unless its payload was compressed and
is not any more: then it says so (compression NONE), and `uncompressed_size` still holds.
"""

from __future__ import annotations

from struct import Struct
from typing import Final, NamedTuple

from magnetar.common.errors import DataCorruption, UnsupportedFormat

ENVELOPE_FORMAT: Final = 1
_HEAD: Final = Struct("<BBHI")
ENVELOPE_HEAD_BYTES: Final = _HEAD.size


class EntryEnvelope(NamedTuple):
    """The contents of the column."""

    compression: int
    """Compression of the published entry: a CompressionType. Its `metadata` describes `payload`."""
    run_flags: int
    message_count: int
    metadata: bytes
    """A serialized MessageMetadata; empty for raw entries, which have their own."""


def encode_envelope(compression: int, run_flags: int, message_count: int, metadata: bytes) -> bytes:
    """Encodes the column's value."""
    return _HEAD.pack(ENVELOPE_FORMAT, compression, run_flags, message_count) + metadata


def decode_envelope(data: bytes) -> EntryEnvelope:
    """Decodes the column's value. Raises DataCorruption, and UnsupportedFormat for one of a later release."""
    if len(data) < ENVELOPE_HEAD_BYTES:
        raise DataCorruption(f"an entry's envelope of {len(data)} bytes")
    version, compression, run_flags, message_count = _HEAD.unpack_from(data)
    if version != ENVELOPE_FORMAT:
        raise UnsupportedFormat(
            f"an entry's envelope has format {version}; this release reads format {ENVELOPE_FORMAT}. "
            "Run the release that wrote it, or a later one"
        )
    return EntryEnvelope(compression, run_flags, message_count, data[ENVELOPE_HEAD_BYTES:])
