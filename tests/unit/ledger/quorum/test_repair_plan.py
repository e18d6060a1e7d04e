"""Plans: against a naive look at every single entry, for any fragments, gaps and losses."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st
from magnetar.common.metadata.values import LedgerMetadata
from magnetar.ledger.quorum.ledger_metadata import OPEN_GAP_END
from magnetar.ledger.quorum.repair_plan import (
    Lacking,
    has_room,
    lacking_copies,
    lost_of,
    members_to_replace,
    needs_mark,
    plan_repair,
    with_fill,
    with_move,
    without_source,
    without_void_gaps,
)
from magnetar.ledger.quorum.striping import Striping

from tests.examples import examples

BOOKIES = ["a", "b", "c", "d", "e", "f"]


@st.composite
def ledgers(draw: st.DrawFn) -> LedgerMetadata:
    size = draw(st.integers(1, 4))
    quorum = draw(st.integers(1, size))
    state = draw(st.sampled_from([LedgerMetadata.OPEN, LedgerMetadata.CLOSED]))
    value = LedgerMetadata(state=state, ensemble_size=size, write_quorum=quorum, ack_quorum=quorum)
    first = 0
    for _ in range(draw(st.integers(1, 4))):
        ensemble = draw(st.permutations(BOOKIES))[:size]
        value.fragments.add(first_entry_id=first, bookie_ids=ensemble)
        first += draw(st.integers(1, 6))
    value.last_entry_id = -1
    if state == LedgerMetadata.CLOSED:
        value.last_entry_id = value.fragments[-1].first_entry_id + draw(st.integers(-1, 5))
    for _ in range(draw(st.integers(0, 3))):
        start = draw(st.integers(0, first))
        end = draw(st.one_of(st.integers(start, start + 8), st.just(OPEN_GAP_END)))
        value.gaps.add(bookie_id=draw(st.sampled_from(BOOKIES)), first_entry_id=start, last_entry_id=end)
    return value


def lacking(value: LedgerMetadata, lost: set[str]) -> set[tuple[int, str]]:
    """(entry, bookie): a bookie that metadata gives a settled entry, and that is lost or has a gap there."""
    striping = Striping(value.ensemble_size, value.write_quorum, value.ack_quorum)
    firsts = [fragment.first_entry_id for fragment in value.fragments]
    end = value.last_entry_id if value.state == LedgerMetadata.CLOSED else firsts[-1] - 1
    found = set()
    for entry in range(end + 1):
        fragment = [f for f in value.fragments if f.first_entry_id <= entry][-1]
        for position in striping.write_set(entry):
            bookie = fragment.bookie_ids[position]
            gap = any(
                g.bookie_id == bookie and g.first_entry_id <= entry <= g.last_entry_id for g in value.gaps
            )
            if bookie in lost or gap:
                found.add((entry, bookie))
    return found


@settings(max_examples=examples(400))
@given(ledgers(), st.sets(st.sampled_from(BOOKIES), max_size=3))
def test_doing_all_of_a_plan_leaves_nothing_lacking(value: LedgerMetadata, lost: set[str]) -> None:
    up = set(BOOKIES) - lost | {"spare1", "spare2", "spare3", "spare4"}
    for _ in range(100):
        plan = plan_repair(value, lost, up)
        after: LedgerMetadata | None
        if plan.moves:
            move = plan.moves[0]
            spare = next(f"spare{i}" for i in range(1, 5) if f"spare{i}" not in move.fragment.bookie_ids)
            after = with_move(value, move, spare)
            assert after is not None
        elif plan.fills:
            after = with_fill(value, plan.fills[0])
        elif plan.void_gaps:
            after = without_void_gaps(value)
        else:
            break
        assert after is not None
        assert after != value, "each step is a step"
        assert after.fragments[-1] == value.fragments[-1] or value.state == LedgerMetadata.CLOSED, (
            "the last fragment of an open ledger is never touched"
        )
        value = after
    else:
        raise AssertionError("a plan without an end")
    assert lacking(value, lost) == set()
    if value.state == LedgerMetadata.CLOSED:
        assert not value.gaps
        assert plan.is_empty


@settings(max_examples=examples(400))
@given(ledgers(), st.sets(st.sampled_from(BOOKIES), max_size=2), st.sets(st.sampled_from(BOOKIES)))
def test_a_plan_is_empty_only_when_nothing_is_lacking(
    value: LedgerMetadata, lost: set[str], up: set[str]
) -> None:
    plan = plan_repair(value, lost, up)
    if plan.is_empty:
        assert lacking(value, lost) == set()


def test_a_step_that_does_not_fit_the_metadata_any_more_is_none() -> None:
    value = LedgerMetadata(
        state=LedgerMetadata.CLOSED, ensemble_size=3, write_quorum=3, ack_quorum=2, last_entry_id=9
    )
    value.fragments.add(first_entry_id=0, bookie_ids=["a", "b", "c"])
    [move] = plan_repair(value, {"b"}, {"a", "c", "d"}).moves
    assert with_move(value, move, "a") is None, "it is there already"
    value.fragments[0].bookie_ids[1] = "e"
    assert with_move(value, move, "d") is None


def test_a_gap_without_an_end_is_its_writer_s() -> None:
    value = LedgerMetadata(state=LedgerMetadata.OPEN, ensemble_size=3, write_quorum=3, ack_quorum=2)
    value.fragments.add(first_entry_id=0, bookie_ids=["a", "b", "c"])
    value.gaps.add(bookie_id="b", first_entry_id=4, last_entry_id=OPEN_GAP_END)
    plan = plan_repair(value, set(), {"a", "b", "c"})
    assert plan.tail_lacks
    assert not plan.fills
    value.fragments.add(first_entry_id=10, bookie_ids=["a", "b", "c"])
    [fill] = plan_repair(value, set(), {"a", "b", "c"}).fills
    assert (fill.first, fill.last) == (4, 9)
    after = with_fill(value, fill)
    assert after is not None
    assert [(g.first_entry_id, g.last_entry_id) for g in after.gaps] == [(10, OPEN_GAP_END)]


@settings(max_examples=examples(400))
@given(ledgers(), st.sets(st.sampled_from(BOOKIES), max_size=3))
def test_lacking_copies_are_those_of_each_entry(value: LedgerMetadata, lost: set[str]) -> None:
    up = set(BOOKIES) - lost
    found = lacking_copies(value, up)
    counts: dict[int, int] = {}
    for entry, _ in lacking(value, lost):
        counts[entry] = counts.get(entry, 0) + 1
    settled = value.fragments[-1].first_entry_id
    if value.state == LedgerMetadata.CLOSED:
        settled = value.last_entry_id + 1
    told = {
        entry: each.copies
        for each in found
        for entry in range(each.first, settled if each.last is None else min(each.last + 1, settled))
    }
    assert counts.keys() <= told.keys()
    assert all(counts.get(entry, 0) <= copies for entry, copies in told.items())
    if value.ensemble_size == value.write_quorum:
        assert told == counts
    for one, other in pairwise(found):
        assert one.last is not None
        assert one.last < other.first


def test_an_open_end_lacks_copies_without_end() -> None:
    value = LedgerMetadata(state=LedgerMetadata.OPEN, ensemble_size=3, write_quorum=3, ack_quorum=2)
    value.fragments.add(first_entry_id=0, bookie_ids=["a", "b", "c"])
    value.gaps.add(bookie_id="c", first_entry_id=5, last_entry_id=OPEN_GAP_END)
    assert lacking_copies(value, {"a", "b", "c"}) == [Lacking(5, None, 1)]
    assert lacking_copies(value, {"a", "c"}) == [Lacking(0, 4, 1), Lacking(5, None, 2)]


def test_a_mark_names_bookies_that_were_given_up_or_that_no_longer_exist() -> None:
    value = LedgerMetadata(
        state=LedgerMetadata.CLOSED, ensemble_size=3, write_quorum=3, ack_quorum=2, last_entry_id=9
    )
    value.fragments.add(first_entry_id=0, bookie_ids=["a", "b", "c"])
    assert members_to_replace(value, {"c"}, {"a", "c"}, {"a"}) == ["b", "c"]
    assert not needs_mark(value, [])
    assert needs_mark(value, ["b"])
    value.state = LedgerMetadata.IN_RECOVERY
    assert needs_mark(value, [])
    assert lost_of(["a", "b", "c"], {"a"}, {"a", "b"}) == {"a", "c"}
    assert has_room(value, ["a", "b", "c"], [])
    assert not has_room(value, ["a", "b", "c"], ["c"])


def test_a_move_has_no_source_when_no_bookie_of_a_write_set_runs() -> None:
    value = LedgerMetadata(
        state=LedgerMetadata.CLOSED, ensemble_size=3, write_quorum=2, ack_quorum=2, last_entry_id=9
    )
    value.fragments.add(first_entry_id=0, bookie_ids=["a", "b", "c"])
    first, second = plan_repair(value, {"a", "b"}, {"c"}).moves
    assert without_source(value, first, {"c"}), "entries of a and b alone"
    assert without_source(value, second, {"c"})
    assert not without_source(value, first, {"b", "c"})
    value.last_entry_id = 0
    (first, second) = plan_repair(value, {"a", "b"}, {"c"}).moves
    assert without_source(value, first, {"c"})
    value.write_quorum = 3
    assert not without_source(value, first, {"c"})
