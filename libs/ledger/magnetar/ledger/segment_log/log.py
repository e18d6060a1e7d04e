"""The segment log: one append-only log of segment files, shared by all ledgers of a store.

Appending is a plain call and never waits; what is durable is told per ledger, once per group. A new log
answers nothing before its recovery made the tail durable (see `recovery`).
"""

from __future__ import annotations

import asyncio
import random
from collections import OrderedDict
from collections.abc import Sequence
from typing import Final

from magnetar.common.errors import (
    Backpressure,
    DataCorruption,
    EntryUnreadable,
    LedgerFenced,
    LogFull,
    NoSuchEntry,
)
from magnetar.common.obs.logs import get_logger
from magnetar.common.runtime.blocking import BlockingPool
from magnetar.common.runtime.clock import Clock
from magnetar.common.runtime.disk import Disk
from magnetar.ledger.ledger_store import LedgerRef, Run
from magnetar.ledger.segment_log.codec_v1 import (
    COPY_BYTES_MAX,
    KIND_ENTRIES,
    KIND_FENCE,
    KIND_LIMBO,
    checksum_body,
    encode_record_header,
)
from magnetar.ledger.segment_log.config import SegmentLogConfig
from magnetar.ledger.segment_log.file_codec_v1 import MARK_FENCED, MARK_LIMBO
from magnetar.ledger.segment_log.group_commit import Group, GroupCommit, PendingRecord
from magnetar.ledger.segment_log.index import LedgerIndex
from magnetar.ledger.segment_log.log_ledger import LogLedger
from magnetar.ledger.segment_log.reader import read_runs
from magnetar.ledger.segment_log.recovery import RecoveredLog, rebuild_indexes, recover_log
from magnetar.ledger.segment_log.segment import SEGMENTS_DIRECTORY, Segment
from magnetar.ledger.segment_log.segment_chain import SegmentChain
from magnetar.ledger.segment_log.space import SpaceKeeper
from magnetar.ledger.segment_log.syncer import Syncer

log = get_logger(__name__)

MARK_ENTRY_ID: Final = -1
"""The reserved entry id under which fence and limbo marks stand."""


class SegmentLog:
    """Made by `open`. All calls on the loop that opened it."""

    def __init__(
        self,
        disk: Disk,
        pool: BlockingPool,
        syncer: Syncer,
        clock: Clock,
        rng: random.Random,
        config: SegmentLogConfig,
        recovered: RecoveredLog,
    ) -> None:
        self.config = config
        self._disk = disk
        self._pool = pool
        self._syncer = syncer
        self._segments = {segment.sequence: segment for segment in (*recovered.sealed, recovered.open)}
        self._ledgers: dict[LedgerRef, LogLedger] = {}
        self._index_cache: OrderedDict[tuple[int, LedgerRef], int] = OrderedDict()
        self._index_cache_bytes = 0
        for segment in sorted(self._segments.values(), key=lambda segment: segment.sequence):
            segment.sealed_at = clock.monotonic()
            segment.unsealable = not segment.sealed and segment is not recovered.open
            self._learn(segment)
        self._clock = clock
        self.space = SpaceKeeper(self, disk, pool, clock, rng, config)
        self._commit = GroupCommit(
            config, syncer, recovered.next_group_sequence, recovered.durable, self._enter_group
        )
        self._chain = SegmentChain(
            disk,
            pool,
            clock,
            rng,
            config,
            recovered.open,
            self._commit.resumed,
            self._commit.fail_all,
            self._sealed,
            self._removed,
            recovered.spares,
        )
        self._commit.attach(self._chain)
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
    ) -> SegmentLog:
        """Recover what the files hold and start. The log owns the syncer from here on, not the pool.

        Raises OSError, or UnsupportedFormat for files of a later release.
        """
        if not config.sync_data:
            log.warning("journalSyncData=false: acknowledged messages are lost in a power loss")
        disk.makedirs(SEGMENTS_DIRECTORY)
        disk.sync_dir("")
        now_ms = clock.wall_ms()
        recovered = await pool.run(lambda: recover_log(disk, config, rng, now_ms))
        syncer.start()
        return cls(disk, pool, syncer, clock, rng, config, recovered)

    def ledger(self, ref: LedgerRef) -> LogLedger:
        """The log's view of a ledger, made when the log holds nothing of it yet."""
        ledger = self._ledgers.get(ref)
        if ledger is None:
            ledger = self._ledgers[ref] = LogLedger(ref)
        return ledger

    def ledgers(self) -> list[LogLedger]:
        """Every ledger the log knows."""
        return list(self._ledgers.values())

    # --- segments, for `space` ---

    @property
    def segments(self) -> list[Segment]:
        """Every segment that holds a group."""
        return list(self._segments.values())

    def finished_segments(self) -> list[Segment]:
        """Those that take no more writes, oldest first."""
        finished = [each for each in self._segments.values() if each.sealed or each.unsealable]
        return sorted(finished, key=lambda segment: segment.sequence)

    def segments_of(self, ref: LedgerRef) -> list[Segment]:
        """Where a ledger's records are."""
        ledger = self._ledgers.get(ref)
        return [] if ledger is None else list(ledger.segments)

    def next_sequence(self) -> int:
        """A segment sequence that is nobody else's."""
        return self._chain.next_sequence()

    def is_full(self) -> bool:
        """Whether free space is under the reserve."""
        return self._chain.is_full()

    def replace(self, inputs: Sequence[Segment], output: Segment | None) -> None:
        """From now on reads find in `output` what they found in `inputs`. At once: nothing awaits here."""
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
            for ref in list(segment.indexes):
                self._index_cache_bytes -= self._index_cache.pop((segment.sequence, ref), 0)

    async def discard(self, segment: Segment) -> None:
        """Remove or recycle the file of a replaced segment that nobody reads any more. Raises OSError."""
        await self._chain.discard(segment)

    def forget(self, ref: LedgerRef) -> None:
        """Drop a deleted ledger from memory; its bytes stay in their segments."""
        ledger = self._ledgers.pop(ref, None)
        if ledger is not None:
            ledger.fenced = True

    def append(self, ledger: LogLedger, run: Run, lac: int) -> None:
        """Take a run whose entry ids are set. A plain call; `ledger.on_durable` tells when it is durable.

        Raises LedgerFenced, LogFailed, LogFull or Backpressure; then nothing was taken.
        """
        if ledger.fenced:
            raise LedgerFenced(f"ledger {ledger.ref.id} is fenced")
        if ledger.failed is not None:
            raise ledger.failed
        commit = self._commit
        if commit.unavailable is not None:
            raise commit.unavailable
        if self._chain.is_full() and not self._may_use_reserve(ledger):
            raise LogFull("free disk space is under the log's reserve")
        length = run.byte_length
        if commit.pending_bytes and commit.pending_bytes + length > self.config.pending_bytes_max:
            raise Backpressure(f"{commit.pending_bytes} bytes wait for their sync")
        entries = run.entries
        assert entries, "a run has at least one entry"
        # Small entries are joined: one checksum over one buffer. Large ones are written where they are.
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
        )
        commit.add(
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

    async def fence(self, ref: LedgerRef) -> LogLedger:
        """Refuse appends to a ledger from now on; return once the mark, and so every append before it, is
        durable or failed. Idempotent.

        Raises LogFailed when the mark could not be made durable; appends stay refused in memory.
        """
        ledger = self.ledger(ref)
        ledger.fenced = True
        await self._mark(ledger, KIND_FENCE)
        if ledger.has_copies:
            ledger.byte_length = await self._bytes_stored(ledger)
        return ledger

    async def set_limbo(self, ref: LedgerRef) -> LogLedger:
        """Mark a ledger as in doubt, durably."""
        ledger = self.ledger(ref)
        await self._mark(ledger, KIND_LIMBO)
        return ledger

    async def read(self, ref: LedgerRef, first: int, last: int, max_bytes: int) -> list[Run]:
        """Durable entries `first` to `last` as `LedgerReader.read` promises them, for what this log holds.

        Raises NoSuchEntry above the highest durable entry, EntryUnreadable.
        """
        ledger = self._ledgers.get(ref)
        if ledger is None or first < 0 or first > ledger.last_entry_id:
            raise NoSuchEntry(f"entry {ref.id}:{first} is not in the log")
        last = min(last, ledger.last_entry_id)
        runs: list[Run] = []
        budget = max_bytes
        while first <= last and (budget > 0 or not runs):
            try:
                more = await self._read_somewhere(ledger, first, last, budget, at_least_one=not runs)
            except EntryUnreadable:
                if runs:
                    break
                raise
            if not more:
                break
            runs += more
            budget -= sum(run.byte_length for run in more)
            first = more[-1].last_entry_id + 1
        return runs

    async def close(self) -> None:
        """Wait for pending groups, seal, stop; idempotent. A clean start has nothing to repair."""
        if self._closed:
            return
        self._closed = True
        await self._commit.drain()
        self._commit.stop()
        await self._chain.close()
        self._syncer.close()
        for segment in self._segments.values():
            segment.close()

    # --- inside ---

    def _may_use_reserve(self, ledger: LogLedger) -> bool:
        return ledger.uses_reserve and self._disk.free_bytes() >= self.config.reserve_bytes // 2

    async def _mark(self, ledger: LogLedger, kind: int) -> None:
        if self._commit.unavailable is not None:
            raise self._commit.unavailable
        ref = ledger.ref
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        header = encode_record_header(kind, ref.id, ref.key, MARK_ENTRY_ID, ledger.lac)
        self._commit.add(
            PendingRecord(ref.id, ref.key, MARK_ENTRY_ID, 0, header, (), 0, kind, ledger.lac, ledger, waiter)
        )
        await waiter

    def _learn(self, segment: Segment) -> None:
        """Take in what a recovered segment holds of each ledger."""
        lines = dict(segment.summaries)
        lines.update((ref, index.summary(ref.id, ref.key)) for ref, index in segment.indexes.items())
        for ref, line in lines.items():
            ledger = self.ledger(ref)
            ledger.stored_in(segment)
            ledger.last_entry_id = max(ledger.last_entry_id, line.last_entry_id)
            ledger.lac = max(ledger.lac, line.lac)
            ledger.byte_length += line.byte_length
            ledger.fenced |= bool(line.marks & MARK_FENCED)
            ledger.limbo |= bool(line.marks & MARK_LIMBO)

    def _enter_group(self, group: Group) -> None:
        """Index a group that has just become durable."""
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
                ledger.last_entry_id = max(ledger.last_entry_id, first + count - 1)
                ledger.byte_length += record.body_length
                segment.entries += count
            else:
                index.fenced |= record.kind == KIND_FENCE
                index.limbo |= record.kind == KIND_LIMBO
                ledger.limbo |= record.kind == KIND_LIMBO

    async def _bytes_stored(self, ledger: LogLedger) -> int:
        """The bytes of a ledger's entries, each counted once whatever copies there are."""
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

    async def _read_somewhere(
        self, ledger: LogLedger, first: int, last: int, max_bytes: int, *, at_least_one: bool
    ) -> list[Run]:
        """Read from the newest segment that has the entry sound; copies of an entry are equal."""
        damage: EntryUnreadable | None = None
        tried: set[int] = set()
        # Segments come and go while this waits: the list is looked at anew after each.
        while segments := [
            each
            for each in ledger.segments
            if each.sequence not in tried and not each.retired and each.may_hold(ledger.ref, first)
        ]:
            segment = segments[-1]
            tried.add(segment.sequence)
            try:
                with segment.reading():
                    index = await self._index(segment, ledger.ref)
                    if index is None:
                        continue
                    runs = await read_runs(self._pool, segment, index, ledger.ref, first, last, max_bytes)
            except EntryUnreadable as error:
                damage = error
                continue
            if runs:
                if not at_least_one and runs[0].byte_length > max_bytes:
                    return []
                return runs
        raise damage or EntryUnreadable(f"entry {ledger.ref.id}:{first} is lost: no segment holds it")

    async def _index(self, segment: Segment, ref: LedgerRef) -> LedgerIndex | None:
        """A ledger's index in a segment: in memory, or from the sealed segment's footer."""
        index = segment.indexes.get(ref)
        if index is not None:
            if segment.sealed:
                self._index_cache_touch(segment, ref, index)
            return index
        if ref not in segment.summaries:
            return None
        try:
            index = await self._pool.run(lambda: segment.load_index(ref))
        except DataCorruption as error:
            log.error("a segment's index is damaged, made again from its records", error=str(error))
            index = (await self._pool.run(lambda: rebuild_indexes(segment))).get(ref)
            if index is None:
                return None
        segment.indexes[ref] = index
        if not segment.retired:
            self._index_cache_touch(segment, ref, index)
        return index

    def _sealed(self, segment: Segment) -> None:
        """A segment was sealed: its indexes stay in memory as far as the budget allows."""
        segment.sealed_at = self._clock.monotonic()
        for ref, index in list(segment.indexes.items()):
            self._index_cache_touch(segment, ref, index)

    def _removed(self, segment: Segment) -> None:
        """A segment with nothing in it was not worth sealing."""
        self._segments.pop(segment.sequence, None)

    def _index_cache_touch(self, segment: Segment, ref: LedgerRef, index: LedgerIndex) -> None:
        """Note the use of a sealed segment's index; forget the least recently used beyond the budget."""
        key = (segment.sequence, ref)
        size = self._index_cache.pop(key, 0)
        self._index_cache[key] = index.memory_bytes
        self._index_cache_bytes += index.memory_bytes - size
        while self._index_cache_bytes > self.config.index_cache_bytes and len(self._index_cache) > 1:
            (sequence, old_ref), size = self._index_cache.popitem(last=False)
            self._index_cache_bytes -= size
            if sequence in self._segments:
                self._segments[sequence].indexes.pop(old_ref, None)
