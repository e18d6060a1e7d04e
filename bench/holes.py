"""`python -m bench.holes`: a subscription with a million unacknowledged holes, restored after a restart.

Every second entry of a topic is acknowledged by itself, in random order, with a flush every now and then;
then storage is opened anew, as a starting server does, and the topic is loaded. No network is involved.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from magnetar.common.errors import StorageError
from magnetar.common.metadata.keys import Keys
from magnetar.common.metadata.sqlite_store import SqliteMetadataStore
from magnetar.common.naming.position import EARLIEST
from magnetar.common.runtime.blocking import ThreadPool
from magnetar.common.runtime.clock import SystemClock
from magnetar.common.runtime.posix_disk import PosixDisk
from magnetar.ledger.ledger_store import Run
from magnetar.ledger.local_store import open_local_store
from magnetar.ledger.managed_ledger import (
    Cursor,
    EntryCache,
    ManagedLedger,
    ManagedLedgerConfig,
    ManagedLedgerContext,
    open_managed_ledger,
)
from magnetar.ledger.segment_log.config import SegmentLogConfig
from magnetar.ledger.segment_log.syncer import ThreadSyncer

from bench.target import report

TOPIC = "persistent://public/default/holes"
SUBSCRIPTION = "holes"

_RUN_ENTRIES = 1_000
_IN_FLIGHT_RUNS = 20
_FLUSHES = 20


@dataclass(frozen=True, slots=True)
class Restored:
    """The received entries, and the seconds it took."""

    cursor: Cursor
    ledger_id: int
    storage_s: float
    topic_s: float
    """From asking for the topic until its cursor is there."""


class _Listener:
    def __init__(self) -> None:
        self.confirmed = 0
        self._more = asyncio.Event()

    async def reached(self, entries: int) -> None:
        while self.confirmed < entries:
            self._more.clear()
            await self._more.wait()

    def on_confirmed(self, publishes: list[tuple[Run, object]]) -> None:
        self.confirmed += sum(len(run.entries) for run, _ in publishes)
        self._more.set()

    def on_refused(self, publishes: list[tuple[Run, object]], error: StorageError) -> None:
        raise error

    def on_lost(self, error: StorageError) -> None:
        raise error


@asynccontextmanager
async def storage(directory: Path) -> AsyncIterator[ManagedLedgerContext]:
    """Metadata and log of a data directory, opened and closed in order."""
    (directory / "ledgers").mkdir(exist_ok=True)
    keys, clock = Keys("bench"), SystemClock()
    metadata = await SqliteMetadataStore.open(directory / "metadata.sqlite")
    pool = ThreadPool(2, "read")
    store = await open_local_store(
        PosixDisk(directory / "ledgers"),
        metadata,
        keys,
        instance_id=bytes(16),
        pool=pool,
        syncer=ThreadSyncer(asyncio.get_running_loop()),
        clock=clock,
        rng=random.Random(1),
        config=SegmentLogConfig(),
    )
    try:
        yield ManagedLedgerContext(store, metadata, keys, clock, ManagedLedgerConfig(), EntryCache(1 << 20))
    finally:
        await store.close()
        pool.close()
        await metadata.close()


async def flushed(ledger: ManagedLedger) -> None:
    done: asyncio.Future[StorageError | None] = asyncio.get_running_loop().create_future()
    ledger.flush_cursors(done.set_result)
    error = await done
    if error is not None:
        raise error


async def make_holes(directory: Path, holes: int) -> None:
    """A topic of twice as many entries, of which every second one is acknowledged: 1, 3, 5 and so on."""
    async with storage(directory) as ctx:
        listener = _Listener()
        ledger = await open_managed_ledger(ctx, TOPIC, listener, create=True, properties={})
        cursor = await ledger.create_cursor(SUBSCRIPTION, EARLIEST, {})
        entries = 2 * holes
        for first in range(0, entries, _RUN_ENTRIES):
            ledger.append(Run([b""] * min(_RUN_ENTRIES, entries - first)), None)
            await listener.reached(first - _IN_FLIGHT_RUNS * _RUN_ENTRIES)
        await listener.reached(entries)
        acknowledged = list(range(1, entries, 2))
        random.Random(1).shuffle(acknowledged)
        for part in range(_FLUSHES):
            cursor.ack_many(ledger.last_confirmed.ledger_id, acknowledged[part::_FLUSHES])
            await flushed(ledger)
        await ledger.close()


async def restore(directory: Path) -> Restored:
    """Open everything again and load the topic."""
    began = time.perf_counter()
    async with storage(directory) as ctx:
        opened = time.perf_counter()
        ledger = await open_managed_ledger(ctx, TOPIC, _Listener(), create=False, properties={})
        loaded = time.perf_counter()
        return Restored(
            ledger.cursors[SUBSCRIPTION],
            ledger.last_confirmed.ledger_id,
            storage_s=opened - began,
            topic_s=loaded - opened,
        )


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--holes", type=int, default=1_000_000, help="default 1,000,000")
    options = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as directory:
        asyncio.run(make_holes(Path(directory), options.holes))
        restored = asyncio.run(restore(Path(directory)))
    if restored.cursor.backlog() != options.holes:
        raise SystemExit(f"bench: {restored.cursor.backlog()} entries are left, not {options.holes}")
    figures = {
        "holes": options.holes,
        "storage opened ms": restored.storage_s * 1e3,
        "topic and cursor loaded ms": restored.topic_s * 1e3,
    }
    report("holes", figures)


if __name__ == "__main__":
    main()
