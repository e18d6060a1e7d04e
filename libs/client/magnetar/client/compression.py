"""Compression of payloads. ZLIB is part of Python; LZ4, ZSTD and SNAPPY are those of the package cramjam.

Pulsar's forms: LZ4 blocks without a size in front, Snappy without frames, ZSTD frames.
"""

from __future__ import annotations

import zlib
from importlib import import_module
from typing import Any, Final

from magnetar.client.errors import ClientError, Unreadable
from magnetar.common.wire.pulsar_pb2 import CompressionType

_OF_CRAMJAM: Final = frozenset({CompressionType.LZ4, CompressionType.ZSTD, CompressionType.SNAPPY})


def check_codec(kind: CompressionType.ValueType) -> None:
    """Raises ClientError if a codec's package is missing."""
    if kind in _OF_CRAMJAM:
        _cramjam(kind)


def compress(kind: CompressionType.ValueType, data: bytes) -> bytes:
    """Compresses a payload. Raises ClientError if the codec's package is missing."""
    if kind == CompressionType.NONE:
        return data
    if kind == CompressionType.ZLIB:
        return zlib.compress(data)
    cramjam = _cramjam(kind)
    if kind == CompressionType.LZ4:
        return bytes(cramjam.lz4.compress_block(data, store_size=False))
    if kind == CompressionType.ZSTD:
        return bytes(cramjam.zstd.compress(data))
    return bytes(cramjam.snappy.compress_raw(data))


def decompress(kind: CompressionType.ValueType, data: bytes, size: int) -> bytes:
    """Decompresses a payload to exactly `size` bytes, in no more memory than that. Raises Unreadable."""
    if kind == CompressionType.NONE:
        return data
    if not size and not data:
        return b""  # Some clients do not compress nothing.
    if kind == CompressionType.ZLIB:
        try:
            found = zlib.decompressobj().decompress(data, size + 1)
        except zlib.error as error:
            raise Unreadable(f"its payload is no ZLIB data: {error}") from error
    elif kind in _OF_CRAMJAM:
        found = _decompress_into(kind, data, size)
    else:
        raise Unreadable(f"its payload has the unknown compression {kind}")
    if len(found) != size:
        raise Unreadable(
            f"its payload has another size after {CompressionType.Name(kind)} than the {size} bytes announced"
        )
    return found


def _decompress_into(kind: CompressionType.ValueType, data: bytes, size: int) -> bytes:
    """Decompresses into a buffer of the announced size. Raises Unreadable."""
    try:
        cramjam = _cramjam(kind)
    except ClientError as error:
        raise Unreadable(str(error)) from error
    found = bytearray(size)
    try:
        if kind == CompressionType.LZ4:
            length = cramjam.lz4.decompress_block_into(data, found, output_len=size)
        elif kind == CompressionType.ZSTD:
            length = cramjam.zstd.decompress_into(data, found)
        else:
            length = cramjam.snappy.decompress_raw_into(data, found)
    except cramjam.DecompressionError as error:
        raise Unreadable(f"its payload is no {CompressionType.Name(kind)} data: {error}") from error
    return bytes(memoryview(found)[:length])


def _cramjam(kind: CompressionType.ValueType) -> Any:
    """Imports the package. Raises ClientError if it is not installed."""
    try:
        return import_module("cramjam")
    except ImportError as error:
        name = CompressionType.Name(kind)
        raise ClientError(f"{name} needs a package that is not installed: pip install cramjam") from error
