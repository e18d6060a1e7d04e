"""Compressed payloads: read as clients wrote them, and sizes that lie are found out."""

from __future__ import annotations

import random
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from magnetar.common.wire.pulsar_pb2 import LZ4, NONE, SNAPPY, ZLIB, ZSTD, CompressionType
from magnetar.ledger import payload_codecs
from magnetar.ledger.payload_codecs import (
    UNCOMPRESSED_BYTES_MAX,
    PayloadUnreadable,
    compress,
    decompress,
)

KINDS = [LZ4, ZLIB, ZSTD, SNAPPY]
TEXT = b"abcd" * 5 + b"the end"
LONG = b"x" * 400


@pytest.mark.parametrize("kind", [NONE, *KINDS])
@pytest.mark.parametrize("data", [b"", b"x", TEXT, bytes(100_000)], ids=len)
def test_a_payload_comes_back(kind: CompressionType.ValueType, data: bytes) -> None:
    assert decompress(kind, compress(kind, data), len(data)) == data


@pytest.mark.parametrize(
    ("kind", "stored", "text"),
    [
        # Four literals and a copy of sixteen bytes, four back; then seven literals.
        (LZ4, b"\x4cabcd\x04\x00\x70the end", TEXT),
        # Lengths of more than a nibble: one literal and a copy of 394, one back; five literals.
        (LZ4, bytes([0x1F]) + b"x" + b"\x01\x00" + bytes([255, 394 - 4 - 15 - 255, 0x50]) + b"x" * 5, LONG),
        (LZ4, bytes([0xF0, 255, 130]) + LONG, LONG),
        (LZ4, b"\x00", b""),
        # The size, four literals, a copy with an offset of two bytes, seven literals.
        (SNAPPY, bytes([27, 3 << 2]) + b"abcd" + bytes([15 << 2 | 2, 4, 0, 6 << 2]) + b"the end", TEXT),
        # Copies with offsets of one byte and of four.
        (SNAPPY, bytes([10, 0]) + b"x" + bytes([4 << 2 | 1, 1, 0 << 2 | 3, 1, 0, 0, 0]), b"x" * 10),
        # A size of two bytes, and lengths of literals beyond the tag.
        (SNAPPY, bytes([0x90, 0x03, 61 << 2, 399 & 255, 399 >> 8]) + LONG, LONG),
        (ZLIB, zlib.compress(TEXT), TEXT),
        # A frame of one raw block, without its size, as streaming writers make it.
        (ZSTD, bytes.fromhex("28b52ffd0058d90000") + TEXT, TEXT),
        *((kind, b"", b"") for kind in KINDS),
        (NONE, TEXT, TEXT),
    ],
)
def test_payloads_of_other_libraries_are_read(
    kind: CompressionType.ValueType, stored: bytes, text: bytes
) -> None:
    assert decompress(kind, stored, len(text)) == text


@pytest.mark.parametrize(
    ("kind", "stored", "size"),
    [
        (ZLIB, b"nonsense", 5),
        (ZLIB, zlib.compress(bytes(1_000_000)), 10),
        (LZ4, b"\x4cabcd\x05\x00\x70the end", 27),
        (LZ4, b"\x4cabcd\x04\x00\x70the end", 19),
        (LZ4, b"\x4cabcd\x04\x00\x70the", 27),
        (LZ4, b"\xf0\xff", 300),
        (LZ4, b"\x4cabcd\x04", 27),
        (SNAPPY, b"", 4),
        (SNAPPY, bytes([4, 3 << 2]) + b"abc", 4),
        (SNAPPY, bytes([4, 0 << 2 | 1, 1]), 4),
        (SNAPPY, bytes([200, 1, 0]) + b"x" + bytes([63 << 2 | 2, 1, 0]), 10),
        (ZSTD, bytes.fromhex("28b52ffd0058d90000") + TEXT[:-1], 27),
    ],
)
def test_a_payload_that_does_not_match_its_compression_is_refused(
    kind: CompressionType.ValueType, stored: bytes, size: int
) -> None:
    with pytest.raises(PayloadUnreadable):
        decompress(kind, stored, size)


@given(st.sampled_from([NONE, *KINDS]), st.binary(max_size=300), st.integers(1, 50))
def test_what_is_packed_is_opened(kind: CompressionType.ValueType, data: bytes, times: int) -> None:
    data *= times
    assert decompress(kind, compress(kind, data), len(data)) == data


@pytest.mark.parametrize("kind", KINDS)
def test_garbage_never_gives_other_errors(kind: CompressionType.ValueType) -> None:
    rng = random.Random(4)
    for _ in range(300):
        data = rng.randbytes(rng.randrange(60))
        try:
            assert len(decompress(kind, data, 100)) == 100
        except PayloadUnreadable:
            pass


def test_an_unknown_codec_is_refused() -> None:
    with pytest.raises(PayloadUnreadable, match="unknown compression"):
        decompress(17, b"", 0)  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("off", [-len(TEXT), -1, 1, 5, 100_000])
def test_a_size_that_lies_is_found_out(kind: CompressionType.ValueType, off: int) -> None:
    with pytest.raises(PayloadUnreadable):
        decompress(kind, compress(kind, TEXT), len(TEXT) + off)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("stored", [b"", b"\x00", b"nonsense that nobody compressed", b"\xff" * 50])
def test_uncompressed_payload_is_refused(kind: CompressionType.ValueType, stored: bytes) -> None:
    with pytest.raises(PayloadUnreadable):
        decompress(kind, stored, 31)


@pytest.mark.parametrize("kind", KINDS)
def test_more_than_the_bound_is_not_decompressed(kind: CompressionType.ValueType) -> None:
    with pytest.raises(PayloadUnreadable, match="at most"):
        decompress(kind, compress(kind, TEXT), UNCOMPRESSED_BYTES_MAX + 1)


def test_a_codec_that_is_not_installed_is_named_with_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise ImportError(name)

    monkeypatch.setattr(payload_codecs, "import_module", missing)
    with pytest.raises(PayloadUnreadable, match=r"LZ4 needs .* pip install cramjam"):
        decompress(LZ4, b"\x4cabcd\x04\x00\x70the end", 27)
    assert decompress(ZLIB, zlib.compress(TEXT), 27) == TEXT
