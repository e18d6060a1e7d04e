"""Delayed entries when their policy is switched off and on again, and when the wall clock is set back."""

from __future__ import annotations

import random
import tracemalloc
from collections.abc import Callable, Iterator
from functools import partial

import pytest
from magnetar.broker.subscriptions.config import DispatchConfig
from magnetar.broker.subscriptions.consumers.consumer import Consumer
from magnetar.broker.subscriptions.types.subscription_type import SubType

from tests.unit.broker.subscriptions.delayed_serving import INDIVIDUAL, TICK_MS, DelayedServing, servings
from tests.unit.broker.subscriptions.serving import client_of

Serve = Callable[..., DelayedServing]


@pytest.fixture
def serve() -> Iterator[Serve]:
    with servings() as make:
        yield make


def switch(serving: DelayedServing, *, on: bool, wait_s: float | None = None) -> None:
    serving.do(lambda: serving.subscription.delay_delivery(TICK_MS if on else 0), wait_s)


def set_back(serving: DelayedServing, by_s: float) -> None:
    """The wall clock is set back."""
    serving.clock.wall_offset_ms -= int(by_s * 1000)


@pytest.mark.parametrize("cached_from", [0, 1_000])
@pytest.mark.parametrize("sub_type", INDIVIDUAL)
def test_entry_delivered_with_delays_off_is_not_redelivered_at_its_time(
    serve: Serve, sub_type: SubType.ValueType, cached_from: int
) -> None:
    serving = serve(sub_type, cached_from=cached_from)
    client = client_of(serving.join("a", permits=100))
    serving.publish_at(0, 5_000, 4_000)
    serving.until(500)
    switch(serving, on=False)
    serving.publish_at(6_000)
    serving.do()
    assert sorted(client.take()) == [0, 1, 2, 3]
    switch(serving, on=True)
    serving.publish_at(7_000)
    serving.until(6_900)
    assert client.take() == []
    serving.until(8_000)
    assert client.take() == [4]


@pytest.mark.parametrize("cached_from", [0, 1_000])
@pytest.mark.parametrize("sub_type", INDIVIDUAL)
def test_entry_undelivered_with_delays_off_waits_again(
    serve: Serve, sub_type: SubType.ValueType, cached_from: int
) -> None:
    serving = serve(sub_type, cached_from=cached_from)
    consumer = serving.join("a", permits=1)
    serving.publish_at(0, 5_000, 4_000, 0)
    serving.until(500)
    switch(serving, on=False)
    serving.publish_at(6_000)
    switch(serving, on=True)
    serving.flow(consumer, 100)
    client = client_of(consumer)
    assert client.take() == [0, 3]
    serving.until(5_900)
    assert client.take() == [2, 1]
    serving.until(7_000)
    assert client.take() == [4]


@pytest.mark.parametrize("cached_from", [0, 1_000])
@pytest.mark.parametrize("sub_type", INDIVIDUAL)
def test_delivery_with_delays_off_is_kept_per_subscription(
    serve: Serve, sub_type: SubType.ValueType, cached_from: int
) -> None:
    serving = serve(sub_type, cached_from=cached_from)
    switch(serving, on=False)
    first = client_of(serving.join("a", permits=100))
    serving.publish_at(0, 5_000, 4_000)
    serving.do()
    assert first.take() == [0, 1, 2]
    switch(serving, on=True)
    other = serving.join_other(serving.another("other"), 100)
    assert other.take() == [0]
    serving.until(6_000)
    assert other.take() == [2, 1]
    assert first.take() == []


@pytest.mark.parametrize("sub_type", INDIVIDUAL)
def test_entry_returned_after_delays_were_off_waits_for_its_time(
    serve: Serve, sub_type: SubType.ValueType
) -> None:
    serving = serve(sub_type)
    consumer = serving.join("a", permits=100)
    client = client_of(consumer)
    serving.publish_at(0, 5_000, 4_000, 6_000)
    serving.until(500)
    switch(serving, on=False)
    client.take()
    switch(serving, on=True)
    serving.redeliver(consumer, [1])
    serving.ack(consumer, 2)
    assert client.take() == []
    serving.until(7_000)
    assert client.take() == [1], "entry 2 is acknowledged, entry 3 is still held"
    serving.leave(consumer)
    assert client_of(serving.join("b", permits=100)).take() == [0, 1, 3]


@pytest.mark.full
@pytest.mark.parametrize("cached_from", [0, 10_000_000])
def test_switching_off_with_a_great_many_delayed_entries_takes_little_memory(
    serve: Serve, cached_from: int
) -> None:
    serving = serve(config=DispatchConfig(read_entries_max=1_000))
    count = 30_000
    consumer = serving.join("a", permits=1)
    serving.publish_at(*[60_000] * count, 0)
    serving.do(wait_s=10)
    assert client_of(consumer).take() == [count]
    serving.topic.cached_from = cached_from
    tracemalloc.start()
    switch(serving, on=False, wait_s=0)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1024 * 1024
    serving.flow(consumer, 2 * count)
    serving.do(wait_s=20)
    assert client_of(consumer).take() == list(range(count))


@pytest.mark.parametrize("cached_from", [0, 1_000])
@pytest.mark.parametrize("sub_type", INDIVIDUAL)
def test_clock_set_back_redelivers_no_entry(
    serve: Serve, sub_type: SubType.ValueType, cached_from: int
) -> None:
    serving = serve(sub_type, cached_from=cached_from)
    consumer = serving.join("a", permits=100)
    client = client_of(consumer)
    serving.publish_at(0, 3_000, 2_000, 9_000)
    serving.until(4_000)
    assert client.take() == [0, 2, 1]
    set_back(serving, 4)
    other = serving.join_other(serving.another("other"), 100)
    assert other.take() == [0]
    serving.redeliver(consumer, [1])
    serving.until(3_500)
    assert other.take() == [2, 1]
    assert client.take() == [1], "which was given back"
    serving.until(10_000)
    assert other.take() == client.take() == [3]


@pytest.mark.parametrize("cached_from", [0, 1_000])
@pytest.mark.parametrize("sub_type", INDIVIDUAL)
@pytest.mark.parametrize("seed", range(4))
def test_whatever_is_switched_set_back_and_given_back_each_entry_comes_and_only_one_holds_it(
    serve: Serve, sub_type: SubType.ValueType, cached_from: int, seed: int
) -> None:
    rng = random.Random(seed)
    serving = serve(sub_type, cached_from=cached_from)
    holders: dict[int, Consumer] = {}
    given_back: set[int] = set()
    twice: list[int] = []
    consumers: list[Consumer] = []

    def join(name: str) -> None:
        consumer = serving.consumer(name)

        def came(_: object, message: object) -> None:
            number = message.number  # type: ignore[attr-defined]
            if number in holders:
                twice.append(number)
            holders[number] = consumer

        client_of(consumer).on_message = came
        serving.do(lambda: serving.subscription.add_consumer(consumer, sub_type))
        consumers.append(consumer)

    def leave(consumer: Consumer) -> None:
        consumers.remove(consumer)
        for number in [number for number, holder in holders.items() if holder is consumer]:
            del holders[number]
        serving.leave(consumer, 0)

    def give_back(consumer: Consumer) -> None:
        mine = [number for number, holder in holders.items() if holder is consumer]
        for number in mine[: rng.randrange(1, 5)]:
            del holders[number]
            given_back.add(number)
            serving.subscription.redeliver(consumer, [serving.topic.position_of(number)], None)

    join("a")
    other = serving.another("other")
    other_client = serving.join_other(other, 10)
    on, count = True, 0
    for step in range(60):
        now_ms = serving.clock.wall_ms() - serving.delayed_topic.start_ms
        times = [max(0, now_ms + rng.randrange(-2_000, 4_000)) for _ in range(rng.randrange(6))]
        lot = [rng.choice((0, time_ms)) for time_ms in times]
        serving.publish_at(*lot)
        serving.do(other.wake, 0)
        count += len(lot)
        what = rng.randrange(8)
        if what == 0:
            on = not on
            for subscription in (serving.subscription, other):
                serving.do(partial(subscription.delay_delivery, TICK_MS if on else 0), 0)
        elif what == 1:
            set_back(serving, rng.random() * 3)
        elif what == 2:
            serving.do(lambda: give_back(rng.choice(consumers)), 0)
        elif what == 3 and len(consumers) < 3:
            join(f"c{step}")
        elif what == 4 and len(consumers) > 1:
            leave(rng.choice(consumers))
        else:
            serving.flow(rng.choice(consumers), rng.randrange(1, 8))
        serving.do(wait_s=rng.random() * 0.8)
    for consumer in consumers:
        serving.flow(consumer, 10_000)
    serving.do(wait_s=30)
    assert sorted(holders) == list(range(count))
    assert twice == []
    serving.do(lambda: other.add_permits(other.consumers[0], 10_000))
    serving.do(wait_s=30)
    assert sorted(set(other_client.numbers)) == list(range(count))
