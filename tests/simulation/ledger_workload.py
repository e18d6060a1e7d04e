"""A workload on ledgers: several writers, rolls, closes, fences, deletes, restarts, failing syncs."""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from magnetar.common.errors import (
    EntryUnreadable,
    LedgerFenced,
    LogFailed,
    NoSuchLedger,
    StorageError,
)
from magnetar.ledger.ledger_store import RUN_CHUNK, LedgerListener, LedgerReader, LedgerRef, LedgerWriter, Run
from magnetar.ledger.local_store import LocalLedgerStore

from tests.simulation.power_loss import Process


class Entry(NamedTuple):
    """An entry with its envelope, as appended or as read."""

    data: bytes
    publish_time_ms: int
    message_index: int
    messages: int
    flags: int


def entries_of(run: Run) -> list[Entry]:
    """A run, entry by entry."""
    index = run.first_index
    result = []
    for place, data in enumerate(run.entries):
        messages = 1 if run.message_counts is None else run.message_counts[place]
        result.append(Entry(data, run.publish_time_ms, index, messages, run.flags))
        index += messages
    return result


@dataclass(slots=True)
class Promises:
    """What was promised of one ledger."""

    ref: LedgerRef
    appended: list[Entry] = field(default_factory=list)
    confirmed: int = -1
    closed: int | None = None
    fence_answered: bool = False
    deleting: bool = False
    deleted: bool = False
    failed: bool = False


@dataclass(slots=True)
class LedgerWorkload:
    """Random but repeatable. `sync_error_at`: operations of the disk at which a file's sync answers EIO."""

    seed: int
    steps: int = 30
    sync_error_at: frozenset[int] = frozenset()
    clean_end: bool = True
    """End by closing the store; else by a kill some idle seconds after the last append."""
    damaged: frozenset[tuple[int, int]] = frozenset()
    """(ledger, entry) that may be unreadable because bits in them were flipped; never wrong, never gone."""
    ledgers: dict[int, Promises] = field(default_factory=dict)

    def fork(self) -> LedgerWorkload:
        twin = replace(self)
        twin.ledgers = {
            ledger_id: replace(promises, appended=list(promises.appended))
            for ledger_id, promises in self.ledgers.items()
        }
        return twin

    # --- doing ---

    async def run(self, process: Process) -> None:
        rng = random.Random(self.seed)
        process.world.disk.faults.sync_errors = set(self.sync_error_at)
        store = await self.open_store(process)
        writers = [await self.create(store) for _ in range(3)]
        for step in range(self.steps):
            for _ in range(rng.randrange(1, 5)):
                place = rng.randrange(len(writers))
                self.append(writers[place], random_run(rng))
            await asyncio.sleep(rng.choice((0, 0, 0.001, 0.003, 0.01)))
            failed = [place for place, writer in enumerate(writers) if self.ledgers[writer.ref.id].failed]
            if step % 7 == 3 or (failed and rng.random() < 0.3):
                place = failed[0] if failed else rng.randrange(len(writers))
                writers[place] = await self.replace_writer(store, writers[place], rng)
            if step == self.steps // 3:
                await asyncio.sleep(2.0)  # idle: an empty group follows
            if step == self.steps // 2:
                store, writers = await self.restart(process, store, clean=rng.random() < 0.5)
        if self.clean_end:
            await store.close()
        else:
            await asyncio.sleep(3.0)
            process.world.kill()

    async def open_store(self, process: Process) -> LocalLedgerStore:
        """Start, again when a sync of the start failed."""
        for _ in range(5):
            try:
                return await process.open_store()
            except OSError:
                assert self.sync_error_at, "the disk has no errors"
        raise AssertionError("the store does not start")

    async def replace_writer(
        self, store: LocalLedgerStore, writer: LedgerWriter, rng: random.Random
    ) -> LedgerWriter:
        """Close a ledger, fence it under its writer, or delete it; go on with a new one."""
        promises = self.ledgers[writer.ref.id]
        choice = rng.choice(("close", "recover", "delete"))
        if choice == "recover":
            self.append(writer, random_run(rng))
            recovery = asyncio.ensure_future(self.recover(store, promises))
            for _ in range(8):
                self.append(writer, random_run(rng))
                await asyncio.sleep(0.0005)
            await recovery
            assert not self.append(writer, random_run(rng)), "a fenced ledger took an append"
        else:
            promises.closed = (await writer.close()).last_entry_id
            if promises.failed:
                assert promises.closed == promises.confirmed, "a failed ledger is closed where it failed"
            if choice == "delete":
                promises.deleting = True
                await store.delete(writer.ref)
                promises.deleted = True
        return await self.create(store)

    async def restart(
        self, process: Process, store: LocalLedgerStore, *, clean: bool
    ) -> tuple[LocalLedgerStore, list[LedgerWriter]]:
        if clean:
            await store.close()
        else:
            process.world.kill()
        store = await self.open_store(process)
        for promises in self.ledgers.values():
            if not promises.deleted:
                await self.recover(store, promises)
        return store, [await self.create(store) for _ in range(2)]

    async def create(self, store: LocalLedgerStore) -> LedgerWriter:
        promises = Promises(LedgerRef(0, 0))

        def confirmed(last: int) -> None:
            assert last > promises.confirmed, "the watermark only advances"
            promises.confirmed = last

        def failed(error: StorageError, last: int) -> None:
            assert not promises.failed, "a failure is told once"
            assert last == promises.confirmed, "a failure names the last confirmed entry"
            promises.failed = True

        writer = await store.create(LedgerListener(confirmed, failed), properties={})
        assert writer.ref.id > max(self.ledgers, default=0), "ledger ids only grow"
        promises.ref = writer.ref
        self.ledgers[writer.ref.id] = promises
        return writer

    def append(self, writer: LedgerWriter, run: Run) -> bool:
        promises = self.ledgers[writer.ref.id]
        try:
            first = writer.append(run)
        except (LedgerFenced, LogFailed):
            return False
        assert first == len(promises.appended), "entry ids have no gaps"
        promises.appended += entries_of(run)
        return True

    async def recover(self, store: LocalLedgerStore, promises: Promises) -> None:
        """Fence and close a ledger wherever it ends, and read all of it."""
        for _ in range(5):
            try:
                reader, closed = await store.recover(promises.ref)
                break
            except LogFailed:
                assert self.sync_error_at, "the disk has no errors"
                await asyncio.sleep(1.5)
        else:
            raise AssertionError("the log does not come back")
        last = closed.last_entry_id
        assert promises.confirmed <= last, f"{promises.ref}: confirmed {promises.confirmed}, ends at {last}"
        assert last < len(promises.appended), f"{promises.ref}: ends at {last}, which was never appended"
        if promises.closed is not None:
            assert promises.closed == last, f"{promises.ref}: closed at {promises.closed}, ends at {last}"
        promises.closed = last
        promises.fence_answered = promises.fence_answered or store.log.ledger(promises.ref).fenced
        await self.read_all(reader, promises, last)
        promises.confirmed = max(promises.confirmed, last)

    async def read_all(self, reader: LedgerReader, promises: Promises, last: int) -> None:
        entry_id = 0
        while entry_id <= last:
            try:
                runs = await reader.read(entry_id, last, 5_000)
            except EntryUnreadable:
                if (promises.ref.id, entry_id) not in self.damaged:
                    raise
                entry_id += 1
                continue
            for run in runs:
                assert run.first_entry_id == entry_id, f"{promises.ref}: a gap before {run.first_entry_id}"
                wanted = promises.appended[entry_id : entry_id + len(run.entries)]
                assert entries_of(run) == wanted, f"{promises.ref}: entry {entry_id} is not what was appended"
                entry_id += len(run.entries)

    # --- checking ---

    async def check(self, process: Process) -> None:
        store = await process.open_store()
        for promises in self.ledgers.values():
            if promises.deleting:
                await self.check_deleted(store, promises)
                continue
            known = store.log.ledger(promises.ref)
            assert known.lac <= promises.confirmed, f"{promises.ref}: LAC {known.lac} was never confirmed"
            if promises.fence_answered:
                assert known.fenced, f"{promises.ref}: the fence was answered and is gone"
            await self.recover(store, promises)
        writer = await self.create(store)
        for _ in range(3):
            self.append(writer, random_run(process.loop.rng))
            await asyncio.sleep(0.001)
        await asyncio.sleep(0.02)
        process.world.disk.check_alive()
        promises = self.ledgers[writer.ref.id]
        assert promises.confirmed + 1 == len(promises.appended), "a new ledger confirms its entries"

    async def check_deleted(self, store: LocalLedgerStore, promises: Promises) -> None:
        try:
            await store.open(promises.ref)
        except NoSuchLedger:
            return
        assert not promises.deleted, f"{promises.ref}: deleted, and back"


def random_run(rng: random.Random) -> Run:
    """Now and then large entries, entries of different lengths, batches, flags."""
    count = rng.choice((1, 1, 2, 5, 20))
    size = rng.choice((0, 7, 100, 100, 400)) if count > 1 else rng.choice((1, 50, 9_000))
    lengths = [size if rng.random() < 0.7 else rng.randrange(size + 1) for _ in range(count)]
    return Run(
        [rng.randbytes(length) for length in lengths],
        publish_time_ms=rng.randrange(1 << 41),
        first_index=rng.randrange(1 << 40),
        message_counts=None if rng.random() < 0.6 else [rng.randrange(1, 9) for _ in lengths],
        flags=rng.choice((0, 0, RUN_CHUNK)),
    )
