from __future__ import annotations

from magnetar.common.runtime.work_slices import SLICE_S, Slices

from tests.unit.common.runtime.ticking_clock import TickingClock


def test_a_slice_is_over_after_its_time_and_not_before() -> None:
    slices = Slices(TickingClock(SLICE_S / 2), steps_per_look=1)
    assert [slices.over() for _ in range(4)] == [False, True, False, True]


def test_the_clock_is_looked_at_once_in_some_steps() -> None:
    clock = TickingClock(SLICE_S)
    slices = Slices(clock, steps_per_look=4)
    assert [slices.over() for _ in range(8)] == [False, False, False, True] * 2
    assert clock.now == 3 * SLICE_S
