"""Payloads in all compressions, and announced sizes that are not those of the data."""

from __future__ import annotations

import tracemalloc

import pytest
from magnetar.client.compression import compress, decompress
from magnetar.client.errors import Unreadable
from magnetar.common.wire.pulsar_pb2 import LZ4, NONE, SNAPPY, ZLIB, ZSTD, CompressionType

CODECS = (LZ4, ZLIB, ZSTD, SNAPPY)


@pytest.mark.parametrize("kind", [NONE, *CODECS], ids=CompressionType.Name)
@pytest.mark.parametrize("data", [b"", b"x", bytes(100_000), bytes(range(256)) * 9])
def test_what_is_compressed_comes_back(kind: CompressionType.ValueType, data: bytes) -> None:
    assert decompress(kind, compress(kind, data), len(data)) == data


@pytest.mark.parametrize("kind", CODECS, ids=CompressionType.Name)
def test_nothing_that_is_not_compressed_is_nothing(kind: CompressionType.ValueType) -> None:
    assert decompress(kind, b"", 0) == b""


@pytest.mark.parametrize("kind", CODECS, ids=CompressionType.Name)
@pytest.mark.parametrize("announced", [0, 999, 1_001])
def test_another_size_than_announced_is_unreadable(kind: CompressionType.ValueType, announced: int) -> None:
    with pytest.raises(Unreadable):
        decompress(kind, compress(kind, b"a" * 1_000), announced)


@pytest.mark.parametrize("kind", CODECS, ids=CompressionType.Name)
@pytest.mark.parametrize("data", [b"no such data", b""])
def test_data_of_no_codec_is_unreadable(kind: CompressionType.ValueType, data: bytes) -> None:
    with pytest.raises(Unreadable):
        decompress(kind, data, 1_000)


@pytest.mark.parametrize("kind", CODECS, ids=CompressionType.Name)
def test_data_that_grows_beyond_its_announced_size_takes_no_memory(kind: CompressionType.ValueType) -> None:
    bomb = compress(kind, bytes(50_000_000))
    tracemalloc.start()
    try:
        with pytest.raises(Unreadable):
            decompress(kind, bomb, 1_000)
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()
