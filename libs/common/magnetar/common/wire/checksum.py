"""The checksum of entries: CRC32-C over all bytes after it (metadata size, metadata, payload)."""

from __future__ import annotations

from typing import Final

from crc32c import crc32c as crc32c

__all__ = ["COPY_BYTES_MAX", "crc32c", "crc32c_from"]

COPY_BYTES_MAX: Final = 4096
"""Size in bytes up to which a slice is no slower than a memoryview."""


def crc32c_from(data: bytes, start: int) -> int:
    """Returns the CRC32-C of `data[start:]`; avoids the copy of large data."""
    if len(data) <= COPY_BYTES_MAX:
        return crc32c(data[start:])
    return crc32c(memoryview(data)[start:])
