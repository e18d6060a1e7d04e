"""Segment header, footer and trailer: golden bytes, copies that save each other, no flip unnoticed."""

from __future__ import annotations

from array import array
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from magnetar.common.errors import DataCorruption, UnsupportedFormat
from magnetar.ledger.segment_log.codec_v1 import BLOCK
from magnetar.ledger.segment_log.file_codec_v1 import (
    FOOTER_HEADER_SIZE,
    HEADER_COPY_OFFSET,
    SUMMARY_SIZE,
    TRAILER_SIZE,
    LedgerSummary,
    SegmentHeader,
    decode_footer_arrays,
    decode_footer_directory,
    decode_footer_header,
    decode_segment_header,
    decode_trailer,
    encode_footer,
    encode_segment_header,
    encode_trailer,
    padded_footer_length,
)

GOLDEN = Path(__file__).parents[3] / "golden" / "segment" / "v1"
HEADER = SegmentHeader(bytes(range(16)), 5, 1_700_000_000_000, 0xC0FFEE)
LEDGERS = [
    (LedgerSummary(1, 11, 100, 109, 108, 4000, 2, 0), array("I", [0, 5]), array("I", [256, 300])),
    (LedgerSummary(2, 22, 0, -1, 3, 0, 0, 1), array("I"), array("I")),
]


def footer() -> bytes:
    return encode_footer(HEADER.uuid, HEADER.salt, 42, LEDGERS)


def test_the_layouts_are_the_golden_ones() -> None:
    assert encode_segment_header(HEADER) == (GOLDEN / "segment_header.bin").read_bytes()
    assert footer() == (GOLDEN / "footer.bin").read_bytes()
    assert encode_trailer(HEADER, 8192, 300) == (GOLDEN / "trailer.bin").read_bytes()


def test_the_golden_files_are_still_understood() -> None:
    assert decode_segment_header((GOLDEN / "segment_header.bin").read_bytes()) == HEADER
    trailer = decode_trailer((GOLDEN / "trailer.bin").read_bytes())
    assert trailer is not None
    assert (trailer.header, trailer.footer_offset, trailer.footer_length) == (HEADER, 8192, 300)
    data = (GOLDEN / "footer.bin").read_bytes()
    header = decode_footer_header(data[:FOOTER_HEADER_SIZE], HEADER.uuid, HEADER.salt)
    assert header is not None
    assert (header.last_group_sequence, header.ledger_count, header.length) == (42, 2, len(data))
    directory = data[FOOTER_HEADER_SIZE : FOOTER_HEADER_SIZE + 2 * SUMMARY_SIZE]
    summaries = decode_footer_directory(directory, header, HEADER.salt)
    assert summaries is not None
    for summary, (wanted, firsts, offsets) in zip(summaries.values(), LEDGERS, strict=True):
        assert (summary.ledger_id, summary.ledger_key, summary.base) == (
            wanted.ledger_id,
            wanted.ledger_key,
            wanted.base,
        )
        assert (summary.last_entry_id, summary.lac, summary.marks) == (
            wanted.last_entry_id,
            wanted.lac,
            wanted.marks,
        )
        arrays = data[summary.arrays_offset : summary.arrays_offset + 8 * summary.runs]
        assert decode_footer_arrays(arrays, summary, HEADER.salt) == (firsts, offsets)


@given(st.integers(0, 8 * BLOCK - 1))
def test_one_damaged_copy_of_the_segment_header_loses_nothing(bit: int) -> None:
    block = bytearray(encode_segment_header(HEADER))
    block[bit // 8] ^= 1 << bit % 8
    assert decode_segment_header(bytes(block)) == HEADER


def test_both_copies_damaged_is_corruption_and_not_an_empty_segment() -> None:
    block = bytearray(encode_segment_header(HEADER))
    block[20] ^= 1
    block[HEADER_COPY_OFFSET + 20] ^= 1
    with pytest.raises(DataCorruption):
        decode_segment_header(bytes(block))
    with pytest.raises(DataCorruption):
        decode_segment_header(b"")


@given(st.data())
def test_no_flipped_bit_of_a_footer_or_trailer_goes_unnoticed(data: st.DataObject) -> None:
    original = footer()
    bit = data.draw(st.integers(0, 8 * len(original) - 1))
    damaged = bytearray(original)
    damaged[bit // 8] ^= 1 << bit % 8
    bad = bytes(damaged)
    header = decode_footer_header(bad[:FOOTER_HEADER_SIZE], HEADER.uuid, HEADER.salt)
    end = FOOTER_HEADER_SIZE + 2 * SUMMARY_SIZE
    if bit // 8 < FOOTER_HEADER_SIZE:
        assert header is None
    elif bit // 8 < end:
        assert header is not None
        assert decode_footer_directory(bad[FOOTER_HEADER_SIZE:end], header, HEADER.salt) is None
    else:
        assert header is not None
        summaries = decode_footer_directory(bad[FOOTER_HEADER_SIZE:end], header, HEADER.salt)
        assert summaries is not None
        assert decode_footer_arrays(bad[end:], next(iter(summaries.values())), HEADER.salt) is None
    trailer = bytearray(encode_trailer(HEADER, 8192, 300))
    bit %= 8 * TRAILER_SIZE
    trailer[bit // 8] ^= 1 << bit % 8
    assert decode_trailer(bytes(trailer)) is None


def test_a_later_format_version_stops_the_start() -> None:
    block = bytearray(encode_segment_header(HEADER))
    block[8] = 2
    from crc32c import crc32c

    block[60:64] = crc32c(bytes(block[:60])).to_bytes(4, "little")
    with pytest.raises(UnsupportedFormat, match="format version 2"):
        decode_segment_header(bytes(block))


def test_a_footer_ends_with_its_trailer_at_a_whole_block() -> None:
    assert padded_footer_length(len(footer())) % BLOCK == 0
    assert padded_footer_length(BLOCK - TRAILER_SIZE) == BLOCK
    assert padded_footer_length(BLOCK - TRAILER_SIZE + 1) == 2 * BLOCK
