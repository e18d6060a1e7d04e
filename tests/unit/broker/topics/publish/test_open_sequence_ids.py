"""Sequence ids of open transactions, as ranges."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from magnetar.broker.topics.publish import open_sequence_ids
from magnetar.broker.topics.publish.open_sequence_ids import NONE, OpenSequenceIds
from magnetar.common.naming.txn_id import TxnId

TXNS = [TxnId(0, 0), TxnId(0, 1)]
SENT = st.lists(st.tuples(st.sampled_from(TXNS), st.integers(0, 12), st.integers(0, 3)), max_size=12)


@given(SENT)
def test_every_id_is_found_in_the_transactions_that_sent_it_and_in_no_other(
    sent: list[tuple[TxnId, int, int]],
) -> None:
    ids, naive = OpenSequenceIds(), {txn: set[int]() for txn in TXNS}
    for txn, first, more in sent:
        ids.add(txn, first, first + more)
        naive[txn].update(range(first, first + more + 1))
    for number in range(20):
        assert [ids.sent_by(txn, number) for txn in TXNS] == [number in naive[txn] for txn in TXNS]
        assert ids.sent_by_any(number) == any(number in naive[txn] for txn in TXNS)
    assert ids.highest == max(naive[TXNS[0]] | naive[TXNS[1]], default=NONE)
    assert ids.end(TXNS[0]) == max(naive[TXNS[0]], default=NONE)
    assert not any(ids.sent_by(TXNS[0], number) for number in range(20))
    assert bool(ids) == bool(naive[TXNS[1]])


def test_messages_in_a_row_are_one_range_and_many_ranges_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    ids = OpenSequenceIds()
    for number in range(1_000):
        ids.add(TXNS[0], number, number)
    assert ids._by_txn[TXNS[0]] == [(0, 999)]
    monkeypatch.setattr(open_sequence_ids, "RANGES_MAX", 3)
    for number in range(0, 20, 2):
        ids.add(TXNS[1], number, number)
    assert ids._by_txn[TXNS[1]] == [(0, 0), (2, 2), (4, 18)]
    ids.add(TXNS[1], 1, 1)
    assert ids._by_txn[TXNS[1]] == [(0, 2), (4, 18)]
