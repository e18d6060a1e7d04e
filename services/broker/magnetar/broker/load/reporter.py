"""A broker looks at its load: it reports to the leader what is news, and splits what has too much.

Splitting is the owner's business: it has the figures of each topic, and splits by a transaction of its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol

from magnetar.broker.load.config import LoadConfig
from magnetar.broker.load.load_report import (
    Measured,
    OwnedLoad,
    Usage,
    add,
    is_news,
    load_of,
    make_report,
    usage_by_resource,
)
from magnetar.broker.load.metrics import REPORTS, SPLITS, show_usage
from magnetar.broker.load.splitting import SplitCandidate, Splitter, balanced_cut, share_of_limits
from magnetar.common.cluster.bundle_owners import Bundle
from magnetar.common.control.control_pb2 import Load, LoadReport
from magnetar.common.errors import MagnetarError
from magnetar.common.naming.bundle_range import BundleRange
from magnetar.common.naming.namespace_name import NamespaceName
from magnetar.common.naming.topic_name import TopicName
from magnetar.common.obs.logs import get_logger
from magnetar.common.runtime.clock import Clock
from magnetar.common.runtime.cooperative_iteration import iterate_cooperatively

log = get_logger(__name__)

PART_OF_TIME: Final = 50
"""Looking at all topics takes at most so manieth part of the time."""

STEP_S: Final = 1.0
"""Of waiting for the next look: the interval may be made shorter meanwhile."""


class OwnBundle(Protocol):
    """A bundle of this broker."""

    namespace: NamespaceName
    range: BundleRange
    version: int


class NamedTopic(Measured, Protocol):
    """A loaded topic."""

    @property
    def name(self) -> TopicName: ...


class Owner(Protocol):
    """This broker, as one that owns bundles."""

    @property
    def draining(self) -> bool:
        """It takes no more bundles."""
        ...

    def bundles(self) -> Collection[OwnBundle]:
        """Those that are ours."""
        ...

    def bundle_of(self, topic: TopicName) -> OwnBundle | None:
        """The bundle of ours that a topic is in."""
        ...

    def topics(self) -> Collection[NamedTopic]:
        """Those that are loaded."""
        ...

    def bundles_of(self, namespace: NamespaceName) -> int:
        """Into how many bundles the namespace is cut; 0 when it is not known."""
        ...

    async def split(self, bundle: Bundle, boundaries: list[int], *, unload: bool) -> None:
        """Cut a bundle of ours there; with `unload` hand the parts to other brokers. Raises MagnetarError."""
        ...


@dataclass(frozen=True, slots=True)
class Reporter:
    """Who reports, and to whom."""

    cluster: str
    broker_id: str
    run: int
    leader: Callable[[], tuple[str, int]]
    """Who leads, and since which epoch: a new leader knows nothing."""
    send: Callable[[LoadReport], Awaitable[None]]
    """Have the leader know. Raises MagnetarError."""
    usage: Callable[[], Usage]
    """What the process has taken of its machine since it was asked last."""


@dataclass(slots=True, eq=False)
class _Look:
    """All bundles with their load, as of one look."""

    loads: dict[Bundle, Load] = field(default_factory=dict)
    versions: dict[Bundle, int] = field(default_factory=dict)


class LoadReporter:
    """`run` until canceled."""

    def __init__(self, config: LoadConfig, clock: Clock, owner: Owner, reporter: Reporter) -> None:
        self._config = config
        self._clock = clock
        self._owner = owner
        self._reporter = reporter
        self._splitter = Splitter(config.splitting)
        self._split_at = clock.monotonic() + config.splitting.interval_min * 60
        self._sent: LoadReport | None = None
        self._sent_s = 0.0
        self._sent_to: tuple[str, int] = ("", 0)
        self.newest: LoadReport | None = None
        """As of the last look, reported or not."""

    async def run(self) -> None:
        """Look again and again. Without load balancing it returns at once."""
        if not self._config.enabled:
            return
        while True:
            took_s = 0.0
            try:
                began = self._clock.monotonic()
                look = await self._look()
                took_s = self._clock.monotonic() - began
                await self._act(look)
            except Exception:
                log.exception("the load could not be looked at; the next look is a new one")
            await self._rest(took_s)

    # -- inside

    async def _rest(self, took_s: float) -> None:
        """Until the next look, after one that took so long."""
        now = asyncio.get_running_loop().time
        looked = now()
        while True:
            rest_s = max(self._config.report.interval_min_ms / 1000, PART_OF_TIME * took_s)
            left_s = looked + rest_s - now()
            if left_s <= 0:
                return
            await asyncio.sleep(min(STEP_S, left_s))

    async def _act(self, look: _Look) -> None:
        await self._report(look)
        now = self._clock.monotonic()
        if self._config.splitting.enabled and now >= self._split_at:
            self._split_at = now + self._config.splitting.interval_min * 60
            await self._split(look)

    async def _look(self) -> _Look:
        look = _Look()
        for own in self._owner.bundles():
            bundle = own.namespace, own.range
            look.loads[bundle] = Load()
            look.versions[bundle] = own.version
        async for topic in iterate_cooperatively(list(self._owner.topics())):
            found = self._owner.bundle_of(topic.name)
            if found is not None:
                load = look.loads.get((found.namespace, found.range))
                if load is not None:
                    add(load, load_of(topic))
        return look

    async def _report(self, look: _Look) -> None:
        reporter, config, now = self._reporter, self._config.report, self._clock.monotonic()
        owned = [OwnedLoad(*bundle, look.versions[bundle], load) for bundle, load in look.loads.items()]
        report = make_report(
            reporter.broker_id,
            reporter.run,
            reporter.usage(),
            owned,
            bundles_max=config.bundles_max,
            taken_ms=self._clock.wall_ms(),
            draining=self._owner.draining,
        )
        self.newest = report
        show_usage(usage_by_resource(report, config.nic_gbps), reporter.cluster, reporter.broker_id)
        leader = reporter.leader()
        due = (
            self._sent is None
            or self._sent_to != leader
            or now - self._sent_s >= config.interval_max_min * 60
            or is_news(self._sent, report, config)
        )
        if not leader[0] or not due:
            return
        try:
            await reporter.send(report)
        except MagnetarError as error:
            REPORTS.labels("failed").inc()
            log.debug("the leader was not told of the load", leader=leader[0], reason=str(error))
        else:
            REPORTS.labels("sent").inc()
            self._sent, self._sent_s, self._sent_to = report, now, leader

    async def _split(self, look: _Look) -> None:
        due = self._splitter.due(
            SplitCandidate(bundle, load, self._owner.bundles_of(bundle[0]))
            for bundle, load in look.loads.items()
        )
        for bundle, boundaries in (await self._cuts(due, look)).items():
            namespace, of = str(bundle[0]), str(bundle[1])
            if not boundaries:
                log.info("a bundle has too much and cannot be cut", namespace=namespace, bundle=of)
                continue
            try:
                await self._owner.split(bundle, boundaries, unload=self._config.splitting.unload)
            except MagnetarError as error:
                log.warning("a bundle was not split", namespace=namespace, bundle=of, reason=str(error))
            else:
                SPLITS.inc()

    async def _cuts(self, due: Collection[Bundle], look: _Look) -> Mapping[Bundle, list[int]]:
        if not due:
            return {}
        topics: dict[Bundle, list[tuple[int, float]]] = {bundle: [] for bundle in due}
        async for topic in iterate_cooperatively(list(self._owner.topics())):
            found = self._owner.bundle_of(topic.name)
            bundle = None if found is None else (found.namespace, found.range)
            if bundle is not None and bundle in topics:
                share = share_of_limits(load_of(topic), self._config.splitting, look.loads[bundle])
                topics[bundle].append((topic.name.hash, share))
        return {bundle: balanced_cut(bundle[1], within) for bundle, within in topics.items()}
