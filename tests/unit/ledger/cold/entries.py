"""Entries as clients send them, and what a client makes of one: for the tests of the cold tier."""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence
from typing import Any

from magnetar.common.errors import DataCorruption
from magnetar.common.wire.batch import batch_messages, parse_metadata, payload_of
from magnetar.common.wire.frame import encode_entry
from magnetar.common.wire.pulsar_pb2 import NONE, CompressionType, MessageMetadata, SingleMessageMetadata
from magnetar.ledger.cold.part_reader import PartReader
from magnetar.ledger.cold.part_writer import PartInfo, PartWriter
from magnetar.ledger.cold.rows import Rows
from magnetar.ledger.ledger_store import Run
from magnetar.ledger.payload_codecs import compress, decompress

LEDGER_ID = 7
PUBLISHED_MS = 1_700_000_000_000
TAKEN_MS = PUBLISHED_MS + 5
INFO = PartInfo(name="part-00000.parquet", topic="persistent://public/default/orders", ledger_id=LEDGER_ID)


def metadata(**fields: Any) -> MessageMetadata:
    """With the required fields, unless `fields` say them."""
    required = {"producer_name": "producer", "sequence_id": 1, "publish_time": PUBLISHED_MS}
    return MessageMetadata(**{**required, **fields})


def single(payload: bytes = b"hello", compression: CompressionType.ValueType = NONE, **fields: Any) -> bytes:
    """The entry of one message."""
    of_entry = metadata(**fields)
    if compression != NONE:
        of_entry.compression = compression
        of_entry.uncompressed_size = len(payload)
    return encode_entry(of_entry.SerializeToString(), compress(compression, payload))


def batch_payload(messages: Sequence[tuple[bytes, dict[str, Any]]]) -> bytes:
    """Messages, each with its fields, as they stand in a batch."""
    parts = []
    for payload, fields in messages:
        own = SingleMessageMetadata(**{"payload_size": len(payload), **fields}).SerializeToString()
        parts += [len(own).to_bytes(4, "big"), own, payload]
    return b"".join(parts)


def batch(
    messages: Sequence[tuple[bytes, dict[str, Any]]],
    compression: CompressionType.ValueType = NONE,
    **fields: Any,
) -> bytes:
    """The entry of a batch."""
    return single(batch_payload(messages), compression, **{"num_messages_in_batch": len(messages), **fields})


def run(entries: Sequence[bytes], counts: Sequence[int] | None = None, **fields: Any) -> Run:
    """A run that begins ledger LEDGER_ID, unless `fields` say otherwise."""
    envelope = {"publish_time_ms": TAKEN_MS, "first_index": 100, "first_entry_id": 0}
    return Run(list(entries), message_counts=counts, ledger_id=LEDGER_ID, **{**envelope, **fields})


def entries_of(runs: Iterable[Run]) -> list[tuple[Any, ...]]:
    """(ledger, entry id, publish time, index, messages, flags, bytes) of each entry, however they are cut."""
    found = []
    for each in runs:
        index = each.first_index
        for number, entry in enumerate(each.entries):
            count = 1 if each.message_counts is None else each.message_counts[number]
            of_run = (each.ledger_id, each.first_entry_id + number, each.publish_time_ms)
            found.append((*of_run, index, count, each.flags, entry))
            index += count
    return found


def seen(entry: bytes) -> Any:
    """What a client makes of an entry's bytes, compressed or not; the bytes themselves where nothing."""
    try:
        of_entry = parse_metadata(entry)
        payload = bytes(payload_of(entry))
        if of_entry.encryption_keys or of_entry.num_chunks_from_msg > 1:
            return entry
        payload = decompress(of_entry.compression, payload, of_entry.uncompressed_size)
        of_entry.ClearField("compression")
        told = of_entry.SerializeToString(deterministic=True)
        if not of_entry.HasField("num_messages_in_batch"):
            return told, payload
        inside = batch_messages(payload, of_entry.num_messages_in_batch)
        return told, [(own.SerializeToString(deterministic=True), bytes(part)) for own, part in inside]
    except DataCorruption:
        return entry


def written(*rows: Rows, row_group_bytes: int = 16 << 20) -> tuple[bytes, PartReader]:
    """The object of a part of these rows, and a reader of it; what the writer says of it has been checked."""
    sink = io.BytesIO()
    writer = PartWriter(sink, INFO, row_group_bytes=row_group_bytes)
    for each in rows:
        writer.write(each)
    part = writer.close()
    reader = PartReader(io.BytesIO(sink.getvalue()))
    assert reader.check().differences(part) == []
    assert part.byte_length == len(sink.getvalue())
    return sink.getvalue(), reader


def row(rows: Rows, number: int = 0) -> dict[str, Any]:
    """One row by column names."""
    return {name: values[number] for name, values in rows.columns.items()}
