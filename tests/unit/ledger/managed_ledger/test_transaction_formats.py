"""The bytes of a topic's transactions in its cursor ledger: golden files, bounds, and the way back."""

from __future__ import annotations

from pathlib import Path

import pytest
from magnetar.common.errors import DataCorruption
from magnetar.common.naming.position import EARLIEST, Position
from magnetar.common.naming.txn_id import Action, TxnId
from magnetar.ledger.ledger_store import LedgerRef, Run
from magnetar.ledger.managed_ledger.cursor_loader import CursorLoader
from magnetar.ledger.managed_ledger.cursor_records import (
    ENTRY_BYTES_MAX,
    CursorSnapshot,
    change_entries,
    create_change,
    delete_change,
    reset_change,
    snapshot_entries,
)
from magnetar.ledger.managed_ledger.ledger_list import LedgerSpan, LedgerSpans
from magnetar.ledger.managed_ledger.pending_acks import PendingAck
from magnetar.ledger.managed_ledger.transaction_records import (
    outcome_change,
    pending_ack_changes,
    progress_entries,
)
from magnetar.ledger.managed_ledger.transaction_records import snapshot_entries as transaction_entries
from magnetar.ledger.managed_ledger.transaction_state import TransactionState
from pyroaring import BitMap

GOLDEN = Path(__file__).parents[3] / "golden" / "cursor" / "v1"
A, B, C, D = TxnId(0, 0), TxnId(0, 1), TxnId(2**32, 2**63), TxnId(5, 5)


def fed(entries: list[bytes]) -> CursorLoader:
    spans = LedgerSpans()
    for ledger_id in (3, 7):
        spans.add(LedgerSpan(LedgerRef(ledger_id, 1), entries=300_000))
    loader = CursorLoader("topic", 1, spans)
    for entry_id, data in enumerate(entries):
        loader.feed(entry_id, data)
    return loader


def loaded(entries: list[bytes]) -> TransactionState:
    loader = fed(entries)
    loader.finish()
    assert loader.transactions is not None
    return loader.transactions


def run(txn: TxnId, ledger_id: int, first: int, count: int) -> Run:
    return Run([b""] * count, publish_time_ms=9, ledger_id=ledger_id, first_entry_id=first, txn=txn)


def state() -> TransactionState:
    """A is open with entries, B aborted, C committed, D acknowledges."""
    made = TransactionState(Position(3, 1))
    made.begin(A, 1_700_000_000_000)
    made.stored(A, run(A, 3, 5, 2))
    made.begin(B, 1)
    made.stored(B, run(B, 3, 8, 3))
    made.settle(B, Action.ABORT)
    made.settle(C, Action.COMMIT)
    made.begin(D, 2)
    made.cursor(1).add(D, PendingAck({3: BitMap([2, 3])}, {(7, 1): (0b10, 3)}, None))
    made.cursor(2).add(D, PendingAck({}, {}, Position(3, 4)))
    made.raise_low_watermark(5, 4)
    made.raise_low_watermark(9, 0)
    return made


def snapshot(of: TransactionState, unwritten: dict[TxnId, Action] | None = None) -> list[bytes]:
    entries = transaction_entries(of, Position(3, 4), Position(3, 10), unwritten or {}, 1)
    cursors = [CursorSnapshot(number, 1, f"sub-{number}", {}) for number in (1, 2)]
    return snapshot_entries(cursors, snapshot_id=1, next_cursor_id=3, transactions=entries)


def changes() -> list[bytes]:
    pending = PendingAck({3: BitMap([6])}, {(7, 2): (0b01, 2)}, None)
    return [
        *change_entries(
            [
                *pending_ack_changes(1, 2, A, pending),
                *pending_ack_changes(2, 2, B, PendingAck(cumulative=Position(7, 3))),
                outcome_change(A, Action.COMMIT, -1),
                outcome_change(C, Action.ABORT, 0),
            ]
        ),
        *progress_entries(Position(7, 2), {7: BitMap([0, 1])}),
    ]


@pytest.mark.parametrize(("name", "entries"), [("snapshot", snapshot(state())), ("changes", changes())])
def test_transactions_are_written_as_in_the_golden_files(name: str, entries: list[bytes]) -> None:
    for number, data in enumerate(entries):
        path = GOLDEN / f"transaction-{name}-{number}.bin"
        assert data == path.read_bytes(), "the format changed: add a version"


def test_a_snapshot_comes_back_without_entries_of_open_transactions_which_are_scanned() -> None:
    known = loaded(snapshot(state()))
    assert (known.scan_from, known.complete_to) == (Position(3, 4), Position(3, 10))
    assert known.aborted == {3: BitMap([8, 9, 10])}
    assert known.outcomes.by_transaction() == {B: Action.ABORT, C: Action.COMMIT}
    assert known.low_watermarks == {5: 4, 9: 0}
    assert {txn: opened.began_ms for txn, opened in known.open.items()} == {A: 1_700_000_000_000, D: 2}
    assert known.pending[1].transactions == {D: PendingAck({3: BitMap([2, 3])}, {(7, 1): (0b10, 3)}, None)}
    assert known.pending[2].cumulative == (D, Position(3, 4))
    known.found(A, run(A, 3, 5, 2))
    known.found(B, run(B, 3, 8, 3))
    known.found(TxnId(5, 1), run(TxnId(5, 1), 3, 7, 1))
    assert known.limit == Position(3, 4)
    assert TxnId(5, 1) not in known.open, "it was committed, and its outcome is forgotten"
    known.found(TxnId(5, 9), run(TxnId(5, 9), 3, 11, 1))
    assert TxnId(5, 9) in known.open, "the snapshot is older"


def test_an_outcome_that_is_not_confirmed_yet_is_in_a_snapshot_and_settles_acknowledgements_at_load() -> None:
    loader = fed(snapshot(state(), {D: Action.COMMIT}))
    cursors, _ = loader.finish()
    known = loader.transactions
    assert known is not None
    assert known.outcomes.get(D) is Action.COMMIT
    assert D not in known.open
    assert not known.pending
    assert cursors["sub-1"].is_acked(3, 2)
    assert cursors["sub-1"].batch_acked(7, 1) == 0b10
    assert cursors["sub-2"].mark_delete == Position(3, 4)


def test_changes_apply_in_their_order() -> None:
    bare = snapshot_entries(
        [CursorSnapshot(number, 1, f"sub-{number}", {}) for number in (1, 2)], snapshot_id=1, next_cursor_id=3
    )
    loader = fed([*bare, *changes()])
    cursors, _ = loader.finish()
    known = loader.transactions
    assert known is not None
    assert known.outcomes.by_transaction() == {A: Action.COMMIT, C: Action.ABORT}
    assert known.low_watermarks == {C.most: 0}
    assert set(known.open) == {B}
    assert known.scan_from == Position(7, 2)
    assert known.aborted == {7: BitMap([0, 1])}
    assert cursors["sub-1"].is_acked(3, 6)
    assert cursors["sub-2"].mark_delete == EARLIEST
    more = change_entries([reset_change(2, 3, Position(7, 3)), delete_change(1, 3)])
    assert not loaded([*bare, *changes(), *more]).pending


def test_a_topic_without_records_of_transactions_has_no_state() -> None:
    bare = snapshot_entries([], snapshot_id=1, next_cursor_id=1)
    assert fed(bare).transactions is None
    assert fed([*changes(), *bare]).transactions is None, "a whole snapshot replaces what was before"


def test_half_a_snapshot_changes_nothing() -> None:
    whole = snapshot(state())
    assert fed([*changes()[1:], *whole[:-1]]).transactions is not None
    assert not loaded([*snapshot(TransactionState()), *whole[:-1]]).aborted


def test_large_states_are_cut_into_bounded_entries_that_come_back() -> None:
    large = TransactionState(Position(3, 1))
    for number in range(20_000):
        large.settle(TxnId(0, number), Action.COMMIT)
    large.add_aborted(3, BitMap(range(0, 300_000, 3)))
    for number in range(2_000):
        txn = TxnId(1, number)
        large.begin(txn, number + 1)
        large.cursor(1).add(txn, PendingAck({3: BitMap([number])}))
    entries = snapshot(large)
    assert len(entries) > 5
    assert max(map(len, entries)) < 2 * ENTRY_BYTES_MAX
    known = loaded(entries)
    assert known.outcomes.by_transaction() == large.outcomes.by_transaction()
    assert known.aborted == large.aborted
    assert list(known.open) == list(large.open)
    assert known.pending[1].withheld == large.pending[1].withheld
    with pytest.raises(DataCorruption, match="chunk"):
        loaded([*snapshot(TransactionState()), *progress_entries(Position(3, 1), large.aborted)[1:]])


def test_a_created_cursor_takes_acknowledgements_of_the_same_flush() -> None:
    bare = snapshot_entries([], snapshot_id=1, next_cursor_id=1)
    entries = change_entries(
        [
            create_change(CursorSnapshot(1, 1, "sub", {})),
            *pending_ack_changes(1, 2, A, PendingAck({3: BitMap([0])})),
        ]
    )
    assert loaded([*bare, *entries]).pending[1].withheld == {3: BitMap([0])}
