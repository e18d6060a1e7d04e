"""Offloads ledgers of a server as a job does, in this process and without Spark."""

from __future__ import annotations

import hashlib
import os
import shutil
import time
from collections.abc import Iterator
from typing import Final

from magnetar.common.naming.topic_name import TopicName
from magnetar.common.offload.offload_client import OffloadChannel
from magnetar.common.offload.offload_pb2 import CompleteRequest, Ledger
from magnetar.ledger.cold.aborted_entries import decode_aborted
from magnetar.ledger.cold.cold_reader import ColdLedger
from magnetar.ledger.cold.layout import MANIFEST_NAME, Manifest, part_name
from magnetar.ledger.cold.objects import open_store
from magnetar.ledger.cold.part_writer import PartInfo, PartWriter
from magnetar.ledger.cold.rows import rows_of
from magnetar.ledger.ledger_store import LedgerRef, Run
from magnetar.ledger.offload_reads import read_runs

from tests.integration.harness import temporary_directory

RUNS_AT_ONCE: Final = 8 << 20


def offload(channel: OffloadChannel, topic: str, location: str, ledger: Ledger) -> ColdLedger:
    """One ledger, from Begin to Complete, in one part."""
    described = channel.find(topic, ledger.ledger_id)
    assert described is not None
    assert not described.held
    aborted = decode_aborted(described.aborted)
    attempt = os.urandom(16)
    begun = channel.begin(topic, ledger.creation_id, ledger.ledger_id, attempt)
    ref = LedgerRef(begun.ledger_id, begun.ledger_key)
    store, path = open_store(location), begun.offload.path
    info = PartInfo(name=part_name(0), topic=topic, ledger_id=ref.id)
    directory = temporary_directory()
    local = directory / info.name
    partition, latest, first_index = TopicName.parse(topic).partition_index, 0, -1
    try:
        with open(local, "wb") as file:
            writer = PartWriter(file, info)
            read = read_runs(channel, topic, ref, 0, begun.last_entry_id, sleep=time.sleep)
            for runs in _lots(read):
                rows = rows_of(runs, partition=partition, aborted=aborted)
                latest = max(latest, rows.max_publish_time_ms)
                first_index = runs[0].first_index if first_index < 0 else first_index
                writer.write(rows)
            part = writer.close()
        store.put_file(str(local), f"{path}/{info.name}")
    finally:
        shutil.rmtree(directory)
    manifest = Manifest(
        topic=topic,
        creation_id=begun.creation_id,
        ledger_id=ref.id,
        ledger_key=ref.key,
        attempt=attempt,
        first_entry_id=0,
        last_entry_id=begun.last_entry_id,
        entries=part.entries,
        rows=part.rows,
        raw_entries=part.raw_entries,
        first_index=first_index,
        max_publish_time_ms=latest,
        exact=False,
        parts=(part,),
        created_ms=latest,
        release="test",
    ).to_json()
    store.put_bytes(f"{path}/{MANIFEST_NAME}", manifest)
    sha256 = hashlib.sha256(manifest).digest()
    channel.complete(
        CompleteRequest(
            topic=topic,
            creation_id=begun.creation_id,
            ledger_id=ref.id,
            attempt=attempt,
            entries=part.entries,
            rows=part.rows,
            raw_entries=part.raw_entries,
            object_bytes=part.byte_length,
            manifest_sha256=sha256,
        )
    )
    return ColdLedger(topic, begun.creation_id, ref, begun.last_entry_id, location, path, attempt, sha256)


def _lots(runs: Iterator[Run]) -> Iterator[list[Run]]:
    """A few MiB at a time."""
    lot: list[Run] = []
    for run in runs:
        lot.append(run)
        if sum(each.byte_length for each in lot) >= RUNS_AT_ONCE:
            yield lot
            lot = []
    if lot:
        yield lot


def offload_all(address: str, topic: str, location: str) -> list[ColdLedger]:
    """Every closed ledger of the topic, by the offload service at this address."""
    with OffloadChannel(address) as channel:
        return [offload(channel, topic, location, each) for each in channel.want(topic, location=location)]
