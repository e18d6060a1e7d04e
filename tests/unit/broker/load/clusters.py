"""A cluster that exists as figures only: bundles with loads that a test shifts, brokers that report them."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field

from magnetar.broker.load.cluster_load import ClusterLoad
from magnetar.broker.load.config import LoadConfig
from magnetar.broker.load.load_report import OwnedLoad, Usage, make_report
from magnetar.broker.load.shedding import Move, Shedder
from magnetar.common.cluster.bundle_owners import Bundle
from magnetar.common.control.control_pb2 import Load
from magnetar.common.naming.bundle_range import split_ring
from magnetar.common.naming.namespace_name import NamespaceName

REPORT_S = 30
CYCLE_S = 60
MESSAGES_A_POINT = 100.0
"""Messages a second that take a hundredth of a broker."""


def bundle(number: int, namespace: str = "t/n") -> Bundle:
    return NamespaceName.parse(f"{namespace}{number // 64}"), split_ring(64)[number % 64]


@dataclass
class Cluster:
    """Brokers by id with what they own; loads are in hundredths of a broker."""

    seed: int
    config: LoadConfig = field(default_factory=LoadConfig)
    noise: float = 1.0
    """Of a broker's measured load, in percentage points either way."""

    def __post_init__(self) -> None:
        self.rng = random.Random(self.seed)
        self.owner: dict[Bundle, str] = {}
        self.load: dict[Bundle, float] = {}
        self.brokers: list[str] = []
        self.draining: set[str] = set()
        self.known = ClusterLoad(self.config)
        self.shedder = Shedder(self.config)
        self.now = 0.0
        self.moves: list[tuple[float, Move]] = []

    def add(self, broker_id: str, *loads: float) -> None:
        """A broker with bundles of these loads."""
        self.brokers.append(broker_id)
        for load in loads:
            name = bundle(len(self.owner))
            self.owner[name], self.load[name] = broker_id, load

    def percent(self) -> dict[str, float]:
        """What each broker really has to do."""
        found = dict.fromkeys(self.brokers, 0.0)
        for name, owner in self.owner.items():
            found[owner] += self.load[name]
        return found

    def spread(self) -> float:
        percent = self.percent().values()
        return max(percent) - min(percent)

    def run(self, minutes: float) -> list[Move]:
        """Time passes: reports come, the leader compares, moves are made. Returns these moves."""
        end, made = self.now + 60 * minutes, len(self.moves)
        while self.now < end:
            self.now += REPORT_S
            for broker_id in self.brokers:
                self._report(broker_id)
            if self.now % CYCLE_S == 0:
                self._compare()
        return [move for _, move in self.moves[made:]]

    def times_moved(self) -> Counter[Bundle]:
        return Counter(move.bundle for _, move in self.moves)

    def _report(self, broker_id: str) -> None:
        owned = []
        for name, owner in self.owner.items():
            if owner == broker_id:
                rate = self.load[name] * MESSAGES_A_POINT * self.rng.uniform(0.9, 1.1)
                load = Load(message_rate_in=rate / 2, message_rate_out=rate / 2, topics=1)
                owned.append(OwnedLoad(*name, 1, load))
        percent = self.percent()[broker_id] + self.rng.uniform(-self.noise, self.noise)
        report = make_report(
            broker_id,
            1,
            Usage(max(0.0, percent), 0, 0),
            owned,
            bundles_max=self.config.report.bundles_max,
            taken_ms=0,
            draining=broker_id in self.draining,
        )
        self.known.report(report, self.now)

    def _compare(self) -> None:
        for move in self.shedder.moves(self.known.brokers(self.now), self.now, self.allowed):
            assert self.owner[move.bundle] == move.from_broker
            assert move.to_broker in self.brokers
            self.owner[move.bundle] = move.to_broker
            self.known.moved(move.bundle, move.share, move.from_broker, move.to_broker)
            self.moves.append((self.now, move))

    def allowed(self, name: Bundle, broker_id: str) -> bool:
        return True
