from __future__ import annotations

from magnetar.common.obs.log_limit import LINES_EVERY_S, LogLimit


def test_the_first_event_is_told_at_once_and_later_ones_together_when_a_line_is_due() -> None:
    limit = LogLimit()

    told = [limit.note(10.0), limit.note(10.1, 5), limit.note(10.2), limit.note(10.0 + LINES_EVERY_S)]

    assert told == [1, 0, 0, 7]


def test_a_line_tells_only_what_came_after_the_one_before() -> None:
    limit = LogLimit()
    limit.note(0.0, 3)

    assert limit.note(LINES_EVERY_S) == 1
