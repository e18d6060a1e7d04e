"""Dispatch rates of the broker, a topic and a subscription.

A subscription without limits has no gate and no overhead.
"""

from __future__ import annotations

from collections.abc import Iterable

from magnetar.broker.policies.config import RateConfig
from magnetar.broker.policies.effective_policies import EffectivePolicies, Rate
from magnetar.broker.stats import TopicStats
from magnetar.broker.subscriptions.limits.dispatch_rate import (
    OF_BROKER,
    OF_SUBSCRIPTION,
    OF_TOPIC,
    DispatchLimit,
    DispatchRate,
)
from magnetar.broker.subscriptions.subscription import Subscription
from magnetar.common.runtime.clock import Clock


class DispatchRates:
    """Dispatch rates of one broker; creates the limits of its topics and subscriptions."""

    def __init__(self, config: RateConfig, clock: Clock) -> None:
        self._config = config
        self._clock = clock
        self._of_broker: DispatchLimit | None = None
        self.rates_changed()

    def rates_changed(self) -> None:
        """Reads the broker's own rate again; topics get it when their subscriptions are limited again."""
        config, now = self._config, self._clock.monotonic()
        rate = Rate(max(0, config.broker_dispatch_messages), max(0, config.broker_dispatch_bytes))
        if not rate:
            self._of_broker = None
        elif self._of_broker is None:
            self._of_broker = DispatchLimit(OF_BROKER, rate, now)
        elif self._of_broker.rate != rate:
            self._of_broker.change(rate, now, None)

    def limit(
        self,
        subscriptions: Iterable[Subscription],
        policies: EffectivePolicies,
        of_topic: DispatchLimit | None,
        stats: TopicStats,
    ) -> DispatchLimit | None:
        """Applies the rates of the policies to a topic's subscriptions, including deliveries in progress.

        `of_topic` is the topic's current limit; returns the one to use from now on.
        """
        of_topic = self._changed(of_topic, OF_TOPIC, policies.dispatch_rate, stats)
        shared = [each for each in (of_topic, self._of_broker) if each is not None]
        for subscription in subscriptions:
            gate = subscription.dispatch_rate
            rate = policies.dispatch_rate_of(subscription.name)
            if gate is None and not shared and not rate:
                continue
            before = gate.limits if isinstance(gate, DispatchRate) else ()
            own = next((each for each in before if each.scope == OF_SUBSCRIPTION), None)
            own = self._changed(own, OF_SUBSCRIPTION, rate, stats)
            limits = shared if own is None else [own, *shared]
            subscription.dispatch_rate = (
                DispatchRate(limits, subscription, self._config, self._clock) if limits else None
            )
            if isinstance(gate, DispatchRate):
                gate.close()
        return of_topic

    def _changed(
        self, limit: DispatchLimit | None, scope: str, rate: Rate, stats: TopicStats
    ) -> DispatchLimit | None:
        if not rate:
            return None
        now = self._clock.monotonic()
        if limit is None:
            return DispatchLimit(scope, rate, now, stats, counts_batches=self._config.counts_batches)
        if limit.rate != rate:
            limit.change(rate, now, stats)
        return limit
