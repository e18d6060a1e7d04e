"""The segment log: one append-only log of segment files, shared by all ledgers of a store.

Appending is a plain call and never waits; durability is reported per ledger, once per group. A new log serves
nothing before its recovery made the tail durable (see `recovery`).
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from functools import partial
from typing import Final

from magnetar.common.errors import (
    Backpressure,
    EntryUnreadable,
    LedgerFenced,
    LogFull,
    NoSuchEntry,
)
from magnetar.common.obs.logs import get_logger
from magnetar.common.runtime.blocking import BlockingPool
from magnetar.common.runtime.clock import Clock
from magnetar.common.runtime.disk import Disk
from magnetar.ledger.ledger_store import LedgerRef, Obstacle, Run
from magnetar.ledger.segment_log.codec_v1 import (
    COPY_BYTES_MAX,
    KIND_ENTRIES,
    KIND_FENCE,
    KIND_LIMBO,
    RecordHeader,
    checksum_body,
    encode_record_header,
)
from magnetar.ledger.segment_log.config import SegmentLogConfig
from magnetar.ledger.segment_log.file_codec_v1 import MARK_FENCED, doubt_of, encode_mark, pack_doubt
from magnetar.ledger.segment_log.group_commit import Group, GroupCommit, OnSettled, PendingRecord
from magnetar.ledger.segment_log.index_cache import IndexCache
from magnetar.ledger.segment_log.log_ledger import LogLedger
from magnetar.ledger.segment_log.obstacles import obstacle_of
from magnetar.ledger.segment_log.reader import Build, P, RecordSlice, build_run, build_slice, read_segment
from magnetar.ledger.segment_log.recovery import RecoveredLog, recover_log
from magnetar.ledger.segment_log.segment import SEGMENTS_DIRECTORY, Segment
from magnetar.ledger.segment_log.segment_chain import SegmentChain
from magnetar.ledger.segment_log.space import SpaceKeeper
from magnetar.ledger.segment_log.syncer import Syncer
from magnetar.ledger.segment_log.torn_group import OnDoubt

log = get_logger(__name__)

MARK_ENTRY_ID: Final = -1
"""The reserved entry id of fence and limbo marks."""


class SegmentLog:
    """Created by `open`. All calls on the loop that opened it."""

    def __init__(
        self,
        disk: Disk,
        pool: BlockingPool,
        syncer: Syncer,
        clock: Clock,
        rng: random.Random,
        config: SegmentLogConfig,
        recovered: RecoveredLog,
        replica: bool,
    ) -> None:
        self.config = config
        self._replica = replica
        self._disk = disk
        self._pool = pool
        self._syncer = syncer
        self._segments = {segment.sequence: segment for segment in (*recovered.sealed, recovered.open)}
        self._ledgers: dict[LedgerRef, LogLedger] = {}
        self.inventory = recovered.inventory
        self.indexes = IndexCache(pool, config.index_cache_bytes)
        for segment in sorted(self._segments.values(), key=lambda segment: segment.sequence):
            segment.sealed_at = clock.monotonic()
            segment.unsealable = not segment.sealed and segment is not recovered.open
            self._learn(segment)
        self._clock = clock
        self.space = SpaceKeeper(self, disk, pool, clock, rng, config)
        self.group_commit = GroupCommit(
            config, syncer, recovered.next_group_sequence, recovered.durable, self._enter_group
        )
        self._chain = SegmentChain(
            disk,
            pool,
            clock,
            rng,
            config,
            recovered.open,
            self.group_commit.resumed,
            self.group_commit.fail_all,
            self._sealed,
            self._removed,
            recovered.spares,
            recovered.inventory,
        )
        self.group_commit.attach(self._chain)
        self._closed = False

    @classmethod
    async def open(
        cls,
        disk: Disk,
        pool: BlockingPool,
        syncer: Syncer,
        clock: Clock,
        rng: random.Random,
        config: SegmentLogConfig,
        *,
        replica: bool = False,
        on_doubt: OnDoubt | None = None,
        high_water: int | None = None,
    ) -> SegmentLog:
        """Recovers the files and starts the log. The log takes over the syncer; the caller keeps the pool.

        `replica` means that the log keeps one of several replicas, as in a bookie: entries of a ledger may
        have gaps and arrive in any order. `on_doubt` and `high_water`: see `recover_log`. Raises OSError, or
        UnsupportedFormat for files of a later release.
        """
        if not config.sync_data:
            log.warning("journalSyncData=false: acknowledged messages are lost in a power loss")
        disk.makedirs(SEGMENTS_DIRECTORY)
        disk.sync_dir("")
        now_ms = clock.wall_ms()
        recover = partial(recover_log, replica=replica, on_doubt=on_doubt, high_water=high_water)
        recovered = await pool.run(lambda: recover(disk, config, rng, now_ms))
        syncer.start()
        return cls(disk, pool, syncer, clock, rng, config, recovered, replica)

    def ledger(self, ref: LedgerRef) -> LogLedger:
        """Returns the log's state of a ledger, created if the log holds nothing of it yet."""
        ledger = self._ledgers.get(ref)
        if ledger is None:
            ledger = self._ledgers[ref] = LogLedger(ref)
        return ledger

    def ledgers(self) -> list[LogLedger]:
        """Returns every ledger in the log."""
        return list(self._ledgers.values())

    # --- segments, for `space` ---

    @property
    def segments(self) -> list[Segment]:
        """Returns every segment with a group."""
        return list(self._segments.values())

    def finished_segments(self) -> list[Segment]:
        """Returns the segments that accept no more writes, oldest first."""
        finished = [each for each in self._segments.values() if each.sealed or each.unsealable]
        return sorted(finished, key=lambda segment: segment.sequence)

    def segments_of(self, ref: LedgerRef) -> list[Segment]:
        """Returns the segments with a ledger's records."""
        ledger = self._ledgers.get(ref)
        return [] if ledger is None else list(ledger.segments)

    def next_sequence(self) -> int:
        """Returns a new segment sequence."""
        return self._chain.next_sequence()

    def is_full(self) -> bool:
        """Returns whether free space is below the reserve."""
        return self._chain.is_full()

    def obstacle(self) -> Obstacle | None:
        """Returns the reason why no entry can be written now; None if one can. Checks free space, but no
        file.
        """
        return obstacle_of(self.group_commit, self._chain)

    def replace(self, inputs: Sequence[Segment], output: Segment | None) -> None:
        """Redirects reads from `inputs` to `output`. Atomic: nothing awaits here."""
        if output is not None:
            self._segments[output.sequence] = output
            for ref in output.lines:
                if ref in self._ledgers:
                    self._ledgers[ref].segments.insert(0, output)
        for segment in inputs:
            del self._segments[segment.sequence]
            for ref in segment.lines:
                ledger = self._ledgers.get(ref)
                if ledger is not None and segment in ledger.segments:
                    ledger.segments.remove(segment)
            self.indexes.dropped(segment)

    async def discard(self, segment: Segment) -> None:
        """Removes or recycles the file of a replaced segment without readers. Raises OSError."""
        await self._chain.discard(segment)

    def forget(self, ref: LedgerRef) -> None:
        """Drops a deleted ledger from memory; its bytes stay in their segments."""
        ledger = self._ledgers.pop(ref, None)
        if ledger is not None:
            ledger.fenced = True

    def append(self, ledger: LogLedger, run: Run, lac: int) -> None:
        """Appends a run with assigned entry ids. A plain call; `ledger.on_durable` reports when it is
        durable.

        Raises LedgerFenced, LogFailed, LogFull or Backpressure; then nothing was accepted.
        """
        if ledger.fenced:
            raise LedgerFenced(f"ledger {ledger.ref.id} is fenced")
        if ledger.failed is not None:
            raise ledger.failed
        length = run.byte_length
        self._admit(ledger, length)
        entries = run.entries
        assert entries, "a run has at least one entry"
        # Small entries are joined, for one checksum over one buffer. Large ones are written separately.
        body = [b"".join(entries)] if length < COPY_BYTES_MAX * len(entries) else entries
        ref = ledger.ref
        header = encode_record_header(
            KIND_ENTRIES,
            ref.id,
            ref.key,
            run.first_entry_id,
            lac,
            run_flags=run.flags,
            publish_time_ms=run.publish_time_ms,
            first_index=run.first_index,
            lengths=list(map(len, entries)),
            message_counts=run.message_counts,
            body_length=length,
            body_crc=checksum_body(body),
            txn=run.txn,
        )
        self.group_commit.add(
            PendingRecord(
                ref.id,
                ref.key,
                run.first_entry_id,
                len(entries),
                header,
                body,
                length,
                KIND_ENTRIES,
                lac,
                ledger,
            )
        )

    def append_record(
        self, ledger: LogLedger, header: RecordHeader, raw: bytes, body: bytes, answer: object
    ) -> None:
        """Appends a record unchanged, with `raw` as its header's bytes; only the header's CRC is computed
        again.

        A plain call; `on_settled` receives `answer` with the record. The caller decides whether the ledger
        accepts it (fence, key, existing entries). Raises LogFailed, LogFull or Backpressure; then nothing was
        accepted.
        """
        self._admit(ledger, header.body_length)
        ledger.last_taken = max(ledger.last_taken, header.last_entry_id)
        self.group_commit.add(
            PendingRecord(
                header.ledger_id,
                header.ledger_key,
                header.first_entry_id,
                header.entry_count,
                bytearray(raw),
                (body,),
                header.body_length,
                KIND_ENTRIES,
                header.lac,
                ledger,
                answer=answer,
            )
        )

    @property
    def pending_bytes(self) -> int:
        """Bytes of entries that wait for their sync."""
        return self.group_commit.pending_bytes

    def on_settled(self, listener: OnSettled) -> None:
        """Calls `listener` for every record from now on once it is durable or failed."""
        self.group_commit.on_settled = listener

    async def fence(self, ref: LedgerRef) -> LogLedger:
        """Refuses appends to a ledger from now on; returns once the mark, and so every earlier append, is
        durable or failed. Idempotent.

        Raises LogFailed if the mark could not be made durable; appends stay refused in memory.
        """
        ledger = self.ledger(ref)
        ledger.fenced = True
        if ledger.fence_durable:
            await ledger.settled()
        else:
            await self._mark(ledger, KIND_FENCE)
        if not self._replica and ledger.has_copies:
            ledger.byte_length = await self._bytes_stored(ledger)
        return ledger

    async def set_limbo(self, ref: LedgerRef, *, torn: bool = False) -> LogLedger:
        """Puts a ledger in limbo, durably; `torn`: see `LogLedger.torn`. Raises LogFailed."""
        ledger = self.ledger(ref)
        await self._mark(ledger, KIND_LIMBO, ledger.next_limbo(torn=torn))
        return ledger

    async def clear_limbo(self, ref: LedgerRef) -> LogLedger:
        """Clears a ledger's limbo mark, durably. Raises LogFailed."""
        ledger = self.ledger(ref)
        if ledger.limbo:
            await self._mark(ledger, KIND_LIMBO, pack_doubt((ledger.doubt >> 1) + 1, 0))
        return ledger

    async def read(self, ref: LedgerRef, first: int, last: int, max_bytes: int) -> list[Run]:
        """Returns durable entries `first` to `last` as `LedgerReader.read` does, as far as this log holds
        them.

        Raises NoSuchEntry above the highest durable entry, EntryUnreadable.
        """
        return await self._read(ref, first, last, max_bytes, build_run)

    async def read_records(self, ref: LedgerRef, first: int, last: int, max_bytes: int) -> list[RecordSlice]:
        """Reads like `read`, as records.

        In a log that keeps one of several replicas, NoSuchEntry also for a certain gap.
        """
        return await self._read(ref, first, last, max_bytes, build_slice)

    async def next_run_after(self, ref: LedgerRef, entry_id: int) -> int | None:
        """Returns the first entry id after this one at which a durable run of the ledger begins."""
        nearest: int | None = None
        tried: set[int] = set()
        while ledger := self._ledgers.get(ref):
            segments = [each for each in ledger.segments if each.sequence not in tried and not each.retired]
            if not segments:
                break
            segment = segments[-1]
            tried.add(segment.sequence)
            line = segment.line(ref)
            if line is None or line.last_entry_id <= entry_id:
                continue
            with segment.reading():
                index = await self.indexes.get(segment, ref)
            following = None if index is None else index.next_after(entry_id)
            if following is not None and (nearest is None or following < nearest):
                nearest = following
        return nearest

    async def close(self) -> None:
        """Refuses appends, waits for pending groups, seals, stops; idempotent. A clean start has nothing to
        repair.
        """
        if self._closed:
            return
        self._closed = True
        self.group_commit.close()
        await self.group_commit.drain()
        self.group_commit.stop()
        await self._chain.close()
        self._syncer.close()
        for segment in self._segments.values():
            segment.close()

    # --- internal ---

    def _may_use_reserve(self, ledger: LogLedger) -> bool:
        return ledger.uses_reserve and self._disk.free_bytes() >= self.config.reserve_bytes // 2

    def _admit(self, ledger: LogLedger, length: int) -> None:
        commit = self.group_commit
        if commit.unavailable is not None:
            raise commit.unavailable
        if self._chain.is_full() and not self._may_use_reserve(ledger):
            raise LogFull("free disk space is under the log's reserve")
        if commit.pending_bytes and commit.pending_bytes + length > self.config.pending_bytes_max:
            raise Backpressure(f"{commit.pending_bytes} bytes wait for their sync")

    async def _mark(self, ledger: LogLedger, kind: int, number: int = 0) -> None:
        if self.group_commit.unavailable is not None:
            raise self.group_commit.unavailable
        ref = ledger.ref
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        lac = ledger.lac
        header = encode_mark(kind, ref.id, ref.key, lac, number)
        self.group_commit.add(
            PendingRecord(
                ref.id, ref.key, MARK_ENTRY_ID, 0, header, (), 0, kind, lac, ledger, waiter, number=number
            )
        )
        await waiter

    def _learn(self, segment: Segment) -> None:
        """Adds the ledgers of a recovered segment to the log's state."""
        lines = segment.summaries.lines() if segment.sealed else iter(segment.lines.values())
        ledgers = self._ledgers
        for line in lines:
            ref = LedgerRef(line.ledger_id, line.ledger_key)
            ledger = ledgers.get(ref)
            if ledger is None:
                ledger = ledgers[ref] = LogLedger(ref)
            ledger.segments.append(segment)
            if line.last_entry_id > ledger.last_entry_id:
                ledger.last_entry_id = ledger.last_taken = line.last_entry_id
            if line.lac > ledger.lac:
                ledger.lac = line.lac
            ledger.byte_length += line.byte_length
            if line.marks:
                ledger.fenced = ledger.fence_durable = ledger.fenced or bool(line.marks & MARK_FENCED)
                ledger.doubt = max(ledger.doubt, doubt_of(line.marks))

    def _enter_group(self, group: Group) -> None:
        """Indexes a group that has just become durable."""
        segment = group.segment
        self._segments.setdefault(segment.sequence, segment)
        for record, offset in zip(group.records, group.offsets, strict=True):
            ledger = record.ledger
            index = segment.index_of(ledger.ref)
            ledger.stored_in(segment)
            ledger.lac = max(ledger.lac, record.lac)
            if record.kind == KIND_ENTRIES:
                first, count = record.first_entry_id, record.entry_count
                index.add_run(first, count, group.start + offset, record.body_length, record.lac)
                ledger.stored(first, count)
                ledger.byte_length += record.body_length
                segment.entries += count
            elif record.kind == KIND_FENCE:
                index.fenced = ledger.fence_durable = True
            else:
                index.doubt = max(index.doubt, record.number)
                ledger.doubt = max(ledger.doubt, record.number)

    async def _bytes_stored(self, ledger: LogLedger) -> int:
        """Returns the bytes of a ledger's entries, each counted once whatever copies exist."""
        first = size = 0
        while first <= ledger.last_entry_id:
            try:
                runs = await self.read(ledger.ref, first, ledger.last_entry_id, 1 << 20)
            except EntryUnreadable:
                first += 1
                continue
            size += sum(run.byte_length for run in runs)
            first = runs[-1].last_entry_id + 1
        return size

    async def _read(self, ref: LedgerRef, first: int, last: int, max_bytes: int, build: Build[P]) -> list[P]:
        ledger = self._ledgers.get(ref)
        if ledger is None or first < 0 or first > ledger.last_entry_id:
            raise NoSuchEntry(f"entry {ref.id}:{first} is not in the log")
        last = min(last, ledger.last_entry_id)
        pieces: list[P] = []
        budget = max_bytes
        while first <= last and (budget > 0 or not pieces):
            try:
                more = await self._read_somewhere(ledger, first, last, budget, build, at_least_one=not pieces)
            except (EntryUnreadable, NoSuchEntry):
                if pieces:
                    break
                raise
            if not more:
                break
            pieces += more
            budget -= sum(piece.byte_length for piece in more)
            first = more[-1].last_entry_id + 1
        return pieces

    async def _read_somewhere(
        self, ledger: LogLedger, first: int, last: int, max_bytes: int, build: Build[P], *, at_least_one: bool
    ) -> list[P]:
        """Reads from the newest segment with an intact copy; copies of an entry are equal."""
        damage: EntryUnreadable | None = None
        tried: set[int] = set()
        # Segments change while this waits, so the list is read again after each.
        while segments := [
            each
            for each in ledger.segments
            if each.sequence not in tried and not each.retired and each.may_hold(ledger.ref, first)
        ]:
            segment = segments[-1]
            tried.add(segment.sequence)
            try:
                with segment.reading():
                    index = await self.indexes.get(segment, ledger.ref)
                    pieces = (
                        []
                        if index is None
                        else await read_segment(
                            self._pool, segment, index, ledger.ref, first, last, max_bytes, build
                        )
                    )
            except EntryUnreadable as error:
                damage = error
                continue
            if pieces:
                if not at_least_one and pieces[0].byte_length > max_bytes:
                    return []
                return pieces
        if damage is None and self._replica:
            raise NoSuchEntry(f"entry {ledger.ref.id}:{first} is not in the log")
        raise damage or EntryUnreadable(f"entry {ledger.ref.id}:{first} is lost: no segment holds it")

    def _sealed(self, segment: Segment) -> None:
        """Keeps the indexes of a sealed segment in memory as far as the budget allows."""
        segment.sealed_at = self._clock.monotonic()
        self.indexes.sealed(segment)

    def _removed(self, segment: Segment) -> None:
        """Forgets a segment that was removed because it was empty."""
        self._segments.pop(segment.sequence, None)
