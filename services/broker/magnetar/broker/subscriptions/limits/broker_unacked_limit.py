"""The limit on unacknowledged messages of the whole broker, on Shared and Key_Shared subscriptions.

At the limit, subscriptions that hold more than their share of it (maxUnackedMessagesPerBroker times
maxUnackedMessagesPerSubscriptionOnBrokerBlocked) pause; those with less continue. A subscription resumes
below half of its share, and all resume when the broker is below half of its limit (as in Apache Pulsar 4.0,
which checks every 30 s; here the limit applies at once).
"""

from __future__ import annotations

from typing import Protocol

from magnetar.broker.dispatch.eligibility import Code, reason
from magnetar.broker.reason import Reason
from magnetar.broker.subscriptions.config import DispatchConfig


class Holder(Protocol):
    """A subscription with unacknowledged messages."""

    def wake(self) -> None:
        """Checks whether entries can go out."""
        ...


class BrokerUnackedLimit:
    """Counts the unacknowledged messages of a broker's subscriptions; exists only where the limit is on."""

    __slots__ = ("_counts", "_limit", "_part", "_paused", "blocked", "total")

    def __init__(self, limit: int, part: int) -> None:
        """Takes the limit of the broker and the part for one subscription at that limit, both in messages."""
        self._limit = limit
        self._part = part
        self._counts: dict[Holder, int] = {}
        self._paused: set[Holder] = set()
        self.total = 0
        self.blocked = False
        """True from the broker's limit on, until the count is below half of it."""

    def report(self, subscription: Holder, messages: int) -> None:
        """Sets how many messages of the subscription are unacknowledged now."""
        before = self._counts.get(subscription, 0)
        if messages == before:
            return
        if messages:
            self._counts[subscription] = messages
        else:
            del self._counts[subscription]
        self.total += messages - before
        if self.total >= self._limit and not self.blocked:
            self.blocked = True
            self._paused.update([each for each, count in self._counts.items() if count > self._part])
        elif self.blocked and self.total < self._limit / 2:
            self.blocked = False
            paused, self._paused = self._paused, set()
            for each in paused:
                each.wake()
        if self.blocked and messages > self._part:
            self._paused.add(subscription)
        elif messages < self._part / 2 and subscription in self._paused:
            self._paused.discard(subscription)
            subscription.wake()

    def reason(self, subscription: Holder) -> Reason | None:
        """Returns why this subscription is paused; None when it is not."""
        if not self.pauses(subscription):
            return None
        unacked = self._counts.get(subscription, 0)
        return reason(
            Code.UNACKED_LIMIT,
            f"the subscription holds {unacked} of the broker's {self.total} unacknowledged messages, and "
            f"resumes below half of its share of {self._part} (maxUnackedMessagesPerBroker is {self._limit})",
            scope="broker",
            unacked=unacked,
            unackedOfBroker=self.total,
            share=self._part,
            limit=self._limit,
        )

    def pauses(self, subscription: Holder) -> bool:
        """True while this subscription is paused by the limit."""
        return subscription in self._paused


def broker_unacked_limit(config: DispatchConfig) -> BrokerUnackedLimit | None:
    """Creates the configured limit; None when there is none."""
    limit, share = config.broker_unacked_max, config.subscription_share_of_broker_unacked
    return BrokerUnackedLimit(limit, int(limit * share)) if limit and share else None
