"""What open transactions withhold of runs, and what finding that out may cost."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import cast

import pytest
from magnetar.broker.subscriptions.filters.withheld_acks import WithheldAcks
from magnetar.ledger.ledger_store import Run
from magnetar.ledger.managed_ledger.cursor import Cursor
from magnetar.ledger.managed_ledger.topic_transactions import TopicTransactions
from pyroaring import BitMap

LEDGER = 7
SIZE = 4
"""Messages of each batch."""
WHOLE = (1 << SIZE) - 1


class Batches(dict[tuple[int, int], int]):
    """Counts the batches that are passed by iteration."""

    passed = 0

    def __iter__(self) -> Iterator[tuple[int, int]]:
        for each in super().__iter__():
            self.passed += 1
            yield each


@dataclass
class Pending:
    """Stands for the pending acknowledgements, the topic's transactions and an empty cursor."""

    withheld: dict[int, BitMap] = field(default_factory=dict)
    batches: Batches = field(default_factory=Batches)

    def pending(self, _cursor: object) -> Pending:
        return self

    def batch_acked(self, _ledger_id: int, _entry_id: int) -> int:
        return 0

    def parts(self, first: int, count: int) -> list[tuple[int, int]]:
        """Returns what is left of a run, as (first, last) entry."""
        run = Run([b"x"] * count, message_counts=[SIZE] * count, ledger_id=LEDGER, first_entry_id=first)
        gate = WithheldAcks(cast(TopicTransactions, self), cast(Cursor, self))
        return [(part.first_entry_id, part.last_entry_id) for part in gate.hold(run)]


@pytest.mark.parametrize("elsewhere", [0, 1_000], ids=["few pending", "many pending"])
@pytest.mark.parametrize(
    ("entry_id", "left"),
    [
        (9, [(10, 14)]),
        (10, [(11, 14)]),
        (12, [(10, 11), (13, 14)]),
        (14, [(10, 13)]),
        (15, [(10, 14)]),
    ],
)
def test_a_withheld_batch_is_cut_out(elsewhere: int, entry_id: int, left: list[tuple[int, int]]) -> None:
    pending = Pending()
    pending.batches.update({(LEDGER + 1, each): WHOLE for each in range(elsewhere)})
    pending.batches[LEDGER, entry_id] = WHOLE
    assert pending.parts(10, 5) == left


@pytest.mark.parametrize("elsewhere", [0, 1_000], ids=["few pending", "many pending"])
def test_a_batch_with_other_messages_stays(elsewhere: int) -> None:
    pending = Pending()
    pending.batches.update({(LEDGER, 100 + each): WHOLE for each in range(elsewhere)})
    pending.batches[LEDGER, 12] = WHOLE >> 1
    assert pending.parts(10, 5) == [(10, 14)]


def test_a_run_costs_its_own_length_however_many_batches_are_pending() -> None:
    pending = Pending()
    pending.batches.update({(LEDGER, 1_000 + each): WHOLE for each in range(10_000)})
    for first in range(0, 500, 5):
        assert pending.parts(first, 5) == [(first, first + 4)]
    assert pending.batches.passed <= 500
