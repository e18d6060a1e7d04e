"""A run writes by what is new; views stay short; what is mostly dead is written anew."""

from __future__ import annotations

import random

from magnetar.ledger.compacted.merge_plan import SEGMENTS_MAX, SMALL_BYTES, SegmentSize, plan_merges

MB = 1 << 20


def full(size: int) -> SegmentSize:
    return SegmentSize(size, size)


def test_small_neighbors_join_the_new_segment_within_the_budget() -> None:
    plan = plan_merges([full(100 * MB), full(2 * MB), full(MB)], MB, MB, 0)
    assert [(group.start, group.stop, group.rewrite) for group in plan.groups] == [
        (0, 1, False),
        (1, 3, True),
    ]
    assert plan.credit == MB


def test_segments_beyond_the_budget_stay() -> None:
    plan = plan_merges([full(5 * MB)], MB, MB, 0)
    assert [group.rewrite for group in plan.groups] == [False, True]
    assert plan_merges([full(5 * MB)], MB, MB, MB).groups[0].rewrite


def test_a_mostly_dead_segment_is_written_anew_once_there_is_credit() -> None:
    dead = SegmentSize(300 * MB, 100 * MB)
    assert not plan_merges([dead], MB, MB, 0).groups[0].rewrite
    plan = plan_merges([dead], MB, MB, 96 * MB)
    assert plan.groups[0].rewrite
    assert not plan.groups[0].takes_new
    assert plan.credit == 0


def test_dead_segments_go_and_nothing_new_makes_no_segment() -> None:
    plan = plan_merges([SegmentSize(MB, 0), full(100 * MB)], 0, MB, 0)
    assert [(group.start, group.stop, group.rewrite) for group in plan.groups] == [(1, 2, False)]
    assert plan_merges([SegmentSize(MB, 0)], 0, MB, 0).groups == []


def test_everything_becomes_one_segment_on_request() -> None:
    (group,) = plan_merges([full(100 * MB)] * 5, MB, MB, 0, everything=True).groups
    assert (group.start, group.stop, group.takes_new, group.rewrite) == (0, 6 - 1, True, True)


def test_a_view_of_many_runs_stays_short_and_costs_a_few_times_what_is_new() -> None:
    rng = random.Random(3)
    segments: list[SegmentSize] = []
    credit = written = new = 0
    for _ in range(2_000):
        tail = rng.randrange(1, 20 * MB)
        plan = plan_merges(segments, tail, tail, credit)
        credit = plan.credit
        written += sum(group.live_bytes for group in plan.groups if group.rewrite)
        new += tail
        segments = [full(group.live_bytes) for group in plan.groups]
        assert len(segments) <= SEGMENTS_MAX
    assert max(segment.byte_length for segment in segments) > SMALL_BYTES
    assert written <= 8 * new
