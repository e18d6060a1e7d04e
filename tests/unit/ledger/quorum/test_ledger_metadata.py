"""Gaps in a ledger's metadata: joined, ended, bounded."""

from __future__ import annotations

from magnetar.common.metadata.values import LedgerMetadata
from magnetar.ledger.quorum.ledger_metadata import GAPS_MAX, OPEN_GAP_END, add_gap, end_gaps, too_long


def gaps(value: LedgerMetadata) -> list[tuple[str, int, int]]:
    return [(each.bookie_id, each.first_entry_id, each.last_entry_id) for each in value.gaps]


def test_gaps_of_a_bookie_that_touch_are_one() -> None:
    value = LedgerMetadata()
    add_gap(value, "a", 5, 9)
    add_gap(value, "b", 10, 12)
    add_gap(value, "a", 10, OPEN_GAP_END)
    add_gap(value, "a", 0, 3)
    assert gaps(value) == [("a", 5, OPEN_GAP_END), ("b", 10, 12), ("a", 0, 3)]


def test_gaps_end_where_their_bookie_left_or_the_ledger_ends() -> None:
    value = LedgerMetadata()
    add_gap(value, "a", 5, OPEN_GAP_END)
    add_gap(value, "b", 5, OPEN_GAP_END)
    add_gap(value, "a", 0, 2)
    end_gaps(value, 7, "a")
    assert gaps(value) == [("a", 5, 7), ("b", 5, OPEN_GAP_END), ("a", 0, 2)]
    end_gaps(value, 4)
    assert gaps(value) == [("a", 0, 2)]
    end_gaps(value, -1)
    assert gaps(value) == [], "an empty ledger lacks nothing"


def test_a_ledger_with_too_many_gaps_is_too_long() -> None:
    value = LedgerMetadata()
    for i in range(GAPS_MAX):
        add_gap(value, "a", 10 * i, 10 * i)
    assert not too_long(value)
    add_gap(value, "b", 0, 0)
    assert too_long(value)
