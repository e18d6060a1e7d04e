"""Scenarios of a very large cluster: it starts, stands, loses a rack, is upgraded, balances load."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Final

from magnetar.broker.load.config import LoadConfig, ReportConfig
from magnetar.sim.loop import SimLoop, run

from bench.scale.brokers import SimBroker
from bench.scale.costs import Costs
from bench.scale.etcd_model import Traffic
from bench.scale.world import Size, World

LOOKUPS_S: Final = 10.0
"""Seconds within which clients look up all bundles of a cluster that starts."""

RACKS: Final = 10
RESTART_S: Final = 10.0
"""Seconds that an upgraded broker takes to start."""

DRAIN_S: Final = 45.0
STEADY_S: Final = 1_200.0
SKEW: Final = 3.0
"""Factor by which the bundles of a tenth of the brokers have more load."""

BASE_LOAD: Final = 0.3
"""Share of its core that each broker uses before."""

SHEDDING_MIN: Final = 60


@dataclass(frozen=True, slots=True)
class Outcome:
    """The figures of one scenario."""

    scenario: str
    size: Size
    seconds: float
    """Virtual seconds until every bundle was served, or the scenario was over."""
    longest_wait_s: float
    traffic: Traffic
    writes_peak: int
    """Most transactions of a second."""
    etcd_cpu_s: float
    """CPU seconds of all members."""
    leader_busy_s: float
    leader_longest_s: float
    """The longest time that a call waited for the leader's core."""
    connects: int
    wrong: tuple[str, ...]
    """Bundles that not exactly one live broker serves in the end."""
    note: str = ""


class _Measured:
    """The figures between its making and `outcome`."""

    def __init__(self, world: World, scenario: str) -> None:
        self._world, self._scenario = world, scenario
        self._began = world.loop.time()
        self._traffic = world.etcd.traffic.copy()
        self._writes_at = dict(world.etcd.writes_at)
        self._etcd_s = world.etcd.cpu_s
        self._cores = {each.id: each.core.busy_s for each in world.brokers.values()}
        self._connects = sum(each.client.connects for each in world.brokers.values())
        world.waits.clear()
        for broker in world.brokers.values():
            broker.core.longest_s = 0.0

    def outcome(self, note: str = "") -> Outcome:
        world = self._world
        busiest = max(world.brokers.values(), key=lambda each: each.core.busy_s - self._cores[each.id])
        leader = world.leader() or busiest
        return Outcome(
            self._scenario,
            world.size,
            world.loop.time() - self._began,
            max(world.waits, default=0.0),
            world.etcd.traffic.since(self._traffic),
            max((n - self._writes_at.get(at, 0) for at, n in world.etcd.writes_at.items()), default=0),
            world.etcd.cpu_s - self._etcd_s,
            leader.core.busy_s - self._cores[leader.id],
            leader.core.longest_s,
            sum(each.client.connects for each in world.brokers.values()) - self._connects,
            tuple(world.unserved()),
            note,
        )


async def cold_start(world: World) -> Outcome:
    """All brokers start at once, and clients look every bundle up."""
    await world.prepare()
    measured = _Measured(world, "cold start")
    await world.start_all()
    await world.look_up(world.bundles, LOOKUPS_S)
    return measured.outcome()


async def steady(world: World) -> Outcome:
    """Nothing happens but what always does."""
    measured = _Measured(world, "nothing happens")
    await asyncio.sleep(STEADY_S)
    return measured.outcome()


async def rack_lost(world: World) -> Outcome:
    """A tenth of the brokers is gone at once, the leader among them; clients look their bundles up."""
    leader = world.leader()
    dying = sorted(world.brokers.values(), key=lambda each: (each is not leader, each.id))
    dying = dying[: max(1, len(dying) // RACKS)]
    lost = [(own.namespace, own.range) for broker in dying for own in broker.bundles()]
    measured = _Measured(world, "a rack is lost")
    await asyncio.gather(*(broker.die() for broker in dying))
    await world.look_up(lost, RESTART_S / 10)
    found = measured.outcome(f"{len(lost):,} bundles of {len(dying)} brokers")
    await world.start_all(dying)
    return found


async def upgrade(world: World) -> Outcome:
    """Every broker is stopped and started, a hundredth at a time; clients look up what is left without an
    owner.
    """
    at_once = max(1, world.size.brokers // 100)
    brokers, left = list(world.brokers.values()), 0
    measured = _Measured(world, "rolling upgrade")

    async def upgraded(broker: SimBroker) -> None:
        nonlocal left
        await broker.stop(DRAIN_S)
        unowned = world.without_owner()
        left += len(unowned)
        await world.look_up(unowned, 0.0)
        await asyncio.sleep(RESTART_S)
        await broker.start()

    for first in range(0, len(brokers), at_once):
        await asyncio.gather(*map(upgraded, brokers[first : first + at_once]))
    moved = measured.outcome().traffic.writes
    return measured.outcome(
        f"{at_once} at a time; {moved:,} transactions, {left:,} bundles left without an owner"
    )


async def skewed(world: World) -> Outcome:
    """The bundles of a tenth of the brokers become SKEW times as busy; the leader moves bundles away."""
    await world.prepare()
    world.with_loads((world.rng.uniform(0.5, 1.5) for _ in world.bundles), rate_of_a_core=1.0)
    world.rate_of_a_core = world.size.bundles / world.size.brokers / BASE_LOAD
    await world.start_all()
    await world.look_up(world.bundles, LOOKUPS_S)
    assert world.loads is not None
    for broker in list(world.brokers.values())[: max(1, len(world.brokers) // RACKS)]:
        for own in broker.bundles():
            world.loads[own.namespace, own.range].message_rate_in *= SKEW
    measured = _Measured(world, "skewed load")
    before = max(broker.usage().cpu_percent for broker in world.brokers.values())
    minutes = 0
    while minutes < SHEDDING_MIN:
        await asyncio.sleep(60)
        minutes += 1
        usage = [broker.usage().cpu_percent for broker in world.brokers.values()]
        if max(usage) < sum(usage) / len(usage) + world.config.shedding.threshold_percent:
            break
    return measured.outcome(f"highest load {before:.0f} % before, {max(usage):.0f} % after {minutes} minutes")


BALANCING: Final = LoadConfig(report=ReportConfig(interval_min_ms=30_000))
"""Load is measured each half minute instead of each 5 s, which saves simulated figures only."""

Told = Callable[[str], None]
Scenario = Callable[[World], Awaitable[Outcome]]

STEPS: Final[Mapping[str, Scenario]] = {
    "cold-start": cold_start,
    "steady": steady,
    "rack": rack_lost,
    "upgrade": upgrade,
    "skew": skewed,
}
"""Scenarios by name: the first starts the cluster of all that follow but the last, which has its own."""


def simulate(
    size: Size,
    costs: Costs,
    told: Told,
    take: Callable[[Outcome], None],
    names: Collection[str] = tuple(STEPS),
    *,
    seed: int = 1,
) -> None:
    """Runs these scenarios one after the other; `take` is given each outcome."""

    def begin(name: str) -> None:
        told(f"{size.brokers:,} brokers, {size.bundles:,} bundles: {name}")

    async def one_after_the_other() -> None:
        world = World(loop, size, costs)
        for name in STEPS:
            if name == "cold-start" or (name in names and name != "skew"):
                begin(name)
                take(await STEPS[name](world))
        await world.end()

    async def balanced() -> None:
        world = World(loop, size, costs, BALANCING)
        begin("skew")
        take(await skewed(world))
        await world.end()

    for wanted, part in ((set(names) - {"skew"}, one_after_the_other), ("skew" in names, balanced)):
        if wanted:
            loop = SimLoop(seed, traced=False)
            run(loop, part())
