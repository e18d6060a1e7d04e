"""Groups and records: what is written is read back, anything else is refused, and the bytes never change."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st
from magnetar.common.errors import UnsupportedFormat
from magnetar.common.naming.txn_id import TxnId
from magnetar.ledger.segment_log.codec_v1 import (
    BLOCK,
    COPY_BYTES_MAX,
    DIRECTORY_ENTRY_SIZE,
    GROUP_HEADER_SIZE,
    KIND_ENTRIES,
    KIND_FENCE,
    RECORD_HEADER_SIZE,
    UNIT,
    Durable,
    EncodedRecord,
    align,
    check_format,
    checksum_body,
    decode_directory,
    decode_group_header,
    decode_record_header,
    encode_group,
    encode_record_header,
    encoded_group_length,
    entry_checksum_matches,
    record_header_length,
    salt_record_header,
)

GOLDEN = Path(__file__).parents[3] / "golden" / "segment" / "v1"
UUID = bytes(range(16))
SALT = 0xC0FFEE


def record(
    ledger_id: int,
    first: int,
    entries: list[bytes],
    counts: list[int] | None = None,
    lac: int = -1,
    txn: TxnId | None = None,
) -> EncodedRecord:
    header = encode_record_header(
        KIND_ENTRIES,
        ledger_id,
        0xFEEDFACECAFEBEEF,
        first,
        lac,
        run_flags=1,
        publish_time_ms=1_700_000_000_123,
        first_index=1_000,
        lengths=[len(entry) for entry in entries],
        message_counts=counts,
        body_length=sum(map(len, entries)),
        body_crc=checksum_body(entries),
        txn=txn,
    )
    return EncodedRecord(
        ledger_id, 0xFEEDFACECAFEBEEF, first, len(entries), header, entries, sum(map(len, entries))
    )


def mark(ledger_id: int) -> EncodedRecord:
    header = encode_record_header(KIND_FENCE, ledger_id, 5, -1, 41)
    return EncodedRecord(ledger_id, 5, -1, 0, header, (), 0)


def golden_group() -> bytes:
    records = [
        record(1, 0, [b"first", b"second!"], [1, 3]),
        record(1, 2, [b"same", b"size"], lac=1),
        record(7, 12, [b"x" * 5000], [100], lac=11),
        mark(9),
    ]
    buffers, _ = encode_group(records, UUID, SALT, 42, Durable(41, 3, 8192))
    return b"".join(buffers)


def golden_transactions() -> bytes:
    records = [
        record(1, 0, [b"first", b"second!"], [1, 3], txn=TxnId(0, 0)),
        record(1, 2, [b"same", b"size"], txn=TxnId(2**64 - 1, 2**40)),
        record(7, 12, [b"plain"]),
    ]
    buffers, _ = encode_group(records, UUID, SALT, 42, Durable(41, 3, 8192))
    return b"".join(buffers)


def test_the_layout_of_runs_in_transactions_is_the_golden_one_and_is_understood() -> None:
    data = (GOLDEN / "transactions.bin").read_bytes()
    assert golden_transactions() == data
    group = decode_group_header(data[:GROUP_HEADER_SIZE], UUID, SALT)
    assert group is not None
    directory = decode_directory(data[GROUP_HEADER_SIZE : group.records_offset], group, SALT)
    assert directory is not None
    headers = [decode_at(data, line.offset) for line in directory]
    assert [header.txn for header in headers] == [TxnId(0, 0), TxnId(2**64 - 1, 2**40), None]
    assert list(headers[0].message_counts) == [1, 3]
    body = directory[0].offset + headers[0].header_length
    assert data[body : body + headers[0].body_length] == b"firstsecond!"


def test_an_unknown_layout_is_refused_by_name() -> None:
    header = encode_record_header(KIND_ENTRIES, 1, 2, 0, -1, lengths=[5], body_length=5, body_crc=1)
    header[5] |= 8
    salt_record_header(header, SALT)
    with pytest.raises(UnsupportedFormat, match="layout"):
        decode_record_header(bytes(header), SALT)


def test_the_layout_of_a_group_is_the_golden_one() -> None:
    assert golden_group() == (GOLDEN / "group.bin").read_bytes()


def test_the_golden_group_is_still_understood() -> None:
    data = (GOLDEN / "group.bin").read_bytes()
    group = decode_group_header(data[:GROUP_HEADER_SIZE], UUID, SALT)
    assert group is not None
    assert (group.sequence, group.record_count, group.durable) == (42, 4, Durable(41, 3, 8192))
    directory = decode_directory(data[GROUP_HEADER_SIZE : group.records_offset], group, SALT)
    assert directory is not None
    assert [(line.ledger_id, line.first_entry_id, line.entry_count) for line in directory] == [
        (1, 0, 2),
        (1, 2, 2),
        (7, 12, 1),
        (9, -1, 0),
    ]
    first = decode_at(data, directory[0].offset)
    assert first.message_counts is not None
    assert first.lengths is not None
    assert (list(first.lengths), list(first.message_counts)) == ([5, 7], [1, 3])
    assert (first.publish_time_ms, first.first_index, first.run_flags) == (1_700_000_000_123, 1_000, 1)
    body = directory[0].offset + first.header_length
    assert data[body : body + first.body_length] == b"firstsecond!"
    assert decode_at(data, directory[1].offset).lengths is None
    assert decode_at(data, directory[3].offset).kind == KIND_FENCE
    assert decode_at(data, directory[3].offset).lac == 41


def decode_at(data: bytes, offset: int):  # type: ignore[no-untyped-def]
    length = record_header_length(data[offset : offset + RECORD_HEADER_SIZE])
    header = decode_record_header(data[offset : offset + length], SALT)
    assert header is not None
    return header


runs = st.lists(st.binary(max_size=200), min_size=1, max_size=20)


@given(st.lists(runs, max_size=8), st.booleans(), st.integers(0, 2**32 - 1))
def test_every_group_reads_back_as_written(bodies: list[list[bytes]], counted: bool, salt: int) -> None:
    records = [
        record(ledger, 10 * ledger, entries, [n + 2 for n in range(len(entries))] if counted else None)
        for ledger, entries in enumerate(bodies)
    ]
    buffers, offsets = encode_group(records, UUID, salt, 1, Durable(0, 0, BLOCK))
    data = b"".join(buffers)
    assert len(data) == align(encoded_group_length(records), BLOCK)
    group = decode_group_header(data[:GROUP_HEADER_SIZE], UUID, salt)
    assert group is not None
    assert group.byte_length == encoded_group_length(records)
    directory = decode_directory(data[GROUP_HEADER_SIZE : group.records_offset], group, salt)
    assert directory is not None
    assert [line.offset for line in directory] == offsets
    for line, entries in zip(directory, bodies, strict=True):
        assert line.offset % UNIT == 0
        length = record_header_length(data[line.offset : line.offset + RECORD_HEADER_SIZE])
        header = decode_record_header(data[line.offset : line.offset + length], salt)
        assert header is not None
        body = data[line.offset + length : line.offset + length + header.body_length]
        bounds = header.entry_bounds()
        assert [body[bounds[i] : bounds[i + 1]] for i in range(header.entry_count)] == entries
        assert crc32c(body) == header.body_crc


def test_large_bodies_are_handed_on_without_a_copy() -> None:
    large = bytes(COPY_BYTES_MAX)
    buffers, _ = encode_group(
        [record(1, 0, [b"small", large]), record(2, 0, [large])], UUID, SALT, 1, Durable(0, 0, BLOCK)
    )
    assert sum(buffer is large for buffer in buffers) == 2


@given(st.integers(0, 8 * (GROUP_HEADER_SIZE + DIRECTORY_ENTRY_SIZE * 4) - 1))
def test_no_flipped_bit_of_a_group_header_or_directory_goes_unnoticed(bit: int) -> None:
    data = bytearray(golden_group())
    data[bit // 8] ^= 1 << bit % 8
    group = decode_group_header(bytes(data[:GROUP_HEADER_SIZE]), UUID, SALT)
    if bit // 8 < GROUP_HEADER_SIZE:
        assert group is None
    else:
        assert group is not None
        assert decode_directory(bytes(data[GROUP_HEADER_SIZE : group.records_offset]), group, SALT) is None


@given(st.data())
def test_no_flipped_bit_of_a_record_header_goes_unnoticed(data: st.DataObject) -> None:
    header = record(3, 9, [b"a", b"bb", b"ccc"], [1, 2, 3]).header
    salt_record_header(header, SALT)
    bit = data.draw(st.integers(0, 8 * len(header) - 1))
    damaged = bytearray(header)
    damaged[bit // 8] ^= 1 << bit % 8
    assert decode_record_header(bytes(header), SALT) is not None
    assert decode_record_header(bytes(damaged), SALT) is None


def test_groups_and_records_of_another_segment_are_refused() -> None:
    data = golden_group()
    assert decode_group_header(data[:GROUP_HEADER_SIZE], bytes(16), SALT) is None
    assert decode_group_header(data[:GROUP_HEADER_SIZE], UUID, SALT + 1) is None
    header = bytes(record(1, 0, [b"x"]).header)
    assert decode_record_header(header, SALT) is None, "not salted yet"


@given(st.binary(max_size=400), st.integers(0, 2**32 - 1))
def test_hostile_bytes_are_never_a_record(data: bytes, salt: int) -> None:
    assert decode_group_header(b"MGRP" + data, UUID, salt) is None
    header = b"MREC" + data
    assert decode_record_header(header, salt) is None
    assert record_header_length(header) <= RECORD_HEADER_SIZE + 8 * 2**32


def test_an_unknown_version_or_feature_bit_stops_with_a_clear_message() -> None:
    check_format(1, 0, "x")
    with pytest.raises(UnsupportedFormat, match="segment 7 has format version 2"):
        check_format(2, 0, "segment 7")
    with pytest.raises(UnsupportedFormat, match="incompatible features 0x4"):
        check_format(1, 4, "segment 7")


def test_an_entry_is_checked_by_the_crc_it_carries() -> None:
    covered = random.Random(1).randbytes(50)
    entry = b"\x0e\x01" + crc32c(covered).to_bytes(4, "big") + covered
    assert entry_checksum_matches(entry) is True
    assert entry_checksum_matches(entry[:-1] + b"?") is False
    assert entry_checksum_matches(b"no magic here") is None
    assert entry_checksum_matches(b"") is None
