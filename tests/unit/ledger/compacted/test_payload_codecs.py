"""Payloads are opened and packed as clients do it; announced sizes are verified."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from magnetar.common.errors import DataCorruption
from magnetar.common.wire.pulsar_pb2 import LZ4, NONE, SNAPPY, ZLIB, ZSTD, CompressionType
from magnetar.ledger.compacted.payload_codecs import UNCOMPRESSED_BYTES_MAX, compress, decompress

CODECS = (NONE, LZ4, ZLIB, ZSTD, SNAPPY)


@given(st.sampled_from(CODECS), st.binary(max_size=300), st.integers(1, 50))
def test_what_is_packed_is_opened(codec: CompressionType.ValueType, data: bytes, times: int) -> None:
    data *= times
    assert decompress(codec, compress(codec, data), len(data)) == data


@pytest.mark.parametrize("codec", CODECS[1:])
def test_a_wrong_size_is_noticed(codec: CompressionType.ValueType) -> None:
    packed = compress(codec, b"abc" * 100)
    for size in (0, 1, 299, 301, 400):
        with pytest.raises(DataCorruption):
            decompress(codec, packed, size)
    with pytest.raises(DataCorruption, match="at most"):
        decompress(codec, packed, UNCOMPRESSED_BYTES_MAX + 1)


@pytest.mark.parametrize("codec", CODECS[1:])
def test_garbage_never_gives_other_errors(codec: CompressionType.ValueType) -> None:
    rng = random.Random(4)
    for _ in range(300):
        data = rng.randbytes(rng.randrange(60))
        try:
            assert len(decompress(codec, data, 100)) == 100
        except DataCorruption:
            pass


def test_an_unknown_codec_is_corruption() -> None:
    with pytest.raises(DataCorruption, match="unknown compression"):
        decompress(17, b"", 0)  # type: ignore[arg-type]
