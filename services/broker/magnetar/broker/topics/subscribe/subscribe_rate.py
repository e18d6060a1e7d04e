"""Limit on how often one consumer may subscribe to a topic in a period.

A consumer is identified by its host, its name and its id, as in Apache Pulsar, so that one that reconnects in
a loop is the same one each time. All consumers of a topic share its periods.
"""

from __future__ import annotations

from typing import Final

from magnetar.broker.policies.effective_policies import EffectivePolicies
from magnetar.broker.topics.peer_hosts import host_of
from magnetar.broker.topics.subscribe.subscribe_request import SubscribeRequest
from magnetar.common.errors import NotAllowed

Identity = tuple[str, str, int]
"""Host of the client, name and id of the consumer."""

IDENTITIES_MAX: Final = 10_000
"""Consumers of one topic counted in a period; all beyond this number count as one."""

_OTHERS: Final[Identity] = ("", "", -1)


class SubscribeRate:
    """Counts the subscribe attempts of one topic's consumers."""

    __slots__ = ("_counts", "_ends")

    def __init__(self) -> None:
        self._counts: dict[Identity, int] = {}
        self._ends = float("-inf")

    def check(self, request: SubscribeRequest, policies: EffectivePolicies, now: float) -> None:
        """Raises NotAllowed when the consumer subscribes too often."""
        options, per_consumer = request.options, policies.subscribes_per_consumer
        consumer = (host_of(request.peer), options.name, options.consumer_id)
        if not self.admit(consumer, per_consumer, policies.subscribe_period_s, now):
            raise NotAllowed(
                f"consumer {options.name} has subscribed {per_consumer} times in "
                f"{policies.subscribe_period_s} s; more is not allowed (subscribe rate)"
            )

    def admit(self, consumer: Identity, per_consumer: int, period_s: float, now: float) -> bool:
        """Counts one attempt; returns False, without counting it, when the consumer's limit is reached."""
        if now >= self._ends:
            self._counts.clear()
            self._ends = now + period_s
        if consumer not in self._counts and len(self._counts) >= IDENTITIES_MAX:
            consumer = _OTHERS
        count = self._counts.get(consumer, 0)
        if count >= per_consumer:
            return False
        self._counts[consumer] = count + 1
        return True
