"""Periodic work of a broker for its topics: one task for each kind of check, none for a topic.

A pass checks every loaded topic in turn. A check is a plain call that returns at once, nearly always with
nothing to do; work that waits for storage or metadata is returned as a coroutine and awaited before the next
topic. After each millisecond other work gets the event loop, so that fifty thousand idle topics cost little
and delay no client. A failed check is logged, and repeated in the next pass.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Final

from magnetar.broker.policies.config import PolicyConfig
from magnetar.broker.task_spawner import Spawn
from magnetar.broker.topics.persistent_topic import PersistentTopic
from magnetar.broker.topics.registry.partitioned_topics import PartitionedTopics
from magnetar.broker.topics.registry.topic_registry import TopicRegistry
from magnetar.broker.topics.topic import Topic
from magnetar.broker.topics.upkeep.inactive_topics import InactiveTopics
from magnetar.broker.topics.upkeep.message_expiry import MessageExpiry
from magnetar.broker.topics.upkeep.subscription_expiry import SubscriptionExpiry
from magnetar.common.errors import MagnetarError
from magnetar.common.obs.logs import get_logger
from magnetar.common.runtime.clock import Clock
from magnetar.ledger.managed_ledger.context import Restored

log = get_logger(__name__)

SLICE_S: Final = 0.001

Look = Callable[[Topic], Awaitable[object] | None]


class Housekeeping:
    """Runs the periodic checks of one broker; they end with their tasks."""

    def __init__(
        self,
        registry: TopicRegistry,
        partitioned: PartitionedTopics,
        config: PolicyConfig,
        clock: Clock,
        restored: Restored,
    ) -> None:
        self._registry = registry
        self._partitioned = partitioned
        self._config = config
        self._clock = clock
        self._restored = restored
        self._checking_quotas = asyncio.Lock()

    def looks(self) -> list[tuple[str, float, Look]]:
        """Periodic checks as (name, seconds between two passes, check)."""
        config, clock = self._config, self._clock
        retention, inactive, quotas = config.retention, config.inactive_topics, config.quotas
        expiry_s = retention.expiry_check_interval_s or retention.expiry_check_interval_min * 60
        partitioned = self._partitioned if inactive.delete_partitioned_metadata else None
        looks: list[tuple[str, float, Look]] = [
            ("retention", retention.check_interval_s, self._trim),
            ("message expiry", expiry_s, MessageExpiry(clock).look),
            (
                "subscription expiry",
                retention.subscription_expiry_check_interval_min * 60,
                SubscriptionExpiry(clock).look,
            ),
            (
                "inactive topics",
                inactive.check_interval_s,
                InactiveTopics(self._registry, partitioned, clock, self._restored).look,
            ),
        ]
        if quotas.check_enabled:
            looks.append(("backlog quotas", quotas.check_interval_s, self._check_quota))
        return looks

    def _trim(self, topic: Topic) -> None:
        if isinstance(topic, PersistentTopic):
            topic.ledger.trim()

    def _check_quota(self, topic: Topic) -> Awaitable[object] | None:
        if not isinstance(topic, PersistentTopic):
            return None
        if topic.quota.limited:
            return topic.quota.enforce(topic.producers)
        topic.backlog.note_oldest()
        return None

    def start(self, spawn: Spawn) -> None:
        """Starts one endless task for each check; the caller of `spawn` owns the tasks."""
        for name, _, look in self.looks():
            spawn(self._run(name, look), f"housekeeping: {name}")

    async def check_quotas(self) -> None:
        """Checks the backlog quotas of every topic now; concurrent callers run one after the other."""
        async with self._checking_quotas:
            await self._look("backlog quotas", self._check_quota)

    async def _run(self, name: str, look: Look) -> None:
        while True:
            # Read before each pass: some intervals can be changed while the broker runs.
            await asyncio.sleep(next(interval_s for each, interval_s, _ in self.looks() if each == name))
            await self._look(name, look)

    async def _look(self, name: str, look: Look) -> None:
        await look_at_all(name, list(self._registry.loaded.values()), look, self._clock)


async def look_at_all(name: str, topics: Iterable[Topic], look: Look, clock: Clock) -> None:
    """Runs one pass over all topics."""
    slice_ends = clock.monotonic() + SLICE_S
    for topic in topics:
        if topic.closing:
            continue
        try:
            work = look(topic)
            if work is not None:
                await work
        except MagnetarError as error:
            log.warning("housekeeping failed", look=name, topic=topic.name.full, error=str(error))
        except Exception:
            log.exception("housekeeping pass failed", look=name, topic=topic.name.full)
        if clock.monotonic() >= slice_ends:
            await asyncio.sleep(0)
            slice_ends = clock.monotonic() + SLICE_S
