"""Faults of simulated brokers, beside those of bookies and metadata: death at any step, pauses, moves."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from tests.simulation.quorum.cluster import Cluster
from tests.simulation.quorum.nemesis import Nemesis

if TYPE_CHECKING:
    from tests.transactions.sim_broker import SimBroker
    from tests.transactions.workload import TransactionWorkload

STEPS_MAX: Final = 150
AIMS: Final = ("New", "AddPartition", "AddSubscription", "End", "EndOnTopic", "Send", "Ack")
AIMED: Final = 0.25
"""Probability of a death at such a call."""
AIMED_STEPS_MAX: Final = 20
DOWN_S: Final = (0.01, 0.2)
PAUSES_S: Final = (0.05, 0.3, 0.8)
CLOCK_JUMP_S: Final = 2.0


class BrokerNemesis:
    """The trouble of one run; a seed has its own climate."""

    def __init__(self, cluster: Cluster, workload: TransactionWorkload) -> None:
        self.rng = rng = random.Random(f"broker nemesis {cluster.seed}")
        self.clock_error_s = 0.0
        self._cluster = cluster
        self._workload = workload
        self._stopped = False
        self._starting: set[asyncio.Future[None]] = set()
        self._aim = rng.choice((*AIMS, "")) if rng.random() < 0.7 else ""
        """A method: a broker that is called with it may die in the middle of it."""
        kinds: list[Callable[[], None]] = [
            self.kill,
            self.kill,
            self.pause,
            self.move,
            self.move,
            self.part,
            self.jump,
            self.doubt,
            self.lose_metadata,
        ]
        self._kinds = [kind for kind in kinds if rng.random() < 0.6] or [self.kill]
        self._pause_s = rng.choice((0.05, 0.15, 0.4))
        self._bookies = Nemesis(cluster, cluster.seed) if cluster.bookies and rng.random() < 0.6 else None

    async def run(self) -> None:
        """Strikes again and again, until `stop`."""
        others = None if self._bookies is None else asyncio.ensure_future(self._bookies.run())
        # A request belongs to a connection, on which nothing arrives twice.
        self._cluster.network.faults.duplicate_probability = 0.0
        while not self._stopped:
            await asyncio.sleep(self.rng.expovariate(1 / self._pause_s))
            if not self._stopped:
                kind = self.rng.choice(self._kinds)
                self._cluster.happened[f"{kind.__name__.replace('_', ' ')} of a broker"] += 1
                kind()
        if others is not None:
            await others

    def stop(self) -> None:
        """Strikes no more and lets everything come back."""
        self._stopped = True
        if self._bookies is not None:
            self._bookies.stop()
        self._cluster.network.heal()
        for node in self._cluster.clients:
            node.metadata.faults.unknown_probability = 0.0
            node.metadata.faults.unreachable = False
        for broker in self._workload.brokers.values():
            broker.process.spare()

    def called(self, broker: SimBroker, method: str) -> None:
        """Kills a broker shortly after it was called, by chance."""
        if not self._stopped and method == self._aim and self.rng.random() < AIMED:
            self._cluster.happened["aimed kill of a broker"] += 1
            self._kill(broker, self.rng.randint(0, AIMED_STEPS_MAX))

    # Kinds

    def kill(self) -> None:
        """A broker dies now or at one of its next steps, and comes back."""
        if (broker := self._some_broker()) is not None:
            steps = 0 if self.rng.random() < 0.3 else self.rng.randint(1, STEPS_MAX)
            self._kill(broker, steps)

    def _kill(self, broker: SimBroker, steps: int) -> None:
        name = broker.address.name

        def again() -> None:
            if name not in self._workload.brokers:
                self._starting.add(asyncio.ensure_future(self._workload.start_broker(name)))

        down_s = self.rng.uniform(*DOWN_S)
        broker.process.on_death(lambda: self._cluster.later(down_s, again))
        if steps:
            broker.process.kill_after(steps)
        else:
            broker.process.kill()

    def pause(self) -> None:
        if (broker := self._some_broker()) is not None:
            broker.process.pause(self.rng.choice(PAUSES_S))

    def move(self) -> None:
        """Some parties get another owner; the former one may go on for a while without knowing."""
        owners, names = self._workload.owners, sorted({*self._workload.owners.of.values()} | {"n0", "n1"})
        for party in self.rng.sample(sorted(owners.of), self.rng.randint(1, 2)):
            former = self._workload.brokers.get(owners.of[party])
            owners.move(party, self.rng.choice(names))
            if former is not None and self.rng.random() < 0.5:
                former.process.spawn(former.hand_over(party))

    def part(self) -> None:
        """The brokers, or a broker and the clients, are parted in one direction or both."""
        sides = self.rng.sample(["n0", "n1", "clients"], 2)
        self._cluster.network.partition(sides[:1], sides[1:], symmetric=self.rng.random() < 0.5)
        self._cluster.later(self.rng.choice((0.05, 0.3)), self._cluster.network.heal)

    def jump(self) -> None:
        """A broker's wall clock jumps, away from those of the others."""
        if (broker := self._some_broker()) is not None:
            jump_s = self.rng.uniform(-CLOCK_JUMP_S, CLOCK_JUMP_S)
            self.clock_error_s += abs(jump_s)
            broker.clock.wall_offset_ms += int(jump_s * 1000)

    def doubt(self) -> None:
        """Outcomes of metadata writes get lost, or not any more."""
        for node in self._cluster.clients:
            node.metadata.faults.unknown_probability = self.rng.choice((0.0, 0.3))

    def lose_metadata(self) -> None:
        """A broker cannot reach metadata for a while."""
        if (broker := self._some_broker()) is None:
            return
        faults = broker.node.metadata.faults
        faults.unreachable = True
        self._cluster.later(self.rng.choice((0.05, 0.3)), lambda: setattr(faults, "unreachable", False))

    def _some_broker(self) -> SimBroker | None:
        brokers = self._workload.brokers
        return brokers[self.rng.choice(sorted(brokers))] if brokers else None
