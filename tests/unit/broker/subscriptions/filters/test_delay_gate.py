from __future__ import annotations

import random
from collections.abc import Callable, Iterator

import pytest
from magnetar.broker.subscriptions.config import DispatchConfig
from magnetar.broker.subscriptions.entries import due_entries, entry_source
from magnetar.broker.subscriptions.subscription import Subscription
from magnetar.broker.subscriptions.types.subscription_type import SubType
from magnetar.common.naming.position import Position

from tests.unit.broker.subscriptions.delayed_serving import INDIVIDUAL, TICK_MS, DelayedServing, servings
from tests.unit.broker.subscriptions.serving import client_of


@pytest.fixture
def serve() -> Iterator[Callable[..., DelayedServing]]:
    with servings() as make:
        yield make


Serve = Callable[..., DelayedServing]


@pytest.mark.parametrize("cached_from", [0, 1_000])
@pytest.mark.parametrize("sub_type", INDIVIDUAL)
def test_each_entry_comes_at_its_own_time_and_never_before(
    serve: Serve, sub_type: SubType.ValueType, cached_from: int
) -> None:
    serving = serve(sub_type, cached_from=cached_from)
    client = client_of(serving.join("a", permits=100))
    serving.watch(client)
    times = [0, 5_000, 2_000, 0, 2_500, 60_000, 2_000, 0]
    serving.publish_at(*times)
    serving.until(1_900)
    assert sorted(client.numbers) == [0, 3, 7]
    serving.until(61_000)
    assert client.numbers[3:] == [2, 6, 4, 1, 5], "by time, then by position"
    for number, time_ms in enumerate(times):
        if time_ms:
            assert 0 <= serving.came_ms[number] - time_ms <= 10


@pytest.mark.parametrize("sub_type", [SubType.Exclusive, SubType.Failover])
def test_ordered_types_deliver_at_once(serve: Serve, sub_type: SubType.ValueType) -> None:
    serving = serve(sub_type)
    client = client_of(serving.join("a", permits=100, wait_s=2))
    serving.publish_at(0, 5_000, 2_000)
    assert client.numbers == [0, 1, 2]
    assert serving.subscription.delayed == 0
    assert serving.topic.delays is None, "nothing is indexed for them"


def test_a_time_that_is_past_delays_nothing(serve: Serve) -> None:
    serving = serve()
    client = client_of(serving.join("a", permits=100))
    serving.do(wait_s=10)
    serving.publish_at(1, 5_000, -3_000)
    assert client.numbers == [0, 1, 2]


@pytest.mark.parametrize("sub_type", INDIVIDUAL)
def test_mark_delete_does_not_pass_what_is_delayed_and_the_backlog_counts_it(
    serve: Serve, sub_type: SubType.ValueType
) -> None:
    serving = serve(sub_type)
    consumer = serving.join("a", permits=100)
    serving.publish_at(0, 5_000, 0)
    serving.ack(consumer, 0, 2)
    assert serving.cursor.mark_delete == Position(5, 0)
    assert serving.subscription.backlog() == serving.subscription.delayed == 1
    serving.until(5_500)
    assert serving.subscription.delayed == 0
    assert serving.subscription.backlog() == 1
    serving.ack(consumer, 1)
    assert serving.subscription.backlog() == 0


def test_delayed_entries_and_their_times_are_reported(serve: Serve) -> None:
    serving = serve()
    serving.join("a", permits=100)
    serving.publish_at(10_000, 30_000)
    serving.until(4_000)
    assert serving.subscription.why_not_dispatching() == (
        "2 entries wait for their time, the next one for 6.000 s"
    )


@pytest.mark.parametrize("permits", [1, 1_000])
def test_a_long_stretch_of_delayed_entries_is_passed_by_a_little_in_each_turn(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, permits: int
) -> None:
    serving = serve()
    count = 5 * entry_source.LOOKED_AT_ENTRIES
    serving.publish_at(*[60_000] * count, 0)
    turn, looked_at = Subscription._turn, [0]

    def counted(subscription: Subscription) -> None:
        before = subscription.delayed
        turn(subscription)
        looked_at.append(subscription.delayed - before)

    monkeypatch.setattr(Subscription, "_turn", counted)
    consumer = serving.join("a", permits)
    assert client_of(consumer).take() == [count]
    assert sum(looked_at) == count
    assert max(looked_at) < 1.2 * entry_source.LOOKED_AT_ENTRIES


def test_due_entries_wait_for_permits_in_order_of_time(serve: Serve) -> None:
    serving = serve()
    consumer = serving.join("a", permits=2)
    serving.publish_at(0, 3_000, 2_000, 1_000, 0, 0)
    serving.until(5_000)
    assert client_of(consumer).take() == [0, 4]
    serving.flow(consumer, 1)
    assert client_of(consumer).take() == [3]
    serving.flow(consumer, 1_000)
    assert client_of(consumer).take() == [2, 1, 5]


@pytest.mark.parametrize("sub_type", INDIVIDUAL)
def test_a_redelivery_does_not_wait_again(serve: Serve, sub_type: SubType.ValueType) -> None:
    serving = serve(sub_type)
    consumer = serving.join("a", permits=100)
    serving.publish_at(1_000)
    serving.until(2_000)
    assert client_of(consumer).take() == [0]
    serving.redeliver(consumer, [0])
    assert [message.redelivery_count for message in client_of(consumer).messages] == [1]


@pytest.mark.parametrize("sub_type", INDIVIDUAL)
def test_consumers_that_come_and_go_change_nothing(serve: Serve, sub_type: SubType.ValueType) -> None:
    serving = serve(sub_type)
    first = serving.join("a", permits=100)
    serving.publish_at(0, 4_000, 8_000, 2_000)
    serving.until(2_500)
    assert sorted(client_of(first).take()) == [0, 3]
    second = serving.join("b", permits=100)
    serving.leave(first)
    assert sorted(client_of(second).take()) == [0, 3]
    serving.leave(second)
    serving.until(5_000)
    third = serving.join("c", permits=100)
    assert sorted(client_of(third).take()) == [0, 1, 3], "what fell due with nobody there comes at once"
    serving.until(9_000)
    assert client_of(third).take() == [2]


def test_a_change_to_an_ordered_type_delivers_at_once_what_was_delayed(serve: Serve) -> None:
    serving = serve()
    first = serving.join("a", permits=100)
    serving.publish_at(0, 50_000)
    serving.leave(first)
    serving.sub_type = SubType.Exclusive
    assert client_of(serving.join("b", permits=100)).numbers == [0, 1]


def test_the_index_is_shared_and_entries_in_it_are_not_read(serve: Serve) -> None:
    serving = serve(config=DispatchConfig(read_entries_max=20))
    first = serving.join("a", permits=1_000)
    serving.publish_at(*[60_000] * 300, 0, *[60_000] * 9)
    serving.do(wait_s=1)
    assert client_of(first).numbers == [300]
    topic = serving.delayed_topic
    topic.cached_from = 1_000
    topic.reads.clear()
    other = serving.another("other")
    client = serving.join_other(other, 1_000)
    assert client.numbers == [300]
    assert topic.reads == [topic.position_of(300)]
    assert other.delayed == serving.subscription.delayed == 309
    serving.until(62_000)
    assert sorted(client.numbers) == sorted(client_of(first).numbers) == list(range(310))


def test_without_the_policy_entries_go_out_at_once_also_those_that_waited(serve: Serve) -> None:
    serving = serve()
    client = client_of(serving.join("a", permits=100))
    serving.publish_at(0, 50_000, 40_000)
    assert client.take() == [0]
    serving.do(lambda: serving.subscription.delay_delivery(0))
    assert client.take() == [1, 2]
    serving.publish_at(50_000)
    assert client.take() == [3]
    serving.do(lambda: serving.subscription.delay_delivery(TICK_MS))
    serving.publish_at(50_000)
    serving.do()
    assert client.take() == []


@pytest.mark.parametrize("sub_type", INDIVIDUAL)
def test_a_lost_index_is_filled_by_reading_again(serve: Serve, sub_type: SubType.ValueType) -> None:
    serving = serve(sub_type)
    client = client_of(serving.join("a", permits=100))
    serving.publish_at(0, 3_000, 2_000, 9_000)
    serving.until(1_000)
    delays = serving.topic.delays
    assert delays is not None
    serving.do(lambda: delays._forget("a test"))
    assert delays.index.count == 3
    serving.until(10_000)
    assert client.numbers == [0, 2, 1, 3]


@pytest.mark.parametrize("sub_type", INDIVIDUAL)
def test_reread_after_a_lost_index_delivers_once(serve: Serve, sub_type: SubType.ValueType) -> None:
    serving = serve(sub_type)
    # One delayed entry in the middle of what is read ahead; nobody may take anything yet.
    serving.publish_at(0, 0, 3_000, 0, 0, 0)
    consumer = serving.join("a", permits=1)
    client = client_of(consumer)
    serving.until(100)
    assert client.numbers == [0]
    delays = serving.topic.delays
    assert delays is not None
    delays._stopped = True  # its timer is late
    serving.until(4_000)
    serving.do(lambda: delays._forget("a test"))
    serving.flow(consumer, 1)
    source = serving.subscription._source
    assert source is not None
    serving.do(source.give_back)
    serving.flow(consumer, 100)
    assert sorted(client.numbers) == list(range(6))


@pytest.mark.parametrize("sub_type", INDIVIDUAL)
def test_expired_or_skipped_delayed_entries_are_not_delivered(
    serve: Serve, sub_type: SubType.ValueType
) -> None:
    serving = serve(sub_type)
    client = client_of(serving.join("a", permits=100))
    serving.publish_at(3_000, 2_000, 2_000)
    serving.until(1_000)
    serving.do(lambda: serving.subscription.skip_to(serving.topic.position_of(1)))
    assert serving.subscription.delayed == 1
    serving.until(5_000)
    assert client.numbers == [2]


@pytest.mark.parametrize("sub_type", INDIVIDUAL)
@pytest.mark.parametrize("cached_from", [0, 10_000])
def test_memory_that_is_asked_back_costs_no_entry_and_gives_none_twice(
    serve: Serve, sub_type: SubType.ValueType, cached_from: int
) -> None:
    serving = serve(sub_type, cached_from=cached_from)
    consumer = serving.join("a", permits=3)
    rng = random.Random(1)
    serving.publish_at(*[rng.choice((0, 0, 500, 1_500, 2_500)) for _ in range(60)])
    for _ in range(40):
        serving.do(lambda: serving.subscription._source.give_back())  # type: ignore[union-attr]
        serving.flow(consumer, 3)
    serving.flow(consumer, 1_000)
    serving.until(20_000)
    numbers = client_of(consumer).numbers
    assert sorted(numbers) == list(range(60))


def test_more_due_entries_than_are_kept_in_order_all_come(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(due_entries, "IN_ORDER_MAX", 10)
    serving = serve()
    consumer = serving.join("a")
    serving.publish_at(*[2_000 - number for number in range(40)])
    serving.do(lambda: serving.subscription.wake())
    serving.flow(consumer, 1)
    serving.until(3_000)
    serving.flow(consumer, 1_000)
    numbers = client_of(consumer).numbers
    assert sorted(numbers) == list(range(40))
    assert numbers[:10] == list(range(39, 29, -1))


@pytest.mark.parametrize("cached_from", [0, 10_000])
@pytest.mark.parametrize("sub_type", INDIVIDUAL)
@pytest.mark.parametrize("seed", range(4))
def test_a_random_topic_is_delivered_once_and_in_time(
    serve: Serve, sub_type: SubType.ValueType, cached_from: int, seed: int
) -> None:
    rng = random.Random(seed)
    serving = serve(sub_type, cached_from=cached_from)
    consumers = [serving.join(name, permits=1_000) for name in "abc"]
    for consumer in consumers:
        serving.watch(client_of(consumer))
    count = 0
    for _ in range(20):
        lot = [rng.choice((0, 1_000, 2_000, rng.randrange(20_000))) for _ in range(rng.randrange(1, 40))]
        now = serving.clock.wall_ms() - serving.delayed_topic.start_ms
        serving.publish_at(*[each and now + each for each in lot])
        serving.do(wait_s=rng.random())
        count += len(lot)
    serving.do(wait_s=30)
    numbers = [number for consumer in consumers for number in client_of(consumer).numbers]
    assert sorted(numbers) == list(range(count))
    start = serving.delayed_topic.start_ms
    for number, time_ms in enumerate(serving.delayed_topic.times):
        if time_ms:
            assert 0 <= serving.came_ms[number] - (time_ms - start) <= 20
