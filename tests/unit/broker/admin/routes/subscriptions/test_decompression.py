"""Compressed payloads, as they are written down in the descriptions of their formats."""

from __future__ import annotations

import zlib

import pytest
from magnetar.broker.admin.routes.subscriptions.decompression import decompress
from magnetar.common.errors import DataCorruption, NotAllowed
from magnetar.common.wire.pulsar_pb2 import LZ4, NONE, SNAPPY, ZLIB, ZSTD, CompressionType

TEXT = b"abcd" * 5 + b"the end"
LONG = b"x" * 400

WRITTEN = [
    (ZLIB, zlib.compress(TEXT), TEXT),
    # Four literals and a copy of sixteen bytes, four back; then seven literals.
    (LZ4, b"\x4cabcd\x04\x00\x70the end", TEXT),
    # Lengths of more than a nibble: one literal and a copy of 399, one back.
    (LZ4, bytes([0x1F]) + b"x" + b"\x01\x00" + bytes([255, 399 - 4 - 15 - 255]), LONG),
    (LZ4, bytes([0xF0, 255, 130]) + LONG, LONG),
    (LZ4, b"\x00", b""),
    # The size, four literals, a copy with an offset of two bytes, seven literals.
    (SNAPPY, bytes([27, 3 << 2]) + b"abcd" + bytes([15 << 2 | 2, 4, 0, 6 << 2]) + b"the end", TEXT),
    # Copies with offsets of one byte and of four.
    (SNAPPY, bytes([10, 0]) + b"x" + bytes([4 << 2 | 1, 1, 0 << 2 | 3, 1, 0, 0, 0]), b"x" * 10),
    # A size of two bytes, and lengths of literals beyond the tag.
    (SNAPPY, bytes([0x90, 0x03, 61 << 2, 399 & 255, 399 >> 8]) + LONG, LONG),
    (NONE, TEXT, TEXT),
]


@pytest.mark.parametrize(("kind", "payload", "text"), WRITTEN)
def test_payloads_come_back(kind: CompressionType.ValueType, payload: bytes, text: bytes) -> None:
    assert decompress(payload, kind, len(text)) == text


@pytest.mark.parametrize(
    ("kind", "payload", "size"),
    [
        (ZLIB, b"nonsense", 5),
        (ZLIB, zlib.compress(bytes(1_000_000)), 10),
        (ZLIB, zlib.compress(TEXT), len(TEXT) + 1),
        (LZ4, b"\x4cabcd\x05\x00\x70the end", 27),
        (LZ4, b"\x4cabcd\x00\x00\x70the end", 27),
        (LZ4, b"\x4cabcd\x04\x00\x70the end", 19),
        (LZ4, b"\x4cabcd\x04\x00\x70the", 27),
        (LZ4, b"\xf0\xff", 300),
        (LZ4, b"\x4cabcd\x04", 27),
        (SNAPPY, b"", 4),
        (SNAPPY, bytes([4, 3 << 2]) + b"abc", 4),
        (SNAPPY, bytes([4, 0 << 2 | 1, 1]), 4),
        (SNAPPY, bytes([200, 1, 0]) + b"x" + bytes([63 << 2 | 2, 1, 0]), 10),
    ],
)
def test_payload_that_does_not_match_its_compression_is_corrupt(
    kind: CompressionType.ValueType, payload: bytes, size: int
) -> None:
    with pytest.raises(DataCorruption):
        decompress(payload, kind, size)


def test_a_kind_that_is_not_read_here_says_what_to_do() -> None:
    with pytest.raises(NotAllowed, match=r"ZSTD.*consumer"):
        decompress(b"", ZSTD, 1)
