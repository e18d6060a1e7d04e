"""Consumers with read_compacted: the view up to the horizon, then the topic, decided by positions alone."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from magnetar.broker.subscriptions.config import DispatchConfig
from magnetar.broker.subscriptions.consumers.consumer import Consumer
from magnetar.broker.subscriptions.types.subscription_type import SubType
from magnetar.common.naming.position import EARLIEST, Position
from magnetar.ledger.ledger_store import RUN_MARKER
from magnetar.ledger.managed_ledger.cursor import Cursor

from tests.unit.broker.subscriptions.compacted_topic import CompactedServing
from tests.unit.broker.subscriptions.serving import client_of

MANY = 1_000
FAILOVER_DELAY_S = 2.0


@pytest.fixture(params=[SubType.Exclusive, SubType.Failover], ids=["Exclusive", "Failover"])
def serving(request: pytest.FixtureRequest) -> Iterator[CompactedServing]:
    """30 entries; of the first 20 the even ones after 3 are live."""
    served = CompactedServing(request.param, entries=30, config=DispatchConfig(read_entries_max=4))
    served.quiet_s = FAILOVER_DELAY_S
    served.view.compact(19, [3, *range(4, 20, 2)])
    yield served
    served.close()


LIVE = [3, *range(4, 20, 2)]
TAIL = list(range(20, 30))


def join(serving: CompactedServing, name: str = "c", permits: int = MANY, **options: Any) -> Consumer:
    return serving.join(name, permits, read_compacted=True, **options)


def numbers(consumer: Consumer) -> list[int]:
    return client_of(consumer).numbers


def test_the_view_comes_first_then_the_topic_then_what_is_published(serving: CompactedServing) -> None:
    consumer = join(serving)
    assert numbers(consumer) == LIVE + TAIL
    serving.publish(2)
    assert numbers(consumer) == [*LIVE, *TAIL, 30, 31]


def test_permits_hold_across_the_horizon(serving: CompactedServing) -> None:
    consumer = join(serving, permits=5)
    for count in (5, 6, 11, 12):
        assert numbers(consumer) == (LIVE + TAIL)[:count]
        serving.flow(consumer, {5: 1, 6: 5, 11: 1, 12: 1}[count])


def test_other_consumers_get_every_entry(serving: CompactedServing) -> None:
    assert numbers(serving.join("c", MANY)) == list(range(30))
    assert serving.view.reads == 0


def test_the_first_ledgers_may_be_gone(serving: CompactedServing) -> None:
    serving.trim(1)
    assert numbers(join(serving)) == LIVE + TAIL


def test_a_view_that_changes_in_the_middle_is_gone_on_with_by_position(serving: CompactedServing) -> None:
    consumer = join(serving, permits=4)
    assert numbers(consumer) == [3, 4, 6, 8]
    serving.view.compact(29, [5, 10, 25, 29])
    serving.flow(consumer, MANY)
    got = numbers(consumer)
    assert got == sorted(got)
    assert got[-3:] == [10, 25, 29] or got[-2:] == [25, 29], "what was read ahead may still come"
    assert 5 not in got


def test_a_view_that_disappears_leaves_the_topic(serving: CompactedServing) -> None:
    consumer = join(serving, permits=4)
    serving.view.live, serving.view.horizon = [], None
    serving.flow(consumer, MANY)
    got = numbers(consumer)
    assert got[-11:] == list(range(19, 30))
    assert got == sorted(set(got))


def test_an_empty_view_costs_no_read(serving: CompactedServing) -> None:
    serving.view.compact(19, [])
    assert numbers(join(serving)) == TAIL
    assert serving.view.reads == 0


def test_redelivery_goes_back_into_the_view(serving: CompactedServing) -> None:
    consumer = join(serving)
    serving.ack_cumulative(consumer, 8)
    client_of(consumer).take()
    serving.redeliver(consumer, epoch=7)
    assert numbers(consumer) == [*range(10, 20, 2), *TAIL]
    assert {message.epoch for message in client_of(consumer).messages} == {7}


def test_single_acknowledgements_hold_in_the_view(serving: CompactedServing) -> None:
    consumer = join(serving)
    serving.ack(consumer, 4, 8, 21)
    client_of(consumer).take()
    serving.redeliver(consumer)
    assert numbers(consumer) == [each for each in LIVE + TAIL if each not in (4, 8, 21)]


def test_acknowledgements_where_the_topic_begins_later_hold(serving: CompactedServing) -> None:
    serving.trim(2)
    serving.subscription.cursor.replace(EARLIEST)
    consumer = join(serving, permits=5)
    serving.ack_cumulative(consumer, 6)
    assert serving.cursor.mark_delete == serving.topic.position_of(6)
    client_of(consumer).take()
    serving.redeliver(consumer)
    serving.flow(consumer, MANY)
    assert numbers(consumer) == [*range(8, 20, 2), *TAIL]
    serving.ack_cumulative(consumer, 25)
    assert serving.cursor.mark_delete == serving.topic.position_of(25)


def test_an_acknowledgement_beyond_the_topic_moves_nothing(serving: CompactedServing) -> None:
    serving.trim(3)
    consumer = join(serving)
    before = serving.cursor.mark_delete
    serving.do(lambda: serving.subscription.ack_cumulative(Position(999, 0), consumer))
    assert serving.cursor.mark_delete == before, "entries published later come"


def test_batches_count_by_all_their_messages(serving: CompactedServing) -> None:
    serving.topic.counts[3] = 10
    consumer = join(serving, permits=10)
    assert numbers(consumer) == [3]
    assert consumer.permits == 0


def test_markers_after_the_horizon_are_skipped(serving: CompactedServing) -> None:
    serving.publish(1, flags=RUN_MARKER)
    serving.publish(1)
    assert numbers(join(serving))[-2:] == [29, 31]


def test_a_durable_cursor_before_the_first_entry_reads_the_view_from_its_start() -> None:
    serving = CompactedServing(SubType.Exclusive, entries=30)
    serving.view.compact(19, LIVE)
    serving.trim(1)
    cursor = Cursor("s", serving.topic.spans, Position(8, -1), durable=True)
    serving.subscription.cursor = cursor
    assert numbers(join(serving)) == LIVE + TAIL
    assert (cursor.mark_delete, cursor.durable_mark, cursor.backlog()) == (EARLIEST, (8, -1), 20)
    serving.close()


@pytest.mark.parametrize("mark", [Position(8, 0), Position(5, -1), Position(5, 5)])
def test_a_durable_cursor_elsewhere_is_taken_literally(mark: Position) -> None:
    serving = CompactedServing(SubType.Exclusive, entries=30)
    serving.view.compact(19, LIVE)
    serving.trim(1)
    cursor = Cursor("s", serving.topic.spans, mark, durable=True)
    serving.subscription.cursor = cursor
    after = [each for each in LIVE + TAIL if serving.topic.position_of(each) > mark]
    assert numbers(join(serving)) == after
    assert cursor.mark_delete == mark
    serving.close()


def test_of_two_failover_consumers_the_active_one_decides_where_is_read() -> None:
    serving = CompactedServing(SubType.Failover, entries=30)
    serving.quiet_s = FAILOVER_DELAY_S
    serving.view.compact(19, LIVE)
    compacted = join(serving, "a", priority_level=0)
    plain = serving.join("b", MANY, priority_level=1)
    assert (numbers(compacted), numbers(plain)) == (LIVE + TAIL, [])
    serving.leave(compacted)
    assert numbers(plain) == list(range(30))
    assert not serving.cursor.reads_view
    serving.close()
