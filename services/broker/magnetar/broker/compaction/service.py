"""Runs the compactions of one broker, a bounded number at a time; a topic has at most one.

A run belongs to the broker that owns the topic and ends with that ownership: what it wrote by then is either
named in metadata or deleted by its intents. The outcome is kept with the topic while it is loaded.
"""

from __future__ import annotations

import asyncio
import secrets
from typing import Final

from magnetar.broker.policies.config import CompactionConfig
from magnetar.broker.task_spawner import Spawn
from magnetar.broker.topics.compaction_state import CompactionState, CompactionStatus
from magnetar.broker.topics.persistent_topic import PersistentTopic
from magnetar.common.errors import MagnetarError
from magnetar.common.obs.logs import get_logger
from magnetar.common.obs.metrics import REGISTRY
from magnetar.common.runtime.clock import Clock
from magnetar.ledger.compacted.figures import CompactionProgress
from magnetar.ledger.compacted.settings import CompactionSettings
from prometheus_client import Counter, Gauge

log = get_logger(__name__)

HASH_KEY_BYTES: Final = 16
"""Bytes of the random key under which a view hashes the keys of messages."""

RUNS: Final = Counter(
    "magnetar_compaction_runs_total",
    "Compactions of topics by outcome: succeeded or failed.",
    ["outcome"],
    registry=REGISTRY,
)
UNDER_WAY: Final = Gauge(
    "magnetar_compactions_under_way",
    "Compactions of topics in progress (running), and those that wait for magnetarCompactionRunsMax "
    "(waiting).",
    ["state"],
    registry=REGISTRY,
)


class CompactionService:
    """Starts compactions, and removes compacted views."""

    def __init__(self, config: CompactionConfig, clock: Clock, spawn: Spawn) -> None:
        """Creates it idle. `spawn` starts a task for each run; its owner cancels the tasks."""
        self._config = config
        self._clock = clock
        self._spawn = spawn
        self._turns = asyncio.Semaphore(config.runs_max)
        self._runs: dict[PersistentTopic, asyncio.Event] = {}
        """The topics with a run in progress or waiting; the events are set when it has ended."""

    def start(self, topic: PersistentTopic) -> bool:
        """Starts a compaction, or queues it behind others; False if the topic has one already."""
        if topic in self._runs:
            return False
        ended = self._runs[topic] = asyncio.Event()
        state = topic.compaction = topic.compaction.begin()
        state.status, state.last_error = CompactionStatus.RUNNING, ""
        self._spawn(self._run(topic, ended), "compaction")
        return True

    async def remove(self, topic: PersistentTopic) -> None:
        """Deletes the compacted view and releases what it holds, after a run in progress.

        Raises StorageError, MetadataError.
        """
        while (ended := self._runs.get(topic)) is not None:
            await ended.wait()
        await topic.ledger.compaction.remove()
        log.info("compacted view removed", topic=topic.name.full)

    async def _run(self, topic: PersistentTopic, ended: asyncio.Event) -> None:
        state = topic.compaction
        waiting, running = UNDER_WAY.labels(state="waiting"), UNDER_WAY.labels(state="running")
        try:
            with waiting.track_inprogress():
                await self._turns.acquire()
            try:
                with running.track_inprogress():
                    await self._compact(topic, state)
            finally:
                self._turns.release()
        except MagnetarError as error:
            self._failed(topic, str(error))
            log.warning("compaction failed", topic=topic.name.full, error=str(error))
        except Exception as error:
            self._failed(topic, f"unexpected error: {error}")
            log.exception("compaction failed unexpectedly", topic=topic.name.full)
        finally:
            if state.progress is not None:
                state.writes.add_all(state.progress.writes)
                state.progress = None
            if state.running:
                self._failed(topic, "the broker is shutting down")
            del self._runs[topic]
            ended.set()

    async def _compact(self, topic: PersistentTopic, state: CompactionState) -> None:
        topic.check_open()
        state.started_ms = self._clock.wall_ms()
        settings = CompactionSettings(
            hash_key=secrets.token_bytes(HASH_KEY_BYTES),
            limits=self._config.limits,
            retain_null_key=self._config.retain_null_key,
        )
        state.progress = CompactionProgress()
        result = await topic.ledger.compaction.run(topic.ledger.read_limit(), settings, state.progress)
        state.duration_ms = round(result.duration_s * 1000)
        state.status = CompactionStatus.SUCCESS
        state.succeeded += 1
        state.succeeded_ms = self._clock.wall_ms()
        state.removed = result.removed_messages
        state.removed_total += result.removed_messages
        state.bytes_read, state.bytes_written = result.bytes_read, result.bytes_written
        state.due_since_ms = 0
        RUNS.labels(outcome="succeeded").inc()
        log.info(
            "topic compacted",
            topic=topic.name.full,
            horizon=str(result.horizon),
            removed=result.removed_messages,
            read_bytes=result.bytes_read,
            written_bytes=result.bytes_written,
            ms=state.duration_ms,
        )

    def _failed(self, topic: PersistentTopic, reason: str) -> None:
        state = topic.compaction
        state.status = CompactionStatus.ERROR
        state.last_error = reason
        state.failed += 1
        state.failed_ms = self._clock.wall_ms()
        RUNS.labels(outcome="failed").inc()
