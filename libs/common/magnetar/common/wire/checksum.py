"""The checksum of entries: CRC32-C, over everything that follows it (metadata size, metadata, payload)."""

from __future__ import annotations

from typing import Final

from crc32c import crc32c as crc32c

__all__ = ["COPY_BYTES_MAX", "crc32c", "crc32c_from"]

COPY_BYTES_MAX: Final = 4096
"""Up to about here a slice costs no more than a memoryview; above, the copy does."""


def crc32c_from(data: bytes, start: int) -> int:
    """The CRC32-C of `data[start:]`, without copying it when that would cost something."""
    if len(data) <= COPY_BYTES_MAX:
        return crc32c(data[start:])
    return crc32c(memoryview(data)[start:])
