"""Compression of payloads. ZLIB is part of Python; the other codecs need their packages."""

from __future__ import annotations

import zlib
from importlib import import_module
from typing import Any, Final

from magnetar.client.errors import ClientError, Unreadable
from magnetar.common.wire.pulsar_pb2 import CompressionType

_MODULES: Final = {
    CompressionType.LZ4: "lz4.block",
    CompressionType.ZSTD: "zstandard",
    CompressionType.SNAPPY: "snappy",
}


def _module(kind: CompressionType.ValueType) -> Any:
    """Imports a codec's package. Raises ClientError if it is not installed."""
    try:
        return import_module(_MODULES[kind])
    except ImportError as error:
        name = CompressionType.Name(kind)
        raise ClientError(
            f"{name} needs a package that is not installed: pip install 'magnetar-client[compression]'"
        ) from error


def check_codec(kind: CompressionType.ValueType) -> None:
    """Raises ClientError if a codec's package is missing."""
    if kind in _MODULES:
        _module(kind)


def compress(kind: CompressionType.ValueType, data: bytes) -> bytes:
    """Compresses a payload. Raises ClientError if the codec's package is missing."""
    if kind == CompressionType.NONE:
        return data
    if kind == CompressionType.ZLIB:
        return zlib.compress(data)
    module = _module(kind)
    if kind == CompressionType.LZ4:
        compressed = module.compress(data, store_size=False)
    elif kind == CompressionType.ZSTD:
        compressed = module.ZstdCompressor().compress(data)
    else:
        compressed = module.compress(data)
    return bytes(compressed)


def decompress(kind: CompressionType.ValueType, data: bytes, size: int) -> bytes:
    """Decompresses a payload to `size` bytes. Raises Unreadable."""
    if kind == CompressionType.NONE:
        return data
    try:
        if kind == CompressionType.ZLIB:
            found = zlib.decompressobj().decompress(data, size)
        else:
            module = _module(kind)
            if kind == CompressionType.LZ4:
                found = bytes(module.decompress(data, uncompressed_size=size))
            elif kind == CompressionType.ZSTD:
                found = bytes(module.ZstdDecompressor().decompress(data, max_output_size=size))
            else:
                found = bytes(module.decompress(data))
    except ClientError as error:
        raise Unreadable(str(error)) from error
    except Exception as error:  # each package raises its own errors
        raise Unreadable(f"its payload is no {CompressionType.Name(kind)} data: {error}") from error
    if len(found) != size:
        raise Unreadable(f"its payload has {len(found)} bytes after decompression, {size} are announced")
    return found
