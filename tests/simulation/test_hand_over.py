"""A bundle is handed over while a publisher publishes, and every step of it is where something goes wrong."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from itertools import groupby

import pytest
from magnetar.broker.control import bundle_handover as hand_over_module
from magnetar.broker.control.bundle_handover import LOADS_S, NobodyElse
from magnetar.broker.topics.topic import Topic
from magnetar.common.control.control_errors import BrokerFailed
from magnetar.common.control.control_pb2 import TakeRequest, TakeResponse
from magnetar.common.control.methods import MESSAGE_BYTES_MAX
from magnetar.common.errors import MagnetarError, NotAllowed, ServiceNotReady
from magnetar.common.naming.topic_name import TopicName

from tests.simulation.moving_subscriber import MovingSubscriber
from tests.simulation.moving_world import TOPIC, MovingBroker, MovingPublisher, MovingWorld, stored
from tests.simulation.power_loss import Process
from tests.unit.ledger.managed_ledger.harness import simulated

MOMENTS = 12
"""At which something goes wrong, spread over what a hand-over takes."""
HAND_OVER_S = 0.03
"""About; what comes later happens after it."""

Fault = Callable[[MovingWorld, MovingBroker, MovingBroker], None]


def nothing(world: MovingWorld, giver: MovingBroker, taker: MovingBroker) -> None:
    """Goes wrong."""


async def hand_over(
    process: Process,
    *,
    fault: Fault = nothing,
    after_s: float = 0.0,
    brokers: int = 3,
    to: bool = True,
) -> tuple[MovingWorld, MovingPublisher, MagnetarError | None]:
    """Publish, hand over, have the fault `after_s`, and publish on; everything confirmed has to be there."""
    world = await MovingWorld.of(process, brokers)
    publisher = MovingPublisher(world)
    for _ in range(5):
        await publisher.publish()
    giver = world.owner()
    await (await giver.registry.get(TOPIC, create=False)).subscriptions.create("keeps everything")
    subscriber = MovingSubscriber(world)
    done = asyncio.Event()
    subscribing = asyncio.create_task(subscriber.run(done))
    taker = next(each for each in world.brokers.values() if each is not giver)
    over = asyncio.Event()
    publishing = asyncio.create_task(publisher.run(over))
    own = giver.cluster.ownership.table.of_topic(TOPIC)
    assert own is not None
    giving = asyncio.create_task(
        giver.hand_over.give(own.namespace, own.range, taker.broker_id if to else "")
    )
    await asyncio.sleep(after_s)
    fault(world, giver, taker)
    if giver.dead:
        giving.cancel()
    await asyncio.wait((giving,))
    publisher.pause_s = subscriber.pause_s = 0.1
    await asyncio.sleep(8)  # whatever session had to end has ended
    at = publisher.confirmed
    await asyncio.sleep(5)
    assert publisher.confirmed > at + 5, "it goes on"
    over.set()
    await publishing
    await asyncio.sleep(1)
    done.set()
    await subscribing
    assert not subscriber.broke_a_promise, "acknowledged, durably"
    assert subscriber.got.keys() >= set(range(publisher.confirmed))
    assert set(range(publisher.confirmed)) <= subscriber.receipts
    if fault is nothing:
        assert not subscriber.came_back
    found = await stored(world)
    once = [number for number, _ in groupby(found)]
    assert once[: publisher.confirmed] == list(range(publisher.confirmed)), "in order, and nothing missing"
    assert len(once) <= publisher.confirmed + 1
    error = None if giving.cancelled() else giving.exception()
    assert error is None or isinstance(error, MagnetarError), error
    return world, publisher, error


def at_each_moment(fault: Fault) -> None:
    for moment in range(MOMENTS):

        async def scenario(process: Process, after_s: float = moment * HAND_OVER_S / MOMENTS) -> None:
            world, _, _ = await hand_over(process, fault=fault, after_s=after_s)
            await world.close()

        simulated(scenario, seed=moment)


def in_simulation(scenario: Callable[[Process], Awaitable[None]]) -> None:
    simulated(scenario)


def test_a_publisher_is_told_where_its_topic_went_and_has_nothing_to_send_twice() -> None:
    async def scenario(process: Process) -> None:
        world, publisher, error = await hand_over(process)
        assert error is None
        assert (publisher.followed, publisher.looked_up) == (1, 1)
        assert publisher.sent == publisher.confirmed
        await world.close()

    in_simulation(scenario)


def test_the_giver_may_die_at_any_moment() -> None:
    at_each_moment(lambda world, giver, taker: giver.die())


def test_the_taker_may_die_at_any_moment() -> None:
    at_each_moment(lambda world, giver, taker: taker.die())


@pytest.mark.full
def test_the_session_of_the_giver_may_end_at_any_moment() -> None:
    def end(world: MovingWorld, giver: MovingBroker, taker: MovingBroker) -> None:
        for session in list(giver.store._sessions):
            session.expire()
        giver.die()

    at_each_moment(end)


def test_the_answer_to_the_take_may_be_lost() -> None:
    async def scenario(process: Process) -> None:
        world, _, _ = await hand_over(
            process, fault=lambda world, giver, taker: setattr(taker, "answers_lost", True)
        )
        await world.close()

    in_simulation(scenario)


@pytest.mark.parametrize("whose", ["giver", "taker"])
def test_metadata_may_leave_open_what_became_of_a_write(whose: str) -> None:
    def doubt(world: MovingWorld, giver: MovingBroker, taker: MovingBroker) -> None:
        (giver if whose == "giver" else taker).store.faults.unknown_probability = 0.5

    at_each_moment(doubt)


@pytest.mark.full
def test_metadata_may_be_away_from_the_giver() -> None:
    def cut_off(world: MovingWorld, giver: MovingBroker, taker: MovingBroker) -> None:
        giver.store.faults.unreachable = True
        asyncio.get_running_loop().call_later(2.0, setattr, giver.store.faults, "unreachable", False)

    at_each_moment(cut_off)


def test_when_the_taker_is_dead_another_one_is_asked_unless_an_operator_named_it() -> None:
    async def scenario(process: Process) -> None:
        world, publisher, error = await hand_over(
            process, fault=lambda world, giver, taker: taker.die(), to=False
        )
        assert error is None
        assert publisher.followed == 1
        await world.close()

    in_simulation(scenario)


def test_a_taker_that_fails_in_whatever_way_is_passed_over() -> None:
    async def scenario(process: Process) -> None:
        world, publisher, error = await hand_over(process, fault=fail_to_take, to=False)
        assert error is None
        assert publisher.followed == 1
        await world.close()

    in_simulation(scenario)


def fail_to_take(world: MovingWorld, giver: MovingBroker, taker: MovingBroker) -> None:
    async def take(request: TakeRequest) -> TakeResponse:
        raise BrokerFailed("its log says more")

    taker.take = take  # type: ignore[method-assign]


def test_a_topic_that_cannot_be_loaded_keeps_no_other_topic_of_its_bundle() -> None:
    async def scenario(process: Process) -> None:
        world = await MovingWorld.of(process, 2)
        publisher = MovingPublisher(world)
        await publisher.publish()
        giver = world.owner()
        own = giver.cluster.ownership.table.of_topic(TOPIC)
        assert own is not None
        names = (TopicName.of("persistent", TOPIC.namespace, f"stuck-{number}") for number in range(100))
        stuck = next(name for name in names if name.hash in own.range)
        load = giver.registry._load

        async def hang(name: TopicName, create: bool) -> Topic:
            return await (asyncio.Event().wait() if name == stuck else load(name, create))  # type: ignore[return-value]

        giver.registry._load = hang  # type: ignore[method-assign]
        waiting = asyncio.create_task(giver.registry.get(stuck, create=True))
        await asyncio.sleep(0.1)
        began = process.loop.time()
        await giver.hand_over.give(own.namespace, own.range)
        assert process.loop.time() - began < 2 * LOADS_S
        with pytest.raises(ServiceNotReady, match="look it up again"):
            await waiting
        assert world.owner() is not giver
        await publisher.publish()
        await world.close()

    in_simulation(scenario)


def test_the_next_owner_is_told_of_as_many_topics_as_one_call_holds() -> None:
    names = [f"persistent://public/default/{'x' * 400}-{number}" for number in range(30_000)]
    told = hand_over_module._named_first(names)
    assert 0 < len(told) < 20_000
    assert told == names[: len(told)]
    assert TakeRequest(topics=told).ByteSize() < MESSAGE_BYTES_MAX
    assert len(hand_over_module._named_first([str(number) for number in range(30_000)])) == 20_000


def test_bundle_without_a_taker_stays_and_is_served_again() -> None:
    async def scenario(process: Process) -> None:
        world, publisher, error = await hand_over(
            process, fault=lambda world, giver, taker: taker.die(), after_s=0.004, brokers=2
        )
        assert isinstance(error, ServiceNotReady)
        assert publisher.followed == 0
        assert world.owner() in world.living()
        await world.close()

    in_simulation(scenario)


def test_only_broker_closes_no_topic_for_a_handover() -> None:
    async def scenario(process: Process) -> None:
        world = await MovingWorld.of(process, 1)
        publisher = MovingPublisher(world)
        await publisher.publish()
        giver = world.owner()
        own = giver.cluster.ownership.table.of_topic(TOPIC)
        assert own is not None
        with pytest.raises(NobodyElse):
            await giver.hand_over.give(own.namespace, own.range)
        with pytest.raises(NotAllowed, match="already"):
            await giver.hand_over.give(own.namespace, own.range, giver.broker_id)
        with pytest.raises(ServiceNotReady, match="not running"):
            await giver.hand_over.give(own.namespace, own.range, "elsewhere:1")
        await publisher.publish()
        assert publisher.looked_up == 1
        await giver.hand_over.close_topics(own.namespace, own.range)
        await publisher.publish()
        assert (publisher.looked_up, publisher.followed) == (2, 0)
        assert await stored(world) == [0, 1, 2]
        await world.close()

    in_simulation(scenario)
