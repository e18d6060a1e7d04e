"""Catching up: one ledger of 1 KiB entries is read from its first entry to its last, after compaction.

It was written beside many others, so that its records lay scattered over the segment; compaction has put them
in a row. The page cache holds all of it: it was just written, and one pass is made before those that count.
"""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path
from statistics import median
from typing import Any

from magnetar.common.errors import StorageError
from magnetar.ledger.ledger_store import (
    LedgerListener,
    LedgerReader,
    LedgerRef,
    LedgerStore,
    LedgerWriter,
    Run,
)
from magnetar.ledger.quorum.quorum_store import QuorumLedgerStore
from magnetar.ledger.segment_log.config import SegmentLogConfig
from magnetar.ledger.segment_log.file_codec_v1 import FLAG_SORTED

from bench.storage.procfs import cpu_seconds
from bench.storage.stores import local_store

ENTRY_BYTES = 1024
NEIGHBORS = 15
"""Other ledgers that are written in turn with the one that is read, a tenth as much each."""
READ_BYTES = 4 << 20
"""Asked for at a time, one read after the other."""
IN_FLIGHT_ENTRIES = 10_000


class _Watermark:
    def __init__(self) -> None:
        self.last = -1
        self.error: StorageError | None = None
        self.news = asyncio.Event()
        self.listener = LedgerListener(self._confirmed, self._failed)

    def _confirmed(self, last_confirmed: int) -> None:
        self.last = last_confirmed
        self.news.set()

    def _failed(self, error: StorageError, _last_confirmed: int) -> None:
        self.error = error
        self.news.set()


async def write_backlog(store: LedgerStore, byte_length: int, run_entries: int) -> LedgerRef:
    """Write a ledger of so many bytes, and its neighbors in turn with it, one copy each, and close them."""

    async def create(listener: LedgerListener) -> LedgerWriter:
        return await store.create(
            listener, ensemble_size=1, write_quorum=1, ack_quorum=1, properties={"kind": "bench"}
        )

    mark = _Watermark()
    writer = await create(mark.listener)
    quiet = LedgerListener(lambda _last: None, lambda _error, _last: None)
    neighbors = [await create(quiet) for _ in range(NEIGHBORS)]
    for number in range(byte_length // (ENTRY_BYTES * run_entries)):
        entries = [os.urandom(ENTRY_BYTES) for _ in range(run_entries)]
        last = writer.append(Run(entries, publish_time_ms=1)) + run_entries - 1
        neighbors[number % NEIGHBORS].append(Run(entries[:1], publish_time_ms=1))
        while last - mark.last > IN_FLIGHT_ENTRIES:
            mark.news.clear()
            await mark.news.wait()
            if mark.error is not None:
                raise mark.error
    for each in (writer, *neighbors):
        await each.close()
    return writer.ref


async def catch_up(reader: LedgerReader) -> tuple[int, float]:
    """Read all of it once: (bytes of entries, seconds)."""
    began, byte_length, entry_id = time.perf_counter(), 0, 0
    end = reader.last_confirmed
    while entry_id <= end:
        for run in await reader.read(entry_id, end, READ_BYTES):
            byte_length += run.byte_length
            entry_id = run.last_entry_id + 1
    return byte_length, time.perf_counter() - began


async def _passes(reader: LedgerReader, passes: int) -> dict[str, Any]:
    await catch_up(reader)
    cpu, rates = time.process_time(), []
    for _ in range(passes):
        byte_length, seconds = await catch_up(reader)
        rates.append(byte_length / seconds / 1e6)
    cpu = time.process_time() - cpu
    return {
        "MB/s": median(rates),
        "MB": byte_length / 1e6,
        "process us/MB": 1e12 * cpu / passes / byte_length,
    }


async def measure_local_reads(
    directory: Path, byte_length: int, run_entries: int, passes: int
) -> dict[str, Any]:
    """The local log: written, sealed by a restart, compacted, read."""
    config = SegmentLogConfig(
        free_space_headroom_bytes=0, sort_after_s=0.001, compaction_bytes_per_s=1 << 30, gc_wait_ms=10**8
    )
    async with local_store(directory, config) as store:
        ref = await write_backlog(store, byte_length, run_entries)
    async with local_store(directory, config) as store:
        await asyncio.sleep(0.01)
        await store.log.space.reclaim(())
        segments = store.log.segments_of(ref)
        if not all(segment.header.flags & FLAG_SORTED for segment in segments):
            raise RuntimeError("compaction left the backlog as it was")
        return await _passes(await store.open(ref), passes)


async def measure_quorum_reads(
    store: QuorumLedgerStore, ledger: dict[str, int], passes: int, pids: list[int]
) -> dict[str, Any]:
    """The quorum client, from the bookie that has the ledger."""
    reader = await store.open(LedgerRef(ledger["id"], ledger["key"]))
    await catch_up(reader)
    before = sum(map(cpu_seconds, pids))
    figures = await _passes(reader, passes)
    cpu = sum(map(cpu_seconds, pids)) - before
    figures["bookie us/MB"] = 1e6 * cpu / (passes + 1) / figures["MB"]
    return figures
