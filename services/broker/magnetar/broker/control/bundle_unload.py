"""Unload, split, merge and drain of this broker's bundles, and topic loading in received bundles."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Coroutine, Sequence
from typing import Any, Final, TypeVar

from magnetar.broker.control.bundle_handover import CloseBundle, HandOver, NobodyElse
from magnetar.broker.control.split_points import cuts_of
from magnetar.broker.ownership.cluster import Cluster
from magnetar.broker.ownership.other_brokers import OtherBrokers
from magnetar.broker.ownership.own_bundles import OwnBundle
from magnetar.broker.topics.registry.topic_registry import TopicRegistry
from magnetar.common.cluster.bundle_owners import Owned
from magnetar.common.cluster.bundles import EQUAL_RANGES
from magnetar.common.errors import MagnetarError, ServiceNotReady
from magnetar.common.naming.bundle_range import BundleRange
from magnetar.common.naming.namespace_name import NamespaceName
from magnetar.common.naming.topic_name import TopicName
from magnetar.common.obs.log_limit import LogLimit
from magnetar.common.obs.logs import get_logger
from magnetar.common.runtime.clock import Clock
from magnetar.common.runtime.task_owner import TaskOwner

log = get_logger(__name__)

T = TypeVar("T")

LOADS_AT_ONCE: Final = 50
"""Topics of a received bundle that are loaded concurrently because they had clients."""

DRAINED_AT_ONCE: Final = 4
"""Bundles that a stopping broker hands over concurrently."""

DRAIN_ROUNDS: Final = 2
"""Attempts of a stopping broker to hand over its bundles."""

PROGRESS_EVERY: Final = 50
"""Bundles between two progress lines in the log."""


class Moving:
    """Implements `Mover`, and drains the broker at shutdown."""

    def __init__(
        self,
        cluster: Cluster,
        topics: TopicRegistry,
        others: OtherBrokers,
        clock: Clock,
        timeout_s: Callable[[], float],
        close_coordinators: CloseBundle,
    ) -> None:
        self._cluster = cluster
        self._ownership = cluster.ownership
        self._topics = topics
        self._hand_over = HandOver(cluster, topics, others, clock, timeout_s, close_coordinators)
        self._clock = clock
        self._not_loaded = LogLimit()
        self._tasks = TaskOwner("moving")
        self._closed = False

    async def close(self) -> None:
        """Stops loading and handing over. Idempotent."""
        self._closed = True
        await self._tasks.close()

    async def unload(self, namespace: NamespaceName, bundle: BundleRange, to: str = "") -> Owned | None:
        """See Mover. If no other broker can take the bundle, its topics are closed and it stays here."""
        return await self._to_its_end(self._unload(namespace, bundle, to), f"unload {bundle} of {namespace}")

    async def split(
        self,
        namespace: NamespaceName,
        bundle: BundleRange,
        boundaries: Sequence[int] = (),
        *,
        algorithm: str = "",
        unload: bool = False,
    ) -> list[BundleRange]:
        """See Mover. The first part stays here."""
        cuts = list(boundaries) or await cuts_of(self._topics, namespace, bundle, algorithm or EQUAL_RANGES)
        cutting = self._ownership.split(namespace, bundle, cuts)
        parts = await self._to_its_end(cutting, f"split {bundle} of {namespace}")
        if unload:
            for part in parts[1:]:
                try:
                    await self.unload(namespace, part)
                except MagnetarError as error:  # the split itself succeeded
                    log.warning(
                        "part of a split bundle was not handed over",
                        namespace=str(namespace),
                        bundle=str(part),
                        reason=str(error),
                    )
        return parts

    async def merge(self, namespace: NamespaceName, bundle: BundleRange) -> Owned:
        """See Mover. No topic is closed."""
        merging = self._ownership.merge(namespace, bundle)
        return await self._to_its_end(merging, f"merge {bundle} of {namespace}")

    def taken(
        self, namespace: NamespaceName, bundle: BundleRange, topics: Sequence[str], written: int = 0
    ) -> None:
        """See Mover."""
        waiting = iter([(topic, number < written) for number, topic in enumerate(topics)])

        async def work() -> None:
            for topic, is_written in waiting:
                await self._load(topic, is_written)

        for _ in range(min(len(topics), LOADS_AT_ONCE)):
            self._tasks.spawn(work(), f"load topics of {bundle} of {namespace}")

    async def drain(self, timeout_s: float) -> None:
        """Hands over all bundles that other brokers accept within `timeout_s` seconds.

        The broker must already be registered as draining, so that it is assigned no bundles.
        """
        self._ownership.refuse("it is shutting down")
        ours = list(self._ownership.table)
        others = [each for each in self._cluster.directory.all() if self._may_take(each.broker_id)]
        if not ours or not others:
            return
        log.info("draining bundles", bundles=len(ours), brokers=len(others))
        given = [0]
        try:
            async with asyncio.timeout(timeout_s):
                for _ in range(DRAIN_ROUNDS):
                    await self._give_all(ours, given)
                    # Bundles that no broker took, and those split or received meanwhile.
                    ours = list(self._ownership.table)
        except TimeoutError:
            log.warning("drain timed out with bundles left", given=given[0], left=len(self._ownership.table))
        else:
            log.info("drain complete", given=given[0], of=given[0] + len(self._ownership.table))

    # -- inside

    async def _to_its_end(self, work: Coroutine[Any, Any, T], what: str) -> T:
        """Runs to completion even if the caller is cancelled: a partial handover would close topics and leave
        their clients without a new address.
        """
        if self._closed:
            work.close()
            raise _stopping()
        task = self._tasks.spawn(_outcome(work), what)
        await asyncio.wait((task,))
        if task.cancelled():
            raise _stopping()
        outcome: T | MagnetarError = task.result()
        if isinstance(outcome, MagnetarError):
            raise outcome
        return outcome

    async def _unload(self, namespace: NamespaceName, bundle: BundleRange, to: str) -> Owned:
        try:
            return await self._hand_over.give(namespace, bundle, to)
        except NobodyElse:
            await self._hand_over.close_topics(namespace, bundle)
        presence, own = self._cluster.presence, self._ownership.table.get(namespace, bundle)
        if own is None:
            raise ServiceNotReady(f"bundle {bundle} of {namespace} changed owner meanwhile; look it up again")
        return Owned(presence.broker_id, presence.run, own.version, own.since_ms)

    async def _give_all(self, bundles: Collection[OwnBundle], given: list[int]) -> None:
        """Hands over the bundles; `given[0]` counts the successes."""
        waiting = iter(bundles)

        async def work() -> None:
            for own in waiting:
                told = {"namespace": str(own.namespace), "bundle": str(own.range)}
                try:
                    await self._hand_over.give(own.namespace, own.range)
                except MagnetarError as error:
                    log.warning("bundle was not handed over", **told, reason=str(error))
                except Exception:
                    log.exception("bundle was not handed over", **told)
                else:
                    given[0] += 1
                    if given[0] % PROGRESS_EVERY == 0:
                        log.info("draining bundles", given=given[0], left=len(self._ownership.table))

        async with asyncio.TaskGroup() as group:
            for _ in range(min(len(bundles), DRAINED_AT_ONCE)):
                group.create_task(work())

    def _may_take(self, broker_id: str) -> bool:
        found = self._cluster.directory.get(broker_id)
        return found is not None and not found.draining and broker_id != self._cluster.presence.broker_id

    async def _load(self, topic: str, is_written: bool) -> None:
        try:
            name = TopicName.parse(topic)
            loaded = await self._topics.get(name, create=not name.persistent)
            if is_written:
                loaded.expect_publish()
        except MagnetarError as error:
            if count := self._not_loaded.note(self._clock.monotonic()):
                log.info(
                    "topics of received bundles not loaded",
                    topic=topic,
                    topics=count,
                    reason=str(error),
                )


async def _outcome(work: Coroutine[Any, Any, T]) -> T | MagnetarError:
    """Returns errors as values: they belong to the caller and are no failure of the task."""
    try:
        return await work
    except MagnetarError as error:
        return error


def _stopping() -> ServiceNotReady:
    return ServiceNotReady("this broker is shutting down; look the topics up again")
