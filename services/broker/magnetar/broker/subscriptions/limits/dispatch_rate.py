"""Dispatch rates: those of a subscription, of its topic and of the broker apply together.

A rate delays messages and never drops any. It counts messages, or entries (batches) if so configured, and
bytes. A rate relative to the publish rate is raised by what was published in its last period. Consumers
without a backlog may be exempt. Messaging contract, section 19.

Subscriptions that share a rate take turns: while some wait for it, the others wait as well, and they are
woken in the order in which they began to wait.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final, Protocol

from magnetar.broker.dispatch.eligibility import Code, reason
from magnetar.broker.policies.config import RateConfig
from magnetar.broker.policies.effective_policies import Rate
from magnetar.broker.policies.token_bucket import Throttle
from magnetar.broker.reason import Reason, iso_time
from magnetar.broker.stats import SubscriptionStats, TopicStats
from magnetar.common.runtime.clock import Clock

MESSAGES: Final = "messages"
BYTES: Final = "bytes"

OF_SUBSCRIPTION: Final = "the subscription"
OF_TOPIC: Final = "the topic"
OF_BROKER: Final = "the broker"

WAIT_MIN_S: Final = 0.01
"""Minimum wait in seconds for an exhausted rate, so that tokens for several messages collect."""

CAUGHT_UP_ENTRIES: Final = 1_000
"""Unread entries up to which a subscription counts as one without a backlog, as in Apache Pulsar."""

_NO_LIMIT: Final = 1 << 62


class Throttled(Protocol):
    """The part of a subscription that a gate needs."""

    @property
    def stats(self) -> SubscriptionStats: ...
    def wake(self) -> None: ...
    def unread(self) -> int: ...


class DispatchLimit:
    """One rate, shared by the subscriptions that it limits together; `scope` names it for statistics."""

    __slots__ = (
        "_counts_batches",
        "_published",
        "_since",
        "_stats",
        "_throttle",
        "_timer",
        "_waiting",
        "_wakes_at",
        "rate",
        "scope",
    )

    def __init__(
        self,
        scope: str,
        rate: Rate,
        now: float,
        stats: TopicStats | None = None,
        *,
        counts_batches: bool = False,
    ) -> None:
        """`stats`: statistics of the topic whose publish rate counts, if `rate` is relative to one."""
        self.scope = scope
        self.rate = rate
        self._throttle = Throttle(rate, now)
        self._counts_batches = counts_batches
        self._stats = stats if rate.relative_to_publish_rate else None
        self._since = now
        self._published = self._publishes()
        self._waiting: dict[DispatchRate, bool] = {}
        """The gates that wait, longest first; False: the gate did not retry when it was woken."""
        self._timer: asyncio.TimerHandle | None = None
        """Fires when the rate allows more; None when it does now, or when the time is not known."""
        self._wakes_at = now
        # When the timer fires.

    def change(self, rate: Rate, now: float, stats: TopicStats | None) -> None:
        """Changes the rate; tokens spent under the old one still count."""
        self.rate = rate
        self._throttle = self._throttle.at_rate(rate, now)
        self._stats = stats if rate.relative_to_publish_rate else None
        self._since = now
        self._published = self._publishes()
        if self._timer is not None:
            self._timer.cancel()
            self._ask_all()

    def available(self, now: float) -> tuple[int | None, int | None]:
        """Returns the messages (or entries) and bytes that may go out; see Throttle."""
        if self._stats is not None and now - self._since >= self.rate.period_s:
            self._follow(now)
        return self._throttle.available(now)

    def take(self, messages: int, byte_count: int, now: float) -> None:
        self._throttle.take(messages, byte_count, now)

    def others_wait(self, gate: DispatchRate) -> bool:
        """True while other gates wait: they share the available tokens."""
        return self._timer is not None and len(self._waiting) > (gate in self._waiting)

    def wait(self, gate: DispatchRate, now: float) -> bool:
        """Registers a waiting gate, to be woken when the rate allows more; returns False when it waits
        already.
        """
        waited = gate in self._waiting
        self._waiting[gate] = True
        if self._timer is None:
            wait_s = max(self._throttle.ready_at - now, WAIT_MIN_S)
            self._wakes_at = now + wait_s
            self._timer = asyncio.get_running_loop().call_later(wait_s, self._ask_all)
        return not waited

    def makes_wait(self, gate: DispatchRate) -> bool:
        """Whether this gate waits for the rate."""
        return gate in self._waiting

    def ready_in_s(self, now: float) -> float:
        """Returns the seconds until waiting gates are woken; 0 when none waits."""
        return 0.0 if self._timer is None else max(0.0, self._wakes_at - now)

    def leave(self, gate: DispatchRate) -> None:
        """Removes a waiting gate that got tokens or was closed."""
        self._waiting.pop(gate, None)
        if not self._waiting and self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _ask_all(self) -> None:
        """Wakes the gates in the order in which they began to wait."""
        self._timer = None
        # A gate that did not retry after the last wake has nothing to deliver, and would stay registered
        # forever.
        self._waiting = {gate: False for gate, asked in self._waiting.items() if asked}
        for gate in list(self._waiting):
            gate.look_again()

    def _follow(self, now: float) -> None:
        """Adds the messages published in the last period to the allowance of the next one."""
        rate, periods = self.rate, (now - self._since) / self.rate.period_s
        before, self._published = self._published, self._publishes()
        messages = int((self._published[0] - before[0]) / periods)
        byte_count = int((self._published[1] - before[1]) / periods)
        allowed = Rate(
            rate.messages + messages if rate.messages else 0,
            rate.byte_count + byte_count if rate.byte_count else 0,
            rate.period_s,
        )
        self._throttle = self._throttle.at_rate(allowed, now)
        self._since = now

    def _publishes(self) -> tuple[int, int]:
        stats = self._stats
        if stats is None:
            return 0, 0
        return stats.entries_in if self._counts_batches else stats.messages_in, stats.bytes_in


class DispatchRate:
    """Applies the rates of one subscription. Implements delivery.DispatchRateGate."""

    __slots__ = ("_clock", "_config", "_exempt", "_subscription", "limits", "throttled_by")

    def __init__(
        self, limits: Sequence[DispatchLimit], subscription: Throttled, config: RateConfig, clock: Clock
    ) -> None:
        self.limits = tuple(limits)
        self._subscription = subscription
        self._config = config
        self._clock = clock
        self._exempt = False
        self.throttled_by: str | None = None

    def room(self) -> tuple[int, int] | None:
        self.throttled_by = None
        self._exempt = not self._config.without_backlog and self._subscription.unread() <= CAUGHT_UP_ENTRIES
        messages = byte_count = _NO_LIMIT
        if self._exempt:
            return messages, byte_count
        now = self._clock.monotonic()
        for limit in self.limits:
            some_messages, some_bytes = limit.available(now)
            if some_messages == 0 or some_bytes == 0 or limit.others_wait(self):
                if limit.wait(self, now):
                    of_bytes = some_messages is None or (some_messages > 0 and some_bytes == 0)
                    self._subscription.stats.count_throttled(limit.scope, BYTES if of_bytes else MESSAGES)
                self.throttled_by = self.throttled_by or limit.scope
            if some_messages is not None:
                messages = min(messages, some_messages)
            if some_bytes is not None:
                byte_count = min(byte_count, some_bytes)
        if self.throttled_by is not None:
            return None
        for limit in self.limits:
            limit.leave(self)
        return messages, byte_count

    def spent(self, entries: int, messages: int, byte_count: int) -> None:
        if self._exempt:
            return
        now = self._clock.monotonic()
        count = entries if self._config.counts_batches else messages
        for limit in self.limits:
            limit.take(count, byte_count, now)

    @property
    def reason(self) -> Reason | None:
        if self.throttled_by is None:
            return None
        limits = [each for each in self.limits if each.makes_wait(self)]
        now = self._clock.monotonic()
        ready_in_s = max((each.ready_in_s(now) for each in limits), default=0.0)
        rates = {each.scope: _described(each.rate) for each in limits}
        until = iso_time(self._clock.wall_ms() + int(ready_in_s * 1000)) if ready_in_s else None
        text = f"throttled by the dispatch rate of {self.throttled_by}"
        if self.throttled_by in rates:
            text += f", which is {rates[self.throttled_by]}"
        if ready_in_s:
            text += f": goes on in {ready_in_s:.3f} s"
        return reason(Code.RATE_LIMITED, text, scope=self.throttled_by, rates=rates, until=until)

    def close(self) -> None:
        """Stops limiting, and wakes the subscription at once."""
        for limit in self.limits:
            limit.leave(self)
        self.throttled_by = None
        self._subscription.wake()

    def look_again(self) -> None:
        """Wakes the subscription, as the rate may allow more now."""
        self._subscription.wake()


def _described(rate: Rate) -> str:
    """Returns a rate in words."""
    parts = [f"{rate.messages} messages"] if rate.messages else []
    parts += [f"{rate.byte_count} bytes"] if rate.byte_count else []
    relative = " beyond the publish rate" if rate.relative_to_publish_rate else ""
    return f"{' and '.join(parts)} in {rate.period_s:g} s{relative}"
