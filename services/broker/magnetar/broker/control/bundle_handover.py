"""Handover of a bundle to another broker with the least interruption for publishers.

The next owner is chosen and connected before anything is closed. From then on no topic of the bundle is
opened. Topics without clients are closed first; topics with clients follow, each disconnected only when its
turn comes. Accepted messages are confirmed, cursors written and ledgers closed, so that the next owner has
nothing to recover. The next owner replaces this broker's ownership key and loads the topics that had clients,
while those clients are told the new address. Lookups of these topics wait meanwhile.

There is no intermediate state that another component would have to finish. If no broker takes the bundle,
this broker still owns it: clients are told to look it up again, and the topics are loaded again here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
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
    "Bundle handovers started by this broker, by outcome.",
    ["outcome"],
    registry=REGISTRY,
)
begin_at_zero(GIVEN, "given", "failed")

GIVING_SECONDS: Final = Histogram(
    "magnetar_bundle_giving_seconds",
    "Seconds from the disconnect of a bundle's first client until all clients were told the new owner.",
    buckets=(0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60),
    registry=REGISTRY,
)

TRIES_MAX: Final = 3
"""Maximum number of brokers that are called to take a bundle, one after the other."""

TAKE_TIMEOUT_S: Final = 3.0
"""Timeout of one Take call, in seconds. If the broker took the bundle in spite of the timeout, the next
broker that is called detects that.
"""

CLOSED_AT_ONCE_MAX: Final = 100
"""Topics of a bundle that are closed concurrently."""

WRITTEN_MS: Final = 10_000
"""Milliseconds since the last publish after which a topic counts as idle: its next ledger is created on
demand.
"""

TOPICS_NAMED_MAX: Final = 20_000
TOPICS_NAMED_BYTES_MAX: Final = 4 << 20
"""Number of topics in the list for the next owner to load, and bytes of their names, which must fit into one
call. The other topics are loaded on demand.
"""

LOADS_S: Final = 5.0
"""Seconds for which topics that are being loaded delay the handover; after that, the next owner loads them.
"""


CloseBundle = Callable[[NamespaceName, BundleRange], Awaitable[None]]
"""Closes what a broker has of a bundle beside its topics."""


@dataclass(slots=True)
class _Closed:
    """The topics closed so far."""

    clients: list[ClosedClient] = field(default_factory=list)
    written: list[str] = field(default_factory=list)
    """Topics with active publishers and clients."""
    idle: list[str] = field(default_factory=list)
    """Other topics that had clients."""
    since: float | None = None
    """Time of the first client's disconnect, in seconds."""


class NobodyElse(ServiceNotReady):
    """No other broker can take the bundle; nothing was closed."""


class HandOver:
    """Hands bundles of this broker over to other brokers."""

    def __init__(
        self,
        cluster: Cluster,
        registry: TopicRegistry,
        others: OtherBrokers,
        clock: Clock,
        timeout_s: Callable[[], float],
        close_coordinators: CloseBundle,
    ) -> None:
        """`timeout_s` returns the limit of one handover in seconds (namespaceBundleUnloadingTimeoutMs).

        `close_coordinators` closes the transaction coordinators of a bundle.
        """
        self._cluster = cluster
        self._ownership = cluster.ownership
        self._registry = registry
        self._others = others
        self._clock = clock
        self._timeout_s = timeout_s
        self._close_coordinators = close_coordinators

    async def give(self, namespace: NamespaceName, bundle: BundleRange, to: str = "") -> Owned:
        """Hands over an owned bundle to the broker `to`, or to the one that the leader chooses; returns the
        new owner.

        Raises ServiceNotReady when this broker does not own the bundle or no broker takes it (NobodyElse:
        nothing was closed); NotAllowed when `to` is this broker; MetadataError. After an error this broker
        still owns the bundle, and its topics are loaded again.
        """
        if self._ownership.table.get(namespace, bundle) is None:
            raise _not_ours(namespace, bundle)
        if to == self._cluster.presence.broker_id:
            raise NotAllowed(f"bundle {bundle} of {namespace} is already owned by {to}")
        try:
            async with asyncio.timeout(self._timeout_s()):
                owned = await self._give(namespace, bundle, to)
        except TimeoutError:
            GIVEN.labels("failed").inc()
            raise ServiceNotReady(
                f"bundle {bundle} of {namespace} was not handed over in time "
                "(namespaceBundleUnloadingTimeoutMs); this broker still owns it"
            ) from None
        except MagnetarError:
            GIVEN.labels("failed").inc()
            raise
        GIVEN.labels("given").inc()
        return owned

    async def close_topics(self, namespace: NamespaceName, bundle: BundleRange) -> None:
        """Closes the topics of a bundle that stays here: clients look them up again, and they are
        reloaded.
        """
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
                    with suppress(MetadataError):  # settled below, once metadata is reachable
                        await self._ownership.keep(namespace, bundle, owned)
        log.info(
            "bundle handed over",
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
        """Chooses the next owner and checks that it can be called."""
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
                log.warning("next owner unreachable", broker=broker.broker_id, reason=str(error))
                excepted.add(broker.broker_id)
                if len(excepted) > TRIES_MAX:
                    raise

    def _named(self, broker_id: str) -> BrokerRegistration:
        found = self._cluster.directory.get(broker_id)
        if found is None:
            raise ServiceNotReady(f"broker {broker_id} is not running; choose another broker")
        if found.draining:
            raise ServiceNotReady(f"broker {broker_id} is shutting down; choose another broker")
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
                    break  # metadata names this broker, whatever was requested
                self._cluster.owners.note(namespace, bundle, taken)
                return taken
            except NamespaceNotFound:
                raise
            except (MagnetarError, TimeoutError) as error:
                # The broker may have taken it in spite of the error: then no other broker gets it, and the
                # final read of metadata shows that.
                log.warning(
                    "bundle was not taken",
                    namespace=str(namespace),
                    bundle=str(bundle),
                    broker=broker.broker_id,
                    reason=str(error) or "timeout",
                )
                excepted.add(broker.broker_id)
                if to or attempt == TRIES_MAX:
                    break
            try:
                broker = await self._others.next_owner(namespace, bundle, excepted)
            except MagnetarError:
                break
        raise ServiceNotReady(f"no broker took bundle {bundle} of {namespace}; this broker still owns it")

    async def _close(self, namespace: NamespaceName, bundle: BundleRange, closed: _Closed) -> None:
        """Closes the loaded topics; adds to `closed` as it goes, also when it fails."""

        def concerned(name: TopicName) -> bool:
            return name.namespace == namespace and name.hash in bundle

        await self._close_coordinators(namespace, bundle)
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
            log.warning("topic was not closed cleanly", topic=topic.name.full, error=str(error))
        except Exception:
            log.exception("topic was not closed cleanly", topic=topic.name.full)

    def _registration(self, owned: Owned) -> BrokerRegistration | None:
        found = self._cluster.directory.get(owned.broker_id)
        return found if found is not None and found.run == owned.run else None

    def _measure(self, closed: _Closed) -> None:
        if closed.since is not None:
            GIVING_SECONDS.observe(self._clock.monotonic() - closed.since)


def _named_first(topics: Sequence[str]) -> list[str]:
    """Returns the leading topics that fit into one call."""
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
