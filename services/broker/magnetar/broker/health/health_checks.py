"""Health check of this broker: publishes a message to storage and reads it back, within a bound.

It works like Pulsar's, for the same callers: operators, `magnetar doctor`, monitoring. Liveness probes that
restart processes do not use it, because storage is another process (docs/decisions/readiness.md).
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Collection
from contextlib import suppress
from typing import Final

from magnetar.broker.health.heartbeat_client import HeartbeatClient
from magnetar.broker.health.heartbeat_topic import HeartbeatTopic
from magnetar.common.errors import MagnetarError, ServiceNotReady, StorageError
from magnetar.common.naming.namespace_name import SYSTEM_NAMESPACE
from magnetar.common.naming.topic_name import PERSISTENT, TopicName, is_heartbeat_topic
from magnetar.common.obs.logs import get_logger
from magnetar.common.obs.metrics import REGISTRY, begin_at_zero
from magnetar.ledger.ledger_store import Obstacle
from magnetar.ledger.managed_ledger.context import ManagedLedgerContext
from magnetar.ledger.managed_ledger.directory import delete_managed_ledger
from prometheus_client import Counter

log = get_logger(__name__)

CHECK_S: Final = 10.0
"""Timeout of a check in seconds; a broker whose storage confirms nothing for so long is unhealthy."""

PROOF_INTERVAL_S: Final = 2.0
PROOF_INTERVAL_MAX_S: Final = 15.0
"""Seconds between two test publishes while writes fail: first, and at most."""

DELETION_S: Final = 5.0
"""Seconds that a stopping broker tries to delete its topic; another broker deletes it later."""

CHECKS: Final = Counter(
    "magnetar_health_checks",
    "Health checks of this broker (a message through storage and back), by result.",
    ["outcome"],
    registry=REGISTRY,
)
begin_at_zero(CHECKS, "ok", "failed")


class HealthChecks:
    """Runs the health checks of one broker: one at a time, shared by concurrent callers."""

    def __init__(
        self,
        open_topic: Callable[[], HeartbeatTopic],
        ledgers: ManagedLedgerContext,
        obstacle: Callable[[], Obstacle | None],
    ) -> None:
        """`open_topic` is called once, at the first check: the broker's name is known by then."""
        self._open_topic = open_topic
        self._ledgers = ledgers
        self._obstacle = obstacle
        self._topic: HeartbeatTopic | None = None
        self._running: asyncio.Task[None] | None = None
        self._well = True
        self._closed: str | None = None

    async def check(self) -> None:
        """Publishes a message and reads it back.

        Raises MagnetarError with the failed step, no later than `CHECK_S` after the check began.
        """
        if self._closed is not None:
            raise ServiceNotReady(self._closed)
        task = self._running
        if task is None or task.done():
            task = self._running = asyncio.create_task(self._check(), name="health check")
            task.add_done_callback(_retrieve)
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            if self._closed is None or not task.cancelled():
                raise
            raise ServiceNotReady(self._closed) from None

    async def prove_for_ever(self) -> None:
        """Publishes periodically while writes fail, because only a successful write shows that they work
        again.

        Clients may have moved elsewhere, so that none of them writes here.
        """
        wait_s = PROOF_INTERVAL_S
        while True:
            await asyncio.sleep(wait_s)
            obstacle = self._obstacle()
            if obstacle is None or obstacle.seen_to_end:
                wait_s = PROOF_INTERVAL_S
                continue
            wait_s = min(2 * wait_s, PROOF_INTERVAL_MAX_S)  # each failed attempt logs lines
            with suppress(MagnetarError):
                await self.check()

    async def clear_departed(self, broker_ids: Collection[str]) -> None:
        """Deletes the topics of crashed brokers, which are not among these. Raises MetadataError."""
        keys = self._ledgers.keys
        live = {TopicName.heartbeat(broker_id) for broker_id in broker_ids if broker_id}
        prefix = f"{keys.topic_heads_prefix(PERSISTENT)}{SYSTEM_NAMESPACE.tenant}/"
        for item in (await self._ledgers.metadata.children(prefix)).items:
            name = keys.topic_of_head(item.key)
            if is_heartbeat_topic(name) and name not in live:
                await delete_managed_ledger(self._ledgers, name.full)
                log.info("heartbeat topic of a departed broker deleted", topic=name.full)

    def abandon(self, reason: str) -> None:
        """Stops at once: this broker's run has ended, and its topic belongs to the next run."""
        self._end(reason)
        if self._topic is not None:
            self._topic.abandon(reason)

    async def close(self) -> None:
        """Ends the check in progress and deletes the topic; idempotent."""
        self._end("the broker is shutting down")
        running, topic = self._running, self._topic
        self._topic = None
        if running is not None:
            await asyncio.wait([running])
        if topic is not None:
            try:
                async with asyncio.timeout(DELETION_S):
                    await topic.delete()
            except (MagnetarError, TimeoutError) as error:
                log.warning("heartbeat topic was not deleted", reason=str(error))

    def _end(self, reason: str) -> None:
        self._closed = self._closed or reason
        if self._running is not None:
            self._running.cancel()

    async def _check(self) -> None:
        """Raises MagnetarError."""
        topic = self._topic = self._topic or self._open_topic()
        run = _Run(topic)
        try:
            try:
                async with asyncio.timeout(CHECK_S):
                    await run.run()
            except TimeoutError:
                obstacle = self._obstacle()
                why = "" if obstacle is None else f": {obstacle.reason}"
                raise StorageError(f"{run.step} took more than {CHECK_S:g} s{why}") from None
        except MagnetarError as error:
            CHECKS.labels("failed").inc()
            if self._well:
                self._well = False
                log.warning("health check failed", error=str(error))
            raise
        CHECKS.labels("ok").inc()
        if not self._well:
            self._well = True
            log.info("health check succeeds again")
        with suppress(MagnetarError):
            await topic.trim()


class _Run:
    """One check, with its current step."""

    def __init__(self, topic: HeartbeatTopic) -> None:
        self._topic = topic
        self._again = False
        self.step = f"opening {topic.name}"

    async def run(self) -> None:
        """Executes the check. Raises StorageError, which names the step."""
        while True:
            try:
                return await self._once()
            except MagnetarError as error:
                # Its topic may have been deleted since the last check: by an earlier run of this broker that
                # ended late, or by a broker that considered this one crashed. Then it is created again, once.
                if self._again or not self._topic.lost:
                    raise StorageError(f"{self.step} failed: {error}") from error
                self._again = True

    async def _once(self) -> None:
        self.step = f"opening {self._topic.name}"
        opened = await self._topic.open()
        payload = uuid.uuid4().hex.encode()
        client = HeartbeatClient(payload)
        self.step = f"storing a message of {self._topic.name}"
        client.stored.add_done_callback(self._stored)
        await self._topic.join(opened, client, payload)

    def _stored(self, stored: asyncio.Future[None]) -> None:
        if not stored.cancelled() and stored.exception() is None:
            self.step = f"reading a message of {self._topic.name} back"


def _retrieve(task: asyncio.Task[None]) -> None:
    """Retrieves the result of a task whose callers gave up: its failure is already logged."""
    if not task.cancelled():
        task.exception()
