"""A bookie without its network: ledgers on one segment log, addressed by the messages of proto/bookie/v1.

Disk, pool, syncer, clock and randomness are injected, so libs/sim runs all of it. gRPC, registration and
configuration files are outside. All calls on the loop that opened it.
"""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Sequence
from functools import partial
from typing import Final

from magnetar.bookie.append_answers import Answer
from magnetar.bookie.appends import Appends
from magnetar.bookie.core_config import BookieCoreConfig
from magnetar.bookie.data_check import DataCheck
from magnetar.bookie.garbage import disown_copies, is_moved_away
from magnetar.bookie.high_water import HighWater
from magnetar.bookie.identity import Identity, claim_directory
from magnetar.bookie.lac_waiters import LacWaiters
from magnetar.bookie.ledger_storage import (
    BadRequest,
    LedgerStorage,
    WrongKey,
    failed_state,
    unheard_of,
)
from magnetar.bookie.limbo import mark_doubtful, note_doubt
from magnetar.bookie.read_only import ReadOnlyMode
from magnetar.common.errors import ConfigError, LogFailed
from magnetar.common.metadata.keys import Keys
from magnetar.common.metadata.store import MetadataStore
from magnetar.common.runtime.blocking import BlockingPool
from magnetar.common.runtime.clock import Clock
from magnetar.common.runtime.disk import Disk, DiskFile
from magnetar.ledger.bookie_protocol.bookie_client import PROTOCOL_VERSION
from magnetar.ledger.bookie_protocol.bookie_pb2 import (
    LOG_FAILED,
    NO_SUCH_ENTRY,
    OK,
    WRONG_KEY,
    Append,
    ClearLimboRequest,
    DeleteHintRequest,
    DeleteHintResponse,
    DescribeRequest,
    Description,
    EntryRanges,
    FenceRequest,
    LacUpdate,
    LedgerList,
    LedgerState,
    ListEntriesRequest,
    ListLedgersRequest,
    ReadLacRequest,
    ReadPart,
    ReadRequest,
)
from magnetar.ledger.bookie_protocol.bookie_pb2 import LedgerRef as WireRef
from magnetar.ledger.bookie_protocol.stored_reads import read_parts, state_of
from magnetar.ledger.data_directory import lock_data_directory
from magnetar.ledger.garbage_collector import GarbageCollector, Replica
from magnetar.ledger.ledger_store import LedgerRef
from magnetar.ledger.segment_log.config import SegmentLogConfig
from magnetar.ledger.segment_log.group_commit import PendingRecord
from magnetar.ledger.segment_log.held_ranges import held_ranges
from magnetar.ledger.segment_log.log import SegmentLog
from magnetar.ledger.segment_log.log_ledger import LogLedger
from magnetar.ledger.segment_log.syncer import Syncer

VERSION: Final = "0.1.0"

RANGES_MAX: Final = 10_000
"""Maximum ranges in one answer about entries: well within the message limit."""


class BookieCore:
    """A bookie's core, created by `open_bookie_core`."""

    def __init__(
        self,
        segment_log: SegmentLog,
        metadata: MetadataStore,
        keys: Keys,
        disk: Disk,
        pool: BlockingPool,
        clock: Clock,
        lock: DiskFile,
        config: BookieCoreConfig,
        identity: Identity,
        high_water: HighWater,
    ) -> None:
        self.log = segment_log
        self.identity = identity
        self.bookie_id = identity.bookie_id
        self.high_water = high_water
        self._uncovered: set[LedgerRef] = set()
        """Fenced ledgers whose fences are not yet covered by the mark in metadata."""
        self.ledgers = LedgerStorage(segment_log, high_water.mark.fenced_below_ledger_id)
        self.garbage = GarbageCollector(
            segment_log,
            metadata,
            keys,
            disk,
            pool,
            clock,
            self.ledgers.refs_with_appends,
            Replica(
                identity.instance_id,
                partial(is_moved_away, identity.bookie_id),
                config.moved_grace_s,
                partial(disown_copies, metadata, keys, identity.bookie_id),
                self._dead,
            ),
        )
        self.data_check = DataCheck(disk, pool)
        self.mode = ReadOnlyMode(disk, config, segment_log.is_full)
        self._config = config
        self._disk = disk
        self._pool = pool
        self._lock = lock
        self._appends = Appends(
            segment_log, self.ledgers, self.mode, config.entry_bytes_max, self.make_ledger, self.garbage
        )
        self._lac_waiters = LacWaiters(config.lac_waiters_max)
        segment_log.on_settled(self._settled)

    def append(self, append: Append, answer: Answer) -> None:
        """Accepts a record; `answer` receives its result once it is durable or refused.

        A plain call. A refusal may be answered before it returns. Consecutive confirmations of a ledger with
        equal `answer`s are reported together. Raises DataCorruption if the record's header is damaged: the
        ledger is unknown, so the stream must end; UnsupportedFormat for a record of a later release.
        """
        self._appends.append(append, answer)

    def write_lacs(self, updates: Iterable[LacUpdate]) -> None:
        """Receives last-add-confirmed values that no append has carried yet; a plain call. They are hints:
        kept in memory, never lowered, and ignored for unknown ledgers.
        """
        for update in updates:
            try:
                ledger = self.ledgers.find(update.ledger.id, update.ledger.key)
            except WrongKey:
                continue
            if ledger is not None and update.lac > ledger.lac:
                ledger.lac = update.lac
                self._lac_waiters.advanced((ledger,))

    async def read(self, request: ReadRequest) -> AsyncIterator[ReadPart]:
        """Yields durable entries in order, in parts of at most 1 MiB or one entry; the last part gives the
        reason why it ends.

        Raises BadRequest.
        """
        if request.first_entry_id < 0 or request.last_entry_id < request.first_entry_id:
            raise BadRequest(
                f"entries {request.first_entry_id} to {request.last_entry_id} of ledger {request.ledger.id} "
                "are no range"
            )
        try:
            ledger = self.ledgers.find(request.ledger.id, request.ledger.key)
            if request.fence:
                ledger = await self._fence(request.ledger)
        except WrongKey as error:
            yield ReadPart(code=WRONG_KEY, stopped_at=request.first_entry_id, reason=str(error))
            return
        except LogFailed as error:
            yield ReadPart(code=LOG_FAILED, stopped_at=request.first_entry_id, reason=str(error))
            return
        async for part in read_parts(self.log, ledger, request):
            yield part

    async def read_lac(self, request: ReadLacRequest) -> LedgerState:
        """Returns the ledger's state; waits for the last add confirmed to advance if the request says so."""
        try:
            ledger = self.ledgers.find(request.ledger.id, request.ledger.key)
            if request.wait_ms and (ledger is None or (ledger.lac <= request.above and not ledger.fenced)):
                await self._lac_waiters.wait(request.ledger.id, request.above, request.wait_ms)
                ledger = self.ledgers.find(request.ledger.id, request.ledger.key)
        except WrongKey as error:
            return failed_state(request.ledger, WRONG_KEY, str(error))
        return unheard_of(request.ledger) if ledger is None else state_of(ledger)

    async def fence(self, request: FenceRequest) -> LedgerState:
        """Refuses ordinary appends to the ledger from now on. Returns once the fence and all earlier appends
        are durable and the mark in metadata covers them.
        """
        try:
            return state_of(await self._fence(request.ledger))
        except WrongKey as error:
            return failed_state(request.ledger, WRONG_KEY, str(error))
        except LogFailed as error:
            return failed_state(request.ledger, LOG_FAILED, str(error))

    async def list_ledgers(self, request: ListLedgersRequest) -> LedgerList:
        """Returns one page of the stored ledgers, by ledger id."""
        return self.ledgers.page(request)

    async def list_entries(self, request: ListEntriesRequest) -> EntryRanges:
        """Returns which of the requested entries are stored, including those in flight. Raises BadRequest."""
        first, last = request.first_entry_id, request.last_entry_id
        if first < 0 or last < first:
            raise BadRequest(f"entries {first} to {last} of ledger {request.ledger.id} are no range")
        try:
            ledger = self.ledgers.find(request.ledger.id, request.ledger.key)
        except WrongKey as error:
            return EntryRanges(code=WRONG_KEY, reason=str(error), until=last)
        if ledger is None:
            reason = f"ledger {request.ledger.id} was never heard of here"
            return EntryRanges(code=NO_SUCH_ENTRY, reason=reason, until=last)
        await ledger.settled()
        found = await held_ranges(self.log, self._pool, ledger.ref, first, last)
        if len(found) > RANGES_MAX:
            del found[RANGES_MAX:]
            last = found[-1][1]
        return EntryRanges(
            code=OK, firsts=[each[0] for each in found], lasts=[each[1] for each in found], until=last
        )

    async def delete_hint(self, request: DeleteHintRequest) -> DeleteHintResponse:
        """Checks soon whether the ledgers are deleted in metadata, without waiting for the regular
        interval.
        """
        for named in request.ledgers:
            try:
                ledger = self.ledgers.find(named.id, named.key)
            except WrongKey:
                continue
            if ledger is not None:
                self.garbage.deleted(ledger.ref)
        self.garbage.hint()
        return DeleteHintResponse()

    async def clear_limbo(self, request: ClearLimboRequest) -> LedgerState:
        """Clears the ledger's limbo mark; returns once that is durable."""
        try:
            ledger = self.ledgers.find(request.ledger.id, request.ledger.key)
            if ledger is None:
                return unheard_of(request.ledger)
            return state_of(await self.log.clear_limbo(ledger.ref))
        except WrongKey as error:
            return failed_state(request.ledger, WRONG_KEY, str(error))
        except LogFailed as error:
            return failed_state(request.ledger, LOG_FAILED, str(error))

    async def describe(self, request: DescribeRequest) -> Description:
        """Describes the bookie's identity and state."""
        return Description(
            bookie_id=self.bookie_id,
            instance_id=self.identity.instance_id,
            protocol_version=PROTOCOL_VERSION,
            version=VERSION,
            read_only=self.mode.active,
            free_bytes=self._disk.free_bytes(),
            total_bytes=self._disk.total_bytes(),
            ledgers=len(self.ledgers),
            entry_bytes_max=self._config.entry_bytes_max,
            directory_id=self.identity.directory_id,
        )

    @property
    def read_only(self) -> bool:
        """Returns whether ordinary appends are refused."""
        return self.mode.active

    def set_read_only(self, read_only: bool) -> None:
        """Sets the operator's mode; holds until the next start."""
        self.mode.set_by_operator(read_only)

    def on_mode_change(self, listener: Callable[[], None]) -> None:
        """Calls `listener` after each change of `read_only`."""
        self.mode.on_change = listener

    async def close(self) -> None:
        """Waits for pending appends, seals the log, releases the directory; idempotent."""
        self.mode.stop()
        self._lac_waiters.close()
        await self._appends.close()
        await self.garbage.close()
        await self.log.close()
        await self.high_water.close()
        self._lock.close()

    # --- internal ---

    def make_ledger(self, ref: LedgerRef) -> LogLedger:
        """Creates a ledger that is new to the bookie."""
        self.garbage.revive(ref)
        return self.ledgers.make(ref)

    async def _fence(self, ref: WireRef) -> LogLedger:
        ledger = self.ledgers.find(ref.id, ref.key)
        if ledger is None:
            ledger = self.make_ledger(LedgerRef(ref.id, ref.key))
        self.garbage.touched(ledger.ref)
        ledger.fenced = True
        self._lac_waiters.wake(ref.id)
        if not ledger.fence_durable:
            self._uncovered.add(ledger.ref)
        await self.log.fence(ledger.ref)
        if ledger.ref in self._uncovered:
            await self.high_water.covered()
            self._uncovered.discard(ledger.ref)
        return ledger

    async def _in_doubt(self) -> bool:
        return self.ledgers.any_in_limbo() or await self.data_check.is_needed()

    def _dead(self, refs: Collection[LedgerRef]) -> None:
        for ref in refs:
            self.ledgers.forget(ref)
            self._uncovered.discard(ref)

    def _settled(self, records: Sequence[PendingRecord], error: LogFailed | None) -> None:
        self._appends.settled(records, error)
        self._lac_waiters.advanced({record.ledger for record in records})


async def open_bookie_core(
    disk: Disk,
    metadata: MetadataStore,
    keys: Keys,
    *,
    bookie_id: str,
    instance_id: bytes,
    pool: BlockingPool,
    syncer: Syncer,
    clock: Clock,
    rng: random.Random,
    log_config: SegmentLogConfig,
    config: BookieCoreConfig,
    accept_empty_directory: bool = False,
) -> BookieCore:
    """Locks the data directory (the root of `disk`), checks its identity, recovers the log and returns the
    core.

    The core takes over the syncer; the caller keeps disk, metadata and pool. Raises WrongDataDirectory (also
    for an empty directory of a bookie that had data, unless that is accepted), UnsupportedFormat,
    DataCorruption (of the cookie), MetadataError or OSError.
    """
    if not log_config.sync_data:
        raise ConfigError("journalSyncData=false: a bookie never confirms what it has not synced")
    doubt = partial(note_doubt, disk)
    lock = lock_data_directory(disk)
    try:
        identity = await claim_directory(
            disk,
            pool,
            metadata,
            keys,
            bookie_id=bookie_id,
            instance_id=instance_id,
            rng=rng,
            now_ms=clock.wall_ms(),
            accept_empty_directory=accept_empty_directory or config.accept_empty_directory,
            note_doubt=doubt,
        )
        high_water = HighWater(metadata, keys, clock, bookie_id, config.mark_interval_ms / 1000)
        known = await high_water.read(identity.directory_id, identity.generation)
        log = await SegmentLog.open(
            disk, pool, syncer, clock, rng, log_config, replica=True, on_doubt=doubt, high_water=known
        )
    except BaseException:
        lock.close()
        raise
    core = BookieCore(log, metadata, keys, disk, pool, clock, lock, config, identity, high_water)
    try:
        await mark_doubtful(
            disk, pool, metadata, keys, bookie_id, log, core.ledgers, core.make_ledger, high_water.doubted
        )
        await high_water.begin(log.group_commit)
    except BaseException:
        await core.close()
        raise
    core.mode.start()
    core.garbage.start()
    high_water.start(core._in_doubt)
    return core
