from __future__ import annotations

from magnetar.broker.subscriptions.consumers.pending_acks import PendingAcks
from magnetar.ledger.ledger_store import Run


def run_of(ledger_id: int, first: int, entries: int, counts: list[int] | None = None) -> Run:
    return Run([b"x"] * entries, message_counts=counts, ledger_id=ledger_id, first_entry_id=first)


def test_messages_are_counted_through_delivery_partial_and_whole_acks() -> None:
    pending = PendingAcks()
    pending.add_run(run_of(3, 0, 2, [10, 5]))
    pending.add_run(run_of(3, 2, 4))
    assert (len(pending), pending.messages) == (6, 19)
    pending.reduce(3, 0, 4)
    assert pending.messages == 13
    assert pending.remove(3, 0) == 4
    assert pending.remove(3, 0) == 0
    assert pending.remove(9, 9) == 0
    assert (len(pending), pending.messages) == (5, 9)
    assert pending.holds(3, 5)
    assert not pending.holds(3, 0)


def test_positions_come_oldest_first() -> None:
    pending = PendingAcks()
    pending.add(7, 1, 1)
    pending.add_run(run_of(3, 4, 2))
    pending.add(3, 1, 1)
    assert list(pending.positions()) == [(3, 1), (3, 4), (3, 5), (7, 1)]


def test_a_cleared_set_holds_nothing() -> None:
    pending = PendingAcks()
    pending.add_run(run_of(1, 0, 3))
    pending.clear()
    assert (len(pending), pending.messages, list(pending.positions())) == (0, 0, [])


def test_remaining_batch_messages_never_grow_or_go_below_zero() -> None:
    """Whoever acknowledges says how large the batch is, and may lie."""
    pending = PendingAcks()
    pending.add(5, 7, 4)
    for said, left in ((1_000, 4), (3, 3), (4, 3), (-999, 0), (2, 0)):
        pending.reduce(5, 7, said)
        assert pending.messages == left
    assert pending.remove(5, 7) == 0
    assert pending.messages == 0
