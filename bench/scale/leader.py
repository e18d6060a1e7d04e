"""The CPU of the leader's own functions at full size, without any network."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from magnetar.broker.load.config import LoadConfig
from magnetar.broker.load.leader_term import LeaderParts, Leading
from magnetar.broker.load.load_report import OwnedLoad, Usage, make_report
from magnetar.broker.load.splitting import SplitCandidate, Splitter
from magnetar.common.cluster.broker_directory import BrokerDirectory
from magnetar.common.cluster.bundle_owners import Bundle, BundleOwners, Owned
from magnetar.common.control.control_pb2 import (
    Load,
    LoadReport,
    TakeRequest,
    TakeResponse,
    UnloadRequest,
    UnloadResponse,
)
from magnetar.common.metadata.keys import Keys
from magnetar.common.metadata.values import BrokerRegistration
from magnetar.common.naming.bundle_range import split_ring
from magnetar.common.naming.namespace_name import NamespaceName
from magnetar.sim.loop import SimClock, SimLoop, run
from magnetar.sim.metadata import SimMetadataServer, SimMetadataStore

from bench.scale.world import NAMESPACE_BUNDLES

T = TypeVar("T")

CHOICES: Final = 300
MINUTE_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class LeaderCosts:
    """Milliseconds of CPU."""

    brokers: int
    bundles: int
    choose_none_ms: float
    """One choice before any broker has reported."""
    choose_half_ms: float
    choose_ms: float
    report_ms: float
    """One report of the 100 most loaded bundles."""
    compare_ms: float
    """One comparison of all brokers, moves included."""
    owner_change_us: float
    split_ms: float
    """One check of a broker's bundles for those to split; each broker makes its own."""


class _Figures:
    """A leader of so many brokers, whose bundles have random loads."""

    def __init__(self, loop: SimLoop, brokers: int, bundles: int) -> None:
        store, keys, clock = SimMetadataStore(SimMetadataServer(), loop.rng), Keys("scale"), SimClock(loop)
        self.rng = random.Random(1)
        directory = BrokerDirectory(store, keys)
        parts = LeaderParts(
            LoadConfig(), store, keys, "scale", clock, directory, BundleOwners(store, keys), _take, _unload
        )
        self.term = Leading(parts)
        self.ids = [f"broker-{number}.brokers.messaging.svc:8080" for number in range(brokers)]
        for run_number, broker_id in enumerate(self.ids, 1):
            directory.note(BrokerRegistration(broker_id=broker_id, run=run_number), run_number)
        self.bundles: list[Bundle] = [
            (NamespaceName("tenant", f"namespace-{number}"), bundle)
            for number in range(-(-bundles // NAMESPACE_BUNDLES))
            for bundle in split_ring(NAMESPACE_BUNDLES)
        ][:bundles]
        self.rng.shuffle(self.bundles)

    def report_of(self, number: int) -> LoadReport:
        owned = [
            OwnedLoad(*bundle, 1, Load(message_rate_in=self.rng.uniform(1, 100), topics=100))
            for bundle in self.bundles[number :: len(self.ids)]
        ]
        usage = Usage(self.rng.uniform(20, 90), 1, 2)
        return make_report(
            self.ids[number], number + 1, usage, owned, bundles_max=100, taken_ms=0, draining=False
        )

    def own(self, bundles: Sequence[Bundle]) -> None:
        for number, bundle in enumerate(bundles):
            at = number % len(self.ids)
            self.term.owner_changed(*bundle, Owned(self.ids[at], at + 1, 1, 0))

    def choose_ms(self) -> float:
        chosen = self.rng.sample(self.bundles, min(CHOICES, len(self.bundles)))
        return _each_ms(self.term.choose, chosen)

    def compare_ms(self) -> float:
        """One of the comparisons after which bundles move: the third one."""
        began = 0.0
        for number in range(3):
            now, began = number * MINUTE_S, time.process_time()
            brokers = self.term.load.brokers(now)
            self.term._shedder.moves(brokers, now, self.term._may_move())
        return (time.process_time() - began) * 1e3


def measure(brokers: int, bundles: int) -> LeaderCosts:
    """Takes the figures of one size."""
    loop, found = SimLoop(1), []

    async def main() -> None:
        figures = _Figures(loop, brokers, bundles)
        none_ms = figures.choose_ms()
        owned = figures.bundles[: len(figures.bundles) // 2]
        owner_ms = _each_ms(lambda bundle: figures.own([bundle]), owned[:10_000])
        figures.own(figures.bundles)
        reports = [figures.report_of(number) for number in range(brokers)]
        report_ms = _each_ms(figures.term.report, reports[: brokers // 2])
        half_ms = figures.choose_ms()
        for report in reports:
            figures.term.report(report)
        splitter = Splitter(LoadConfig().splitting)
        own = [
            SplitCandidate(bundle, Load(topics=100), NAMESPACE_BUNDLES) for bundle in figures.bundles[:100]
        ]
        found.append(
            LeaderCosts(
                brokers,
                bundles,
                none_ms,
                half_ms,
                figures.choose_ms(),
                report_ms,
                figures.compare_ms(),
                owner_ms * 1e3,
                _each_ms(lambda _: splitter.due(own), range(20)),
            )
        )

    run(loop, main())
    return found[0]


def _each_ms(call: Callable[[T], object], over: Sequence[T]) -> float:
    began = time.process_time()
    for one in over:
        call(one)
    return (time.process_time() - began) / max(1, len(over)) * 1e3


async def _take(broker: BrokerRegistration, request: TakeRequest) -> TakeResponse:
    raise AssertionError("nothing is taken while choices are measured")


async def _unload(broker: BrokerRegistration, request: UnloadRequest) -> UnloadResponse:
    raise AssertionError("nothing is moved while choices are measured")
