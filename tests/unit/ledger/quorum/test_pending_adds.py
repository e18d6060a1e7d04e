"""Which runs are confirmed and which may be let go: the core of a writer, against a plain model."""

from __future__ import annotations

import random

from magnetar.ledger.bookie_protocol.bookie_client import EncodedAppend
from magnetar.ledger.ledger_store import LedgerRef
from magnetar.ledger.quorum.pending_adds import AppendBudget, PendingAdd, PendingAdds

APPEND = EncodedAppend(LedgerRef(1, 1), 0, 1, b"")


def add(adds: PendingAdds, entry_id: int, awaited: int = 0b111, size: int = 10) -> PendingAdd:
    made = PendingAdd(entry_id, entry_id, size, awaited, APPEND, 0.0)
    adds.add(made)
    return made


def answer(made: PendingAdd, *bits: int) -> None:
    for bit in bits:
        made.awaited &= ~bit
        made.acked |= bit


def test_random_answers_confirm_in_order_at_qa_and_let_go_at_qw() -> None:
    rng = random.Random(4)
    for _ in range(200):
        budget = AppendBudget(1 << 20)
        adds = PendingAdds(2, budget)
        made = [add(adds, entry_id) for entry_id in range(8)]
        todo = [(each, bit) for each in made for bit in (1, 2, 4)]
        rng.shuffle(todo)
        while todo:
            for _ in range(rng.randrange(1, 4)):
                if todo:
                    answer(*todo.pop())
            last = adds.advance()
            model = -1
            while model + 1 < 8 and made[model + 1].acked.bit_count() >= 2:
                model += 1
            assert last == adds.last_confirmed == model
            held = {each.first for each in adds}
            assert {each.first for each in made if each.first > model or each.awaited} <= held
            assert adds.pending == budget.pending == 10 * len(held)
            assert adds.lagging == budget.lagging == 10 * len(adds.incomplete)
        assert not adds
        assert (adds.pending, adds.byte_length) == (0, 80)


def test_entries_recorded_as_missing_are_not_awaited() -> None:
    adds = PendingAdds(2, AppendBudget(1 << 20))
    made = [add(adds, entry_id) for entry_id in range(4)]
    for each in made:
        answer(each, 1, 2)
    adds.advance()
    assert adds.lacking(4) == (0, 3)
    adds.recorded(4, 2)
    adds.advance()
    assert [each.first for each in adds] == [2, 3]
    adds.absent(4)
    adds.advance()
    assert not adds


def test_entries_released_early_stay_owed_until_recorded() -> None:
    adds = PendingAdds(2, AppendBudget(1 << 20))
    for entry_id in range(4):
        answer(add(adds, entry_id), 1, 2)
    adds.advance()
    adds.owe_oldest()
    adds.owe_oldest()
    assert adds.owed == {4: (0, 1)}
    assert adds.lacking(4) == (0, 3)
    adds.recorded(4, 1)
    assert adds.owed == {4: (1, 1)}, "from where another bookie has the place, that one lacks it"
    adds.clear()
    assert adds.owed == {4: (1, 3)}
    assert (adds.pending, adds.budget.pending, adds.budget.lagging) == (0, 0, 0)


def test_a_position_with_a_new_bookie_is_awaited_again_above_the_lac() -> None:
    adds = PendingAdds(2, AppendBudget(1 << 20))
    made = [add(adds, entry_id, awaited) for entry_id, awaited in ((0, 0b011), (1, 0b110))]
    for each in made:
        answer(each, 2)
    adds.await_replaced(2, [0b011, 0b110])
    assert [(each.acked, each.awaited) for each in made] == [(0, 0b011), (0, 0b110)]
    adds.await_replaced(1, [0b011, 0b110])
    assert [each.awaited for each in made] == [0b011, 0b110], "only where it is of the write set"
