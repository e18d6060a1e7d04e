"""Writes ledgers as Parquet objects into a directory, as an offload job does."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

from magnetar.common.naming.topic_name import TopicName
from magnetar.common.wire.frame import encode_entry
from magnetar.common.wire.pulsar_pb2 import MessageMetadata, SingleMessageMetadata
from magnetar.ledger.cold.cold_reader import ColdLedger
from magnetar.ledger.cold.layout import MANIFEST_NAME, Manifest, Part, attempt_path, part_name
from magnetar.ledger.cold.part_writer import PartInfo, PartWriter
from magnetar.ledger.cold.rows import rows_of
from magnetar.ledger.ledger_store import LedgerRef, Run

TOPIC = TopicName.parse("persistent://public/default/orders")
CREATION_ID = 3
REF = LedgerRef(7, 2**63 + 5)
ATTEMPT = bytes(range(16))
STARTED_MS = 1_700_000_000_000


def message(number: int, size: int = 20) -> bytes:
    """The entry of one message, whose payload begins with its number."""
    metadata = MessageMetadata(producer_name="p", sequence_id=number, publish_time=STARTED_MS)
    return encode_entry(metadata.SerializeToString(), b"%d " % number + bytes(size))


def batch(number: int, count: int, payload: bytes) -> bytes:
    """The entry of a batch of equal messages."""
    own = SingleMessageMetadata(payload_size=len(payload), partition_key="k").SerializeToString()
    metadata = MessageMetadata(
        producer_name="p", sequence_id=number, publish_time=STARTED_MS, num_messages_in_batch=count
    )
    one = len(own).to_bytes(4, "big") + own + payload
    return encode_entry(metadata.SerializeToString(), one * count)


def messages(entries: int, *, size: int = 20, at_once: int = 3, step_ms: int = 10) -> list[Run]:
    """Runs of so many entries, a few at the same time each."""
    runs = []
    for first in range(0, entries, at_once):
        numbers = range(first, min(entries, first + at_once))
        runs.append(
            Run(
                [message(number, size) for number in numbers],
                STARTED_MS + step_ms * (first // at_once),
                first,
                ledger_id=REF.id,
                first_entry_id=first,
            )
        )
    return runs


def write_ledger(
    directory: Path,
    runs: Sequence[Run],
    *,
    parts: int = 1,
    row_group_bytes: int = 2_000,
    attempt: bytes = ATTEMPT,
    ref: LedgerRef = REF,
) -> ColdLedger:
    """The objects of a ledger with these runs, below `directory`."""
    path = attempt_path(TOPIC, ref.id, attempt)
    (directory / path).mkdir(parents=True)
    each = -(-len(runs) // parts)
    written: list[Part] = []
    for number, first in enumerate(range(0, len(runs), each)):
        name = part_name(number)
        info = PartInfo(name=name, topic=TOPIC.full, ledger_id=ref.id)
        with open(directory / path / name, "wb") as file:
            writer = PartWriter(file, info, row_group_bytes=row_group_bytes)
            writer.write(rows_of(runs[first : first + each], partition=-1))
            written.append(writer.close())
    manifest = Manifest(
        topic=TOPIC.full,
        creation_id=CREATION_ID,
        ledger_id=ref.id,
        ledger_key=ref.key,
        attempt=attempt,
        first_entry_id=0,
        last_entry_id=runs[-1].last_entry_id,
        entries=sum(part.entries for part in written),
        rows=sum(part.rows for part in written),
        raw_entries=sum(part.raw_entries for part in written),
        first_index=runs[0].first_index,
        max_publish_time_ms=max(run.publish_time_ms for run in runs),
        exact=False,
        parts=tuple(written),
        created_ms=STARTED_MS,
        release="test",
    ).to_json()
    (directory / path / MANIFEST_NAME).write_bytes(manifest)
    return ColdLedger(
        TOPIC.full,
        CREATION_ID,
        ref,
        runs[-1].last_entry_id,
        directory.as_uri(),
        path,
        attempt,
        hashlib.sha256(manifest).digest(),
    )


def entries_of(runs: Sequence[Run]) -> list[tuple[int, bytes, int, int, int]]:
    """What a client could tell apart: entry id, bytes, time, index, messages."""
    found = []
    for run in runs:
        index = run.first_index
        for number, data in enumerate(run.entries):
            count = 1 if run.message_counts is None else run.message_counts[number]
            found.append((run.first_entry_id + number, data, run.publish_time_ms, index, count))
            index += count
    return found
