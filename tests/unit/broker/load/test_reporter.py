"""A broker measures its bundles, reports what is news, and splits what has too much."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from itertools import pairwise

from magnetar.broker.load.config import LoadConfig, ReportConfig, SplittingConfig
from magnetar.broker.load.load_report import Usage
from magnetar.broker.load.reporter import LoadReporter, Reporter
from magnetar.common.cluster.bundle_owners import Bundle
from magnetar.common.control.control_pb2 import LoadReport
from magnetar.common.errors import ServiceNotReady
from magnetar.common.naming.bundle_range import RING_END, BundleRange, split_ring
from magnetar.common.naming.namespace_name import NamespaceName
from magnetar.common.naming.topic_name import TopicName
from magnetar.common.obs.metrics import REGISTRY
from magnetar.sim.loop import SimClock, SimLoop, run

NAMESPACE = NamespaceName.parse("t/n")


@dataclass
class Stats:
    message_rate_in: float = 0.0
    message_rate_out: float = 0.0
    byte_rate_in: float = 0.0
    byte_rate_out: float = 0.0


@dataclass
class Subscription:
    consumer_count: int


@dataclass
class Topic:
    name: TopicName
    stats: Stats = field(default_factory=Stats)
    producer_count: int = 1
    subscriptions: dict[str, Subscription] = field(default_factory=lambda: {"s": Subscription(2)})


@dataclass
class Own:
    namespace: NamespaceName
    range: BundleRange
    version: int


class Broker:
    """Owns the first half of a ring of four bundles; what is split stays with it."""

    def __init__(self, config: LoadConfig, loop: SimLoop) -> None:
        self.draining = False
        self.owned = [Own(NAMESPACE, bundle, 7) for bundle in split_ring(4)[:2]]
        self.loaded: list[Topic] = []
        self.reports: list[LoadReport] = []
        self.splits: list[tuple[Bundle, list[int], bool]] = []
        self.leader = ("l:80", 1)
        self.cpu = 5.0
        self.away = False
        reporter = Reporter(
            "test", "b:80", 3, lambda: self.leader, self._send, lambda: Usage(self.cpu, 1 << 20, 1 << 30)
        )
        self.reporter = LoadReporter(config, SimClock(loop), self, reporter)

    def topic(self, number: int, **rates: float) -> Topic:
        topic = Topic(TopicName.parse(f"persistent://t/n/topic-{number}"), Stats(**rates))
        self.loaded.append(topic)
        return topic

    def bundles(self) -> list[Own]:
        return self.owned

    def bundle_of(self, topic: TopicName) -> Own | None:
        return next((own for own in self.owned if topic.hash in own.range), None)

    def topics(self) -> list[Topic]:
        return self.loaded

    def bundles_of(self, namespace: NamespaceName) -> int:
        return 2 + len(self.owned)

    async def split(self, bundle: Bundle, boundaries: list[int], *, unload: bool) -> None:
        self.splits.append((bundle, boundaries, unload))
        if self.away:
            raise ServiceNotReady("not now")
        edges = [bundle[1].lower, *boundaries, bundle[1].upper]
        self.owned = [own for own in self.owned if own.range != bundle[1]]
        self.owned += [Own(NAMESPACE, BundleRange(*ends), 8) for ends in pairwise(edges)]

    async def _send(self, report: LoadReport) -> None:
        if self.away:
            raise ServiceNotReady("no leader")
        self.reports.append(report)


def simulated(scenario: Callable[[Broker], Awaitable[None]], config: LoadConfig | None = None) -> None:
    loop = SimLoop(1, time_max_s=100_000)

    async def main() -> None:
        broker = Broker(config or LoadConfig(), loop)
        running = asyncio.ensure_future(broker.reporter.run())
        try:
            await scenario(broker)
        finally:
            running.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await running

    run(loop, main())


def test_a_report_has_the_load_of_every_bundle_the_most_loaded_first() -> None:
    async def scenario(broker: Broker) -> None:
        for number in range(400):
            broker.topic(number, message_rate_in=1.0, byte_rate_out=1000.0)
        await asyncio.sleep(1)
        [report] = broker.reports
        ours = [topic for topic in broker.loaded if broker.bundle_of(topic.name)]
        assert 150 <= len(ours) <= 250, "topics of bundles of others do not count"
        assert report.total.topics == len(ours)
        assert report.total.producers == len(ours)
        assert report.total.consumers == 2 * len(ours)
        assert report.total.message_rate_in == len(ours)
        assert (report.broker_id, report.run, report.bundles) == ("b:80", 3, 2)
        assert report.cpu_percent == 5.0
        loads = [(each.load.topics, each.owner_version) for each in report.loads]
        assert sum(topics for topics, _ in loads) == len(ours)
        assert loads == sorted(loads, reverse=True)
        labels = {"cluster": "test", "broker": "b:80", "metric": "loadBalancing"}
        assert REGISTRY.get_sample_value("pulsar_lb_cpu_usage", labels) == 5.0
        assert broker.reporter.newest == report

    simulated(scenario)


def test_only_news_are_reported_and_what_is_none_after_a_while() -> None:
    async def scenario(broker: Broker) -> None:
        topic = broker.topic(1, message_rate_in=100.0)
        while broker.bundle_of(topic.name) is None:
            broker.loaded.clear()
            topic = broker.topic(topic.name.hash % 1_000, message_rate_in=100.0)
        await asyncio.sleep(100)
        assert len(broker.reports) == 1
        topic.stats.message_rate_in = 108.0
        broker.cpu = 14.0
        await asyncio.sleep(100)
        assert len(broker.reports) == 1
        topic.stats.message_rate_in = 150.0
        await asyncio.sleep(10)
        assert len(broker.reports) == 2
        broker.cpu = 30.0
        await asyncio.sleep(10)
        assert len(broker.reports) == 3
        broker.draining = True
        await asyncio.sleep(10)
        assert broker.reports[-1].draining
        await asyncio.sleep(15 * 60 + 10)
        assert len(broker.reports) == 5

    simulated(scenario)


def test_a_new_leader_is_told_and_one_that_was_not_there_is_told_later() -> None:
    async def scenario(broker: Broker) -> None:
        await asyncio.sleep(10)
        broker.leader = ("l:80", 2)
        await asyncio.sleep(10)
        assert len(broker.reports) == 2
        broker.leader, broker.away = ("m:80", 3), True
        await asyncio.sleep(60)
        assert len(broker.reports) == 2
        broker.away = False
        await asyncio.sleep(10)
        assert len(broker.reports) == 3
        broker.leader = ("", 0)
        broker.cpu = 90.0
        await asyncio.sleep(60)
        assert len(broker.reports) == 3, "there is nobody to tell"

    simulated(scenario)


def test_a_hot_bundle_is_split_where_its_load_is_even() -> None:
    config = LoadConfig(splitting=SplittingConfig(hits=2, unload=False))

    async def scenario(broker: Broker) -> None:
        first = broker.owned[0].range
        for number in range(1_000):
            broker.topic(number, message_rate_in=10.0)
        within = sorted(
            (each for each in broker.loaded if each.name.hash in first), key=lambda t: t.name.hash
        )
        for topic in within[:10]:
            topic.stats.message_rate_in = 4_000.0
        await asyncio.sleep(90)
        assert broker.splits == [], "it had too much at one look only"
        await asyncio.sleep(60)
        [(bundle, [boundary], unload)] = broker.splits
        assert bundle == (NAMESPACE, first)
        assert not unload
        left = sum(topic.stats.message_rate_in for topic in within if topic.name.hash < boundary)
        assert 16_000 <= left <= 24_000

    simulated(scenario, config)


def test_a_split_that_fails_is_tried_again_after_as_many_looks() -> None:
    config = LoadConfig(splitting=SplittingConfig(hits=2, topics_max=10))

    async def scenario(broker: Broker) -> None:
        broker.away = True
        broker.owned = broker.owned[:1]
        for number in range(100):
            broker.topic(number)
        await asyncio.sleep(4 * 60 + 30)
        assert len(broker.splits) == 2
        assert all(unload for _, _, unload in broker.splits)
        broker.away = False
        await asyncio.sleep(120)
        assert len(broker.splits) == 3
        assert len(broker.owned) == 2

    simulated(scenario, config)


def test_a_bundle_that_cannot_be_cut_stays_and_nothing_is_split_where_that_is_switched_off() -> None:
    async def scenario(broker: Broker) -> None:
        for _ in range(20):
            broker.topic(5)
        await asyncio.sleep(600)
        assert broker.splits == []

    def config(enabled: bool) -> LoadConfig:
        return LoadConfig(splitting=SplittingConfig(hits=1, topics_max=10, enabled=enabled))

    async def many(broker: Broker) -> None:
        for number in range(100):
            broker.topic(number)
        await asyncio.sleep(600)
        assert broker.splits == []

    simulated(scenario, config(enabled=True))
    simulated(many, config(enabled=False))


def test_without_load_balancing_nothing_is_measured() -> None:
    async def scenario(broker: Broker) -> None:
        await asyncio.sleep(100)
        assert broker.reports == []
        assert broker.reporter.newest is None

    simulated(scenario, LoadConfig(enabled=False))


def test_a_report_names_no_more_bundles_than_it_may() -> None:
    async def scenario(broker: Broker) -> None:
        await asyncio.sleep(1)
        [report] = broker.reports
        assert report.bundles == 2
        assert len(report.loads) == 1

    simulated(scenario, LoadConfig(report=ReportConfig(bundles_max=1)))


def test_a_bug_costs_one_look_and_not_all_reports() -> None:
    async def scenario(broker: Broker) -> None:
        await asyncio.sleep(1)
        topic = broker.topic(1)
        topic.subscriptions = {"s": None}  # type: ignore[dict-item]
        broker.owned = [Own(NAMESPACE, BundleRange(0, RING_END), 9)]
        await asyncio.sleep(30)
        assert len(broker.reports) == 1
        topic.subscriptions = {}
        await asyncio.sleep(10)
        assert len(broker.reports) == 2

    simulated(scenario)
