from __future__ import annotations

from magnetar.broker.policies.effective import Rate
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


def test_what_was_not_used_is_given_back() -> None:
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
