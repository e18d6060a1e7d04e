"""Encoding of runs as consecutive records of the segment layout, with unsalted headers and no padding.

Entries travel from a broker to a job in this form, so that the job can verify the writer's checksums.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from magnetar.common.errors import DataCorruption
from magnetar.ledger.bookie_protocol.bookie_pb2 import Record
from magnetar.ledger.bookie_protocol.records import encode_run, read_record, run_of
from magnetar.ledger.ledger_store import LedgerRef, Run
from magnetar.ledger.segment_log.codec_v1 import RECORD_HEADER_SIZE, UNSALTED, decode_record_header
from magnetar.ledger.segment_log.codec_v1 import record_header_length as header_length_of


def encode_records(runs: Iterable[Run], ref: LedgerRef, last_confirmed: int) -> bytes:
    """Encodes runs with assigned entry ids as records."""
    parts: list[bytes] = []
    for run in runs:
        record = encode_run(run, ref, last_confirmed)
        parts += (record.header, record.body)
    return b"".join(parts)


def decode_records(data: bytes, ref: LedgerRef) -> Iterator[Run]:
    """Decodes and verifies the runs in records of that ledger.

    Raises DataCorruption on a checksum mismatch, UnsupportedFormat for a record of a later release.
    """
    at = 0
    while at < len(data):
        fixed = data[at : at + RECORD_HEADER_SIZE]
        length = header_length_of(fixed)
        if length < 0:
            raise DataCorruption(f"no record of ledger {ref.id} begins at byte {at} of an answer")
        raw = data[at : at + length]
        header = decode_record_header(raw, UNSALTED)
        if header is None:
            raise DataCorruption(f"the header of a record of ledger {ref.id} is damaged")
        at += length
        record = Record(header=raw, body=data[at : at + header.body_length])
        header, _, body = read_record(record)
        if (header.ledger_id, header.ledger_key) != (ref.id, ref.key):
            raise DataCorruption(f"a record of ledger {header.ledger_id} came for one of ledger {ref.id}")
        yield run_of(header, body)
        at += header.body_length
