"""Whose answer is whose."""

from __future__ import annotations

import pytest
from magnetar.ledger.bookie_protocol.bookie_client import EncodedAppend
from magnetar.ledger.bookie_protocol.bookie_pb2 import FENCED, OK, UNREACHABLE, AppendResult, Code, LedgerRef
from magnetar.ledger.bookie_protocol.pending_appends import PendingAppends, UnexpectedResult
from magnetar.ledger.ledger_store import LedgerRef as Ref

LEDGER = Ref(7, 99)
Told = list[tuple[str, "Code.ValueType", str]]


def add(pending: PendingAppends, told: Told, name: str, first: int, count: int, ref: Ref = LEDGER) -> None:
    append = EncodedAppend(ref, first, count, b"x" * 10)
    pending.add(append, lambda code, reason: told.append((name, code, reason)), now=float(first))


def result(
    first: int, count: int, code: Code.ValueType = OK, reason: str = "", ref: Ref = LEDGER
) -> AppendResult:
    ledger = LedgerRef(id=ref.id, key=ref.key)
    return AppendResult(ledger=ledger, first_entry_id=first, entry_count=count, code=code, reason=reason)


def test_results_are_matched_whatever_their_order() -> None:
    pending, told = PendingAppends(), Told()
    other = Ref(8, 1)
    add(pending, told, "a", 0, 2)
    add(pending, told, "b", 2, 1)
    add(pending, told, "c", 0, 2, other)
    assert pending.bytes == 30
    pending.settle([result(0, 2, FENCED, "because", other), result(2, 1), result(0, 2)])
    assert told == [("c", FENCED, "because"), ("b", OK, ""), ("a", OK, "")]
    assert not pending
    assert pending.bytes == 0


def test_one_result_answers_neighboring_appends_of_a_ledger() -> None:
    pending, told = PendingAppends(), Told()
    for name, first, count in (("a", 5, 1), ("b", 6, 3), ("c", 9, 1)):
        add(pending, told, name, first, count)
    pending.settle([result(5, 4)])
    assert [name for name, _, _ in told] == ["a", "b"]
    assert pending.oldest() == 9.0


def test_the_same_entry_sent_twice_is_answered_twice() -> None:
    pending, told = PendingAppends(), Told()
    add(pending, told, "run", 5, 4)
    add(pending, told, "recovery", 5, 1)
    pending.settle([result(5, 1)])
    assert told == [("recovery", OK, "")]
    pending.settle([result(5, 4, FENCED)])
    assert told[1:] == [("run", FENCED, "")]
    assert not pending


@pytest.mark.parametrize(
    "unexpected", [result(6, 1), result(5, 3), result(5, 1, ref=Ref(7, 98)), result(5, 5)]
)
def test_a_result_that_nothing_waits_for_breaks_the_protocol(unexpected: AppendResult) -> None:
    pending, told = PendingAppends(), Told()
    add(pending, told, "a", 5, 4)
    with pytest.raises(UnexpectedResult):
        pending.settle([unexpected])


def test_a_loss_tells_everyone_once_that_their_fate_is_unknown() -> None:
    pending, told = PendingAppends(), Told()
    add(pending, told, "a", 0, 1)
    add(pending, told, "b", 1, 1)
    pending.fail_all("lost")
    pending.fail_all("again")
    assert told == [("a", UNREACHABLE, "lost"), ("b", UNREACHABLE, "lost")]
    assert pending.bytes == 0


def test_a_listener_that_fails_spares_the_others() -> None:
    pending, told = PendingAppends(), Told()

    def fail(code: Code.ValueType, reason: str) -> None:
        raise ValueError("a listener's own mistake")

    pending.add(EncodedAppend(LEDGER, 0, 1, b""), fail, 0.0)
    add(pending, told, "b", 1, 1)
    pending.settle([result(0, 1), result(1, 1)])
    assert told == [("b", OK, "")]
