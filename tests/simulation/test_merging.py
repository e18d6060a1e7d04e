"""Bundles of two brokers become one while a publisher publishes, and things go wrong at every step of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import Any, cast

import pytest
from magnetar.broker.control import bundle_moves
from magnetar.broker.control.bundle_moves import BundleMoves
from magnetar.broker.control.bundle_unload import Moving
from magnetar.common.control.control_errors import BrokerUnreachable
from magnetar.common.control.control_pb2 import MergeResponse, UnloadResponse
from magnetar.common.control.methods import MERGE, TAKE, UNLOAD
from magnetar.common.errors import InvalidName, MagnetarError, ServiceNotReady
from magnetar.common.metadata.store import WatchEvent
from magnetar.common.metadata.values import BrokerRegistration
from magnetar.common.naming.bundle_range import BundleRange
from magnetar.common.naming.namespace_name import NamespaceName

from tests.simulation.moving_world import (
    TIMEOUT_S,
    TOPIC,
    MovingBroker,
    MovingOthers,
    MovingPublisher,
    MovingWorld,
    no_coordinators,
    stored,
)
from tests.simulation.power_loss import KEYS, Process
from tests.unit.ledger.managed_ledger.harness import simulated

NAMESPACE = TOPIC.namespace
MOMENTS = 12
"""At which something goes wrong, spread over what a merge takes."""
MERGE_S = 0.04
"""About; what comes later happens after it."""


class Calls:
    """What brokers call each other for when bundles are merged: a `ControlClient`, as far as that goes."""

    def __init__(self, world: MovingWorld) -> None:
        self._world = world
        clock = world.process.clock
        self.moving = {
            name: Moving(
                broker.cluster,
                broker.registry,
                MovingOthers(broker),
                clock,
                lambda: TIMEOUT_S,
                no_coordinators,
            )
            for name, broker in world.brokers.items()
        }

    async def call(self, broker: BrokerRegistration, method: Any, request: Any) -> Any:
        target = self._world.brokers[broker.broker_id]
        await self._world.on_the_way()
        if target.dead:
            raise BrokerUnreachable("dead")
        serving = target.tasks.spawn(self._serve(target, method, request), method.name)
        while not (serving.done() or target.dead):  # its connection ends with it
            await asyncio.wait((serving,), timeout=0.02)
        await self._world.on_the_way()
        if target.dead or not serving.done() or serving.cancelled():
            raise BrokerUnreachable("no answer")
        if isinstance(serving.result(), MagnetarError):
            raise serving.result()
        return serving.result()

    async def _serve(self, target: MovingBroker, method: Any, request: Any) -> Any:
        try:
            return await self._answer(target, method, request)
        except MagnetarError as error:
            return error

    async def _answer(self, target: MovingBroker, method: Any, request: Any) -> Any:
        namespace, bundle = NamespaceName.parse(request.namespace), BundleRange.parse(request.bundle)
        moving = self.moving[target.broker_id]
        if method is TAKE:
            return await target.take(request)
        if method is UNLOAD:
            owned = await moving.unload(namespace, bundle, request.to_broker_id)
            assert owned is not None
            return UnloadResponse(broker_id=owned.broker_id, run=owned.run, version=owned.version)
        assert method is MERGE
        return MergeResponse(version=(await moving.merge(namespace, bundle)).version)


@dataclass
class Merge:
    """Two neighbors, the first one's owner (who gets the other one, too), and who asks for the merge."""

    world: MovingWorld
    calls: Calls
    wanted: BundleRange
    taker: MovingBroker
    giver: MovingBroker
    asker: MovingBroker

    def moves(self, broker: MovingBroker) -> BundleMoves:
        return BundleMoves(broker.cluster, self.calls.moving[broker.broker_id], cast(Any, self.calls))

    async def close(self) -> None:
        for moving in self.calls.moving.values():
            await moving.close()
        await self.world.close()


Fault = Callable[[Merge], None]


async def prepared(process: Process, *, topic_moves: bool) -> tuple[Merge, MovingPublisher]:
    """The topic's bundle at one broker, a neighbor of it at another one, and messages."""
    world = await MovingWorld.of(process, 3)
    publisher = MovingPublisher(world)
    for _ in range(5):
        await publisher.publish()
    owner = world.owner()
    own = owner.cluster.ownership.table.of_topic(TOPIC)
    assert own is not None
    ring = list((await owner.cluster.rings.load(NAMESPACE)).bundles)
    at = ring.index(own.range)
    neighbor = ring[at - 1] if topic_moves else ring[at + 1]
    other, asker = (each for each in world.brokers.values() if each is not owner)
    await other.cluster.ownership.take(NAMESPACE, neighbor)
    await asyncio.sleep(0.1)  # all know of it
    wanted = BundleRange(min(own.range.lower, neighbor.lower), max(own.range.upper, neighbor.upper))
    taker, giver = (other, owner) if topic_moves else (owner, other)
    return Merge(world, Calls(world), wanted, taker, giver, asker), publisher


def owned(world: MovingWorld) -> list[BundleRange]:
    listing = world.process.world.metadata.children(KEYS.namespace_bundle_owners_prefix(NAMESPACE))
    found = sorted(KEYS.bundle_of_owner(item.key)[1] for item in listing.items)
    assert all(one.upper <= other.lower for one, other in pairwise(found)), "nothing has two owners"
    return found


async def merge(
    process: Process, *, topic_moves: bool, fault: Fault = lambda merge: None, after_s: float = 0.0
) -> tuple[MovingPublisher, MagnetarError | None]:
    """Merge while a publisher publishes, have the fault `after_s`, publish on, and merge again."""
    it, publisher = await prepared(process, topic_moves=topic_moves)
    world, over = it.world, asyncio.Event()

    def check(events: list[WatchEvent]) -> None:
        owned(world)

    world.process.world.metadata.subscribe(check)
    publishing = asyncio.create_task(publisher.run(over))
    merging = asyncio.create_task(it.moves(it.asker).merge(NAMESPACE, it.wanted))
    await asyncio.sleep(after_s)
    fault(it)
    publisher.pause_s = 0.005
    if it.asker.dead:
        merging.cancel()
    await asyncio.wait((merging,))
    publisher.pause_s = 0.1
    await asyncio.sleep(8)  # whatever session had to end has ended
    at = publisher.confirmed
    await asyncio.sleep(5)
    assert publisher.confirmed > at + 5, "it goes on"
    living = world.living()[0]
    await it.moves(living).merge(NAMESPACE, it.wanted)
    ring = await living.cluster.rings.load(NAMESPACE)
    assert it.wanted in ring.bundles
    assert it.wanted in owned(world)
    for bundle in ring.bundles:
        await living.cluster.ownership.finder.assigned(NAMESPACE, bundle)
    at = publisher.confirmed
    await asyncio.sleep(2)
    assert publisher.confirmed > at, "it goes on"
    over.set()
    await publishing
    found = [number for number, _ in groupby(await stored(world))]
    assert found[: publisher.confirmed] == list(range(publisher.confirmed)), "in order, and nothing missing"
    await it.close()
    error = None if merging.cancelled() else merging.exception()
    assert error is None or isinstance(error, MagnetarError), error
    return publisher, error


@pytest.mark.parametrize("topic_moves", [False, True])
def test_a_publisher_notices_a_merge_only_where_its_bundle_moves(topic_moves: bool) -> None:
    async def scenario(process: Process) -> None:
        publisher, error = await merge(process, topic_moves=topic_moves)
        assert error is None
        assert (publisher.followed, publisher.looked_up) == (int(topic_moves), 1)
        assert publisher.sent == publisher.confirmed

    simulated(scenario)


def die(who: str) -> Fault:
    return lambda it: cast(MovingBroker, getattr(it, who)).die()


def doubt(who: str) -> Fault:
    """Metadata leaves open what became of its writes."""

    def happen(it: Merge) -> None:
        cast(MovingBroker, getattr(it, who)).store.faults.unknown_probability = 0.5

    return happen


def cut_off(who: str) -> Fault:
    """Metadata is away from it for a while, not long enough to end its session."""

    def happen(it: Merge) -> None:
        faults = cast(MovingBroker, getattr(it, who)).store.faults
        faults.unreachable = True
        asyncio.get_running_loop().call_later(2.0, setattr, faults, "unreachable", False)

    return happen


@pytest.mark.parametrize("who", ["asker", "taker", "giver"])
@pytest.mark.parametrize("fault", [die, doubt, cut_off])
@pytest.mark.parametrize("topic_moves", [False, True])
@pytest.mark.seeds(2, full=3, nightly=8)
def test_things_may_go_wrong_at_any_moment_of_a_merge(
    seed: int, topic_moves: bool, fault: Callable[[str], Fault], who: str
) -> None:
    after_s = (seed * 5 % MOMENTS) * MERGE_S / MOMENTS

    async def scenario(process: Process) -> None:
        await merge(process, topic_moves=topic_moves, fault=fault(who), after_s=after_s)

    simulated(scenario, seed=seed)


def test_bundles_that_cannot_merge_stay_unchanged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bundle_moves, "MERGE_PAUSE_S", 0.01)

    async def scenario(process: Process) -> None:
        it, publisher = await prepared(process, topic_moves=False)
        before = owned(it.world)
        moves = it.moves(it.asker)
        with pytest.raises(InvalidName, match="no bundle ends at"):
            await moves.merge(NAMESPACE, BundleRange(it.wanted.lower, it.wanted.upper - 1))
        it.giver.dead = True  # nobody knows yet
        with pytest.raises(ServiceNotReady):
            await moves.merge(NAMESPACE, it.wanted)
        it.giver.dead = False
        assert owned(it.world) == before
        await publisher.publish()
        assert publisher.looked_up == 1
        await it.close()

    simulated(scenario)


def test_a_merge_or_a_split_that_is_refused_is_an_answer_and_no_failure_of_a_task(
    capsys: pytest.CaptureFixture[str],
) -> None:
    async def scenario(process: Process) -> None:
        it, _ = await prepared(process, topic_moves=False)
        moving = it.calls.moving[it.taker.broker_id]
        with pytest.raises(InvalidName, match="strictly within"):
            await moving.split(NAMESPACE, it.wanted, [0])
        with pytest.raises(ServiceNotReady, match="is not owned by this broker"):
            await moving.merge(NAMESPACE, it.wanted)
        with pytest.raises(ServiceNotReady, match="not owned"):
            await moving.unload(NAMESPACE, it.wanted)
        await moving.close()
        with pytest.raises(ServiceNotReady, match="shutting down"):
            await moving.merge(NAMESPACE, it.wanted)
        await it.close()

    simulated(scenario)
    assert "background task failed" not in "".join(capsys.readouterr())


def test_bundles_without_an_owner_are_merged() -> None:
    async def scenario(process: Process) -> None:
        it, publisher = await prepared(process, topic_moves=True)
        everything = BundleRange(0, 0xFFFF_FFFF)
        await it.moves(it.asker).merge(NAMESPACE, everything)
        assert owned(it.world) == [everything]
        await publisher.publish()
        await it.moves(it.asker).merge(NAMESPACE, everything)
        await it.close()

    simulated(scenario)
