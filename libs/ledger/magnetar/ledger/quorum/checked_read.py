"""One bookie's verified answer to a read: runs, and the reason why it ends."""

from __future__ import annotations

from dataclasses import dataclass

from magnetar.common.errors import DataCorruption
from magnetar.ledger.bookie_protocol.bookie_client import BookieClient, BookieUnreachable, ReadAnswer
from magnetar.ledger.bookie_protocol.bookie_pb2 import (
    ENTRY_UNKNOWN,
    ENTRY_UNREADABLE,
    NO_SUCH_ENTRY,
    OK,
    UNREACHABLE,
    Code,
)
from magnetar.ledger.bookie_protocol.records import read_record, run_of
from magnetar.ledger.ledger_store import LedgerRef, Run


@dataclass(frozen=True, slots=True)
class CheckedRead:
    """Intact consecutive entries from the first requested one, and the result for the next entry.

    `code` applies to `next_entry_id`: OK if the request or max_bytes was fulfilled; NO_SUCH_ENTRY only if the
    bookie is certain; UNREACHABLE if it did not answer.
    """

    runs: list[Run]
    next_entry_id: int
    code: Code.ValueType
    reason: str
    torn: bool = False
    """With ENTRY_UNKNOWN: as `ReadAnswer.torn`, for `next_entry_id`."""


async def read_checked(
    client: BookieClient, ref: LedgerRef, first: int, last: int, max_bytes: int, *, fence: bool = False
) -> CheckedRead:
    """Reads a range from one bookie. Raises only UnsupportedFormat."""
    try:
        answer = await client.read(ref, first, last, max_bytes, fence=fence)
    except BookieUnreachable as error:
        return CheckedRead([], first, UNREACHABLE, str(error))
    return check_answer(answer, ref, first, last)


def check_answer(answer: ReadAnswer, ref: LedgerRef, first: int, last: int) -> CheckedRead:
    """Returns the part of an answer that checksums prove and that continues the range."""
    runs: list[Run] = []
    at = first
    for record in answer.records:
        if at > last:
            break
        try:
            header, _, body = read_record(record)
            if (header.ledger_id, header.ledger_key) != (ref.id, ref.key):
                raise DataCorruption(f"the record is of ledger {header.ledger_id}")
            if not header.first_entry_id <= at <= header.last_entry_id:
                raise DataCorruption(f"the record begins at {header.first_entry_id}")
        except DataCorruption as error:
            return CheckedRead(runs, at, ENTRY_UNREADABLE, str(error))
        run = run_of(header, body)
        runs.append(run.slice(at, min(last, run.last_entry_id)))
        at = runs[-1].last_entry_id + 1
    code, reason = answer.code, answer.reason
    if at > last or (code == OK and runs):
        return CheckedRead(runs, at, OK, "")
    if code == OK:
        return CheckedRead(runs, at, ENTRY_UNKNOWN, "the answer holds no entry and says no reason")
    if code == NO_SUCH_ENTRY and answer.stopped_at != at:
        # Certainty about another entry implies nothing for this one.
        return CheckedRead(runs, at, ENTRY_UNKNOWN, f"the answer is about entry {answer.stopped_at}")
    return CheckedRead(runs, at, code, reason, answer.torn and answer.stopped_at == at)
