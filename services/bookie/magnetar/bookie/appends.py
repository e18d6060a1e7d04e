"""Accepting entries: each record is checked, written unchanged, and answered once its commit group is
durable.

A writer's records of a ledger arrive in entry order. A record out of order may be stored already, so it is
compared first (`comparisons`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from magnetar.bookie.append_answers import REFUSED_APPENDS, Answer, code_of, refuse, result_for
from magnetar.bookie.comparisons import Comparison, Comparisons
from magnetar.bookie.ledger_storage import LedgerStorage, WrongKey
from magnetar.bookie.read_only import ReadOnlyMode
from magnetar.common.errors import DataCorruption, LogFailed, StorageError
from magnetar.ledger.bookie_protocol.bookie_pb2 import (
    BAD_RECORD,
    FENCED,
    LOG_FAILED,
    OK,
    READ_ONLY,
    WRONG_KEY,
    Append,
    Code,
)
from magnetar.ledger.bookie_protocol.records import WIRE_SALT, read_record
from magnetar.ledger.garbage_collector import GarbageCollector
from magnetar.ledger.ledger_store import LedgerRef
from magnetar.ledger.segment_log.codec_v1 import RecordHeader, decode_record_header
from magnetar.ledger.segment_log.group_commit import PendingRecord
from magnetar.ledger.segment_log.log import SegmentLog
from magnetar.ledger.segment_log.log_ledger import LogLedger


class Appends:
    """Accepts and answers appends for one log. All calls on the event loop."""

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
        self.comparisons = Comparisons(segment_log, ledgers, make_ledger, garbage, self._refusal)

    def append(self, append: Append, answer: Answer) -> None:
        """See `BookieCore.append`."""
        record = append.record
        try:
            header, raw, body = read_record(record)
        except DataCorruption as error:
            damaged = decode_record_header(record.header, WIRE_SALT)
            if damaged is None:
                raise
            refuse(damaged, answer, BAD_RECORD, str(error))
            return
        recovery = append.recovery
        if problem := self._problem(header, recovery):
            refuse(header, answer, BAD_RECORD, problem)
            return
        try:
            ledger = self._ledgers.find(header.ledger_id, header.ledger_key)
        except WrongKey as error:
            refuse(header, answer, WRONG_KEY, str(error))
            return
        if refusal := self._refusal(ledger, recovery):
            refuse(header, answer, *refusal)
            return
        if header.ledger_id < self._ledgers.fenced_below and not recovery:
            reason = f"this bookie may have lost a fence of ledger {header.ledger_id}"
            refuse(header, answer, LOG_FAILED, reason)
            return
        if ledger is None:
            ref = LedgerRef(header.ledger_id, header.ledger_key)
            if self._garbage.is_gone(ref):
                refuse(header, answer, FENCED, f"ledger {ref.id} was deleted")
                return
            ledger = self._make_ledger(ref)
        self._garbage.touched(ledger.ref)
        if header.first_entry_id <= ledger.last_taken:
            self.comparisons.add(Comparison(header, raw, body, recovery, answer))
            return
        try:
            self._log.append_record(ledger, header, raw, body, answer)
        except StorageError as error:
            refuse(header, answer, *code_of(error))
            self._ledgers.forget_if_empty(ledger)

    def settled(self, records: Sequence[PendingRecord], error: LogFailed | None) -> None:
        """Answers records that became durable or failed; consecutive entries of a ledger share an answer."""
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
                answer(result_for(ledger.ref, first, following - first, code, reason))
            answer, ledger, first = record.answer, record.ledger, record.first_entry_id
            following = first + record.entry_count
        if answer is not None and ledger is not None:
            answer(result_for(ledger.ref, first, following - first, code, reason))
        if error is not None:
            REFUSED_APPENDS.labels(code=Code.Name(code)).inc()

    async def close(self) -> None:
        """Waits for the comparison in progress and starts no more. Idempotent."""
        await self.comparisons.close()

    def _problem(self, header: RecordHeader, recovery: bool) -> str:
        longest = header.entry_length if header.lengths is None else max(header.lengths)
        if longest > self._entry_bytes_max:
            limit = self._entry_bytes_max
            return f"an entry of {longest} bytes is over the limit of {limit} (magnetarBookieEntryBytesMax)"
        if header.ledger_id < 0:
            return f"invalid ledger id {header.ledger_id}"
        if header.lac >= header.first_entry_id and not recovery:
            return f"entry {header.first_entry_id} comes with a last add confirmed of {header.lac}"
        return ""

    def _refusal(self, ledger: LogLedger | None, recovery: bool) -> tuple[Code.ValueType, str] | None:
        """Returns why a ledger accepts no append now, or None. Appends of a recovery are refused only for
        lack of space.
        """
        if recovery:
            return None
        if ledger is not None:
            if ledger.limbo:
                # The bookie may have lost a fence that it had confirmed: the writer must continue without
                # this bookie.
                return LOG_FAILED, f"this bookie is in doubt about ledger {ledger.ref.id}"
            if ledger.fenced:
                return FENCED, f"ledger {ledger.ref.id} is fenced"
            if ledger.failed is not None:
                return LOG_FAILED, str(ledger.failed)
        if self._mode.active:
            return READ_ONLY, f"the bookie is read-only: {self._mode.reason}"
        return None
