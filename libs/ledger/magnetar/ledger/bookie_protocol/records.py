"""Runs as records on the wire: the segment log's record layout, its header's CRC unsalted."""

from __future__ import annotations

from typing import Final

from magnetar.common.errors import DataCorruption
from magnetar.ledger.bookie_protocol.bookie_client import EncodedAppend
from magnetar.ledger.bookie_protocol.bookie_pb2 import Append, AppendBatch, LacUpdate, Record
from magnetar.ledger.bookie_protocol.bookie_pb2 import LedgerRef as WireRef
from magnetar.ledger.ledger_store import LedgerRef, Run
from magnetar.ledger.segment_log.codec_v1 import (
    KIND_ENTRIES,
    RecordHeader,
    body_intact,
    checksum_body,
    decode_record_header,
    encode_record_header,
    salt_record_header,
)

WIRE_SALT: Final = 0


def encode_run(run: Run, ref: LedgerRef, lac: int) -> Record:
    """Encodes a run with assigned entry ids as a record; joins its entries (one copy)."""
    body = b"".join(run.entries)
    header = encode_record_header(
        KIND_ENTRIES,
        ref.id,
        ref.key,
        run.first_entry_id,
        lac,
        run_flags=run.flags,
        publish_time_ms=run.publish_time_ms,
        first_index=run.first_index,
        lengths=list(map(len, run.entries)),
        message_counts=run.message_counts,
        body_length=len(body),
        body_crc=checksum_body([body]),
        txn=run.txn,
    )
    salt_record_header(header, WIRE_SALT)
    return Record(header=bytes(header), body=body)


def encode_append(run: Run, ref: LedgerRef, lac: int, *, recovery: bool = False) -> EncodedAppend:
    """Encodes a run for any number of bookies."""
    batch = AppendBatch(appends=[Append(record=encode_run(run, ref, lac), recovery=recovery)])
    return EncodedAppend(ref, run.first_entry_id, len(run.entries), batch.SerializeToString())


def encode_lac(ref: LedgerRef, lac: int) -> bytes:
    """Encodes an explicit LAC as a part of an AppendBatch."""
    return AppendBatch(lacs=[LacUpdate(ledger=WireRef(id=ref.id, key=ref.key), lac=lac)]).SerializeToString()


def read_record(record: Record) -> tuple[RecordHeader, bytes, bytes]:
    """Returns a verified record's header, its bytes and the body; each is read from the message once, because
    that copies it.

    Raises DataCorruption on a checksum mismatch, UnsupportedFormat for a record of a later release.
    """
    raw, body = record.header, record.body
    header = decode_record_header(raw, WIRE_SALT)
    if header is None or header.kind != KIND_ENTRIES or header.first_entry_id < 0 or not header.entry_count:
        raise DataCorruption("a record's header is damaged")
    if len(body) != header.body_length or not body_intact(body, header.body_crc):
        raise DataCorruption(
            f"the body of entries {header.ledger_id}:{header.first_entry_id} to "
            f"{header.last_entry_id} does not match its checksum"
        )
    return header, raw, body


def check_record(record: Record) -> RecordHeader:
    """Returns a verified record's header; raises as `read_record`."""
    return read_record(record)[0]


def decode_run(record: Record) -> Run:
    """Decodes the run of a record; raises as `read_record`."""
    header, _, body = read_record(record)
    return run_of(header, body)


def run_of(header: RecordHeader, body: bytes) -> Run:
    """Returns the run of a verified record's header and body."""
    bounds = header.entry_bounds()
    return Run(
        entries=[body[bounds[i] : bounds[i + 1]] for i in range(header.entry_count)],
        publish_time_ms=header.publish_time_ms,
        first_index=header.first_index,
        message_counts=header.message_counts,
        flags=header.run_flags,
        ledger_id=header.ledger_id,
        first_entry_id=header.first_entry_id,
        byte_length=header.body_length,
        txn=header.txn,
    )
