"""Compression codecs of clients' payloads, for compaction, for rows and for the admin API.

zlib is part of Python; LZ4 (blocks without frames), Zstandard and Snappy are cramjam's, loaded with the first
payload that needs one. Sizes announced by clients are verified, never trusted.
"""

from __future__ import annotations

import zlib
from importlib import import_module
from typing import Any, Final

from magnetar.common.errors import DataCorruption
from magnetar.common.wire.pulsar_pb2 import LZ4, NONE, SNAPPY, ZLIB, ZSTD, CompressionType

UNCOMPRESSED_BYTES_MAX: Final = 64 << 20
"""Maximum announced size in bytes of a payload that is decompressed."""


class PayloadUnreadable(DataCorruption):
    """A payload cannot be decompressed; the message gives the reason."""


def compress(kind: CompressionType.ValueType, data: bytes) -> bytes:
    """Compresses as a Pulsar client does. Raises PayloadUnreadable if the codec is not installed."""
    if kind == NONE:
        return data
    if kind == ZLIB:
        return zlib.compress(data)
    cramjam = _cramjam(kind)
    if kind == LZ4:
        return bytes(cramjam.lz4.compress_block(data, store_size=False))
    if kind == ZSTD:
        return bytes(cramjam.zstd.compress(data))
    return bytes(cramjam.snappy.compress_raw(data))


def decompress(kind: CompressionType.ValueType, data: bytes, size: int) -> bytes:
    """Decompresses to exactly `size` bytes, in no more memory than that. Raises PayloadUnreadable."""
    if kind == NONE:
        return data
    if size > UNCOMPRESSED_BYTES_MAX:
        raise PayloadUnreadable(
            f"a payload of {size} bytes uncompressed; at most {UNCOMPRESSED_BYTES_MAX} are decompressed"
        )
    if kind not in (LZ4, ZLIB, ZSTD, SNAPPY):
        raise PayloadUnreadable(f"unknown compression {kind}")
    if not size and not data:
        return b""  # some clients do not compress nothing
    found = _inflate(data, size) if kind == ZLIB else _decompress_into(kind, data, size)
    if len(found) != size:
        raise PayloadUnreadable(
            f"{CompressionType.Name(kind)} data of another size than the {size} bytes that were announced"
        )
    return found


def _inflate(data: bytes, size: int) -> bytes:
    try:
        return zlib.decompressobj().decompress(data, size + 1)
    except zlib.error as error:
        raise PayloadUnreadable(f"invalid ZLIB data: {error}") from error


def _decompress_into(kind: CompressionType.ValueType, data: bytes, size: int) -> bytes:
    """Decompresses into a buffer of the announced size."""
    cramjam = _cramjam(kind)
    out = bytearray(size)
    try:
        if kind == LZ4:
            length = cramjam.lz4.decompress_block_into(data, out, output_len=size)
        elif kind == ZSTD:
            length = cramjam.zstd.decompress_into(data, out)
        else:
            length = cramjam.snappy.decompress_raw_into(data, out)
    except cramjam.DecompressionError as error:
        raise PayloadUnreadable(f"invalid {CompressionType.Name(kind)} data: {error}") from error
    return bytes(memoryview(out)[:length])


def _cramjam(kind: CompressionType.ValueType) -> Any:
    try:
        return import_module("cramjam")  # with the first payload that needs it: most topics have none
    except ImportError as error:
        raise PayloadUnreadable(
            f"{CompressionType.Name(kind)} needs a package that is not installed: pip install cramjam"
        ) from error
