"""Token buckets that limit the rate of messages or bytes.

A bucket fills evenly, up to the tokens of one period. With at least one whole token, a caller may take any
number, even more than available: the bucket is then in debt and allows nothing until the debt is repaid. So
runs and batches are never split, and the rate holds on average. No method reads a clock or waits: time is an
argument (seconds of a monotonic clock), and `ready_at` is the time of the next attempt.
"""

from __future__ import annotations

from typing import Final

from magnetar.broker.policies.effective_policies import Rate

ALWAYS: Final = float("-inf")


class TokenBucket:
    """`tokens` in each `period_s`; full at first. Both are positive."""

    __slots__ = ("_capacity", "_empty_at", "_per_s")

    def __init__(self, tokens: int, period_s: float, now: float) -> None:
        assert tokens > 0, "a bucket needs positive tokens and period"
        self._capacity = tokens
        self._per_s = tokens / period_s
        self._empty_at = now - period_s
        # The time at which the bucket is empty, past or future: its whole state, exact over any pause.

    def take(self, count: int, now: float) -> None:
        """Takes tokens, available or not; a negative count returns unused ones."""
        self._empty_at = max(self._empty_at, now - self._capacity / self._per_s) + count / self._per_s

    def at_rate(self, tokens: int, period_s: float, now: float) -> TokenBucket:
        """Returns a bucket of another rate with this one's current tokens or debt."""
        level = min((now - self._empty_at) * self._per_s, self._capacity, tokens)
        other = TokenBucket(tokens, period_s, now)
        other._empty_at = now - level / other._per_s
        return other

    @property
    def ready_at(self) -> float:
        """The time from which a whole token is available, unless more are taken."""
        return self._empty_at + 1 / self._per_s

    def available(self, now: float) -> int:
        """Returns the whole tokens available at `now`: at least 1 from `ready_at` on, 0 before."""
        if now < self.ready_at:
            return 0
        return max(1, min(self._capacity, int((now - self._empty_at) * self._per_s)))


class Throttle:
    """Limits messages and bytes together; a limit of 0 in `rate` means none."""

    __slots__ = ("_bytes", "_messages", "rate")

    def __init__(self, rate: Rate, now: float) -> None:
        self.rate = rate
        self._messages = TokenBucket(rate.messages, rate.period_s, now) if rate.messages else None
        self._bytes = TokenBucket(rate.byte_count, rate.period_s, now) if rate.byte_count else None

    def take(self, messages: int, byte_count: int, now: float) -> None:
        """Takes tokens for sent messages; negative counts return tokens of unsent ones."""
        if self._messages is not None:
            self._messages.take(messages, now)
        if self._bytes is not None:
            self._bytes.take(byte_count, now)

    def at_rate(self, rate: Rate, now: float) -> Throttle:
        """Returns a throttle of another rate with this one's debts; new limits start full."""
        other = Throttle(rate, now)
        if self._messages is not None and rate.messages:
            other._messages = self._messages.at_rate(rate.messages, rate.period_s, now)
        if self._bytes is not None and rate.byte_count:
            other._bytes = self._bytes.at_rate(rate.byte_count, rate.period_s, now)
        return other

    @property
    def ready_at(self) -> float:
        """The time before which nothing may be sent; `ALWAYS` without limits."""
        return max(
            ALWAYS if self._messages is None else self._messages.ready_at,
            ALWAYS if self._bytes is None else self._bytes.ready_at,
        )

    def available(self, now: float) -> tuple[int | None, int | None]:
        """Returns the messages and bytes that may be sent now; None: no limit, 0: wait until `ready_at`."""
        return (
            None if self._messages is None else self._messages.available(now),
            None if self._bytes is None else self._bytes.available(now),
        )
