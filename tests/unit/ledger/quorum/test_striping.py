"""Striping, fragments and coverage, against counting by hand."""

from __future__ import annotations

from itertools import combinations, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from magnetar.common.errors import DataCorruption
from magnetar.common.metadata.values import LedgerMetadata
from magnetar.ledger.quorum.striping import Fragment, LedgerLayout, Striping


@st.composite
def stripings(draw: st.DrawFn, ensemble_max: int = 6) -> Striping:
    ensemble_size = draw(st.integers(1, ensemble_max))
    write_quorum = draw(st.integers(1, ensemble_size))
    return Striping(ensemble_size, write_quorum, draw(st.integers(1, write_quorum)))


def naive_write_set(striping: Striping, entry_id: int) -> set[int]:
    return {(entry_id + i) % striping.ensemble_size for i in range(striping.write_quorum)}


@pytest.mark.parametrize("sizes", [(2, 3, 1), (3, 2, 3), (3, 3, 0), (0, 0, 0)])
def test_quorums_that_do_not_go_together_are_refused(sizes: tuple[int, int, int]) -> None:
    with pytest.raises(ValueError, match="do not go together"):
        Striping(*sizes)


@given(stripings(), st.integers(0, 2**40))
def test_striping_by_entry_id_modulo_e(striping: Striping, entry_id: int) -> None:
    expected = naive_write_set(striping, entry_id)
    assert set(striping.write_set(entry_id)) == expected
    assert len(striping.write_set(entry_id)) == striping.write_quorum
    for position in range(striping.ensemble_size):
        assert striping.holds(position, entry_id) == (position in expected)


@given(stripings(), st.integers(0, 1000), st.integers(-1, 40), st.data())
def test_shares_are_exactly_the_entries_that_a_position_holds(
    striping: Striping, first: int, length: int, data: st.DataObject
) -> None:
    position = data.draw(st.integers(0, striping.ensemble_size - 1))
    last = first + length
    shares = list(striping.shares(position, first, last))
    entries = [entry_id for begin, end in shares for entry_id in range(begin, end + 1)]
    assert entries == [n for n in range(first, last + 1) if position in naive_write_set(striping, n)]
    for (_, end), (begin, _) in pairwise(shares):
        assert begin > end + 1, "stretches are as long as they can be"


@given(stripings(), st.integers(0, 1000), st.data())
def test_a_stretch_ends_before_the_first_entry_that_the_position_lacks(
    striping: Striping, entry_id: int, data: st.DataObject
) -> None:
    position = data.draw(st.sampled_from(striping.write_set(entry_id)))
    last = entry_id + data.draw(st.integers(0, 20))
    end = striping.stretch_end(position, entry_id, last)
    assert all(striping.holds(position, n) for n in range(entry_id, end + 1))
    assert end == last or not striping.holds(position, end + 1)


@given(stripings())
def test_fencing_suffices_exactly_when_no_old_writer_can_reach_qa_in_any_write_set(
    striping: Striping,
) -> None:
    size = striping.ensemble_size
    for count in range(size + 1):
        for fenced in combinations(range(size), count):
            reachable = any(
                len(naive_write_set(striping, n) - set(fenced)) >= striping.ack_quorum
                for n in range(2 * size)
            )
            assert striping.leaves_no_ack_quorum(fenced) == (not reachable)
            if count >= size - striping.ack_quorum + 1:
                assert not reachable, "(E - Qa) + 1 suffices"


@given(stripings())
def test_qw_minus_qa_plus_one_absences_and_no_fewer_exclude_confirmation(striping: Striping) -> None:
    left = striping.write_quorum - striping.absences_needed
    assert left < striping.ack_quorum <= left + 1


def test_the_usual_ensemble_needs_two_of_three() -> None:
    striping = Striping(3, 3, 2)
    assert not striping.leaves_no_ack_quorum([1])
    assert striping.leaves_no_ack_quorum([0, 2])
    assert striping.absences_needed == 2
    assert not striping.striped


LAYOUT = LedgerLayout(
    Striping(3, 2, 2),
    [Fragment(0, ("a", "b", "c")), Fragment(4, ("a", "d", "c"))],
)


def test_an_entry_is_where_its_fragment_says() -> None:
    assert LAYOUT.bookies_of(3) == ["a", "b"]
    assert LAYOUT.bookies_of(4) == ["d", "c"]
    assert LAYOUT.fragment_of(100) is LAYOUT.last_fragment
    assert LAYOUT.fragment_end(1, 9) == 3
    assert LAYOUT.fragment_end(1, 2) == 2
    assert LAYOUT.fragment_end(4, 9) == 9


def test_an_ensemble_change_adds_a_fragment_or_replaces_the_last() -> None:
    layout = LedgerLayout(Striping(2, 2, 1), [Fragment(0, ("a", "b"))])
    layout.change_ensemble(5, ["a", "c"])
    layout.change_ensemble(5, ["a", "d"])
    assert layout.fragments == [Fragment(0, ("a", "b")), Fragment(5, ("a", "d"))]
    assert layout.bookies_of(4) == ["a", "b"]
    with pytest.raises(AssertionError):
        layout.change_ensemble(4, ["a", "e"])


def test_a_layout_goes_through_metadata_unchanged() -> None:
    value = LedgerMetadata(ensemble_size=3, write_quorum=2, ack_quorum=2)
    LAYOUT.write_to(value)
    read = LedgerLayout.of(value)
    assert (read.striping, read.fragments) == (LAYOUT.striping, LAYOUT.fragments)


@pytest.mark.parametrize(
    "fragments",
    [[], [(1, "abc")], [(0, "abc"), (0, "abd")], [(0, "ab")], [(0, "aab")]],
    ids=["none", "not from 0", "no progress", "too few", "twice the same"],
)
def test_metadata_that_contradicts_itself_is_refused(fragments: list[tuple[int, str]]) -> None:
    value = LedgerMetadata(ensemble_size=3, write_quorum=3, ack_quorum=2)
    for first, bookies in fragments:
        value.fragments.add(first_entry_id=first, bookie_ids=bookies)
    with pytest.raises(DataCorruption, match="metadata of ledger"):
        LedgerLayout.of(value)
