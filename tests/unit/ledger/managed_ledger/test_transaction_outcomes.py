"""Outcomes of transactions: found until they are forgotten, and small however many there are."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from magnetar.common.naming.txn_id import Action, TxnId
from magnetar.ledger.managed_ledger.bitmaps import bitmap_bytes
from magnetar.ledger.managed_ledger.transaction_outcomes import Outcomes

NUMBERS = st.one_of(
    st.integers(0, 40), st.integers(2**32 - 2, 2**32 + 2), st.sampled_from([2**33, 2**63, 2**64 - 1])
)
IDS = st.builds(TxnId, st.integers(0, 2), NUMBERS)


@given(st.dictionaries(IDS, st.sampled_from(Action)), st.integers(0, 2), NUMBERS, st.lists(IDS))
def test_outcomes_are_those_of_a_dict(
    ended: dict[TxnId, Action], coordinator: int, through: int, asked: list[TxnId]
) -> None:
    outcomes, copy = Outcomes(), Outcomes()
    for txn, action in ended.items():
        outcomes.add(txn, action)
    outcomes.forget(coordinator, through)
    left = {txn: action for txn, action in ended.items() if txn.most != coordinator or txn.least > through}
    for part in outcomes.numbers():
        copy.add_numbers(*part)
    for each in (outcomes, copy):
        assert each.by_transaction() == left
        assert len(each) == len(left)
        assert [each.get(txn) for txn in [*asked, *ended]] == [left.get(txn) for txn in [*asked, *ended]]
        assert [txn in each for txn in asked] == [txn in left for txn in asked]


def test_a_hundred_thousand_outcomes_after_a_long_open_transaction_take_some_kilobytes() -> None:
    outcomes = Outcomes()
    for number in range(1, 100_000):
        outcomes.add(TxnId(0, number), Action.ABORT if number % 97 == 0 else Action.COMMIT)
    assert sum(bitmap_bytes(numbers) for _, _, _, numbers in outcomes.numbers()) < 64 << 10
