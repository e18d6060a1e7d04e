"""Giving a bundle to another broker, so that who publishes notices as little as can be.

The next owner is chosen and connected to before anything is closed. Then no topic of the bundle is opened
any more; those without clients are closed first, and those with clients last, each cut off only when its
turn has come: what was taken is confirmed, cursors are written and ledgers closed, so that the next owner has
nothing to recover. The next owner puts its name over ours and loads what had clients, while these are told
where it is. Whoever asks for such a topic meanwhile waits.

There is no state that somebody else would have to finish. When nobody takes the bundle it is still ours: the
clients are told to look it up again, and the topics are loaded again here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Final

from magnetar.broker.ownership.cluster import Cluster
from magnetar.broker.ownership.other_brokers import OtherBrokers
from magnetar.broker.topics.closed_clients import ClosedClient
from magnetar.broker.topics.registry.topic_registry import TopicRegistry
from magnetar.broker.topics.topic import Topic
from magnetar.common.cluster.bundle_owners import Owned
from magnetar.common.control.control_pb2 import TakeRequest
from magnetar.common.errors import (
    MagnetarError,
    MetadataError,
    NamespaceNotFound,
    NotAllowed,
    ServiceNotReady,
)
from magnetar.common.metadata.values import BrokerRegistration
from magnetar.common.naming.bundle_range import BundleRange
from magnetar.common.naming.namespace_name import NamespaceName
from magnetar.common.naming.topic_name import TopicName
from magnetar.common.obs.logs import get_logger
from magnetar.common.obs.metrics import REGISTRY, begin_at_zero
from magnetar.common.runtime.clock import Clock
from prometheus_client import Counter, Histogram

log = get_logger(__name__)

GIVEN: Final = Counter(
    "magnetar_bundles_given_total",
    "Bundles that this broker was to give to another one, by what became of it.",
    ["outcome"],
    registry=REGISTRY,
)
begin_at_zero(GIVEN, "given", "failed")

GIVING_SECONDS: Final = Histogram(
    "magnetar_bundle_giving_seconds",
    "From the moment a bundle's first client was cut off until all were told where its topics are.",
    buckets=(0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60),
    registry=REGISTRY,
)

TRIES_MAX: Final = 3
"""Brokers that are asked to take a bundle, one after the other."""

TAKE_TIMEOUT_S: Final = 3.0
"""How long one of them may take over it. Who has it all the same is found by the next one that is asked."""

CLOSED_AT_ONCE_MAX: Final = 100
"""Topics of a bundle that are closed at the same time."""

WRITTEN_MS: Final = 10_000
"""A topic that nothing was published to for longer gets its next ledger when something is."""

TOPICS_NAMED_MAX: Final = 20_000
TOPICS_NAMED_BYTES_MAX: Final = 4 << 20
"""Topics that the next owner is told to load, and bytes of their names, which have to fit into one call. The
others are loaded when they are asked for."""

LOADS_S: Final = 5.0
"""How long topics that are just being loaded keep the others of their bundle; then it is the next owner who
loads them."""


@dataclass(slots=True)
class _Closed:
    """What was closed so far."""

    clients: list[ClosedClient] = field(default_factory=list)
    written: list[str] = field(default_factory=list)
    """Those that were being written to, and had clients."""
    idle: list[str] = field(default_factory=list)
    """Others that had clients."""
    since: float | None = None
    """When the first client was cut off."""


class NobodyElse(ServiceNotReady):
    """No other broker may have the bundle: nothing was closed."""


class HandOver:
    """Gives bundles of this broker away."""

    def __init__(
        self,
        cluster: Cluster,
        registry: TopicRegistry,
        others: OtherBrokers,
        clock: Clock,
        timeout_s: Callable[[], float],
    ) -> None:
        """`timeout_s`: how long giving one bundle may take (namespaceBundleUnloadingTimeoutMs)."""
        self._cluster = cluster
        self._ownership = cluster.ownership
        self._registry = registry
        self._others = others
        self._clock = clock
        self._timeout_s = timeout_s

    async def give(self, namespace: NamespaceName, bundle: BundleRange, to: str = "") -> Owned:
        """Give a bundle of ours to the broker `to`, or to whom the leader says; returns its owner now.

        Raises ServiceNotReady when it is not ours, or nobody takes it (NobodyElse: nothing was closed);
        NotAllowed when `to` is this broker; MetadataError. It is ours then as before, and its topics are
        loaded again.
        """
        if self._ownership.table.get(namespace, bundle) is None:
            raise _not_ours(namespace, bundle)
        if to == self._cluster.presence.broker_id:
            raise NotAllowed(f"bundle {bundle} of {namespace} is at {to} already")
        try:
            async with asyncio.timeout(self._timeout_s()):
                owned = await self._give(namespace, bundle, to)
        except TimeoutError:
            GIVEN.labels("failed").inc()
            raise ServiceNotReady(
                f"bundle {bundle} of {namespace} was not given away in time "
                "(namespaceBundleUnloadingTimeoutMs); it is still here"
            ) from None
        except MagnetarError:
            GIVEN.labels("failed").inc()
            raise
        GIVEN.labels("given").inc()
        return owned

    async def close_topics(self, namespace: NamespaceName, bundle: BundleRange) -> None:
        """Close the topics of a bundle that stays ours: clients look them up, and they are loaded again."""
        async with self._ownership.giving(namespace, bundle) as owned:
            if owned is None:
                raise _not_ours(namespace, bundle)
            closed = _Closed()
            try:
                await self._close(namespace, bundle, closed)
            finally:
                _tell(closed.clients, None)

    # -- inside

    async def _give(self, namespace: NamespaceName, bundle: BundleRange, to: str) -> Owned:
        excepted = {self._cluster.presence.broker_id}
        first = await self._choose(namespace, bundle, to, excepted)
        async with self._ownership.giving(namespace, bundle) as owned:
            if owned is None:
                raise _not_ours(namespace, bundle)
            closed, taken = _Closed(), None
            try:
                await self._close(namespace, bundle, closed)
                taken = await self._have_taken(namespace, bundle, owned, first, to, excepted, closed)
            finally:
                _tell(closed.clients, None if taken is None else self._registration(taken))
                self._measure(closed)
                if taken is None:
                    with suppress(MetadataError):  # it is settled below, as soon as metadata answers
                        await self._ownership.keep(namespace, bundle, owned)
        log.info(
            "bundle given away",
            namespace=str(namespace),
            bundle=str(bundle),
            to=taken.broker_id,
            topics=len(closed.written) + len(closed.idle),
            clients=len(closed.clients),
        )
        return taken

    async def _choose(
        self, namespace: NamespaceName, bundle: BundleRange, to: str, excepted: set[str]
    ) -> BrokerRegistration:
        """The next owner, who can be called."""
        if to:
            broker = self._named(to)
            await self._others.prepare(broker)
            return broker
        while True:
            try:
                broker = await self._others.next_owner(namespace, bundle, excepted)
            except ServiceNotReady as error:
                raise NobodyElse(*error.args) from error
            try:
                await self._others.prepare(broker)
                return broker
            except MagnetarError as error:
                log.warning("the next owner cannot be reached", broker=broker.broker_id, reason=str(error))
                excepted.add(broker.broker_id)
                if len(excepted) > TRIES_MAX:
                    raise

    def _named(self, broker_id: str) -> BrokerRegistration:
        found = self._cluster.directory.get(broker_id)
        if found is None:
            raise ServiceNotReady(f"broker {broker_id} is not up: nothing is given to it")
        if found.draining:
            raise ServiceNotReady(f"broker {broker_id} is about to stop: nothing is given to it")
        return found

    async def _have_taken(
        self,
        namespace: NamespaceName,
        bundle: BundleRange,
        owned: Owned,
        first: BrokerRegistration,
        to: str,
        excepted: set[str],
        closed: _Closed,
    ) -> Owned:
        request = TakeRequest(
            namespace=str(namespace),
            bundle=str(bundle),
            from_broker_id=owned.broker_id,
            from_run=owned.run,
            from_version=owned.version,
            topics=_named_first([*closed.written, *closed.idle]),
            written=len(closed.written),
        )
        broker = first
        for attempt in range(1, TRIES_MAX + 1):
            try:
                async with asyncio.timeout(TAKE_TIMEOUT_S):
                    answer = await self._others.take(broker, request)
                taken = Owned(answer.broker_id, answer.run, answer.version, self._clock.wall_ms())
                if answer.run == owned.run:
                    break  # it stands as ours, whatever was asked
                self._cluster.owners.note(namespace, bundle, taken)
                return taken
            except NamespaceNotFound:
                raise
            except (MagnetarError, TimeoutError) as error:
                # It may have it all the same: then nobody else gets it, and the look at the end says so.
                log.warning(
                    "a bundle was not taken",
                    namespace=str(namespace),
                    bundle=str(bundle),
                    broker=broker.broker_id,
                    reason=str(error) or "no answer in time",
                )
                excepted.add(broker.broker_id)
                if to or attempt == TRIES_MAX:
                    break
            try:
                broker = await self._others.next_owner(namespace, bundle, excepted)
            except MagnetarError:
                break
        raise ServiceNotReady(f"no broker took bundle {bundle} of {namespace}; it is still here")

    async def _close(self, namespace: NamespaceName, bundle: BundleRange, closed: _Closed) -> None:
        """Close what is loaded; fills in `closed` as it goes, whatever comes of it."""

        def concerned(name: TopicName) -> bool:
            return name.namespace == namespace and name.hash in bundle

        await self._registry.loads_done(concerned, seconds_max=LOADS_S)
        topics = [topic for topic in self._registry.loaded.values() if concerned(topic.name)]
        busy = [topic for topic in topics if topic.has_clients]
        await self._close_all([topic for topic in topics if not topic.has_clients], closed)
        await self._close_all(busy, closed)

    async def _close_all(self, topics: Collection[Topic], closed: _Closed) -> None:
        waiting = iter(topics)

        async def work() -> None:
            for topic in waiting:
                await self._close_one(topic, closed)

        async with asyncio.TaskGroup() as group:
            for _ in range(min(len(topics), CLOSED_AT_ONCE_MAX)):
                group.create_task(work())

    async def _close_one(self, topic: Topic, closed: _Closed) -> None:
        if topic.has_clients:
            written = topic.producer_count > 0 and topic.is_written(WRITTEN_MS)
            (closed.written if written else closed.idle).append(topic.name.full)
            if closed.since is None:
                closed.since = self._clock.monotonic()
        closed.clients += topic.close_for_transfer()
        try:
            await self._registry.unload(topic.name)
        except MagnetarError as error:
            # Its ledgers stay open, and the next owner recovers them.
            log.warning("a topic was not closed in order", topic=topic.name.full, error=str(error))
        except Exception:
            log.exception("a topic was not closed in order", topic=topic.name.full)

    def _registration(self, owned: Owned) -> BrokerRegistration | None:
        found = self._cluster.directory.get(owned.broker_id)
        return found if found is not None and found.run == owned.run else None

    def _measure(self, closed: _Closed) -> None:
        if closed.since is not None:
            GIVING_SECONDS.observe(self._clock.monotonic() - closed.since)


def _named_first(topics: Sequence[str]) -> list[str]:
    """As many of the first ones as one call holds."""
    room = TOPICS_NAMED_BYTES_MAX

    def fits(name: str) -> bool:
        nonlocal room
        room -= len(name.encode())
        return room >= 0

    return list(takewhile(fits, topics[:TOPICS_NAMED_MAX]))


def _tell(departed: Sequence[ClosedClient], owner: BrokerRegistration | None) -> None:
    for each in departed:
        each.tell(owner)


def _not_ours(namespace: NamespaceName, bundle: BundleRange) -> ServiceNotReady:
    return ServiceNotReady(f"bundle {bundle} of {namespace} is not owned by this broker; look it up again")
