"""What is believed of a bookie's answer."""

from __future__ import annotations

import asyncio

import pytest
from magnetar.ledger.bookie_protocol.bookie_client import ReadAnswer
from magnetar.ledger.bookie_protocol.bookie_pb2 import (
    ENTRY_UNKNOWN,
    ENTRY_UNREADABLE,
    NO_SUCH_ENTRY,
    OK,
    UNREACHABLE,
    Record,
)
from magnetar.ledger.bookie_protocol.records import encode_run
from magnetar.ledger.ledger_store import LedgerRef
from magnetar.ledger.quorum.checked_read import check_answer, read_checked

from tests.unit.ledger.quorum.replica_world import REF, ReplicaBookie, a_run, entry


def record(first: int, last: int, ref: LedgerRef = REF) -> Record:
    return encode_run(a_run(first, last), ref, -1)


def test_runs_are_cut_to_the_range() -> None:
    read = check_answer(ReadAnswer([record(0, 4), record(5, 9)], OK, 10, ""), REF, 3, 6)
    assert [(run.first_entry_id, run.entries) for run in read.runs] == [
        (3, [entry(3), entry(4)]),
        (5, [entry(5), entry(6)]),
    ]
    assert (read.next_entry_id, read.code) == (7, OK)


def test_an_answer_that_max_bytes_ended_is_no_verdict_on_what_follows() -> None:
    read = check_answer(ReadAnswer([record(3, 4)], OK, 5, ""), REF, 3, 9)
    assert (read.next_entry_id, read.code) == (5, OK)


@pytest.mark.parametrize(
    "second",
    [
        record(6, 9),
        record(5, 9, LedgerRef(REF.id, 1)),
        record(5, 9, LedgerRef(1, REF.key)),
        Record(header=record(5, 9).header, body=b"x" * len(record(5, 9).body)),
        Record(header=b"garbage", body=b""),
    ],
    ids=["gap", "other key", "other ledger", "damaged body", "damaged header"],
)
def test_a_record_that_is_not_what_was_asked_for_is_unreadable_and_never_absent(second: Record) -> None:
    read = check_answer(ReadAnswer([record(3, 4), second], NO_SUCH_ENTRY, 5, ""), REF, 3, 9)
    assert [run.last_entry_id for run in read.runs] == [4]
    assert (read.next_entry_id, read.code) == (5, ENTRY_UNREADABLE)


def test_no_such_entry_counts_only_for_the_entry_it_is_about() -> None:
    assert check_answer(ReadAnswer([], NO_SUCH_ENTRY, 3, ""), REF, 3, 9).code == NO_SUCH_ENTRY
    assert check_answer(ReadAnswer([record(3, 4)], NO_SUCH_ENTRY, 5, ""), REF, 3, 9).code == NO_SUCH_ENTRY
    assert check_answer(ReadAnswer([], NO_SUCH_ENTRY, 4, ""), REF, 3, 9).code == ENTRY_UNKNOWN
    assert check_answer(ReadAnswer([record(3, 4)], NO_SUCH_ENTRY, 3, ""), REF, 3, 9).code == ENTRY_UNKNOWN


def test_an_answer_that_says_nothing_is_doubt() -> None:
    assert check_answer(ReadAnswer([], OK, 3, ""), REF, 3, 9).code == ENTRY_UNKNOWN


def test_a_bookie_that_does_not_answer_is_unreachable() -> None:
    bookie = ReplicaBookie("a", down=True)
    read = asyncio.run(read_checked(bookie, REF, 0, 5, 100))
    assert (read.runs, read.code) == ([], UNREACHABLE)
