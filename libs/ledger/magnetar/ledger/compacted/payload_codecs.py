"""Compression codecs of clients' payloads, as compaction needs them: batches are opened and packed again.

zlib is part of Python; LZ4 (blocks without frames), Zstandard and Snappy are cramjam's, loaded with the first
payload that needs one. Sizes announced by clients are verified, never trusted.
"""

from __future__ import annotations

import zlib
from typing import Any, Final

from magnetar.common.errors import DataCorruption
from magnetar.common.wire.pulsar_pb2 import LZ4, NONE, SNAPPY, ZLIB, ZSTD, CompressionType

UNCOMPRESSED_BYTES_MAX: Final = 64 << 20
"""Maximum announced size in bytes of a batch that is decompressed."""


def compress(kind: CompressionType.ValueType, data: bytes) -> bytes:
    """Compresses as a Pulsar client does."""
    if kind == NONE:
        return data
    if kind == ZLIB:
        return zlib.compress(data)
    cramjam = _cramjam()
    if kind == LZ4:
        return bytes(cramjam.lz4.compress_block(data, store_size=False))
    if kind == ZSTD:
        return bytes(cramjam.zstd.compress(data))
    return bytes(cramjam.snappy.compress_raw(data))


def decompress(kind: CompressionType.ValueType, data: bytes, size: int) -> bytes:
    """Decompresses to exactly `size` bytes. Raises DataCorruption."""
    if kind == NONE:
        return data
    if size > UNCOMPRESSED_BYTES_MAX:
        raise DataCorruption(
            f"a payload of {size} bytes uncompressed; at most {UNCOMPRESSED_BYTES_MAX} are decompressed"
        )
    if kind == ZLIB:
        found = _inflate(data, size)
    elif kind in (LZ4, ZSTD, SNAPPY):
        found = _decompress_into(kind, data, size)
    else:
        raise DataCorruption(f"unknown compression {kind}")
    if len(found) != size:
        raise DataCorruption(
            f"{CompressionType.Name(kind)} data of {len(found)} bytes, {size} were announced"
        )
    return found


def _inflate(data: bytes, size: int) -> bytes:
    try:
        return zlib.decompressobj().decompress(data, size + 1)
    except zlib.error as error:
        raise DataCorruption(f"invalid ZLIB data: {error}") from error


def _decompress_into(kind: CompressionType.ValueType, data: bytes, size: int) -> bytes:
    """Decompresses into a buffer of the announced size, so that no more memory than that is used."""
    cramjam = _cramjam()
    out = bytearray(size)
    try:
        if kind == LZ4:
            length = cramjam.lz4.decompress_block_into(data, out, output_len=size)
        elif kind == ZSTD:
            length = cramjam.zstd.decompress_into(data, out)
        else:
            length = cramjam.snappy.decompress_raw_into(data, out)
    except cramjam.DecompressionError as error:
        raise DataCorruption(f"invalid {CompressionType.Name(kind)} data: {error}") from error
    return bytes(out[:length])


def _cramjam() -> Any:
    import cramjam  # with the first payload that needs it: most topics have none

    return cramjam
