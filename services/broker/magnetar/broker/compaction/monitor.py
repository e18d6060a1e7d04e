"""Starts the compactions that thresholds ask for, and reports what waits for one too long.

With a threshold in force a topic keeps its messages until they were compacted. When compactions fail for
long, disks fill; so the longest wait and the bytes held are metrics, and a topic that waits for a day is
logged.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Final

from magnetar.broker.compaction.service import CompactionService
from magnetar.broker.housekeeping import look_at_all
from magnetar.broker.policies.config import CompactionConfig
from magnetar.broker.topics.persistent_topic import PersistentTopic
from magnetar.broker.topics.topic import Topic
from magnetar.common.obs.logs import get_logger
from magnetar.common.obs.metrics import REGISTRY
from magnetar.common.runtime.clock import Clock
from prometheus_client import Gauge

log = get_logger(__name__)

OVERDUE_MS: Final = 24 * 60 * 60 * 1000
"""Time for which a topic may be over its threshold before that is logged."""

HELD_BYTES: Final = Gauge(
    "magnetar_compaction_held_bytes",
    "Bytes of loaded topics with a compaction threshold that were not compacted yet: they are not deleted.",
    registry=REGISTRY,
)
DUE_SECONDS: Final = Gauge(
    "magnetar_compaction_due_seconds",
    "Longest time in seconds for which a loaded topic has been over its compaction threshold without a "
    "successful compaction; 0 without any.",
    registry=REGISTRY,
)


class CompactionMonitor:
    """Checks the loaded topics of one broker until it is cancelled."""

    def __init__(
        self,
        loaded: Callable[[], Mapping[str, Topic]],
        service: CompactionService,
        config: CompactionConfig,
        clock: Clock,
    ) -> None:
        self._loaded = loaded
        self._service = service
        self._config = config
        self._clock = clock
        self._held_bytes = 0
        self._due_ms = 0
        self._overdue: set[str] = set()
        """Topics logged as overdue, by full name; logged again after a success."""

    async def run(self) -> None:
        """Runs a pass over all topics at each interval, until canceled."""
        while True:
            await asyncio.sleep(self._config.monitor_interval_s)
            await self.look()

    async def look(self) -> None:
        """Runs one pass; compactions that it starts go on behind it."""
        self._held_bytes = self._due_ms = 0
        loaded = self._loaded()
        await look_at_all("compaction", list(loaded.values()), self._look_at, self._clock)
        self._overdue.intersection_update(loaded)
        HELD_BYTES.set(self._held_bytes)
        DUE_SECONDS.set(self._due_ms / 1000)

    def _look_at(self, topic: Topic) -> None:
        threshold = topic.policies.compaction_threshold_bytes
        if threshold <= 0 or not isinstance(topic, PersistentTopic):
            return
        now_ms = self._clock.wall_ms()
        topic.ledger.compaction.hold(True)  # an operator may have removed the view since
        waiting = topic.uncompacted_bytes
        self._held_bytes += waiting
        state = topic.compaction
        if waiting <= threshold:
            if state.due_since_ms:
                state.due_since_ms = 0
            self._overdue.discard(topic.name.full)
            return
        state = topic.compaction = state.begin()
        state.due_since_ms = min(state.due_since_ms or now_ms, now_ms)
        due_ms = now_ms - state.due_since_ms
        self._due_ms = max(self._due_ms, due_ms)
        if due_ms >= OVERDUE_MS and topic.name.full not in self._overdue:
            self._overdue.add(topic.name.full)
            log.warning(
                "topic not compacted for long, its messages are kept",
                topic=topic.name.full,
                bytes=waiting,
                threshold=threshold,
                hours=due_ms // 3_600_000,
                error=state.last_error,
            )
        self._service.start(topic)
