"""Dispatch of a topic with transactions: nothing after an open one, nothing of an aborted one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from magnetar.broker.subscriptions.consumers.consumer import Consumer
from magnetar.broker.subscriptions.types.subscription_type import SubType
from magnetar.ledger.ledger_store import RUN_CHUNK

from tests.unit.broker.subscriptions.serving import client_of
from tests.unit.broker.subscriptions.transactional_topic import A, B, TransactionalServing

TYPES = [SubType.Exclusive, SubType.Failover, SubType.Shared, SubType.Key_Shared]
INDIVIDUAL = [SubType.Shared, SubType.Key_Shared]


@pytest.fixture(params=TYPES, ids=SubType.Name)
def serving(request: pytest.FixtureRequest) -> Iterator[TransactionalServing]:
    made = TransactionalServing(request.param)
    made.quiet_s = 2.0  # longer than Failover waits for more consumers
    yield made
    made.close()


@pytest.fixture(params=INDIVIDUAL, ids=SubType.Name)
def individual(request: pytest.FixtureRequest) -> Iterator[TransactionalServing]:
    made = TransactionalServing(request.param)
    made.quiet_s = 2.0  # longer than Failover waits for more consumers
    yield made
    made.close()


@pytest.mark.parametrize("cached_from", [0, 1_000], ids=["cached", "stored"])
def test_everything_after_an_open_transaction_waits_for_it(
    serving: TransactionalServing, cached_from: int
) -> None:
    serving.topic.cached_from = cached_from
    consumer = serving.join("c", permits=100)
    serving.publish_in(None, 2)
    serving.publish_in(A, 2)
    serving.publish_in(None, 3)
    assert client_of(consumer).take() == [0, 1]
    serving.publish_in(B)
    serving.publish_in(None)
    serving.end(A)
    assert client_of(consumer).take() == [2, 3, 4, 5, 6]
    serving.end(B)
    assert client_of(consumer).take() == [7, 8]


@pytest.mark.parametrize("cached_from", [0, 1_000], ids=["cached", "stored"])
def test_aborted_entries_are_passed_settled_and_take_no_permits(
    serving: TransactionalServing, cached_from: int
) -> None:
    serving.topic.cached_from = cached_from
    consumer = serving.join("c", permits=4)
    for txn in (None, A, None, A, B, A, None):
        serving.publish_in(txn, 3 if txn is A else 1)
    serving.end(A, abort=True)
    serving.end(B)
    assert client_of(consumer).numbers == [0, 4, 8, 12]
    assert consumer.permits == 0
    assert consumer.pending.messages in (0, 4)
    assert serving.cursor.backlog() == 4
    serving.ack(consumer, 0, 4, 8, 12)
    assert serving.cursor.backlog() == 0
    assert serving.cursor.mark_delete == serving.topic.last_position


def test_aborted_entries_right_behind_what_is_acknowledged_are_no_backlog_without_a_consumer(
    serving: TransactionalServing,
) -> None:
    consumer = serving.join("c", permits=1)
    serving.publish_in(None)
    serving.ack(consumer, 0)
    serving.leave(consumer)
    serving.publish_in(A, 15)
    serving.publish_in(B)
    assert serving.cursor.backlog() == 16
    serving.end(A, abort=True)
    assert serving.cursor.backlog() == 1
    serving.end(B, abort=True)
    assert serving.cursor.backlog() == 0


def test_what_is_delivered_again_has_no_aborted_entries(serving: TransactionalServing) -> None:
    consumer = serving.join("c", permits=100)
    for txn in (None, A, None):
        serving.publish_in(txn, 2)
    serving.end(A, abort=True)
    assert client_of(consumer).take() == [0, 1, 4, 5]
    serving.redeliver(consumer)
    assert client_of(consumer).take() == [0, 1, 4, 5]
    serving.leave(consumer)
    again = serving.join("d", permits=100)
    assert client_of(again).take() == [0, 1, 4, 5]


def test_a_cursor_that_lost_its_acknowledgements_passes_aborted_entries_again(
    serving: TransactionalServing,
) -> None:
    consumer = serving.join("c", permits=100)
    for txn in (A, None, A):
        serving.publish_in(txn, 2)
    serving.end(A, abort=True)
    assert client_of(consumer).take() == [2, 3]
    serving.ack(consumer, 2, 3)

    def seek() -> None:
        serving.cursor.replace(serving.topic.position_of(0)._replace(entry_id=-1))
        serving.subscription.rewind()

    serving.do(seek)
    assert client_of(consumer).take() == [2, 3]
    assert serving.cursor.backlog() == 2


def test_an_entry_that_is_replayed_between_aborted_ones_comes_alone(individual: TransactionalServing) -> None:
    individual.topic.cached_from = 1_000
    consumer = individual.join("c", permits=100)
    for txn in (None, A, None, A, None):
        individual.publish_in(txn)
    individual.end(A, abort=True)
    assert client_of(consumer).take() == [0, 2, 4]
    individual.redeliver(consumer, [0, 4])
    assert client_of(consumer).take() == [0, 4]


def test_waiting_at_the_limit_costs_nothing(serving: TransactionalServing) -> None:
    consumer = serving.join("c", permits=100)
    serving.publish_in(A)
    serving.publish_in(None, 5)
    before = serving.topic.asked, serving.topic.examined
    serving.do(wait_s=60.0)
    assert (serving.topic.asked, serving.topic.examined) == before
    serving.end(A)
    assert client_of(consumer).take() == [0, 1, 2, 3, 4, 5]


def test_long_stretches_of_aborted_entries_are_not_read(serving: TransactionalServing) -> None:
    serving.publish_in(None)
    for _ in range(20):
        serving.publish_in(A, 50)
    serving.publish_in(None)
    serving.end(A, abort=True)
    consumer = serving.join("c", permits=100)
    assert client_of(consumer).take() == [0, 1_001]
    assert serving.topic.examined == 2


def test_batches_of_a_transaction_use_their_permits_once_committed(serving: TransactionalServing) -> None:
    consumer = serving.join("c", permits=10)
    serving.publish_in(A, 1, messages=4)
    serving.publish_in(B, 1, messages=4)
    serving.publish_in(A, 1, messages=4)
    serving.end(B, abort=True)
    serving.end(A)
    assert client_of(consumer).take() == [0, 2]
    assert consumer.permits == 2


def test_chunks_of_an_aborted_transaction_bind_no_consumer() -> None:
    serving = TransactionalServing(SubType.Shared)
    consumers = [serving.join(name, permits=10) for name in "cd"]
    serving.topic.txn = A
    serving.publish(2, flags=RUN_CHUNK)
    serving.topic.txn = None
    serving.publish(2)
    serving.end(A, abort=True)
    assert sorted(number for each in consumers for number in client_of(each).take()) == [2, 3]
    serving.close()


def test_consumers_are_told_of_the_end_of_a_topic_behind_an_aborted_transaction(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    serving = TransactionalServing(SubType.Shared)
    consumer = serving.join("c", permits=1)
    serving.publish_in(None)
    serving.publish_in(A, 3)
    told: list[str] = []
    monkeypatch.setattr(Consumer, "tell_of_end", lambda self: told.append(self.name))
    serving.topic.terminated = True
    serving.ack(consumer, 0)
    assert told == []
    serving.end(A, abort=True)
    assert told == ["c"]
    serving.close()
