"""Records of a log's last groups that recovery keeps: written again, synced, and entered into an index."""

from __future__ import annotations

from magnetar.ledger.ledger_store import LedgerRef
from magnetar.ledger.segment_log.codec_v1 import (
    KIND_ENTRIES,
    KIND_FENCE,
    KIND_HOLE,
    KIND_LIMBO,
    Durable,
    EncodedRecord,
    RecordHeader,
    encode_group,
)
from magnetar.ledger.segment_log.file_codec_v1 import pack_doubt
from magnetar.ledger.segment_log.scan import RecordAt, Window, read_record
from magnetar.ledger.segment_log.segment import Segment


def enter_record(segment: Segment, record: RecordAt) -> None:
    """Adds an intact record to the index of its segment."""
    header = record.header
    index = segment.index_of(LedgerRef(header.ledger_id, header.ledger_key))
    index.lac = max(index.lac, header.lac)
    if header.kind == KIND_ENTRIES:
        index.add_run(
            header.first_entry_id, header.entry_count, record.offset, header.body_length, header.lac
        )
        segment.entries += header.entry_count
    elif header.kind == KIND_HOLE:
        index.add_run(header.first_entry_id, header.entry_count, record.offset, 0, header.lac)
        segment.entries += header.entry_count
    else:
        index.fenced |= header.kind == KIND_FENCE
        if header.kind == KIND_LIMBO:
            index.doubt = max(index.doubt, pack_doubt(header.first_index or 1, header.run_flags))


def copy_record(window: Window, record: RecordAt, header: RecordHeader, body: bytes) -> EncodedRecord:
    """Returns the record from its file, ready to be written again."""
    raw = bytearray(window.read(record.offset, header.header_length))
    return EncodedRecord(
        header.ledger_id,
        header.ledger_key,
        header.first_entry_id,
        header.entry_count,
        raw,
        [body],
        header.body_length,
    )


def batch_records(records: list[EncodedRecord], bytes_max: int) -> list[list[EncodedRecord]]:
    """Yields the records in groups of at most `bytes_max` bytes; a larger one has a group of its own."""
    batches: list[list[EncodedRecord]] = []
    size = 0
    for record in records:
        if not batches or size + record.record_length > bytes_max:
            batches.append([])
            size = 0
        batches[-1].append(record)
        size += record.record_length
    return batches


def write_group(segment: Segment, records: list[EncodedRecord], sequence: int, durable: Durable) -> Durable:
    """Writes records as one group of a new segment, syncs, and indexes them. Blocks; raises OSError."""
    header = segment.header
    buffers, offsets = encode_group(records, header.uuid, header.salt, sequence, durable)
    start = segment.end
    segment.file.pwritev(buffers, start)
    segment.file.fdatasync()
    window = Window(segment)
    for offset in offsets:
        record = read_record(segment, window, start + offset)
        assert record is not None, "a record that was just written is sound"
        enter_record(segment, record)
    segment.end = segment.durable_end = start + sum(map(len, buffers))
    segment.filled_end = max(segment.filled_end, segment.end)
    segment.last_group_sequence = sequence
    return segment.durable(sequence)
