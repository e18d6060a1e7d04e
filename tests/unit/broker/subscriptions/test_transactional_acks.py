"""Acknowledgements in transactions: withheld from every consumer until the end; an abort gives them back."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import pytest
from magnetar.broker.subscriptions.consumers.consumer import Consumer
from magnetar.broker.subscriptions.types.subscription_type import SubType
from magnetar.common.errors import LogFailed, TransactionConflict, TransactionNotAllowed

from tests.unit.broker.subscriptions.serving import client_of
from tests.unit.broker.subscriptions.transactional_topic import A, B, TransactionalServing

TYPES = [SubType.Exclusive, SubType.Failover, SubType.Shared, SubType.Key_Shared]
INDIVIDUAL = [SubType.Shared, SubType.Key_Shared]
ORDERED = [SubType.Exclusive, SubType.Failover]


def made_for(sub_type: SubType.ValueType) -> TransactionalServing:
    made = TransactionalServing(sub_type)
    made.quiet_s = 2.0  # longer than Failover waits for more consumers
    return made


@pytest.fixture(params=TYPES, ids=SubType.Name)
def serving(request: pytest.FixtureRequest) -> Iterator[TransactionalServing]:
    made = made_for(request.param)
    yield made
    made.close()


@pytest.fixture(params=INDIVIDUAL, ids=SubType.Name)
def individual(request: pytest.FixtureRequest) -> Iterator[TransactionalServing]:
    made = made_for(request.param)
    yield made
    made.close()


@pytest.fixture(params=ORDERED, ids=SubType.Name)
def ordered(request: pytest.FixtureRequest) -> Iterator[TransactionalServing]:
    made = made_for(request.param)
    yield made
    made.close()


def joined(serving: TransactionalServing, entries: int, messages: int = 1) -> Consumer:
    """A consumer that got so many entries, numbered from 0."""
    consumer = serving.join("c", permits=1_000)
    serving.publish(entries, messages)
    assert client_of(consumer).take() == list(range(entries))
    return consumer


@pytest.mark.parametrize("cached_from", [0, 1_000], ids=["cached", "stored"])
def test_pending_entries_stay_withheld_from_a_redelivery_and_count_as_backlog(
    serving: TransactionalServing, cached_from: int
) -> None:
    serving.topic.cached_from = cached_from
    consumer = joined(serving, 15)
    serving.ack_in(A, consumer, 1, 2, 11)
    assert serving.cursor.backlog() == 15
    serving.redeliver(consumer)
    assert client_of(consumer).take() == [0, *range(3, 11), 12, 13, 14]


def test_pending_entries_stay_pending_when_their_consumer_leaves(serving: TransactionalServing) -> None:
    consumer = joined(serving, 5)
    serving.ack_in(A, consumer, 0, 3)
    serving.leave(consumer)
    other = serving.join("other", permits=100)
    assert client_of(other).take() == [1, 2, 4]
    serving.end(A, abort=True)
    assert client_of(other).take() == [0, 3]


def test_a_commit_acknowledges_and_nothing_comes_again(serving: TransactionalServing) -> None:
    consumer = joined(serving, 5)
    serving.ack_in(A, consumer, 0, 1, 4)
    serving.end(A)
    assert serving.cursor.backlog() == 2
    assert serving.subscription.stats.acks == 3
    serving.leave(consumer)
    other = serving.join("other", permits=100)
    assert client_of(other).take() == [2, 3]


def test_an_abort_delivers_its_entries_again_and_only_these(serving: TransactionalServing) -> None:
    consumer = joined(serving, 6)
    serving.ack_in(A, consumer, 1, 4)
    serving.ack_in(B, consumer, 2)
    serving.end(A, abort=True)
    assert client_of(consumer).take() == [1, 4]
    serving.end(B)
    assert client_of(consumer).take() == []
    assert serving.cursor.backlog() == 5


def test_an_aborted_entry_counts_as_redelivered(individual: TransactionalServing) -> None:
    consumer = joined(individual, 2)
    individual.ack_in(A, consumer, 1)
    individual.end(A, abort=True)
    (message,) = client_of(consumer).messages
    assert (message.number, message.redelivery_count) == (1, 1)
    assert individual.subscription.stats.messages_redelivered == 1


def test_what_is_pending_is_no_longer_held_by_its_consumer(individual: TransactionalServing) -> None:
    consumer = joined(individual, 5)
    assert individual.subscription.unacked_messages == 5
    individual.ack_in(A, consumer, 0, 1)
    assert individual.subscription.unacked_messages == 3
    individual.end(A, abort=True)
    assert individual.subscription.unacked_messages == 5


def test_an_acknowledgement_in_a_transaction_lifts_a_limit_on_unacknowledged_messages() -> None:
    serving = TransactionalServing(SubType.Shared, unacked_max=4)
    try:
        consumer = serving.join("c", permits=100)
        serving.publish(6)
        assert client_of(consumer).take() == [0, 1, 2, 3]
        serving.ack_in(A, consumer, 0, 1, 2)
        assert client_of(consumer).take() == [4, 5]
    finally:
        serving.close()


def test_a_consumer_may_acknowledge_what_another_one_holds(individual: TransactionalServing) -> None:
    first = individual.join("first", permits=2)
    individual.publish(2)
    second = individual.join("second", permits=100)
    held = client_of(first).take() or client_of(second).take()
    individual.ack_in(A, second, *held)
    assert individual.subscription.unacked_messages == 0


def test_a_second_transaction_gets_a_conflict_and_takes_nothing(serving: TransactionalServing) -> None:
    consumer = joined(serving, 4)
    serving.ack_in(A, consumer, 1)
    with pytest.raises(TransactionConflict):
        serving.ack_in(B, consumer, 0, 1)
    serving.redeliver(consumer)
    assert client_of(consumer).take() == [0, 2, 3]
    serving.ack_in(A, consumer, 1)
    serving.ack_in(B, consumer, 0)


def test_what_is_acknowledged_already_conflicts(serving: TransactionalServing) -> None:
    consumer = joined(serving, 3)
    serving.ack(consumer, 1)
    with pytest.raises(TransactionConflict):
        serving.ack_in(A, consumer, 1)


def test_a_plain_acknowledgement_wins_over_a_pending_one(serving: TransactionalServing) -> None:
    consumer = joined(serving, 3)
    serving.ack_in(A, consumer, 1)
    serving.ack(consumer, 1)
    assert serving.cursor.backlog() == 2
    serving.end(A, abort=True)
    assert client_of(consumer).take() == []
    assert serving.cursor.backlog() == 2


def test_a_failed_write_is_told_and_leaves_the_entry_pending(serving: TransactionalServing) -> None:
    consumer = joined(serving, 3)
    serving.topic.failure = LogFailed("the disk is full")
    serving.ack_in(A, consumer, 1)
    serving.redeliver(consumer)
    assert client_of(consumer).take() == [0, 2]
    serving.end(A, abort=True)
    assert client_of(consumer).take() == [1]


def test_only_the_free_messages_of_a_batch_come_again(serving: TransactionalServing) -> None:
    consumer = joined(serving, 2, messages=4)
    serving.ack_bits_in(A, consumer, 0, 0b0011, 4)
    serving.redeliver(consumer)
    first, second = client_of(consumer).messages
    assert (first.number, first.ack_set) == (0, (0b1100,))
    assert (second.number, second.ack_set) == (1, ())


def test_a_batch_with_no_free_message_does_not_come_again(serving: TransactionalServing) -> None:
    consumer = joined(serving, 2, messages=4)
    serving.ack_bits_in(A, consumer, 0, 0b0011, 4)
    serving.ack_bits_in(B, consumer, 0, 0b1100, 4)
    serving.redeliver(consumer)
    assert client_of(consumer).take() == [1]
    serving.end(A)
    serving.end(B, abort=True)
    (message,) = client_of(consumer).messages
    assert (message.number, message.ack_set) == (0, (0b1100,))


def test_the_messages_of_a_batch_that_two_transactions_commit_complete_it(
    serving: TransactionalServing,
) -> None:
    consumer = joined(serving, 1, messages=4)
    serving.ack_bits_in(A, consumer, 0, 0b0101, 4)
    serving.ack_bits_in(B, consumer, 0, 0b1010, 4)
    serving.end(A)
    assert serving.cursor.backlog() == 1
    serving.end(B)
    assert serving.cursor.backlog() == 0


def test_messages_of_a_batch_that_overlap_conflict(serving: TransactionalServing) -> None:
    consumer = joined(serving, 1, messages=4)
    serving.ack_bits_in(A, consumer, 0, 0b0011, 4)
    with pytest.raises(TransactionConflict):
        serving.ack_bits_in(B, consumer, 0, 0b0010, 4)
    with pytest.raises(TransactionConflict):
        serving.ack_in(B, consumer, 0)
    serving.ack_bits_in(B, consumer, 0, 0b1000, 4)


def test_a_batch_in_part_pending_counts_only_its_free_messages(individual: TransactionalServing) -> None:
    consumer = joined(individual, 1, messages=4)
    individual.ack_bits_in(A, consumer, 0, 0b0111, 4)
    assert individual.subscription.unacked_messages == 1
    individual.ack_bits_in(A, consumer, 0, 0b1000, 4)
    assert individual.subscription.unacked_messages == 0
    individual.end(A, abort=True)
    assert individual.subscription.unacked_messages == 4


def test_a_plain_acknowledgement_beside_pending_messages_of_a_batch_lowers_the_count(
    individual: TransactionalServing,
) -> None:
    consumer = joined(individual, 1, messages=4)
    individual.ack_bits_in(A, consumer, 0, 0b0011, 4)
    ledger_id, entry_id = individual.topic.position_of(0)
    for bits, left in ((0b0100, 1), (0b1000, 0)):
        ack = partial(individual.subscription.ack_batch, ledger_id, entry_id, bits, 4, consumer)
        individual.do(ack)
        assert individual.subscription.unacked_messages == left
    individual.end(A, abort=True)
    assert [each.ack_set for each in client_of(consumer).messages[-1:]] == [(0b0011,)]
    assert individual.subscription.unacked_messages == 2


def test_cumulative_acknowledgements_need_an_order(individual: TransactionalServing) -> None:
    consumer = joined(individual, 3)
    with pytest.raises(TransactionNotAllowed):
        individual.ack_cumulative_in(A, consumer, 1)
    assert individual.topic.acks.transactions == {}


def test_a_cumulative_commit_moves_the_cursor(ordered: TransactionalServing) -> None:
    consumer = joined(ordered, 5)
    ordered.ack_cumulative_in(A, consumer, 2)
    assert ordered.cursor.backlog() == 5
    ordered.end(A)
    assert ordered.cursor.backlog() == 2
    ordered.redeliver(consumer)
    assert client_of(consumer).take() == [3, 4]


def test_a_cumulative_abort_delivers_nothing_before_the_consumer_asks(ordered: TransactionalServing) -> None:
    consumer = joined(ordered, 5)
    ordered.ack_cumulative_in(A, consumer, 2)
    ordered.end(A, abort=True)
    assert client_of(consumer).take() == []
    ordered.redeliver(consumer)
    assert client_of(consumer).take() == [0, 1, 2, 3, 4]


def test_a_cumulative_abort_inside_batches_delivers_nothing_before_the_consumer_asks(
    ordered: TransactionalServing,
) -> None:
    consumer = joined(ordered, 6, messages=4)
    ordered.ack_into_batch_in(A, consumer, 2, 0b0011, 4)
    ordered.ack_cumulative_in(A, consumer, 3)
    ordered.ack_into_batch_in(A, consumer, 5, 0b0001, 4)
    ordered.end(A, abort=True)
    assert client_of(consumer).take() == []


def test_a_redelivery_before_the_end_has_all_messages_of_a_batch_that_is_acknowledged_up_to_its_middle(
    ordered: TransactionalServing,
) -> None:
    consumer = joined(ordered, 3, messages=4)
    ordered.ack_into_batch_in(A, consumer, 1, 0b0011, 4)
    ordered.redeliver(consumer)
    assert [(each.number, each.ack_set) for each in client_of(consumer).messages] == [
        (0, ()),
        (1, ()),
        (2, ()),
    ]
    client_of(consumer).take()
    ordered.end(A)
    ordered.redeliver(consumer)
    assert [(each.number, each.ack_set) for each in client_of(consumer).messages] == [(1, (0b1100,)), (2, ())]


def test_one_transaction_at_a_time_acknowledges_cumulatively(ordered: TransactionalServing) -> None:
    consumer = joined(ordered, 6)
    ordered.ack_cumulative_in(A, consumer, 2)
    with pytest.raises(TransactionConflict):
        ordered.ack_cumulative_in(B, consumer, 4)
    ordered.ack_cumulative_in(A, consumer, 3)
    ordered.ack_in(B, consumer, 5)
    ordered.end(A)
    ordered.end(B, abort=True)
    assert ordered.cursor.backlog() == 2
    assert client_of(consumer).take() == [5]


def test_skipped_entries_are_pending_no_more(serving: TransactionalServing) -> None:
    consumer = joined(serving, 4)
    serving.ack_in(A, consumer, 1, 3)
    serving.do(lambda: serving.subscription.skip_to(serving.topic.position_of(2)))
    serving.end(A, abort=True)
    assert client_of(consumer).take() == [3]


def test_what_is_pending_when_a_topic_is_loaded_is_withheld_from_the_first_consumer(
    serving: TransactionalServing,
) -> None:
    consumer = joined(serving, 3)
    serving.ack_in(A, consumer, 1)
    serving.leave(consumer)
    consumer = serving.join("next", permits=100)
    assert client_of(consumer).take() == [0, 2]
    serving.end(A, abort=True)
    assert client_of(consumer).take() == [1]


@pytest.mark.parametrize("later", [6, 15], ids=["the same ledger", "another ledger"])
def test_an_abort_of_entries_that_no_consumer_was_sent_yet_delivers_them_once(
    serving: TransactionalServing, later: int
) -> None:
    consumer = joined(serving, 18)
    serving.ack_in(A, consumer, 1, later)
    serving.leave(consumer)
    consumer = serving.join("next", permits=2)
    assert client_of(consumer).take() == [0, 2]
    serving.end(A, abort=True)
    serving.flow(consumer, 100)
    assert sorted(client_of(consumer).take()) == [1, *range(3, 18)]


def test_a_subscription_without_such_acknowledgements_has_no_gate(serving: TransactionalServing) -> None:
    consumer = joined(serving, 3)
    serving.ack(consumer, 0, 1, 2)
    source = serving.subscription.source
    assert source is not None
    assert source.gates == ()


def test_an_entry_that_was_acknowledged_before_it_was_sent_is_not_sent(serving: TransactionalServing) -> None:
    consumer = serving.join("c", permits=1)
    serving.publish(5)
    assert client_of(consumer).take() == [0]
    serving.ack_in(A, consumer, 2, 3)
    serving.flow(consumer, 100)
    assert client_of(consumer).take() == [1, 4]
