"""Compression codecs of clients' payloads.

zlib is part of Python. LZ4 (blocks without frames), Zstandard and Snappy come with Arrow, which Parquet
requires anyway. Sizes announced by clients are verified, never trusted.
"""

from __future__ import annotations

import zlib
from functools import lru_cache
from importlib import import_module
from typing import Any, Final

from magnetar.common.errors import DataCorruption
from magnetar.common.wire.pulsar_pb2 import LZ4, NONE, SNAPPY, ZLIB, ZSTD, CompressionType

UNCOMPRESSED_BYTES_MAX: Final = 64 << 20
"""Maximum announced size in bytes of a message that is decompressed."""

_ARROW: Final = {LZ4: "lz4_raw", ZSTD: "zstd", SNAPPY: "snappy"}


class PayloadUnreadable(DataCorruption):
    """A payload cannot be decompressed; the message gives the reason."""


@lru_cache(maxsize=8)
def _arrow_codec(kind: CompressionType.ValueType) -> Any:
    try:
        return import_module("pyarrow").Codec(_ARROW[kind])
    except ImportError as error:
        raise PayloadUnreadable(
            f"{CompressionType.Name(kind)} needs a package that is not installed: "
            "pip install 'magnetar-ledger[cold]'"
        ) from error


def compress(kind: CompressionType.ValueType, data: bytes) -> bytes:
    """Compresses as a Pulsar client does. Raises PayloadUnreadable if Arrow is missing."""
    if kind == NONE:
        return data
    if kind == ZLIB:
        return zlib.compress(data)
    return bytes(_arrow_codec(kind).compress(data, asbytes=True))


def decompress(kind: CompressionType.ValueType, data: bytes, size: int) -> bytes:
    """Decompresses to exactly `size` bytes. Raises PayloadUnreadable."""
    if kind == NONE:
        return data
    if size > UNCOMPRESSED_BYTES_MAX:
        raise PayloadUnreadable(
            f"it says it has {size} bytes uncompressed; at most {UNCOMPRESSED_BYTES_MAX} are decompressed"
        )
    if kind not in _ARROW and kind != ZLIB:
        raise PayloadUnreadable(f"unknown compression {kind}")
    try:
        return _decompress(kind, data, size)
    except PayloadUnreadable:
        raise
    except Exception as error:  # those of zlib and of Arrow have nothing else in common
        raise PayloadUnreadable(f"no {CompressionType.Name(kind)} data of {size} bytes: {error}") from error


def _decompress(kind: CompressionType.ValueType, data: bytes, size: int) -> bytes:
    if kind == ZLIB:
        found = zlib.decompressobj().decompress(data, size + 1)
    else:
        codec = _arrow_codec(kind)
        if not size:
            # Nothing to decompress: an empty LZ4 block is one token, an empty Snappy block its length.
            found = b"" if data in (b"", b"\x00") else bytes(codec.decompress(data, 0, asbytes=True))
        else:
            _check_announced(kind, codec, data, size)
            found = bytes(codec.decompress(data, size, asbytes=True))
    if len(found) != size:
        raise PayloadUnreadable(
            f"{CompressionType.Name(kind)} data of another size than the {size} bytes it says it has"
        )
    return found


def _check_announced(kind: CompressionType.ValueType, codec: Any, data: bytes, size: int) -> None:
    """Checks the announced size: Arrow pads the output if LZ4 and Snappy blocks do not fill the buffer, so
    they must fill it.
    """
    if kind == SNAPPY:
        stored = shift = 0
        for byte in data[:5]:
            stored |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
        if stored != size:
            raise PayloadUnreadable(f"SNAPPY data of {stored} bytes that says it has {size}")
    elif kind == LZ4:
        # A block does not know its size: one byte less must be too little.
        try:
            codec.decompress(data, size - 1, asbytes=True)
        except OSError:
            return
        raise PayloadUnreadable(f"LZ4 data of less than the {size} bytes it says it has")
