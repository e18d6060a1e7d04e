"""Cutting the power at every write, sync and metadata commit of a workload.

A workload runs once in a simulated world. Before each operation of its disk, and after each commit of its
metadata, the world is copied, the power goes, and the workload checks on a new process in the copy that every
promise made so far holds. What the check learned are promises too: it is cut again, sometimes in the middle.

To add a workload (cursors, a topic): implement `Workload`.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from magnetar.common.metadata.keys import Keys
from magnetar.ledger.local_store import LocalLedgerStore, open_local_store
from magnetar.ledger.segment_log.config import SegmentLogConfig
from magnetar.sim.disk import SimDisk
from magnetar.sim.loop import SimClock, SimCrash, SimDeadlock, SimLoop, SimPool, SimTimeLimit, run, run_inside
from magnetar.sim.metadata import SimMetadataServer, SimMetadataStore
from magnetar.sim.syncer import SimSyncer

T = TypeVar("T")

TIME_MAX_S = 120.0
"""Virtual seconds after which a run is stuck."""

INSTANCE_ID = b"simulated-instan"
KEYS = Keys("sim")

SMALL_SEGMENTS = SegmentLogConfig(
    segment_size_bytes=48 << 10,
    segment_entries_max=300,
    fill_ahead_bytes=16 << 10,
    group_bytes_max=16 << 10,
    free_space_headroom_bytes=0,
)


@dataclass(slots=True)
class World:
    """What outlives a process: the disk and the metadata."""

    disk: SimDisk
    metadata: SimMetadataServer
    on_cut: Callable[[str], None] | None = None

    @classmethod
    def new(cls) -> World:
        return cls(SimDisk(), SimMetadataServer())

    def watch(self, on_cut: Callable[[str], None]) -> None:
        """Call `on_cut` at every moment at which the power might go."""
        self.on_cut = on_cut
        self.disk.on_operation = lambda _number, what: on_cut(what)
        self.metadata.subscribe(lambda _events: on_cut("metadata commit"))

    def kill(self) -> None:
        """The process dies, the machine goes on."""
        dead = self.disk
        self.disk = dead.kill()
        self.disk.on_operation, dead.on_operation = dead.on_operation, None
        dead.crashed = True

    def after(self, outage: str, rng: random.Random) -> World:
        """The world after a 'crash' (power loss) or 'kill'; this one stays as it is."""
        disk = self.disk.crash(rng) if outage == "crash" else self.disk.kill()
        return World(disk, self.metadata.fork())


@dataclass(slots=True)
class Process:
    """One process in a world, on a loop of virtual time."""

    loop: SimLoop
    world: World
    config: SegmentLogConfig = SMALL_SEGMENTS
    clock: SimClock = field(init=False)
    metadata: SimMetadataStore = field(init=False)

    def __post_init__(self) -> None:
        self.clock = SimClock(self.loop)
        self.metadata = SimMetadataStore(self.world.metadata, self.loop.rng)

    async def open_store(self) -> LocalLedgerStore:
        return await open_local_store(
            self.world.disk,
            self.metadata,
            KEYS,
            instance_id=INSTANCE_ID,
            pool=SimPool(self.loop),
            syncer=SimSyncer(self.loop),
            clock=self.clock,
            rng=random.Random(self.loop.rng.getrandbits(64)),
            config=self.config,
        )


class Workload(Protocol):
    """Something that makes promises and can tell whether they were kept."""

    async def run(self, process: Process) -> None:
        """Do the work, noting each promise at the moment it is made."""
        ...

    def fork(self) -> Workload:
        """A copy of the promises made so far."""
        ...

    async def check(self, process: Process) -> None:
        """On a process that has just started: AssertionError when a promise was broken.

        What it observes while checking are promises for the next check.
        """
        ...


class PowerLoss(AssertionError):
    """A promise was broken after a cut; says where."""


@dataclass(slots=True)
class Report:
    """What a run went through."""

    cuts: int = 0
    checks: int = 0
    trace: str = ""


def cut_everywhere(
    workload: Workload, seed: int, *, outcomes: int = 1, every: int = 1, world: World | None = None
) -> Report:
    """Run a workload; at each `every`-th moment let the power go `outcomes` times and check.

    The seed shifts which moments these are.

    Raises PowerLoss at the first broken promise.
    """
    world = world or World.new()
    loop = SimLoop(seed, time_max_s=TIME_MAX_S)
    report = Report()

    def cut(what: str) -> None:
        report.cuts += 1
        if (report.cuts + seed) % every == 0:
            for outcome in range(outcomes):
                _check_after(world, workload, seed, report, outcome, what)

    world.watch(cut)
    run(loop, in_process(loop, world, workload.run))
    cut("the end")
    report.trace = loop.trace_hash()
    return report


def _check_after(
    world: World, workload: Workload, seed: int, report: Report, outcome: int, what: str
) -> None:
    rng = random.Random(f"{seed}/{report.cuts}/{outcome}")
    promises = workload.fork()
    outage = "kill" if rng.random() < 0.25 else "crash"
    place = f"seed {seed}, cut {report.cuts} (before: {what}), outcome {outcome}"
    story = outage
    try:
        for round_number in range(rng.choice((1, 2, 2))):
            world = world.after(outage, rng)
            if round_number == 0 and rng.random() < 0.3:
                world.disk.faults.crash_at = rng.randrange(1, 12)
                story += f", dead again at operation {world.disk.faults.crash_at}"
            report.checks += 1
            _attempt(world, promises, rng.getrandbits(64))
            if world.disk.crashed:
                world = world.after("crash", rng)
                _attempt(world, promises, rng.getrandbits(64))
            outage = "crash"
            story += ", crash"
    except Exception as error:
        raise PowerLoss(f"{place}, {story}: {type(error).__name__}: {error}") from error


def _attempt(world: World, promises: Workload, seed: int) -> None:
    loop = SimLoop(seed, time_max_s=TIME_MAX_S)
    try:
        run_inside(loop, in_process(loop, world, promises.check))
    except (SimCrash, SimDeadlock, SimTimeLimit):
        # What waits for a dead disk waits for ever, or until some far timer.
        if not world.disk.crashed:
            raise


async def in_process(loop: SimLoop, world: World, act: Callable[[Process], Awaitable[None]]) -> None:
    await act(Process(loop, world))


def simulate(seed: int, main: Callable[[SimLoop], Coroutine[Any, Any, T]]) -> T:
    """Run a coroutine on a fresh simulated loop."""
    loop = SimLoop(seed, time_max_s=TIME_MAX_S)
    return run(loop, main(loop))
