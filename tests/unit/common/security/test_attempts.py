"""Failures per address and name lead to refusals for a while."""

from __future__ import annotations

from magnetar.common.security import attempts
from magnetar.common.security.attempts import FAILURES_MAX, REFUSED_S, WINDOW_S, Attempts


class Time:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_ten_failures_in_a_minute_are_followed_by_a_minute_of_refusals() -> None:
    now = Time()
    tried = Attempts(now)
    for _ in range(FAILURES_MAX - 1):
        tried.note_failure(["a", "user"])
    assert not tried.are_refused(["a"])
    tried.note_failure(["a"])
    assert tried.are_refused(["b", "a"])
    assert not tried.are_refused(["user"])
    now.now = REFUSED_S - 0.1
    assert tried.are_refused(["a"])
    now.now = REFUSED_S
    assert not tried.are_refused(["a"])


def test_failures_far_apart_are_not_refused() -> None:
    now = Time()
    tried = Attempts(now)
    for _ in range(5 * FAILURES_MAX):
        tried.note_failure(["a"])
        now.now += WINDOW_S / (FAILURES_MAX - 2)
        assert not tried.are_refused(["a"])


def test_subjects_are_bounded_and_the_oldest_is_forgotten() -> None:
    tried = Attempts(lambda: 0.0)
    for number in range(attempts.SUBJECTS_MAX + 10):
        tried.note_failure([str(number)])
    assert len(tried) == attempts.SUBJECTS_MAX
