from __future__ import annotations

from magnetar.broker.policies.effective_policies import Rate
from magnetar.broker.policies.token_bucket import ALWAYS, Throttle, TokenBucket


def test_a_bucket_is_full_at_first_and_ready_again_when_a_token_came() -> None:
    bucket = TokenBucket(10, 1.0, 100.0)
    assert bucket.available(100.0) == 10
    bucket.take(10, 100.0)
    assert bucket.available(100.0) == 0
    assert abs(bucket.ready_at - 100.1) < 1e-9
    assert bucket.available(bucket.ready_at) == 1


def test_more_than_there_is_makes_a_debt_that_is_paid_back_first() -> None:
    bucket = TokenBucket(10, 1.0, 0.0)
    bucket.take(35, 0.0)
    assert abs(bucket.ready_at - 2.6) < 1e-9
    assert bucket.available(2.5) == 0


def test_an_idle_bucket_holds_one_period_and_no_more() -> None:
    bucket = TokenBucket(10, 2.0, 0.0)
    assert bucket.available(1_000.0) == 10
    bucket.take(10, 1_000.0)
    assert bucket.available(1_000.0) == 0


def test_unused_tokens_are_returned() -> None:
    bucket = TokenBucket(10, 1.0, 0.0)
    bucket.take(10, 0.0)
    bucket.take(-4, 0.0)
    assert bucket.available(0.0) == 4


def test_a_throttle_waits_for_the_slower_of_its_two_limits() -> None:
    throttle = Throttle(Rate(messages=10, byte_count=100), 0.0)
    throttle.take(5, 300, 0.0)
    assert throttle.available(0.0) == (5, 0)
    assert abs(throttle.ready_at - 2.01) < 1e-9


def test_a_limit_that_is_off_is_no_limit() -> None:
    throttle = Throttle(Rate(messages=10), 0.0)
    throttle.take(1, 1 << 40, 0.0)
    assert throttle.available(0.0) == (9, None)
    assert Throttle(Rate(), 0.0).ready_at == ALWAYS


def test_another_rate_keeps_what_is_there_and_what_is_owed() -> None:
    bucket = TokenBucket(10, 1.0, 0.0)
    bucket.take(7, 0.0)
    assert bucket.at_rate(100, 1.0, 0.0).available(0.001) == 3
    assert bucket.at_rate(2, 1.0, 0.0).available(0.0) == 2, "no more than fits"
    bucket.take(13, 0.0)
    owing = bucket.at_rate(5, 1.0, 0.0)
    assert owing.available(1.9) == 0, "ten are owed, at five a second"
    assert owing.available(2.5) == 2


def test_a_throttle_of_another_rate_limits_what_that_limits() -> None:
    throttle = Throttle(Rate(messages=10), 0.0)
    throttle.take(10, 500, 0.0)
    both = throttle.at_rate(Rate(messages=20, byte_count=1_000), 0.0)
    assert both.available(0.0) == (0, 1_000)
    assert both.at_rate(Rate(byte_count=1_000), 0.0).available(0.0) == (None, 1_000)
