"""Answers of a process with a log to reads: durable entries as checked records, and the reason why the answer
ends; and a ledger's state.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Final

from magnetar.common.errors import EntryUnreadable, NoSuchEntry
from magnetar.ledger.bookie_protocol.bookie_pb2 import (
    ENTRY_UNKNOWN,
    ENTRY_UNREADABLE,
    NO_SUCH_ENTRY,
    OK,
    LedgerState,
    ReadPart,
    ReadRequest,
    Record,
)
from magnetar.ledger.bookie_protocol.bookie_pb2 import LedgerRef as WireRef
from magnetar.ledger.segment_log.log import SegmentLog
from magnetar.ledger.segment_log.log_ledger import LogLedger

PART_BYTES_MAX: Final = 1 << 20
"""Maximum entry bytes of one part, unless a single entry is larger."""


async def read_parts(
    log: SegmentLog, ledger: LogLedger | None, request: ReadRequest
) -> AsyncIterator[ReadPart]:
    """Yields the parts of one answer. A missing entry is reported as 'no such entry' only if that is certain:
    never while the ledger is in limbo.
    """
    at, last = request.first_entry_id, request.last_entry_id
    budget = request.max_bytes
    begun = settled = False
    while at <= last and (budget > 0 or not begun):
        if ledger is None:
            reason = f"ledger {request.ledger.id} was never heard of here"
            yield ReadPart(code=NO_SUCH_ENTRY, stopped_at=at, reason=reason)
            return
        try:
            pieces = await log.read_records(ledger.ref, at, last, min(budget, PART_BYTES_MAX))
        except EntryUnreadable as error:
            yield ReadPart(code=ENTRY_UNREADABLE, stopped_at=at, reason=str(error))
            return
        except NoSuchEntry as error:
            if ledger.pending and not settled:
                await ledger.settled()  # on its way is not absent
                settled = True
                continue
            if ledger.limbo:
                reason = f"this bookie is in doubt about ledger {ledger.ref.id}: it may have held entry {at}"
                yield ReadPart(code=ENTRY_UNKNOWN, stopped_at=at, reason=reason, torn=ledger.torn)
            else:
                yield ReadPart(code=NO_SUCH_ENTRY, stopped_at=at, reason=str(error))
            return
        size = sum(piece.byte_length for piece in pieces)
        if begun and size > budget:
            break  # a single entry that is over what is left
        at = pieces[-1].last_entry_id + 1
        budget -= size
        begun = True
        yield ReadPart(
            records=[Record(header=piece.header, body=piece.body) for piece in pieces], code=OK, stopped_at=at
        )


def state_of(ledger: LogLedger) -> LedgerState:
    """Returns the state of a ledger that the bookie holds."""
    return LedgerState(
        ledger=WireRef(id=ledger.ref.id, key=ledger.ref.key),
        code=OK,
        lac=ledger.lac,
        last_entry_id=ledger.last_entry_id,
        fenced=ledger.fenced,
        limbo=ledger.limbo,
        byte_length=ledger.byte_length,
        row_first_entry_id=ledger.row_first,
        row_end=ledger.row_end,
        torn=ledger.torn,
    )
