"""Pending acknowledgements of one cursor: conflicts, repetition, what is withheld, what a commit applies."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from magnetar.common.errors import TransactionConflict
from magnetar.common.naming.position import EARLIEST, Position
from magnetar.common.naming.txn_id import TxnId
from magnetar.ledger.ledger_store import LedgerRef
from magnetar.ledger.managed_ledger.ack_state import AckState
from magnetar.ledger.managed_ledger.ledger_list import LedgerSpan, LedgerSpans
from magnetar.ledger.managed_ledger.pending_acks import CursorPending, PendingAck
from pyroaring import BitMap

A, B = TxnId(0, 0), TxnId(1, 7)
BATCH = (3, 4)


def cursor() -> AckState:
    """A cursor over the ledgers 3 and 5 with ten entries each."""
    spans = LedgerSpans()
    for ledger_id in (3, 5):
        spans.add(LedgerSpan(LedgerRef(ledger_id, 1), entries=10))
    return AckState(spans, Position(3, -1), durable=True)


def entries(*entry_ids: int, ledger_id: int = 3) -> PendingAck:
    return PendingAck(individual={ledger_id: BitMap(entry_ids)})


def bits(acked: int, size: int = 4) -> PendingAck:
    return PendingAck(batches={BATCH: (acked, size)})


def up_to(entry_id: int, acked: int = 0) -> PendingAck:
    batches = {(3, entry_id + 1): (acked, 4)} if acked else {}
    return PendingAck(cumulative=Position(3, entry_id), batches=batches)


class Pending:
    """Pending acknowledgements with the cursor that they belong to."""

    def __init__(self) -> None:
        self.pending = CursorPending()
        self.cursor = cursor()

    def ack(self, txn: TxnId, asked: PendingAck) -> None:
        self.pending.check(txn, asked, self.cursor)
        self.pending.add(txn, asked)

    def state(self) -> tuple[object, ...]:
        pending = self.pending
        return dict(pending.withheld), dict(pending.batches), pending.cumulative


def acked(act: Callable[[AckState], object]) -> Pending:
    pending = Pending()
    act(pending.cursor)
    return pending


@pytest.mark.parametrize(
    ("before", "asked"),
    [
        (entries(2), entries(1, 2)),
        (bits(0b0010), bits(0b0110)),
        (entries(4), bits(0b0001)),
        (bits(0b0001), entries(4)),
        (up_to(4), up_to(6)),
        (up_to(4), up_to(2)),
    ],
    ids=["entry", "bit", "bit of an entry", "entry with a bit", "cumulative beyond", "cumulative before"],
)
def test_what_another_transaction_acknowledges_is_a_conflict_until_that_ends(
    before: PendingAck, asked: PendingAck
) -> None:
    pending = Pending()
    pending.ack(A, before)
    state = pending.state()
    with pytest.raises(TransactionConflict, match=r"transaction"):
        pending.pending.check(B, asked, pending.cursor)
    assert pending.state() == state
    pending.pending.remove(A)
    pending.ack(B, asked)


@pytest.mark.parametrize(
    ("before", "asked"),
    [
        (entries(2), entries(2, 5)),
        (bits(0b0010), bits(0b0010)),
        (entries(4), bits(0b0001)),
        (bits(0b0001), entries(4)),
        (up_to(4), up_to(4)),
        (up_to(4, 0b01), up_to(4, 0b01)),
        (up_to(4), up_to(6)),
    ],
    ids=["entries", "bits", "bit of an entry", "entry with a bit", "cumulative", "cumulative bits", "beyond"],
)
def test_a_repetition_by_the_same_transaction_succeeds(before: PendingAck, asked: PendingAck) -> None:
    pending = Pending()
    pending.ack(A, before)
    pending.ack(A, asked)
    assert list(pending.pending.transactions) == [A]


def test_a_transaction_does_not_go_back_behind_its_own_cumulative_acknowledgement() -> None:
    pending = Pending()
    pending.ack(A, up_to(4))
    with pytest.raises(TransactionConflict, match="already"):
        pending.ack(A, up_to(3))


@pytest.mark.parametrize(
    ("act", "asked"),
    [
        (lambda c: c.ack(3, 2), entries(1, 2)),
        (lambda c: c.ack_cumulative(Position(3, 6)), entries(2)),
        (lambda c: c.ack_cumulative(Position(5, 1)), entries(2)),
        (lambda c: c.ack(3, 4), bits(0b0001)),
        (lambda c: c.ack_batch(3, 4, 0b0001, 4), bits(0b0011)),
        (lambda c: c.ack_batch(3, 4, 0b0001, 4), entries(4)),
        (lambda c: c.ack_cumulative(Position(3, 4)), up_to(4)),
        (lambda c: c.ack_cumulative(Position(3, 4)), up_to(2)),
    ],
    ids=[
        "entry",
        "below the mark",
        "in an earlier ledger",
        "bit of an acknowledged entry",
        "bit",
        "entry that is acknowledged in part",
        "cumulative at the mark",
        "cumulative below the mark",
    ],
)
def test_what_is_acknowledged_is_a_conflict(act: Callable[[AckState], object], asked: PendingAck) -> None:
    with pytest.raises(TransactionConflict):
        acked(act).ack(A, asked)


def test_other_bits_of_a_batch_are_no_conflict() -> None:
    pending = acked(lambda c: c.ack_batch(3, 4, 0b0001, 4))
    pending.ack(A, bits(0b0010))
    pending.ack(B, bits(0b1100))
    assert dict(pending.pending.batches) == {BATCH: 0b1110}
    pending.pending.remove(A)
    assert dict(pending.pending.batches) == {BATCH: 0b1100}


def test_a_cumulative_acknowledgement_inside_the_first_batch_after_the_mark_is_no_conflict() -> None:
    pending = acked(lambda c: c.ack_cumulative(Position(3, 2)))
    pending.ack(A, up_to(2, 0b0011))
    with pytest.raises(TransactionConflict):
        acked(lambda c: c.ack_batch(3, 0, 0b0011, 4)).ack(A, up_to(-1, 0b0001))


def test_individual_and_cumulative_acknowledgements_of_different_transactions_stand_beside_each_other() -> (
    None
):
    pending = Pending()
    pending.ack(A, entries(1, 8))
    pending.ack(B, up_to(4))
    assert pending.state() == ({3: BitMap([1, 8])}, {}, (B, Position(3, 4)))
    taken = pending.pending.remove(B)
    assert taken is not None
    taken.apply_to(pending.cursor)
    assert pending.cursor.mark_delete == Position(3, 4)
    other = pending.pending.remove(A)
    assert other is not None
    other.apply_to(pending.cursor)
    assert pending.cursor.is_acked(3, 8)
    assert pending.state() == ({}, {}, None)


@pytest.mark.parametrize("before", [bits(0b0001), entries(4)], ids=["bits", "entry"])
def test_the_tail_of_a_cumulative_acknowledgement_may_not_be_of_another_transaction(
    before: PendingAck,
) -> None:
    pending = Pending()
    pending.ack(A, before)
    with pytest.raises(TransactionConflict):
        pending.ack(B, up_to(3, 0b0011))
    pending.ack(A, up_to(3, 0b0011))
    for asked in (bits(0b0010), entries(4)):
        with pytest.raises(TransactionConflict):
            pending.ack(B, asked)
    pending.pending.remove(A)
    assert pending.state() == ({}, {}, None)


def test_a_tail_withholds_nothing_and_other_bits_of_its_batch_end_on_their_own() -> None:
    pending = Pending()
    pending.ack(A, bits(0b1100))
    pending.ack(B, up_to(3, 0b0011))
    assert pending.state() == ({}, {BATCH: 0b1100}, (B, Position(3, 3)))
    assert pending.pending.holds(Position(*BATCH), 0)
    pending.pending.remove(B)
    assert pending.state() == ({}, {BATCH: 0b1100}, None)
    pending.pending.remove(A)
    assert pending.state() == ({}, {}, None)


def test_a_higher_cumulative_acknowledgement_replaces_a_tail() -> None:
    pending = Pending()
    pending.ack(A, up_to(3, 0b0011))
    pending.ack(A, up_to(6))
    assert pending.pending.transactions[A] == up_to(6)
    assert pending.state() == ({}, {}, (A, Position(3, 6)))


def test_bits_of_another_batch_do_not_make_a_repeated_cumulative_acknowledgement_a_conflict() -> None:
    pending = Pending()
    pending.ack(A, bits(0b0111))
    pending.ack(A, up_to(2))
    pending.ack(A, up_to(2))
    assert pending.state() == ({}, {BATCH: 0b0111}, (A, Position(3, 2)))


def test_a_commit_applies_entries_bits_and_a_position() -> None:
    state = cursor()
    PendingAck({3: BitMap([5]), 5: BitMap([0])}, {BATCH: (0b0101, 4)}, Position(3, 1)).apply_to(state)
    assert state.mark_delete == Position(3, 1)
    assert [state.is_acked(3, 5), state.is_acked(5, 0), state.is_acked(3, 4)] == [True, True, False]
    assert state.batch_acked(*BATCH) == 0b0101


def test_an_ordinary_acknowledgement_wins_over_a_pending_one() -> None:
    pending = Pending()
    pending.ack(A, entries(2))
    assert pending.cursor.ack(3, 2)
    taken = pending.pending.remove(A)
    assert taken is not None
    taken.apply_to(pending.cursor)
    assert pending.cursor.is_acked(3, 2)


def test_what_is_at_or_below_a_position_is_dropped() -> None:
    pending = Pending()
    pending.ack(A, entries(1, 6))
    pending.ack(A, bits(0b1))
    pending.ack(B, entries(3))
    pending.ack(B, up_to(5))
    pending.pending.drop_through(Position(3, 4))
    assert list(pending.pending.transactions) == [A, B]
    assert pending.state() == ({3: BitMap([6])}, {}, (B, Position(3, 5)))
    pending.pending.drop_through(EARLIEST)
    pending.pending.drop_through(Position(5, -1))
    assert not pending.pending.transactions
    assert pending.state() == ({}, {}, None)


def test_a_whole_state_survives_its_delta() -> None:
    pending = PendingAck({3: BitMap([5]), 5: BitMap([0])}, {BATCH: (0b0101, 4)}, Position(3, 1))
    assert PendingAck.of_delta(pending.delta(), cumulative=True) == pending
    individual = entries(1, 2)
    assert PendingAck.of_delta(individual.delta(), cumulative=False) == individual


def test_a_position_or_one_message_of_a_batch_is_found() -> None:
    pending = Pending()
    pending.ack(A, entries(7))
    pending.ack(A, bits(0b0100))
    pending.ack(B, up_to(1))
    holds = pending.pending.holds
    assert [holds(Position(3, each)) for each in (0, 1, 2, 4, 7, 8)] == [True, True, False, True, True, False]
    assert [holds(Position(3, 4), index) for index in (1, 2)] == [False, True]
