"""Comparison of appended entries that may already be stored, before any of them is written.

Such appends are the re-writes of a recovery, copies by auto-recovery, and a client's resends after a broken
stream. An equal entry is written once, a damaged one again, and a different one is refused: the first is
kept.

A ledger's comparisons run batch after batch, beside a writer that continues: from a batch's start on, new
appends either concern later entries or wait here too, so only the batch writes what it found missing.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from magnetar.bookie.append_answers import Answer, code_of, refuse, result_of
from magnetar.bookie.ledger_storage import LedgerStorage
from magnetar.common.errors import EntryUnreadable, LedgerFenced, NoSuchEntry, StorageError
from magnetar.common.obs.logs import get_logger
from magnetar.common.obs.metrics import REGISTRY
from magnetar.common.runtime.task_owner import TaskOwner
from magnetar.ledger.bookie_protocol.bookie_pb2 import BACKPRESSURE, BAD_RECORD, OK, AppendResult, Code
from magnetar.ledger.bookie_protocol.records import WIRE_SALT
from magnetar.ledger.garbage_collector import GarbageCollector
from magnetar.ledger.ledger_store import LedgerRef
from magnetar.ledger.segment_log.codec_v1 import RecordHeader, decode_record_header
from magnetar.ledger.segment_log.log import SegmentLog
from magnetar.ledger.segment_log.log_ledger import LogLedger
from magnetar.ledger.segment_log.reader import RecordSlice, build_slice
from prometheus_client import Counter

log = get_logger(__name__)

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
"""Bytes of stored entries read at a time for a comparison."""

BATCH_RECORDS_MAX: Final = 256
BATCH_BYTES_MAX: Final = 1 << 20
"""Limits of a batch, unless a single record is larger."""

LOOKS_AT_ONCE: Final = 32
"""Records looked up between two turns of the event loop."""

Refusal: TypeAlias = "Callable[[LogLedger | None, bool], tuple[Code.ValueType, str] | None]"
"""Maps (ledger, whether the append is a recovery's) to the refusal of an append, or None."""


class _Conflict(StorageError):
    """A received entry differs from the stored one."""


@dataclass(slots=True, eq=False)
class _Parts:
    """The pending answer to an append of which only some entries are written, in `left` records."""

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
            self.answer(result_of(self.header, self.code, self.reason))


@dataclass(frozen=True, slots=True, eq=False)
class Comparison:
    """An append whose entries may already be stored."""

    header: RecordHeader
    raw: bytes
    body: bytes
    recovery: bool
    answer: Answer


_Missing: TypeAlias = "list[tuple[int, int]] | StorageError | OSError"
"""(first, last) of the ranges that are missing or damaged here; or the error that prevents an answer."""


class Comparisons:
    """Compares appends to one log's ledgers, writes missing entries and answers. All calls on the
    event loop.
    """

    def __init__(
        self,
        segment_log: SegmentLog,
        ledgers: LedgerStorage,
        make_ledger: Callable[[LedgerRef], LogLedger],
        garbage: GarbageCollector,
        refusal: Refusal,
    ) -> None:
        self.byte_length = 0
        """Bytes of entries waiting for comparison."""
        self._log = segment_log
        self._ledgers = ledgers
        self._make_ledger = make_ledger
        self._garbage = garbage
        self._refusal = refusal
        self._queues: dict[int, deque[Comparison]] = {}
        self._comparing: set[asyncio.Task[None]] = set()
        self._tasks = TaskOwner("comparisons")
        self._closing = False

    def add(self, comparison: Comparison) -> None:
        """Compares an append and answers it. Refuses it at once if too many bytes are waiting."""
        if self._closing:
            refuse(comparison.header, comparison.answer, BACKPRESSURE, "the bookie stops")
            return
        size = comparison.header.body_length
        pending = self.byte_length + self._log.pending_bytes
        if pending and pending + size > self._log.config.pending_bytes_max:
            refuse(comparison.header, comparison.answer, BACKPRESSURE, f"{pending} bytes are pending")
            return
        self.byte_length += size
        ledger_id = comparison.header.ledger_id
        queue = self._queues.get(ledger_id)
        if queue is None:
            queue = self._queues[ledger_id] = deque()
            task = self._tasks.spawn(self._compare_all(ledger_id, queue), f"ledger {ledger_id}")
            self._comparing.add(task)
            task.add_done_callback(self._comparing.discard)
        queue.append(comparison)

    async def drained(self) -> None:
        """Waits until every waiting comparison was written or answered."""
        while self._comparing:
            await asyncio.wait(self._comparing)

    async def close(self) -> None:
        """Waits for the comparison in progress and accepts no more. Idempotent."""
        self._closing = True
        await self.drained()
        await self._tasks.close()

    # --- internal ---

    async def _compare_all(self, ledger_id: int, queue: deque[Comparison]) -> None:
        """Processes batch after batch, so that two copies of a missing entry are not both found missing."""
        try:
            while queue:
                batch = _take_batch(queue)
                try:
                    await self._compare(batch)
                finally:
                    self.byte_length -= sum(each.header.body_length for each in batch)
        finally:
            del self._queues[ledger_id]

    async def _compare(self, batch: Sequence[Comparison]) -> None:
        """Compares a batch; the whole batch waits once for entries in flight, and for one sync."""
        try:
            ledger, found = await self._look_for_all(batch)
        except Exception as error:  # any failure must be answered: a client waits, and others behind it
            if not isinstance(error, StorageError | OSError):
                log.exception("entries that came again could not be compared")
            for comparison in batch:
                refuse(comparison.header, comparison.answer, *code_of(error))
            return
        for comparison, missing in zip(batch, found, strict=True):
            if isinstance(missing, _Conflict):
                CONFLICTS.inc()
                log.error("an entry came again with other bytes, the first are kept", error=str(missing))
                refuse(comparison.header, comparison.answer, BAD_RECORD, str(missing))
            elif isinstance(missing, Exception):
                refuse(comparison.header, comparison.answer, *code_of(missing))
            else:
                self._write_missing(ledger, comparison, missing)
        self._ledgers.forget_if_empty(ledger)

    async def _look_for_all(self, batch: Sequence[Comparison]) -> tuple[LogLedger, list[_Missing]]:
        """Returns the ledger, as known on return, and the missing ranges of each append."""
        ref = LedgerRef(batch[0].header.ledger_id, batch[0].header.ledger_key)
        last = max(each.header.last_entry_id for each in batch)
        while True:
            ledger = self._ledgers.find(ref.id, ref.key)
            if ledger is None:
                if self._garbage.is_gone(ref):
                    raise LedgerFenced(f"ledger {ref.id} was deleted")
                ledger = self._make_ledger(ref)
            self._garbage.touched(ref)
            # Appends from here on that do not wait in the queue concern later entries, so a writer that never
            # pauses is not waited for.
            ledger.last_taken = max(ledger.last_taken, last)
            await ledger.settled()
            look = _Look(self._log, ref)
            found: list[_Missing] = []
            for place, comparison in enumerate(batch):
                if place and not place % LOOKS_AT_ONCE:
                    await asyncio.sleep(0)
                try:
                    found.append(await look.missing(comparison))
                except (StorageError, OSError) as error:
                    found.append(error)
            if self._ledgers.find(ref.id, ref.key) is ledger:
                self._garbage.touched(ref)
                return ledger, found
            # The ledger was forgotten meanwhile: look it up again.

    def _write_missing(
        self, ledger: LogLedger, comparison: Comparison, missing: Sequence[tuple[int, int]]
    ) -> None:
        header = comparison.header
        if refusal := self._refusal(ledger, comparison.recovery):
            refuse(header, comparison.answer, *refusal)
            return
        held = header.entry_count - sum(last - first + 1 for first, last in missing)
        DUPLICATES.inc(held)
        if not missing:
            comparison.answer(result_of(header, OK))
            return
        parts = _Parts(comparison.answer, header, len(missing))
        for first, last in missing:
            part = _slice(comparison, first, last)
            part_header = decode_record_header(part.header, WIRE_SALT)
            assert part_header is not None, "a header that was just encoded is sound"
            try:
                self._log.append_record(ledger, part_header, part.header, part.body, parts)
            except StorageError as error:
                refuse(part_header, parts, *code_of(error))


class _Look:
    """Finds missing entries for a batch's appends, which are in ascending entry order."""

    __slots__ = ("_log", "_nothing_until", "_ref")

    def __init__(self, segment_log: SegmentLog, ref: LedgerRef) -> None:
        self._log = segment_log
        self._ref = ref
        # Entries between the last lookup and this one are known to be missing; None means to the end.
        self._nothing_until: int | None = -1

    async def missing(self, comparison: Comparison) -> list[tuple[int, int]]:
        """Returns (first, last) of the ranges missing or damaged here. Raises _Conflict, other StorageErrors,
        OSError.
        """
        header = comparison.header
        missing: list[tuple[int, int]] = []
        at, last = header.first_entry_id, header.last_entry_id
        while at <= last:
            until = self._nothing_until
            if until is None or at < until:
                end = last if until is None else min(last, until - 1)
            else:
                try:
                    pieces = await self._log.read_records(self._ref, at, last, COMPARE_BYTES)
                except NoSuchEntry:
                    # A lookup reads the index of every segment of the ledger, so look up once per hole, not
                    # once per append.
                    self._nothing_until = await self._log.next_run_after(self._ref, at)
                    continue
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


def _take_batch(queue: deque[Comparison]) -> list[Comparison]:
    """Removes the first appends that concern one ledger and ascending entries."""
    batch = [queue.popleft()]
    size = batch[0].header.body_length
    while queue and len(batch) < BATCH_RECORDS_MAX:
        before, header = batch[-1].header, queue[0].header
        size += header.body_length
        if size > BATCH_BYTES_MAX or header.ledger_key != before.ledger_key:
            break
        if header.first_entry_id <= before.last_entry_id:
            break
        batch.append(queue.popleft())
    return batch


def _slice(comparison: Comparison, first: int, last: int) -> RecordSlice:
    header = comparison.header
    begin, stop = first - header.first_entry_id, last - header.first_entry_id + 1
    return build_slice(header, comparison.raw, comparison.body, header.entry_bounds(), begin, stop)


def _check_equal(here: RecordSlice, came: RecordSlice) -> None:
    """Raises _Conflict if entries or envelopes differ; last add confirmed and run boundaries may differ."""
    if here.body != came.body or _envelope(here) != _envelope(came):
        raise _Conflict(f"entries {here.first_entry_id} to {here.last_entry_id} came again, different")


def _envelope(piece: RecordSlice) -> tuple[object, ...]:
    header = decode_record_header(piece.header, WIRE_SALT)
    assert header is not None, "it was read or encoded just now"
    counts = header.message_counts
    return (
        header.run_flags,
        header.txn,
        header.publish_time_ms,
        header.first_index,
        header.entry_bounds(),
        None if counts is None or all(count == 1 for count in counts) else list(counts),
    )
