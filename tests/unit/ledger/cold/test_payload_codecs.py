"""Compressed payloads: read as clients wrote them, and sizes that lie are found out."""

from __future__ import annotations

import zlib

import pytest
from magnetar.common.wire.pulsar_pb2 import LZ4, NONE, SNAPPY, ZLIB, ZSTD, CompressionType
from magnetar.ledger.cold import payload_codecs
from magnetar.ledger.cold.payload_codecs import (
    UNCOMPRESSED_BYTES_MAX,
    PayloadUnreadable,
    compress,
    decompress,
)

KINDS = [LZ4, ZLIB, ZSTD, SNAPPY]
TEXT = b"abcd" * 5 + b"the end"


@pytest.mark.parametrize("kind", [NONE, *KINDS])
@pytest.mark.parametrize("data", [b"", b"x", TEXT, bytes(100_000)], ids=len)
def test_a_payload_comes_back(kind: CompressionType.ValueType, data: bytes) -> None:
    assert decompress(kind, compress(kind, data), len(data)) == data


@pytest.mark.parametrize(
    ("kind", "stored"),
    [
        (LZ4, b"\x4cabcd\x04\x00\x70the end"),
        (SNAPPY, bytes([27, 3 << 2]) + b"abcd" + bytes([15 << 2 | 2, 4, 0, 6 << 2]) + b"the end"),
        (ZLIB, zlib.compress(TEXT)),
        # A frame of one raw block, without its size, as streaming writers make it.
        (ZSTD, bytes.fromhex("28b52ffd0058d90000") + TEXT),
    ],
    ids=["LZ4", "SNAPPY", "ZLIB", "ZSTD"],
)
def test_payloads_of_other_libraries_are_read(kind: CompressionType.ValueType, stored: bytes) -> None:
    assert decompress(kind, stored, len(TEXT)) == TEXT


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


def test_without_arrow_a_kind_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise ImportError(name)

    monkeypatch.setattr(payload_codecs, "import_module", missing)
    payload_codecs._arrow_codec.cache_clear()
    with pytest.raises(PayloadUnreadable, match=r"LZ4 needs .* pip install 'magnetar-ledger\[cold\]'"):
        decompress(LZ4, b"\x4cabcd\x04\x00\x70the end", 27)
    assert decompress(ZLIB, zlib.compress(TEXT), 27) == TEXT
