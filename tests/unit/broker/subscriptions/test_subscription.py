from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
from magnetar.broker.dispatch.eligibility import Code, reason
from magnetar.broker.dispatch.key_shared.sticky_key import NO_KEY, slot_of_key
from magnetar.broker.reason import Reason
from magnetar.broker.subscriptions.config import DispatchConfig
from magnetar.broker.subscriptions.limits.broker_unacked_limit import BrokerUnackedLimit
from magnetar.broker.subscriptions.types.subscription_type import SubType
from magnetar.common.errors import ConsumerAssignFailed, ConsumerBusy
from magnetar.common.naming.position import Position
from magnetar.ledger.managed_ledger.context import ReadResult

from tests.unit.broker.subscriptions.serving import Serving, client_of

Serve = Callable[..., Serving]


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Makes servings that are closed after the test."""
    made: list[Serving] = []

    def make(*args: Any, **options: Any) -> Serving:
        made.append(Serving(*args, **options))
        return made[-1]

    yield make
    for serving in made:
        serving.close()


@pytest.mark.parametrize("cached_from", [0, 13, 100])
@pytest.mark.parametrize("sub_type", [SubType.Exclusive, SubType.Failover, SubType.Shared])
def test_a_single_consumer_gets_everything_in_order(
    serve: Serve, sub_type: SubType.ValueType, cached_from: int
) -> None:
    serving = serve(sub_type, entries=25, cached_from=cached_from)
    consumer = serving.join("a", permits=100, wait_s=2)
    assert client_of(consumer).numbers == list(range(25))
    serving.publish(3)
    assert client_of(consumer).numbers == list(range(28))


@pytest.mark.parametrize("sub_type", [SubType.Exclusive, SubType.Failover, SubType.Shared])
def test_a_batch_costs_permits_by_its_messages(serve: Serve, sub_type: SubType.ValueType) -> None:
    serving = serve(sub_type)
    consumer = serving.join("a", permits=5, wait_s=2)
    serving.publish(4, messages=3)
    assert client_of(consumer).take() == [0, 1]
    assert consumer.permits == -1
    serving.flow(consumer, 1)
    assert client_of(consumer).take() == []
    serving.flow(consumer, 1)
    assert client_of(consumer).take() == [2]


def test_an_exclusive_consumer_with_hash_ranges_gets_only_those(serve: Serve) -> None:
    # The entries here are no metadata, and so have one key, all of them.
    slot = slot_of_key(NO_KEY)
    numbers = []
    for ranges in (((0, slot - 1), (slot + 1, 65_535)), ((1, 1), (slot, slot))):
        serving = serve(SubType.Exclusive, entries=40)
        consumer = serving.join("a", permits=100, hash_ranges=ranges)
        numbers.append(client_of(consumer).numbers)
        assert serving.subscription.backlog() == 40
    assert numbers == [[], list(range(40))]


@pytest.mark.parametrize("ranges", [((5, 4),), ((0, 65_536),), ((-1, 4),), ((0, 10), (10, 20))])
def test_invalid_hash_ranges_are_refused_without_a_trace(
    serve: Serve, ranges: tuple[tuple[int, int], ...]
) -> None:
    serving = serve(SubType.Exclusive)
    with pytest.raises(ConsumerAssignFailed):
        serving.subscription.add_consumer(serving.consumer("a", hash_ranges=ranges), SubType.Exclusive)
    assert serving.subscription.type is None
    serving.join("b")


def test_type_changes_only_without_connected_consumers(serve: Serve) -> None:
    serving = serve(SubType.Failover)
    first = serving.join("a")
    for other in (SubType.Exclusive, SubType.Shared, SubType.Key_Shared):
        with pytest.raises(ConsumerBusy, match="different type"):
            serving.subscription.add_consumer(serving.consumer("b"), other)
    assert serving.subscription.consumers == [first]
    serving.leave(first)
    serving.sub_type = SubType.Shared
    serving.join("b")
    assert serving.subscription.type == SubType.Shared


# -- Failover


def failover(serve: Serve, partition: int = 0, **options: Any) -> Serving:
    config = DispatchConfig(failover_delay_ms=1_000)
    topic = f"persistent://public/default/t-partition-{partition}"
    return serve(SubType.Failover, topic=topic, config=config, **options)


def test_no_consumer_gets_messages_before_the_delay_ends(serve: Serve) -> None:
    serving = failover(serve, entries=5)
    consumer = serving.join("b", permits=100, wait_s=0.9)
    assert client_of(consumer).numbers == []
    assert serving.subscription.why_not_dispatching() is not None
    serving.do(wait_s=0.2)
    assert client_of(consumer).numbers == list(range(5))
    better = serving.join("a", permits=100, wait_s=0.5)
    serving.publish(1)
    assert client_of(better).numbers == client_of(consumer).numbers[5:] == []
    serving.do(wait_s=0.5)
    assert client_of(better).numbers == list(range(6))
    assert client_of(consumer).numbers == list(range(5))


def test_all_hear_of_a_change_and_a_newcomer_that_changes_nothing_hears_so_at_once(serve: Serve) -> None:
    serving = failover(serve)
    b = serving.join("b", wait_s=2)
    c = serving.join("c", wait_s=0.1)
    assert (client_of(b).active, client_of(c).active) == ([True], [False])
    a = serving.join("a", wait_s=2)
    assert client_of(a).active == [True]
    assert (client_of(b).active, client_of(c).active) == ([True, False], [False, False])


def test_acknowledgements_during_the_delay_count(serve: Serve) -> None:
    serving = failover(serve, entries=6)
    b = serving.join("b", permits=100, wait_s=2)
    a = serving.join("a", permits=100, wait_s=0.1)
    serving.ack(b, 0, 1, 2, 4)
    serving.do(wait_s=1)
    assert client_of(a).numbers == [3, 5]


def test_the_next_active_consumer_gets_what_was_unacknowledged_in_order(serve: Serve) -> None:
    serving = failover(serve, entries=12, cached_from=12)
    a = serving.join("a", permits=8, wait_s=2)
    b = serving.join("b", permits=100, wait_s=2)
    serving.ack(a, 0, 1, 5)
    serving.leave(a, wait_s=2)
    assert client_of(b).numbers == [2, 3, 4, 6, 7, 8, 9, 10, 11]
    assert {message.redelivery_count for message in client_of(b).messages} == {0}


def test_an_active_consumer_that_stays_gets_nothing_twice(serve: Serve) -> None:
    serving = failover(serve, entries=5)
    b = serving.join("b", permits=100, wait_s=2)
    a = serving.join("a", permits=100, wait_s=0.2)
    serving.leave(a, wait_s=0.2)
    serving.publish(2)
    serving.do(wait_s=2)
    assert client_of(b).numbers == list(range(7))


def test_a_request_for_redelivery_while_a_switch_is_due_is_not_lost(serve: Serve) -> None:
    serving = failover(serve, entries=3)
    b = serving.join("b", permits=100, wait_s=2, epoch=0)
    a = serving.join("a", permits=100, wait_s=0.2)
    client_of(b).take()
    serving.redeliver(b, epoch=1)
    serving.leave(a, wait_s=2)
    assert client_of(b).numbers == [0, 1, 2]
    assert {message.epoch for message in client_of(b).messages} == {1}


def test_only_the_active_consumer_may_ask_for_redelivery(serve: Serve) -> None:
    serving = failover(serve, entries=3)
    a = serving.join("a", permits=100, wait_s=2)
    b = serving.join("b", permits=100, wait_s=2)
    client_of(a).take()
    serving.redeliver(b)
    assert client_of(a).take() == client_of(b).take() == []
    serving.redeliver(a, [1])
    assert client_of(a).take() == [0, 1, 2]


# -- unacknowledged messages


def test_permits_do_not_matter_to_who_holds_too_much(serve: Serve) -> None:
    serving = serve(SubType.Shared, entries=30, consumer_unacked_max=10)
    consumer = serving.join("a", permits=100)
    assert client_of(consumer).take() == list(range(10))
    serving.ack(consumer, *range(4))
    assert client_of(consumer).take() == []
    serving.ack(consumer, 4)
    assert client_of(consumer).take() == [10, 11, 12, 13, 14]


def test_a_redelivery_frees_who_a_batch_took_far_beyond_the_limit(serve: Serve) -> None:
    serving = serve(SubType.Shared, consumer_unacked_max=10)
    consumer = serving.join("a", permits=100)
    for messages in (4, 4, 20):
        serving.publish(messages=messages)
    serving.publish(2)
    assert client_of(consumer).take() == [0, 1, 2]
    serving.redeliver(consumer, [0])
    assert client_of(consumer).take() == [0]
    assert consumer.held_back_by is not None


def test_another_consumers_part_of_a_batch_frees_who_holds_it(serve: Serve) -> None:
    serving = serve(SubType.Shared, consumer_unacked_max=10)
    holder = serving.join("a", permits=100)
    other = serving.join("b")
    serving.publish(messages=10)
    serving.publish(3)
    assert client_of(holder).take() == [0]
    position = serving.topic.position_of(0)
    serving.do(lambda: serving.subscription.ack_batch(*position, 0b11111, 10, other))
    assert client_of(holder).take() == [1, 2, 3]


def test_another_limit_by_policy_holds_at_once(serve: Serve) -> None:
    serving = serve(SubType.Shared, entries=30, unacked_max=10, consumer_unacked_max=10)
    consumer = serving.join("a", permits=100)
    client_of(consumer).take()
    serving.do(lambda: serving.subscription.limit_unacked(20, 15))
    assert client_of(consumer).take() == [10, 11, 12, 13, 14]
    serving.do(lambda: serving.subscription.limit_unacked(20, 0))
    assert client_of(consumer).take() == [15, 16, 17, 18, 19]
    serving.do(lambda: serving.subscription.limit_unacked(0, 0))
    assert client_of(consumer).take() == list(range(20, 30))


def test_at_the_limit_of_the_subscription_only_what_is_asked_for_goes_out(serve: Serve) -> None:
    serving = serve(SubType.Shared, entries=30, unacked_max=6)
    one = serving.join("a", permits=4)
    other = serving.join("b", permits=4)
    assert (client_of(one).take(), client_of(other).take()) == ([0, 1, 2, 3], [4, 5])
    assert serving.subscription.blocked_on_unacked
    serving.redeliver(one, [1])
    assert client_of(one).numbers + client_of(other).numbers == [1]
    serving.leave(one)
    assert serving.subscription.unacked_messages == 4
    assert client_of(other).take()[-1] < 6


def test_a_subscription_reports_what_it_holds_to_the_broker(serve: Serve) -> None:
    limit = BrokerUnackedLimit(20, 5)
    serving = serve(SubType.Shared, entries=30, broker_limit=limit)
    one = serving.join("a", permits=6)
    other = serving.join("b", permits=6)
    assert limit.total == 12
    serving.ack(other, 0)
    assert limit.total == 11
    serving.do(lambda: serving.subscription.ack_many(5, [1, 2, 3], other))
    assert limit.total == 8
    serving.do(lambda: serving.subscription.skip_to(serving.topic.position_of(7)))
    assert limit.total == 4
    serving.leave(one)
    serving.leave(other)
    assert limit.total == 0


@pytest.mark.parametrize("way", ["one", "many", "batch"])
def test_an_acknowledgement_of_what_was_acknowledged_before_it_came_frees_its_holder_as_well(
    serve: Serve, way: str
) -> None:
    """A client acknowledges what it got before it connected anew, while that is on its way again."""
    serving = serve(SubType.Shared, consumer_unacked_max=9)
    serving.publish(5, messages=3)
    serving.topic.cached_from = 5
    consumer = serving.join("a", permits=1)
    assert client_of(consumer).take() == [0]
    serving.ack(consumer, 1, 2)
    serving.flow(consumer, 100)
    assert client_of(consumer).take() == [1, 2], "they were read before they were acknowledged"
    assert consumer.blocked_on_unacked

    def again() -> None:
        subscription, (ledger_id, _) = serving.subscription, serving.topic.position_of(0)
        if way == "many":
            subscription.ack_many(ledger_id, [1, 2], consumer)
        for entry_id in (1, 2):
            if way == "one":
                subscription.ack(ledger_id, entry_id, consumer)
            elif way == "batch":
                subscription.ack_batch(ledger_id, entry_id, 1, 3, consumer)

    serving.do(again)
    assert client_of(consumer).take() == [3, 4]
    assert consumer.pending.messages == 9


def test_skipped_entry_is_not_delivered_after_its_read(serve: Serve) -> None:
    for sub_type in (SubType.Exclusive, SubType.Shared):
        serving = serve(sub_type, entries=30, cached_from=30)
        consumer = serving.join("a", permits=3)
        assert client_of(consumer).take() == [0, 1, 2]
        skip_to = partial(serving.subscription.skip_to, serving.topic.position_of(11))
        serving.do(skip_to)
        serving.flow(consumer, 3)
        assert client_of(consumer).take() == [12, 13, 14]


@pytest.mark.parametrize(
    "sub_type", [SubType.Exclusive, SubType.Failover, SubType.Shared, SubType.Key_Shared]
)
def test_skipped_entry_is_not_read(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, sub_type: SubType.ValueType
) -> None:
    serving = serve(sub_type, config=DispatchConfig(read_entries_max=10), entries=500, cached_from=500)
    consumer = serving.join("a", permits=3, wait_s=2)
    assert client_of(consumer).take() == [0, 1, 2]
    starts: list[int] = []
    read = serving.topic.read

    async def noting(start: Position, entries_max: int, bytes_max: int) -> ReadResult:
        starts.append(serving.topic.number_of(start))
        return await read(start, entries_max, bytes_max)

    monkeypatch.setattr(serving.topic, "read", noting)
    serving.flow(consumer, 7)
    # While the next lot is being read.
    serving.do(lambda: serving.subscription.add_permits(consumer, 3), wait_s=0)
    serving.do(partial(serving.subscription.skip_to, serving.topic.position_of(399)))
    client_of(consumer).take()
    serving.flow(consumer, 3)
    assert client_of(consumer).take()[-1] >= 400
    assert [start for start in starts if 30 < start < 400] == []


# -- the gates


class Metered:
    """Room for so many messages; remembers what was spent."""

    def __init__(self, messages: int) -> None:
        self.messages = messages
        self.asked = 0

    @property
    def reason(self) -> Reason | None:
        return None if self.messages > 0 else reason(Code.RATE_LIMITED, "a rate")

    def room(self) -> tuple[int, int] | None:
        self.asked += 1
        return (self.messages, 1_000_000) if self.messages > 0 else None

    def spent(self, entries: int, messages: int, byte_count: int) -> None:
        self.messages -= messages


@pytest.mark.parametrize("sub_type", [SubType.Exclusive, SubType.Failover, SubType.Shared])
def test_a_dispatch_rate_delays_and_drops_nothing(serve: Serve, sub_type: SubType.ValueType) -> None:
    serving = serve(sub_type, entries=30)
    rate = Metered(7)
    serving.subscription.dispatch_rate = rate
    consumer = serving.join("a", permits=100, wait_s=2)
    assert client_of(consumer).take() == list(range(7))
    rate.messages = 3
    serving.do(serving.subscription.wake)
    assert client_of(consumer).take() == [7, 8, 9]
    serving.subscription.dispatch_rate = None
    serving.do(serving.subscription.wake)
    assert client_of(consumer).take() == list(range(10, 30))
