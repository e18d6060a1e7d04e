"""The checker finds each kind of broken promise when it is planted, and nothing where there is none."""

from __future__ import annotations

import pytest

from tests.chaos.history import Published, ServedByMany
from tests.soak.history import KINDS, Consumer, Kind, Violation

A, B = object(), object()
"""Connections to two brokers."""


def subscription(kind: Kind, count: int = 4) -> ServedByMany:
    history = ServedByMany("t", "s", kind)
    for entry in range(count):
        history.confirmed_at((1, entry), f"key-{entry % 2}", 10.0 + entry)
    return history


def joined(history: ServedByMany, name: str, at: object, now: float = 20.0) -> Consumer:
    consumer = Consumer(name, permits=100)
    history.joined_at(consumer, at, now)
    return consumer


def deliver(history: ServedByMany, consumer: Consumer, entry: int, since: float = 20.0) -> None:
    history.heard(consumer, (1, entry), f"key-{entry % 2}", since, written_since=since)


def acknowledge(history: ServedByMany, consumer: Consumer, entry: int, now: float) -> None:
    consumer.pending.pop((1, entry))
    history.acknowledging([(1, entry)])
    history.durable([(1, entry)], now)


@pytest.mark.parametrize("kind", KINDS)
def test_a_move_after_which_all_that_was_not_acknowledged_comes_again_is_fine(kind: Kind) -> None:
    history = subscription(kind)
    first = joined(history, "first", A)
    for entry in range(3):
        deliver(history, first, entry)
    acknowledge(history, first, 0, 21.0)
    second = joined(history, "second", B, 30.0)
    for entry in (1, 2, 3):
        deliver(history, second, entry, 30.0)
        acknowledge(history, second, entry, 31.0)
    assert not history.lost()
    assert history.idle(100.0, 0.0) == 0.0
    assert history.owners == 2


@pytest.mark.parametrize("kind", ["Exclusive", "Failover"])
def test_finds_messages_skipped_by_the_next_owner(kind: Kind) -> None:
    history = subscription(kind)
    deliver(history, joined(history, "first", A), 0)
    second = joined(history, "second", B)
    with pytest.raises(Violation, match=r"got \(1, 1\) after \(-1, -1\), not \(1, 0\)"):
        deliver(history, second, 1)


def test_finds_messages_of_a_key_skipped_by_the_next_owner() -> None:
    history = subscription("Key_Shared")
    deliver(history, joined(history, "first", A), 0)
    second = joined(history, "second", B)
    deliver(history, second, 1)
    with pytest.raises(Violation, match=r"\(1, 2\) of 'key-0' came before \(1, 0\)"):
        deliver(history, second, 2)


@pytest.mark.parametrize("kind", KINDS)
def test_message_delivered_by_no_later_owner_is_lost(kind: Kind) -> None:
    history = subscription(kind, count=2)
    first = joined(history, "first", A)
    deliver(history, first, 0)
    deliver(history, first, 1)
    assert not history.lost()
    second = joined(history, "second", B)
    assert history.lost() == [(1, 0), (1, 1)]
    deliver(history, second, 0)
    assert history.lost() == [(1, 1)]


@pytest.mark.parametrize("kind", KINDS)
def test_a_former_owner_that_delivers_what_is_acknowledged_with_the_next_is_found(kind: Kind) -> None:
    history = subscription(kind)
    first = joined(history, "first", A)
    second = joined(history, "second", B, 30.0)
    assert not first.here
    deliver(history, second, 0, 30.0)
    acknowledge(history, second, 0, 31.0)
    deliver(history, first, 0, 30.5)  # it may have been written before
    with pytest.raises(Violation, match=r"a former owner delivered \(1, 0\) to first more than 1.0 s after"):
        deliver(history, first, 0, 32.0)


@pytest.mark.parametrize("kind", KINDS)
def test_an_acknowledgement_that_the_next_owner_does_not_know_is_found(kind: Kind) -> None:
    history = subscription(kind)
    first = joined(history, "first", A)
    deliver(history, first, 0)
    acknowledge(history, first, 0, 21.0)
    second = joined(history, "second", B, 30.0)
    with pytest.raises(Violation, match="was acknowledged and came again"):
        deliver(history, second, 0, 30.0)


def test_first_side_to_move_stops_the_others_at_their_positions() -> None:
    history = subscription("Key_Shared")
    one, other = joined(history, "one", A), joined(history, "other", A)
    deliver(history, one, 0)
    deliver(history, other, 1)
    moved = joined(history, "moved", B)
    deliver(history, moved, 0)
    deliver(history, moved, 1)
    assert history.consumers == [moved]


def test_a_subscription_that_is_idle_though_messages_wait_is_found() -> None:
    history = subscription("Shared", count=2)
    consumer = joined(history, "one", A, 20.0)
    assert history.idle(27.0, 0.0) == 7.0, "since it was served anew"
    assert history.idle(27.0, 25.0) == 2.0, "what was before is not counted"
    deliver(history, consumer, 0, 26.0)
    assert history.idle(27.0, 0.0) == 1.0, "since the last delivery"
    deliver(history, consumer, 1, 26.0)
    assert history.idle(99.0, 0.0) == 0.0, "nothing waits"
    history.given_back_at(consumer, [(1, 0)], 50.0)
    assert history.idle(99.0, 0.0) == 49.0, "since it was given back"
    history.left_at(consumer, 60.0)
    assert history.lost() == [(1, 0), (1, 1)]


def test_an_ordered_consumer_gives_back_all_it_has_and_gets_it_again() -> None:
    history = subscription("Exclusive", count=2)
    consumer = joined(history, "one", A)
    deliver(history, consumer, 0)
    deliver(history, consumer, 1)
    history.given_back_at(consumer, [], 30.0)
    assert history.lost() == [(1, 0), (1, 1)]
    with pytest.raises(Violation, match=r"not \(1, 0\)"):
        deliver(history, consumer, 1)


def published(*numbers: int) -> Published:
    one = Published("t")
    for number in numbers:
        one.receipt(number, (1, number))
    return one


def test_message_resent_without_a_receipt_may_be_stored_twice() -> None:
    published(0, 1, 3).check([((1, 0), 0), ((1, 1), 1), ((1, 2), 2), ((1, 3), 3), ((2, 0), 2), ((2, 1), 3)])


def test_confirmed_messages_that_are_gone_or_elsewhere_are_found() -> None:
    with pytest.raises(
        Violation, match=r"1 of 3 confirmed messages are lost; the first is 1, confirmed at \(1, 1\)"
    ):
        published(0, 1, 2).check([((1, 0), 0), ((1, 2), 2)])
    with pytest.raises(Violation, match=r"confirmed at \(1, 1\), there at \[\(2, 1\)\]"):
        published(0, 1).check([((1, 0), 0), ((2, 1), 1)])


def test_messages_of_a_producer_that_changed_places_are_found() -> None:
    with pytest.raises(Violation, match="message 1 is there only after message 2"):
        published(0).check([((1, 0), 0), ((1, 1), 2), ((1, 2), 1)])
    with pytest.raises(Violation, match=r"\(1, 0\) came after \(1, 1\)"):
        published(0).check([((1, 0), 0), ((1, 1), 1), ((1, 0), 0)])


def test_a_message_confirmed_twice_is_found() -> None:
    with pytest.raises(Violation, match="message 0 was confirmed twice"):
        published(0, 0)


def once(*numbers: int) -> Published:
    one = Published("t", once=True)
    for number in numbers:
        one.receipt(number, None)
    return one


def test_resent_message_is_stored_once_with_deduplication() -> None:
    one = once(0, 2)
    one.receipt(1, (1, 1))
    one.check([((1, 0), 0), ((1, 1), 1), ((1, 2), 2), ((1, 3), 3)])
    assert (one.last, one.somewhere) == ((1, 1), {0, 2})
    with pytest.raises(
        Violation, match=r"1 messages are there more than once; the first is 2, at \[\(1, 2\), \(2, 0\)\]"
    ):
        one.check([((1, 0), 0), ((1, 1), 1), ((1, 2), 2), ((2, 0), 2)])


def test_missing_message_answered_as_a_duplicate_is_lost() -> None:
    with pytest.raises(
        Violation, match=r"1 of 2 confirmed messages are lost; the first is 1, confirmed at some place"
    ):
        once(0, 1).check([((1, 0), 0)])


def test_a_duplicate_where_none_are_looked_for_is_found() -> None:
    with pytest.raises(Violation, match="message 0 was taken for a duplicate"):
        Published("t").receipt(0, None)
