"""Taking entries: a record is checked, written as it came, and answered once its group is durable.

A writer's records of a ledger come in order of entries. One that does not (a recovery's re-write, a copy made
by auto-recovery, what a client sends again after its stream broke) is compared with what is here first: equal
entries are written once, a damaged one anew, and one that differs is refused, for the first is kept.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from magnetar.bookie.ledger_storage import LedgerStorage, WrongKey
from magnetar.bookie.read_only import ReadOnlyMode
from magnetar.common.errors import (
    Backpressure,
    DataCorruption,
    EntryUnreadable,
    LogFailed,
    LogFull,
    NoSuchEntry,
    StorageError,
)
from magnetar.common.obs.logs import get_logger
from magnetar.common.obs.metrics import REGISTRY
from magnetar.common.runtime.task_owner import TaskOwner
from magnetar.ledger.bookie_protocol.bookie_pb2 import (
    BACKPRESSURE,
    BAD_RECORD,
    FENCED,
    LOG_FAILED,
    OK,
    READ_ONLY,
    WRONG_KEY,
    Append,
    AppendResult,
    Code,
)
from magnetar.ledger.bookie_protocol.bookie_pb2 import LedgerRef as WireRef
from magnetar.ledger.bookie_protocol.records import WIRE_SALT, read_record
from magnetar.ledger.garbage_collector import GarbageCollector
from magnetar.ledger.ledger_store import LedgerRef
from magnetar.ledger.segment_log.codec_v1 import RecordHeader, decode_record_header
from magnetar.ledger.segment_log.group_commit import PendingRecord
from magnetar.ledger.segment_log.log import SegmentLog
from magnetar.ledger.segment_log.log_ledger import LogLedger
from magnetar.ledger.segment_log.reader import RecordSlice, build_slice
from prometheus_client import Counter

log = get_logger(__name__)

Answer = Callable[[AppendResult], None]
"""Told the fate of consecutive entries of one ledger. May be called before `append` returns."""

REFUSED_APPENDS = Counter(
    "magnetar_bookie_refused_appends",
    "Appends that were answered with another code than OK.",
    ["code"],
    registry=REGISTRY,
)
DUPLICATES = Counter(
    "magnetar_bookie_duplicate_entries",
    "Entries that came again and were here already, equal.",
    registry=REGISTRY,
)
CONFLICTS = Counter(
    "magnetar_bookie_conflicting_entries",
    "Entries that came again with other bytes than those that are here. The first were kept. Never expected.",
    registry=REGISTRY,
)

COMPARE_BYTES: Final = 1 << 20
"""How much of what is here is read at a time to compare it with what came."""

BATCH_RECORDS_MAX: Final = 256
"""Records that are compared, and then written, together: the loop is not held for longer."""


class _Conflict(StorageError):
    """An entry came again, and differs."""


@dataclass(slots=True, eq=False)
class _Parts:
    """The answer to an append of which only some entries are written, in `left` records."""

    answer: Answer
    header: RecordHeader
    left: int
    code: Code.ValueType = OK
    reason: str = ""

    def __call__(self, result: AppendResult) -> None:
        self.left -= 1
        if self.code == OK:
            self.code, self.reason = result.code, result.reason
        if not self.left:
            self.answer(_result(self.header, self.code, self.reason))


@dataclass(frozen=True, slots=True, eq=False)
class _Comparison:
    """An append whose entries may be here already."""

    header: RecordHeader
    raw: bytes
    body: bytes
    recovery: bool
    answer: Answer


class Appends:
    """Takes appends for one log and answers them. All calls on the loop."""

    def __init__(
        self,
        segment_log: SegmentLog,
        ledgers: LedgerStorage,
        mode: ReadOnlyMode,
        entry_bytes_max: int,
        make_ledger: Callable[[LedgerRef], LogLedger],
        garbage: GarbageCollector,
    ) -> None:
        self._log = segment_log
        self._ledgers = ledgers
        self._mode = mode
        self._entry_bytes_max = entry_bytes_max
        self._make_ledger = make_ledger
        self._garbage = garbage
        self._comparisons: dict[int, deque[_Comparison]] = {}
        self._compared_bytes = 0
        self._comparing: set[asyncio.Task[None]] = set()
        self._tasks = TaskOwner("appends")
        self._closing = False

    def append(self, append: Append, answer: Answer) -> None:
        """See `BookieCore.append`."""
        record = append.record
        try:
            header, raw, body = read_record(record)
        except DataCorruption as error:
            damaged = decode_record_header(record.header, WIRE_SALT)
            if damaged is None:
                raise
            self._refuse(damaged, answer, BAD_RECORD, str(error))
            return
        recovery = append.recovery
        if problem := self._problem(header, recovery):
            self._refuse(header, answer, BAD_RECORD, problem)
            return
        try:
            ledger = self._ledgers.find(header.ledger_id, header.ledger_key)
        except WrongKey as error:
            self._refuse(header, answer, WRONG_KEY, str(error))
            return
        if refusal := self._refusal(ledger, recovery):
            self._refuse(header, answer, *refusal)
            return
        if ledger is None:
            ref = LedgerRef(header.ledger_id, header.ledger_key)
            if self._garbage.is_gone(ref):
                self._refuse(header, answer, FENCED, f"ledger {ref.id} was deleted")
                return
            ledger = self._make_ledger(ref)
        self._garbage.touched(ledger.ref)
        if header.first_entry_id <= ledger.last_taken:
            self._compare_first(_Comparison(header, raw, body, recovery, answer))
            return
        try:
            self._log.append_record(ledger, header, raw, body, answer)
        except StorageError as error:
            self._refuse(header, answer, *_code_of(error))
            if not ledger.segments and not ledger.pending:
                self._ledgers.forget(ledger.ref)

    def settled(self, records: Sequence[PendingRecord], error: LogFailed | None) -> None:
        """Answer for records that became durable or failed: neighbors of a ledger at once."""
        code: Code.ValueType = OK if error is None else LOG_FAILED
        reason = "" if error is None else str(error)
        answer: Answer | None = None
        ledger: LogLedger | None = None
        first = following = 0
        for record in records:
            if record.answer is None:
                continue
            if record.ledger is ledger and record.first_entry_id == following and record.answer == answer:
                following += record.entry_count
                continue
            if answer is not None and ledger is not None:
                answer(_results(ledger.ref, first, following - first, code, reason))
            answer, ledger, first = record.answer, record.ledger, record.first_entry_id
            following = first + record.entry_count
        if answer is not None and ledger is not None:
            answer(_results(ledger.ref, first, following - first, code, reason))
        if error is not None:
            REFUSED_APPENDS.labels(code=Code.Name(code)).inc()

    async def drained(self) -> None:
        """Wait until everything that is being compared was written or answered."""
        while self._comparing:
            await asyncio.wait(self._comparing)

    async def close(self) -> None:
        """Let what is being compared end; take no more. Idempotent."""
        self._closing = True
        await self.drained()
        await self._tasks.close()

    def _problem(self, header: RecordHeader, recovery: bool) -> str:
        longest = header.entry_length if header.lengths is None else max(header.lengths)
        if longest > self._entry_bytes_max:
            limit = self._entry_bytes_max
            return f"an entry of {longest} bytes is over the limit of {limit} (magnetarBookieEntryBytesMax)"
        if header.ledger_id < 0:
            return f"{header.ledger_id} is no ledger id"
        if header.lac >= header.first_entry_id and not recovery:
            return f"entry {header.first_entry_id} comes with a last add confirmed of {header.lac}"
        return ""

    def _refusal(self, ledger: LogLedger | None, recovery: bool) -> tuple[Code.ValueType, str] | None:
        """Why a ledger takes no append now, if so. A recovery's is refused for want of space alone."""
        if recovery:
            return None
        if ledger is not None:
            if ledger.limbo:
                # It may have promised a fence that it has lost: its writer has to go on without this bookie.
                return LOG_FAILED, f"this bookie is in doubt about ledger {ledger.ref.id}"
            if ledger.fenced:
                return FENCED, f"ledger {ledger.ref.id} is fenced"
            if ledger.failed is not None:
                return LOG_FAILED, str(ledger.failed)
        if self._mode.active:
            return READ_ONLY, f"the bookie is read-only: {self._mode.reason}"
        return None

    def _refuse(self, header: RecordHeader, answer: Answer, code: Code.ValueType, reason: str) -> None:
        REFUSED_APPENDS.labels(code=Code.Name(code)).inc()
        answer(_result(header, code, reason))

    # --- entries that may be here already ---

    def _compare_first(self, comparison: _Comparison) -> None:
        size = comparison.header.body_length
        pending = self._compared_bytes + self._log.pending_bytes
        if self._closing or (pending and pending + size > self._log.config.pending_bytes_max):
            self._refuse(comparison.header, comparison.answer, BACKPRESSURE, f"{pending} bytes are pending")
            return
        self._compared_bytes += size
        ledger_id = comparison.header.ledger_id
        queue = self._comparisons.get(ledger_id)
        if queue is None:
            queue = self._comparisons[ledger_id] = deque()
            task = self._tasks.spawn(self._compare_all(ledger_id, queue), f"ledger {ledger_id}")
            self._comparing.add(task)
            task.add_done_callback(self._comparing.discard)
        queue.append(comparison)

    async def _compare_all(self, ledger_id: int, queue: deque[_Comparison]) -> None:
        """Batch after batch: two copies of an entry that is not here must not both find it missing."""
        try:
            while queue:
                batch = _take_batch(queue)
                try:
                    await self._compare(batch)
                except (StorageError, OSError) as error:
                    for comparison in batch:
                        self._refuse(comparison.header, comparison.answer, *_code_of(error))
                finally:
                    self._compared_bytes -= sum(each.header.body_length for each in batch)
        finally:
            del self._comparisons[ledger_id]

    async def _compare(self, batch: Sequence[_Comparison]) -> None:
        """Compare and write neighbors in time, of one ledger and about different entries: all of them wait
        once for what is on its way, and for one sync."""
        ref = LedgerRef(batch[0].header.ledger_id, batch[0].header.ledger_key)
        last = max(each.header.last_entry_id for each in batch)
        while True:
            ledger = self._ledgers.find(ref.id, ref.key)
            if ledger is None:
                ledger = self._make_ledger(ref)
            self._garbage.touched(ref)
            # What comes from here on and does not wait in the queue is about entries behind these: a writer
            # that never pauses is not waited for.
            ledger.last_taken = max(ledger.last_taken, last)
            await ledger.settled()
            found = [await self._look(ledger, each) for each in batch]
            if self._ledgers.find(ref.id, ref.key) is ledger:
                self._garbage.touched(ref)
                break  # otherwise it was forgotten meanwhile: look again
        for comparison, missing in zip(batch, found, strict=True):
            if isinstance(missing, _Conflict):
                CONFLICTS.inc()
                log.error("an entry came again with other bytes, the first are kept", error=str(missing))
                self._refuse(comparison.header, comparison.answer, BAD_RECORD, str(missing))
            elif isinstance(missing, Exception):
                self._refuse(comparison.header, comparison.answer, *_code_of(missing))
            else:
                self._write_missing(ledger, comparison, missing)

    async def _look(
        self, ledger: LogLedger, comparison: _Comparison
    ) -> list[tuple[int, int]] | StorageError | OSError:
        try:
            return await self._missing(ledger, comparison)
        except (StorageError, OSError) as error:
            return error

    def _write_missing(
        self, ledger: LogLedger, comparison: _Comparison, missing: Sequence[tuple[int, int]]
    ) -> None:
        header = comparison.header
        if refusal := self._refusal(ledger, comparison.recovery):
            self._refuse(header, comparison.answer, *refusal)
            return
        held = header.entry_count - sum(last - first + 1 for first, last in missing)
        DUPLICATES.inc(held)
        if not missing:
            comparison.answer(_result(header, OK, ""))
            return
        parts = _Parts(comparison.answer, header, len(missing))
        for first, last in missing:
            part = _slice(comparison, first, last)
            part_header = decode_record_header(part.header, WIRE_SALT)
            assert part_header is not None, "a header that was just encoded is sound"
            try:
                self._log.append_record(ledger, part_header, part.header, part.body, parts)
            except StorageError as error:
                parts(_result(part_header, *_code_of(error)))

    async def _missing(self, ledger: LogLedger, comparison: _Comparison) -> list[tuple[int, int]]:
        """(first, last) of the ranges that are not here, or damaged here. Raises _Conflict."""
        header = comparison.header
        missing: list[tuple[int, int]] = []
        at, last = header.first_entry_id, header.last_entry_id
        while at <= last:
            try:
                pieces = await self._log.read_records(ledger.ref, at, last, COMPARE_BYTES)
            except NoSuchEntry:
                following = await self._log.next_run_after(ledger.ref, at)
                end = last if following is None else min(last, following - 1)
            except EntryUnreadable:
                end = at
            else:
                for piece in pieces:
                    _check_equal(piece, _slice(comparison, piece.first_entry_id, piece.last_entry_id))
                at = pieces[-1].last_entry_id + 1
                continue
            if missing and missing[-1][1] == at - 1:
                missing[-1] = missing[-1][0], end
            else:
                missing.append((at, end))
            at = end + 1
        return missing


def _take_batch(queue: deque[_Comparison]) -> list[_Comparison]:
    """The first ones that are about one ledger and ever later entries."""
    batch = [queue.popleft()]
    while queue and len(batch) < BATCH_RECORDS_MAX:
        before, header = batch[-1].header, queue[0].header
        if header.ledger_key != before.ledger_key or header.first_entry_id <= before.last_entry_id:
            break
        batch.append(queue.popleft())
    return batch


def _slice(comparison: _Comparison, first: int, last: int) -> RecordSlice:
    header = comparison.header
    begin, stop = first - header.first_entry_id, last - header.first_entry_id + 1
    return build_slice(header, comparison.raw, comparison.body, header.entry_bounds(), begin, stop)


def _check_equal(here: RecordSlice, came: RecordSlice) -> None:
    """Raises _Conflict when entries or envelopes differ; last add confirmed and runs may."""
    if here.body != came.body or _envelope(here) != _envelope(came):
        raise _Conflict(f"entries {here.first_entry_id} to {here.last_entry_id} came again, different")


def _envelope(piece: RecordSlice) -> tuple[object, ...]:
    header = decode_record_header(piece.header, WIRE_SALT)
    assert header is not None, "it was read or encoded just now"
    counts = header.message_counts
    return (
        header.run_flags,
        header.publish_time_ms,
        header.first_index,
        header.entry_bounds(),
        None if counts is None or all(count == 1 for count in counts) else list(counts),
    )


def _code_of(error: StorageError | OSError) -> tuple[Code.ValueType, str]:
    if isinstance(error, LogFull):
        return READ_ONLY, str(error)
    if isinstance(error, Backpressure):
        return BACKPRESSURE, str(error)
    if isinstance(error, WrongKey):
        return WRONG_KEY, str(error)
    return LOG_FAILED, str(error)


def _result(header: RecordHeader, code: Code.ValueType, reason: str) -> AppendResult:
    ref = LedgerRef(header.ledger_id, header.ledger_key)
    return _results(ref, header.first_entry_id, header.entry_count, code, reason)


def _results(ref: LedgerRef, first: int, count: int, code: Code.ValueType, reason: str) -> AppendResult:
    return AppendResult(
        ledger=WireRef(id=ref.id & _ID_BITS, key=ref.key),
        first_entry_id=first,
        entry_count=count,
        code=code,
        reason=reason,
    )


_ID_BITS: Final = (1 << 64) - 1
