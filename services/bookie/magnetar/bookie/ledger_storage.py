"""The bookie's ledgers by id: lookup by id and key, states, and listing in pages."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from typing import Final

from magnetar.common.errors import StorageError
from magnetar.ledger.bookie_protocol.bookie_pb2 import (
    NO_SUCH_ENTRY,
    Code,
    LedgerList,
    LedgerState,
    ListLedgersRequest,
)
from magnetar.ledger.bookie_protocol.bookie_pb2 import LedgerRef as WireRef
from magnetar.ledger.bookie_protocol.stored_reads import state_of
from magnetar.ledger.ledger_store import LedgerRef
from magnetar.ledger.segment_log.log import SegmentLog
from magnetar.ledger.segment_log.log_ledger import LogLedger

PAGE_LEDGERS_MAX: Final = 10_000
"""Maximum ledgers in one answer: well within the message limit."""


class WrongKey(StorageError):
    """The bookie stores this ledger id with another key: ids were reused after metadata was restored."""


class BadRequest(StorageError):
    """A contradictory request, whatever the bookie holds."""


class LedgerStorage:
    """Every ledger with data in the log, by id. All calls on the event loop."""

    def __init__(self, segment_log: SegmentLog, fenced_below: int = 0) -> None:
        self.fenced_below = fenced_below
        """Fences of ledgers with a lower id may have been lost: such ledgers accept no appends of writers."""
        self._log = segment_log
        self._by_id: dict[int, LogLedger] = {}
        for ledger in segment_log.ledgers():
            known = self._by_id.get(ledger.ref.id)
            if known is None or known.segments[-1].sequence < ledger.segments[-1].sequence:
                self._by_id[ledger.ref.id] = ledger
        self._ordered: array[int] | None = None

    def __len__(self) -> int:
        return len(self._by_id)

    def __contains__(self, ledger: LogLedger) -> bool:
        """Returns whether this is still the stored ledger: it was not forgotten meanwhile."""
        return self._by_id.get(ledger.ref.id) is ledger

    def refs(self) -> list[LedgerRef]:
        """Returns every ledger."""
        return [ledger.ref for ledger in self._by_id.values()]

    def any_in_limbo(self) -> bool:
        """Returns whether any ledger is in limbo."""
        return any(ledger.limbo for ledger in self._by_id.values())

    def refs_with_appends(self) -> list[LedgerRef]:
        """Returns the ledgers with unsettled records."""
        return [ledger.ref for ledger in self._by_id.values() if ledger.pending]

    def find(self, ledger_id: int, key: int) -> LogLedger | None:
        """Returns a ledger; None if it is unknown. Raises WrongKey."""
        ledger = self._by_id.get(ledger_id)
        if ledger is not None and ledger.ref.key != key:
            raise WrongKey(f"ledger {ledger_id} has another key here")
        return ledger

    def make(self, ref: LedgerRef) -> LogLedger:
        """Creates a ledger that is new to the bookie."""
        ledger = self._by_id[ref.id] = self._log.ledger(ref)
        self._ordered = None
        return ledger

    def forget(self, ref: LedgerRef) -> None:
        """Removes a permanently deleted ledger; its bytes are freed later."""
        ledger = self._by_id.get(ref.id)
        if ledger is not None and ledger.ref == ref:
            del self._by_id[ref.id]
            self._ordered = None
        self._log.forget(ref)

    def forget_if_empty(self, ledger: LogLedger) -> None:
        """Removes a ledger of which nothing was accepted."""
        if not ledger.segments and not ledger.pending:
            self.forget(ledger.ref)

    def page(self, request: ListLedgersRequest) -> LedgerList:
        """Returns one page of ledgers by id."""
        if self._ordered is None:
            self._ordered = array("q", sorted(self._by_id))
        ordered = self._ordered
        limit = min(request.limit or PAGE_LEDGERS_MAX, PAGE_LEDGERS_MAX)
        answer = LedgerList()
        place = bisect_right(ordered, request.after_ledger_id)
        while place < len(ordered) and len(answer.ledgers) < limit:
            ledger = self._by_id[ordered[place]]
            if ledger.limbo or not request.only_limbo:
                answer.ledgers.append(state_of(ledger))
            place += 1
        answer.more = place < len(ordered)
        return answer


def failed_state(ref: WireRef, code: Code.ValueType, reason: str) -> LedgerState:
    """Returns the answer for a ledger whose state could not be read."""
    return LedgerState(ledger=ref, code=code, reason=reason, lac=-1, last_entry_id=-1)


def unheard_of(ref: WireRef) -> LedgerState:
    """Returns the state of a ledger without entries on this bookie."""
    return failed_state(ref, NO_SUCH_ENTRY, f"ledger {ref.id} was never heard of here")
