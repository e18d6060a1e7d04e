from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from magnetar.broker.subscriptions.consumers.pending_acks import PendingAcks
from magnetar.broker.subscriptions.types.key_shared.slot_pending_acks import SlotPendingAcks
from magnetar.ledger.ledger_store import Run

ENTRIES = st.lists(
    st.tuples(st.integers(0, 9), st.integers(1, 65_535), st.integers(1, 9)),
    min_size=1,
    unique_by=lambda entry: entry[0],
).map(sorted)


@given(ENTRIES, st.lists(st.integers(0, 9), max_size=9), st.booleans())
def test_it_counts_as_pending_acks_without_slots_do(
    entries: list[tuple[int, int, int]], acked: list[int], told: bool
) -> None:
    plain, pending = PendingAcks(), SlotPendingAcks()
    settled: list[int] = []
    if told:
        pending.on_settled = settled.extend
    ids, slots, counts = (list(each) for each in zip(*entries, strict=True))
    pending.add_entries(1, ids, slots, counts)
    pending.add_in_slot(2, 0, 3, 77)
    for entry_id, count in zip(ids, counts, strict=True):
        plain.add(1, entry_id, count)
    plain.add(2, 0, 3)
    plain.reduce(1, ids[0], 1)
    pending.reduce(1, ids[0], 1)
    assert pending.remove(1, ids[-1]) == plain.remove(1, ids[-1])
    assert pending.remove(1, ids[-1]) == 0
    assert pending.remove_many(1, acked) == plain.remove_many(1, acked)
    assert pending.remove_many(9, acked) == pending.remove(9, 1) == 0
    assert pending.messages == plain.messages
    assert list(pending.positions()) == list(plain.positions())
    assert len(pending) == len(plain)
    left = {entry_id for ledger_id, entry_id in pending.positions() if ledger_id == 1}
    expected = [slot for entry_id, slot, _ in entries if entry_id in left]
    assert sorted(pending.in_slots().elements()) == sorted([*expected, 77])
    if told:
        assert sorted(settled) == sorted(slot for entry_id, slot, _ in entries if entry_id not in left)


def test_entries_of_one_message_each_need_no_counts() -> None:
    pending = SlotPendingAcks()
    pending.add_entries(1, (4, 6), (9, 65_535), None)
    assert pending.messages == 2
    assert pending.in_slots() == {9: 1, 65_535: 1}
    assert pending.remove_many(1, [4, 6]) == 2
    assert pending.messages == len(pending) == 0


def test_an_entry_without_a_slot_is_a_mistake() -> None:
    with pytest.raises(AssertionError):
        SlotPendingAcks().add(1, 2, 3)
    with pytest.raises(AssertionError):
        SlotPendingAcks().add_run(Run([b""], ledger_id=1, first_entry_id=0))
