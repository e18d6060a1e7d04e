"""Jobs, sweeps, bookies that let go and topics that are trimmed, all at once, with failures and kills.

At every moment bookies have a ledger or its objects are complete and whole; and when all is over, a job and a
sweep without trouble leave every ledger offloaded and nothing that nobody needs.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from functools import partial

import pytest
from magnetar.common.errors import MagnetarError
from magnetar.common.metadata.metadata_pb2 import Offload
from magnetar.common.offload.offload_pb2 import Ledger
from magnetar.spark.ledgers.ledger_source import ServiceAddress
from magnetar.spark.offload.heartbeats import Heartbeats
from magnetar.spark.offload.ledger_offload import Offloader
from magnetar.spark.offload.outcomes import Outcome, Result
from magnetar.spark.offload.retries import Patience
from magnetar.spark.offload.sweep import sweep_location

from tests.unit.spark.offload.world import (
    LOCATION,
    STALE_AFTER_MS,
    World,
    WorldService,
    WorldStore,
    WorldTasks,
)

LEDGERS = 4
ROUNDS = 3


class NeverSet(threading.Event):
    """Waiting is a step of the world, not of the clock."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self._world = world

    def is_set(self) -> bool:
        return False

    def wait(self, timeout: float | None = None) -> bool:
        self._world.step()
        return False


@dataclass
class Watched:
    """Implements `outcomes.Watcher`."""

    outcomes: list[Outcome] = field(default_factory=list)

    def began(self, ledger: Ledger, parts: int) -> None:
        """Nothing to note."""

    def advanced(self, ledger: Ledger, phase: str, done: int, total: int) -> None:
        """Nothing to note."""

    def ended(self, outcome: Outcome) -> None:
        self.outcomes.append(outcome)


def make_offloader(world: World) -> tuple[Offloader, Heartbeats]:
    service = WorldService(world)
    heartbeats = Heartbeats(service)
    patience = Patience(for_s=5.0, stop=NeverSet(world), now=lambda: world.now_ms / 1000, chance=lambda: 0.5)
    offloader = Offloader(
        service=service,
        address=ServiceAddress("127.0.0.1:1"),
        tasks=WorldTasks(world),
        open_store=lambda location: WorldStore(world),
        heartbeats=heartbeats,
        watcher=Watched(),
        patience=patience,
        store_patience=patience,
        new_attempt=lambda: world.rng.randbytes(16),
        wall_ms=lambda: world.now_ms,
        release="test",
        part_bytes=world.rng.choice((300, 1_000, 10_000)),
        monotonic=lambda: world.now_ms / 1000,
    )
    return offloader, heartbeats


def job(world: World) -> None:
    """Some rounds, as `Job` makes them, in one thread."""
    offloader, heartbeats = make_offloader(world)
    unsettled: list[Outcome] = []
    for _ in range(ROUNDS):
        unsettled = [one for each in unsettled if (one := offloader.settle(each)).result is Result.UNSETTLED]
        try:
            wanted = WorldService(world).wanted()
        except MagnetarError:
            continue
        world.rng.shuffle(wanted)
        for ledger in wanted:
            outcome = offloader.offload(ledger)
            if outcome.result is Result.UNSETTLED:
                unsettled.append(outcome)
            heartbeats.beat()


def sweeps(world: World, grace_ms: int) -> None:
    for _ in range(ROUNDS):
        try:
            sweep(world, grace_ms)
        except MagnetarError:
            continue


def sweep(world: World, grace_ms: int) -> None:
    sweep_location(
        WorldService(world), WorldStore(world), LOCATION, now_ms=world.now_ms, grace_ms=grace_ms, force=True
    )


def zombie(world: World) -> None:
    """A task of a job that is long gone writes what it still has."""
    for _ in range(20):
        world.step()
        if world.zombies:
            path, data = world.zombies.pop(world.rng.randrange(len(world.zombies)))
            world.objects[path] = (data, world.now_ms)


def leaving(world: World) -> None:
    for _ in range(10):
        world.step()
        world.leave(world.rng.randrange(LEDGERS))


def trimming(world: World) -> None:
    for _ in range(world.rng.randrange(30)):
        world.step()
    world.trim(0)


def settle_everything(world: World) -> None:
    """What is running is stale, nobody is in trouble any more: a job, then a sweep."""
    world.trouble, world.away_until_ms = 0.0, 0
    for _ in range(2):
        world.now_ms += 2 * STALE_AFTER_MS
        offloader, _ = make_offloader(world)
        for ledger in WorldService(world).wanted():
            assert offloader.offload(ledger).result is Result.OFFLOADED
    world.check()
    for path, data in world.zombies:
        world.objects[path] = (data, world.now_ms)
    world.now_ms += 1
    sweep(world, grace_ms=0)


@pytest.mark.seeds(20, full=51, nightly=300)
def test_a_ledger_is_on_bookies_or_whole_in_objects_at_every_moment(seed: int) -> None:
    world = World(seed, LEDGERS, trouble=(0.0, 0.02, 0.1)[seed % 3])
    world.turns.add("job 1", partial(job, world))
    world.turns.add("job 2", partial(job, world))
    world.turns.add("sweep", partial(sweeps, world, 0))
    world.turns.add("late sweep", partial(sweeps, world, 10 * STALE_AFTER_MS))
    world.turns.add("zombie", partial(zombie, world))
    world.turns.add("bookies", partial(leaving, world))
    world.turns.add("retention", partial(trimming, world))
    world.turns.run(kill_chance=(0.0, 0.005, 0.02)[seed // 3 % 3])
    settle_everything(world)
    assert {value.offload.state for value in world.ledgers.values()} <= {Offload.COMPLETE}
    assert world.orphans() == set()
    assert not world.deletions


def test_the_world_notices_objects_that_are_missing() -> None:
    world = World(0, 1, trouble=0.0)
    offloader, _ = make_offloader(world)
    (wanted,) = WorldService(world).wanted()
    assert offloader.offload(wanted).result is Result.OFFLOADED
    world.check()
    world.objects.popitem()
    with pytest.raises(AssertionError, match="not whole"):
        world.check()
