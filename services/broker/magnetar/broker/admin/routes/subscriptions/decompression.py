"""Decompresses payloads of single messages for the admin API.

LZ4 blocks (without frames) and Snappy are decoded in Python, slowly: message delivery never decompresses. The
output is limited to the size in the message's metadata, which is limited by the maximum message size.
"""

from __future__ import annotations

import zlib

from magnetar.common.errors import DataCorruption, NotAllowed
from magnetar.common.wire.pulsar_pb2 import LZ4, NONE, SNAPPY, ZLIB, CompressionType


def decompress(payload: bytes, compression: CompressionType.ValueType, size: int) -> bytes:
    """Decompresses `payload` to `size` bytes.

    Raises NotAllowed for an unsupported compression, DataCorruption for invalid data.
    """
    if compression == NONE:
        return payload
    try:
        if compression == ZLIB:
            found = zlib.decompressobj().decompress(payload, size + 1)
        elif compression == LZ4:
            found = _lz4(payload, size)
        elif compression == SNAPPY:
            found = _snappy(payload, size)
        else:
            raise NotAllowed(
                f"decompression of {CompressionType.Name(compression)} is not supported by the broker: "
                "read the message with a reader or a consumer"
            )
    except (zlib.error, IndexError) as error:
        raise DataCorruption(f"invalid compressed payload: {error}") from error
    if len(found) != size:
        raise DataCorruption(f"a payload of {size} bytes decompresses to another size")
    return found


def _lz4(data: bytes, size: int) -> bytes:
    out, at = bytearray(), 0
    while at < len(data):
        token = data[at]
        length, at = _lz4_length(data, at + 1, token >> 4)
        _literal(out, data, at, length)
        at += length
        if at == len(data):
            break  # the last sequence has no copy
        offset = data[at] | data[at + 1] << 8
        length, at = _lz4_length(data, at + 2, token & 15)
        _copy(out, offset, length + 4, size)
    return bytes(out)


def _lz4_length(data: bytes, at: int, length: int) -> tuple[int, int]:
    if length == 15:
        more = 255
        while more == 255:
            more = data[at]
            length += more
            at += 1
    return length, at


def _snappy(data: bytes, size: int) -> bytes:
    at = 0
    while data[at] & 0x80:
        at += 1  # the uncompressed size as a varint
    at += 1
    out = bytearray()
    while at < len(data):
        tag, at = data[at], at + 1
        kind, length = tag & 3, tag >> 2
        if kind == 0:
            if length >= 60:
                wide = length - 59
                length, at = int.from_bytes(data[at : at + wide], "little"), at + wide
            _literal(out, data, at, length + 1)
            at += length + 1
        elif kind == 1:
            offset, at = (tag >> 5) << 8 | data[at], at + 1
            _copy(out, offset, (length & 7) + 4, size)
        else:
            wide = 2 if kind == 2 else 4
            offset, at = int.from_bytes(data[at : at + wide], "little"), at + wide
            _copy(out, offset, length + 1, size)
    return bytes(out)


def _literal(out: bytearray, data: bytes, at: int, length: int) -> None:
    if at + length > len(data):
        raise IndexError("it ends within a literal")
    out += data[at : at + length]


def _copy(out: bytearray, offset: int, length: int, size: int) -> None:
    """Copies bytes from `offset` bytes back; source and result may overlap."""
    start = len(out) - offset
    if offset == 0 or start < 0:
        raise IndexError("it copies from before its beginning")
    if len(out) + length > size:
        raise IndexError("it is larger than its declared size")
    part = out[start : start + length]
    out += (part * (length // len(part) + 1))[:length]
