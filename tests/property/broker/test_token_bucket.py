"""A token bucket against plain arithmetic: over any stretch of time the rate holds."""

from __future__ import annotations

from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st
from magnetar.broker.policies.token_bucket import TokenBucket

STEPS = st.lists(st.tuples(st.integers(0, 3_000), st.integers(1, 500)), min_size=1, max_size=60)
"""Milliseconds that pass, and how much somebody has in hand then."""


@given(tokens=st.integers(1, 200), period_s=st.integers(1, 30), steps=STEPS)
def test_over_any_stretch_of_time_the_rate_holds(
    tokens: int, period_s: int, steps: list[tuple[int, int]]
) -> None:
    """Between any two takings: at most a full bucket, what came meanwhile, and one last excess."""
    bucket = TokenBucket(tokens, period_s, 0.0)
    taken: list[tuple[Fraction, int]] = []
    now = Fraction(0)
    for passed_ms, wanted in steps:
        now += Fraction(passed_ms, 1000)
        if bucket.available(float(now)):
            bucket.take(wanted, float(now))
            taken.append((now, wanted))
    for first, (since, _) in enumerate(taken):
        for last in range(first, len(taken)):
            allowed = tokens + (taken[last][0] - since) * Fraction(tokens, period_s) + taken[last][1]
            assert sum(wanted for _, wanted in taken[first : last + 1]) <= allowed + Fraction(1, 10**6)


@given(tokens=st.integers(1, 10_000), period_s=st.integers(1, 30), wanted=st.lists(st.integers(1, 50_000)))
def test_waiting_until_ready_gets_the_whole_rate(tokens: int, period_s: int, wanted: list[int]) -> None:
    bucket = TokenBucket(tokens, period_s, 0.0)
    now = 0.0
    for count in wanted:
        now = max(now, bucket.ready_at)
        assert bucket.available(now) >= 1, "ready means that somebody may take"
        bucket.take(count, now)
    ideal_s = max(0, sum(wanted) - tokens + 1) * period_s / tokens
    assert bucket.ready_at <= ideal_s + 1e-6 * (1 + ideal_s), "no time is lost between two waits"


@given(tokens=st.integers(1, 200), now=st.floats(0, 1e6), idle_s=st.floats(0, 1e6))
def test_an_idle_bucket_never_holds_more_than_a_period(tokens: int, now: float, idle_s: float) -> None:
    bucket = TokenBucket(tokens, 1.0, now)
    assert bucket.available(now + idle_s) <= tokens
