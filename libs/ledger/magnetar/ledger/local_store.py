"""Ledgers in this process: entries in the segment log, ledgers in the metadata store (Qw = Qa = 1).

A ledger is confirmed as far as it is durable here. Its end is decided once, by a compare-and-set of its
metadata to CLOSED: by its writer at the last add confirmed, or by a recovery after a durable fence.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Final

from magnetar.common.metadata.keys import Keys
from magnetar.common.metadata.store import MetadataStore, Op
from magnetar.common.metadata.values import LedgerMetadata
from magnetar.common.runtime.blocking import BlockingPool
from magnetar.common.runtime.clock import Clock
from magnetar.common.runtime.disk import Disk, DiskFile
from magnetar.ledger.data_directory import check_cookie, lock_data_directory
from magnetar.ledger.garbage_collector import GarbageCollector
from magnetar.ledger.ledger_catalog import LedgerCatalog
from magnetar.ledger.ledger_store import ClosedLedger, LedgerListener, LedgerRef, Obstacle
from magnetar.ledger.local_ledger import LocalLedgerReader, LocalLedgerWriter
from magnetar.ledger.segment_log.config import SegmentLogConfig
from magnetar.ledger.segment_log.log import SegmentLog
from magnetar.ledger.segment_log.segment import SEGMENTS_DIRECTORY
from magnetar.ledger.segment_log.syncer import Syncer

_RECORDS: Final = ("cursors", "transactions")
"""Kinds of ledgers of records."""


class LocalLedgerStore:
    """Created by `open_local_store`; implements `ledger_store.LedgerStore`."""

    def __init__(
        self,
        log: SegmentLog,
        metadata: MetadataStore,
        keys: Keys,
        clock: Clock,
        rng: random.Random,
        lock: DiskFile,
        disk: Disk,
        pool: BlockingPool,
    ) -> None:
        self.log = log
        self.garbage = GarbageCollector(log, metadata, keys, disk, pool, clock, lambda: self._writers)
        self._metadata = metadata
        self._catalog = LedgerCatalog(metadata, keys, clock, rng)
        self._lock = lock
        self._disk = disk
        self._writers: dict[LedgerRef, LocalLedgerWriter] = {}
        # One bound method each for all writers: otherwise every idle topic would have its own.
        self._commit_closed = self._catalog.commit_closed
        self._writer_gone = self._gone

    async def create(
        self,
        listener: LedgerListener,
        *,
        ensemble_size: int = 1,
        write_quorum: int = 1,
        ack_quorum: int = 1,
        properties: dict[str, str],
        with_ops: Callable[[LedgerRef], Sequence[Op]] | None = None,
    ) -> LocalLedgerWriter:
        """Creates a ledger; see `LedgerStore.create`. Quorums are recorded as 1: there is one local copy.

        Ledgers of records are written on a full disk too, into half of the reserve: acknowledgements and ends
        of transactions are what makes space.
        """
        ref, created = await self._catalog.create(
            LedgerMetadata(
                ensemble_size=1, write_quorum=1, ack_quorum=1, last_entry_id=-1, properties=properties
            ),
            with_ops,
        )
        self.garbage.saw_revision(created.version)
        self.log.ledger(ref).uses_reserve = properties.get("kind") in _RECORDS
        writer = LocalLedgerWriter(
            self.log,
            self._commit_closed,
            ref,
            created.key,
            created.value,
            created.version,
            listener,
            self._writer_gone,
        )
        self._writers[ref] = writer
        return writer

    async def open(self, ref: LedgerRef) -> LocalLedgerReader:
        """See `LedgerStore.open`."""
        _, value = await self._catalog.get(ref)
        return self._reader(ref, value)

    async def recover(
        self, ref: LedgerRef, with_ops: Callable[[ClosedLedger], Sequence[Op]] | None = None
    ) -> tuple[LocalLedgerReader, ClosedLedger]:
        """Recovers a ledger; see `LedgerStore.recover`. Also raises LogFailed if the fence could not be made
        durable.
        """
        value, closed = await self._catalog.close_fenced(ref, self.fence, with_ops)
        return self._reader(ref, value), closed

    async def fence(self, ref: LedgerRef) -> ClosedLedger:
        """Fences a ledger of this log, durably; returns its end. Its metadata is left as it is. Raises
        LogFailed.
        """
        ledger = await self.log.fence(ref)
        writer = self._writers.get(ref)
        if writer is not None:
            writer.fenced()
        return ClosedLedger(ref, ledger.last_entry_id, ledger.byte_length)

    async def delete(self, ref: LedgerRef, with_ops: Sequence[Op] = ()) -> None:
        """Deletes a ledger; see `LedgerStore.delete`. Garbage collection frees its space later."""
        revision = await self._catalog.delete(ref, with_ops)
        if revision is not None:
            self.garbage.saw_revision(revision)
        self.garbage.deleted(ref)
        writer = self._writers.pop(ref, None)
        self.log.forget(ref)
        if writer is not None:
            writer.fenced()

    async def disk_usage(self, copies: int) -> float | None:
        """See `LedgerStore.disk_usage`. There is one disk, whatever the number of copies."""
        total = self._disk.total_bytes()
        return 1 - self._disk.free_bytes() / total if total else None

    def obstacle(self, ack_quorum: int) -> Obstacle | None:
        """Returns the obstacle; see `LedgerStore.obstacle`. There is one copy, whatever the quorum."""
        return self.log.obstacle()

    async def close(self) -> None:
        """Waits for pending appends, seals the log, releases the directory; idempotent. Ledgers stay open."""
        await self.garbage.close()
        await self.log.close()
        self._lock.close()

    # --- internal ---

    def _reader(self, ref: LedgerRef, value: LedgerMetadata) -> LocalLedgerReader:
        end = value.last_entry_id if value.state == LedgerMetadata.CLOSED else None
        return LocalLedgerReader(self.log, ref, end)

    def _gone(self, ref: LedgerRef) -> None:
        self._writers.pop(ref, None)


async def open_local_store(
    disk: Disk,
    metadata: MetadataStore,
    keys: Keys,
    *,
    instance_id: bytes,
    pool: BlockingPool,
    syncer: Syncer,
    clock: Clock,
    rng: random.Random,
    config: SegmentLogConfig,
) -> LocalLedgerStore:
    """Locks the data directory (the root of `disk`), recovers the log and returns the store.

    The store takes over the syncer; the caller keeps disk, metadata and pool. Raises WrongDataDirectory,
    UnsupportedFormat, DataCorruption (of the cookie) or OSError.
    """
    lock = lock_data_directory(disk)
    try:
        check_cookie(disk, instance_id, has_data=bool(disk.listdir(SEGMENTS_DIRECTORY)))
        log = await SegmentLog.open(disk, pool, syncer, clock, rng, config)
    except BaseException:
        lock.close()
        raise
    store = LocalLedgerStore(log, metadata, keys, clock, rng, lock, disk, pool)
    store.garbage.start()
    return store
