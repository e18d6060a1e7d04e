"""Ledgers to search: writes runs as the objects of one ledger, and searches them."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

from magnetar.common.naming.topic_name import TopicName
from magnetar.ledger.cold.aborted_entries import AbortedEntries
from magnetar.ledger.cold.layout import MANIFEST_NAME, Manifest, Part, attempt_path, part_name
from magnetar.ledger.cold.part_writer import PartInfo, PartWriter
from magnetar.ledger.cold.rows import rows_of
from magnetar.ledger.cold.search.chunk_contents import ChunkContents
from magnetar.ledger.cold.search.cold_objects import ColdObjects
from magnetar.ledger.cold.search.condition import Condition, SearchedMessage
from magnetar.ledger.cold.search.ledger_search import LedgerSearch, Looked, Step
from magnetar.ledger.ledger_store import Run

TOPIC = TopicName.parse("persistent://public/default/orders-partition-2")
ATTEMPT = bytes(range(16))


def write_ledger(
    directory: Path,
    runs: Sequence[Run],
    *,
    part_runs: int = 1_000_000,
    row_group_bytes: int = 2_000,
    aborted: AbortedEntries | None = None,
    attempt: bytes = ATTEMPT,
) -> ColdObjects:
    """The objects of the runs' ledger below `directory`, in parts of `part_runs` runs."""
    ledger_id = runs[0].ledger_id
    path = attempt_path(TOPIC, ledger_id, attempt)
    (directory / path).mkdir(parents=True)
    parts: list[Part] = []
    for number, first in enumerate(range(0, len(runs), part_runs)):
        info = PartInfo(name=part_name(number), topic=TOPIC.full, ledger_id=ledger_id)
        with open(directory / path / info.name, "wb") as file:
            writer = PartWriter(file, info, row_group_bytes=row_group_bytes)
            writer.write(rows_of(runs[first : first + part_runs], partition=2, aborted=aborted))
            parts.append(writer.close())
    manifest = Manifest(
        topic=TOPIC.full,
        creation_id=3,
        ledger_id=ledger_id,
        ledger_key=5,
        attempt=attempt,
        first_entry_id=0,
        last_entry_id=runs[-1].last_entry_id,
        entries=sum(part.entries for part in parts),
        rows=sum(part.rows for part in parts),
        raw_entries=sum(part.raw_entries for part in parts),
        first_index=runs[0].first_index,
        max_publish_time_ms=max(run.publish_time_ms for run in runs),
        exact=False,
        parts=tuple(parts),
        created_ms=1,
        release="test",
    ).to_json()
    (directory / path / MANIFEST_NAME).write_bytes(manifest)
    return ColdObjects(ledger_id, directory.as_uri(), path, hashlib.sha256(manifest).digest())


def search_steps(objects: ColdObjects, condition: Condition, looked: Looked | None = None) -> list[Step]:
    """Every step of the search in one ledger."""
    counted = Looked() if looked is None else looked
    return list(LedgerSearch(TOPIC.full, 2, objects, condition, ChunkContents(), counted).steps())


def search(objects: ColdObjects, condition: Condition, looked: Looked | None = None) -> list[SearchedMessage]:
    """Every message that the search finds."""
    return [message for step in search_steps(objects, condition, looked) for message in step.messages]
