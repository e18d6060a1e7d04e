"""Measures this broker's load, reports changes to the leader, and splits overloaded bundles.

The owner splits, because it has the figures of each topic and splits by a transaction of its own.
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
"""Divisor: measuring all topics takes at most 1/50 of the time."""

STEP_S: Final = 1.0
"""Seconds of one step of waiting for the next measurement: the interval may be shortened at run time."""


class OwnBundle(Protocol):
    """An owned bundle."""

    namespace: NamespaceName
    range: BundleRange
    version: int


class NamedTopic(Measured, Protocol):
    """A loaded topic."""

    @property
    def name(self) -> TopicName: ...


class Owner(Protocol):
    """The reporter's view of this broker."""

    @property
    def draining(self) -> bool:
        """Whether the broker takes no more bundles."""
        ...

    def bundles(self) -> Collection[OwnBundle]:
        """Returns the owned bundles."""
        ...

    def bundle_of(self, topic: TopicName) -> OwnBundle | None:
        """Returns the owned bundle of a topic."""
        ...

    def topics(self) -> Collection[NamedTopic]:
        """Returns the loaded topics."""
        ...

    def bundles_of(self, namespace: NamespaceName) -> int:
        """Returns the number of bundles of the namespace; 0 when unknown."""
        ...

    async def split(self, bundle: Bundle, boundaries: list[int], *, unload: bool) -> None:
        """Splits an owned bundle there; `unload` hands the parts to other brokers. Raises MagnetarError."""
        ...


@dataclass(frozen=True, slots=True)
class Reporter:
    """Identity of the reporting broker, and its callbacks."""

    cluster: str
    broker_id: str
    run: int
    leader: Callable[[], tuple[str, int]]
    """Returns the leader and its epoch: a new leader has no reports yet."""
    send: Callable[[LoadReport], Awaitable[None]]
    """Sends a report to the leader. Raises MagnetarError."""
    usage: Callable[[], Usage]
    """Returns the resource usage of the process since the last call."""


@dataclass(slots=True, eq=False)
class _Look:
    """One measurement of all bundles."""

    loads: dict[Bundle, Load] = field(default_factory=dict)
    versions: dict[Bundle, int] = field(default_factory=dict)


class LoadReporter:
    """Reports load and splits bundles: `run` until canceled."""

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
        """The last measurement, reported or not."""

    async def run(self) -> None:
        """Measures periodically. Returns at once when load balancing is disabled."""
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
                log.exception("load measurement failed; retrying at the next interval")
            await self._rest(took_s)

    # -- inside

    async def _rest(self, took_s: float) -> None:
        """Waits for the next measurement after one that took `took_s` seconds."""
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
            log.debug("load report was not delivered", leader=leader[0], reason=str(error))
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
                log.info("overloaded bundle cannot be split", namespace=namespace, bundle=of)
                continue
            try:
                await self._owner.split(bundle, boundaries, unload=self._config.splitting.unload)
            except MagnetarError as error:
                log.warning("bundle was not split", namespace=namespace, bundle=of, reason=str(error))
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
