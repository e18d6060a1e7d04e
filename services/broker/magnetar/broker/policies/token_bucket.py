"""Token buckets: what a rate of messages or bytes allows at a moment.

A bucket fills evenly up to one period's worth. Whoever finds a whole token may take as much as he has in
hand, also more than there is: the bucket is then in debt, and nobody may take until that is paid back. So
runs and batches are never cut, and on average the rate holds. Nothing here reads a clock or waits: time is
an argument (seconds of one monotonic clock), and `ready_at` says when to look again.
"""

from __future__ import annotations

from typing import Final

from magnetar.broker.policies.effective_policies import Rate

ALWAYS: Final = float("-inf")


class TokenBucket:
    """`tokens` in each `period_s`; full at first. Both are positive."""

    __slots__ = ("_capacity", "_empty_at", "_per_s")

    def __init__(self, tokens: int, period_s: float, now: float) -> None:
        assert tokens > 0, "no limit is no bucket"
        self._capacity = tokens
        self._per_s = tokens / period_s
        self._empty_at = now - period_s
        # The moment at which it has, had or will have no tokens: its whole state, and exact over any pause.

    def take(self, count: int, now: float) -> None:
        """Take tokens, whether they are there or not; a negative count gives back what was not used."""
        self._empty_at = max(self._empty_at, now - self._capacity / self._per_s) + count / self._per_s

    def at_rate(self, tokens: int, period_s: float, now: float) -> TokenBucket:
        """A bucket of another rate with as much in it, or as much in debt, as this one has now."""
        level = min((now - self._empty_at) * self._per_s, self._capacity, tokens)
        other = TokenBucket(tokens, period_s, now)
        other._empty_at = now - level / other._per_s
        return other

    @property
    def ready_at(self) -> float:
        """From this moment on a whole token is there, unless more is taken."""
        return self._empty_at + 1 / self._per_s

    def available(self, now: float) -> int:
        """Whole tokens that are there now; at least 1 from `ready_at` on, 0 before."""
        if now < self.ready_at:
            return 0
        return max(1, min(self._capacity, int((now - self._empty_at) * self._per_s)))


class Throttle:
    """A rate of messages and bytes at once; a limit that is 0 in `rate` does not exist."""

    __slots__ = ("_bytes", "_messages", "rate")

    def __init__(self, rate: Rate, now: float) -> None:
        self.rate = rate
        self._messages = TokenBucket(rate.messages, rate.period_s, now) if rate.messages else None
        self._bytes = TokenBucket(rate.byte_count, rate.period_s, now) if rate.byte_count else None

    def take(self, messages: int, byte_count: int, now: float) -> None:
        """Count what went through, or give back (negative) what did not."""
        if self._messages is not None:
            self._messages.take(messages, now)
        if self._bytes is not None:
            self._bytes.take(byte_count, now)

    def at_rate(self, rate: Rate, now: float) -> Throttle:
        """A throttle of another rate that owes what this one owes; what it did not limit starts full."""
        other = Throttle(rate, now)
        if self._messages is not None and rate.messages:
            other._messages = self._messages.at_rate(rate.messages, rate.period_s, now)
        if self._bytes is not None and rate.byte_count:
            other._bytes = self._bytes.at_rate(rate.byte_count, rate.period_s, now)
        return other

    @property
    def ready_at(self) -> float:
        """Nothing may go through before this moment; `ALWAYS` when nothing is limited."""
        return max(
            ALWAYS if self._messages is None else self._messages.ready_at,
            ALWAYS if self._bytes is None else self._bytes.ready_at,
        )

    def available(self, now: float) -> tuple[int | None, int | None]:
        """Messages and bytes that may go through now; None is no limit, 0 is wait until `ready_at`."""
        return (
            None if self._messages is None else self._messages.available(now),
            None if self._bytes is None else self._bytes.available(now),
        )
