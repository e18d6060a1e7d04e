"""State shared by the topics of one broker."""

from __future__ import annotations

from dataclasses import dataclass

from magnetar.broker.byte_budget import ByteBudget
from magnetar.broker.subscriptions.limits.broker_unacked_limit import BrokerUnackedLimit
from magnetar.broker.task_spawner import Spawn
from magnetar.broker.topics.config import TopicSettings
from magnetar.broker.topics.publish.publish_gate import PublishLimits
from magnetar.broker.topics.subscribe.dispatch_rates import DispatchRates
from magnetar.common.runtime.clock import Clock


@dataclass(frozen=True, slots=True)
class TopicContext:
    """Dependencies that each topic borrows; None disables a limit."""

    config: TopicSettings
    budget: ByteBudget
    clock: Clock
    spawn: Spawn
    publish_limits: PublishLimits | None = None
    broker_unacked: BrokerUnackedLimit | None = None
    dispatch_rates: DispatchRates | None = None
