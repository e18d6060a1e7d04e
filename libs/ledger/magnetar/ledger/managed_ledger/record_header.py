"""The header of records in ledgers of records: a magic number, a version, feature bits and a checksum.

    magic (u16) | version (u8) | incompatible feature bits (u8) | CRC32-C (u32) | body

all big-endian; the CRC covers the first 4 bytes of the header and the body.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final, TypeVar

from crc32c import crc32c
from google.protobuf.message import DecodeError, Message
from magnetar.common.errors import DataCorruption, UnsupportedFormat

MessageT = TypeVar("MessageT", bound=Message)

_HEADER: Final = struct.Struct(">HBBI")
_PREFIX: Final = struct.Struct(">HBB")


@dataclass(frozen=True, slots=True)
class RecordFormat:
    """One kind of records. `name` appears in errors."""

    name: str
    magic: int
    version: int
    known_features: int = 0

    def encode(self, message: Message) -> bytes:
        """Encodes a message as a record."""
        return self.seal(message.SerializeToString(deterministic=True))

    def decode(self, data: bytes, kind: type[MessageT]) -> MessageT:
        """Decodes a record. Raises DataCorruption, or UnsupportedFormat for a record of a later release."""
        body = self.open(data)
        try:
            return kind.FromString(body)
        except DecodeError as error:
            raise DataCorruption(f"a {self.name} with a good checksum does not parse: {error}") from error

    def seal(self, body: bytes) -> bytes:
        """Returns a record with its header."""
        prefix = _PREFIX.pack(self.magic, self.version, 0)
        return _HEADER.pack(self.magic, self.version, 0, crc32c(body, crc32c(prefix))) + body

    def open(self, data: bytes) -> bytes:
        """Returns the body of a record. Raises DataCorruption, or UnsupportedFormat for a record of a later
        release.
        """
        if len(data) < _HEADER.size:
            raise DataCorruption(f"a {self.name} has {len(data)} bytes, less than its header")
        magic, version, features, checksum = _HEADER.unpack_from(data)
        if magic != self.magic:
            raise DataCorruption(f"no {self.name}: its magic is {magic:#06x}")
        body = data[_HEADER.size :]
        if crc32c(body, crc32c(data[: _PREFIX.size])) != checksum:
            raise DataCorruption(f"a {self.name} does not match its checksum")
        if version != self.version or features & ~self.known_features:
            raise UnsupportedFormat(
                f"a {self.name} has version {version} and incompatible features {features:#x}; this release "
                f"reads version {self.version} and features {self.known_features:#x}. Run the release that "
                "wrote it, or a newer one"
            )
        return body


def cut_by_size(messages: Iterable[MessageT], bytes_max: int) -> Iterator[list[MessageT]]:
    """Yields the messages in lists of about `bytes_max` bytes each, exceeded by at most one message."""
    batch: list[MessageT] = []
    size = 0
    for message in messages:
        batch.append(message)
        size += message.ByteSize()
        if size >= bytes_max:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch
