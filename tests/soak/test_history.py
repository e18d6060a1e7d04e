"""The checker of the soak finds what it is there to find: each rule is broken here once."""

from __future__ import annotations

import pytest

from tests.soak.history import KINDS, ORDERED, Consumer, Failovers, Kind, Position, Subscription, Violation

EARLY, LATE = 1.0, 2.0
SHARED: tuple[Kind, ...] = ("Shared", "Key_Shared")


def at(entry: int) -> Position:
    return (1, entry)


def history(kind: Kind, entries: int = 5) -> Subscription:
    """Entries 0, 1, 2 and so on are confirmed, all with the key "k"."""
    made = Subscription("topic", "sub", kind)
    for entry in range(entries):
        made.confirmed(at(entry), "k")
    return made


def consumer(one: Subscription, name: str = "a") -> Consumer:
    made = Consumer(name, permits=100)
    one.joined(made)
    return made


def deliver(one: Subscription, to: Consumer, *entries: int, written_since: float = EARLY) -> None:
    for entry in entries:
        one.delivery(to, at(entry), "k", written_since)


@pytest.mark.parametrize("kind", KINDS)
def test_message_never_delivered_is_missing(kind: Kind) -> None:
    one = history(kind)
    deliver(one, consumer(one), 0, 1, 2)
    assert one.missing() == [at(3), at(4)]


@pytest.mark.parametrize("kind", KINDS)
def test_acknowledged_message_must_not_be_redelivered(kind: Kind) -> None:
    one = history(kind)
    first = consumer(one)
    deliver(one, first, 0)
    one.acknowledging([at(0)])
    first.pending.clear()
    one.durable([at(0)], now=EARLY)
    one.left(first)
    second = consumer(one, "b")
    deliver(one, second, 0, written_since=EARLY)  # may have been on its way
    second.pending.clear()
    second.rewinds = 1
    with pytest.raises(Violation, match="acknowledged and came again"):
        deliver(one, second, 0, written_since=LATE)


@pytest.mark.parametrize("kind", KINDS)
def test_a_message_needs_a_permit(kind: Kind) -> None:
    one = history(kind)
    a = consumer(one)
    a.permits = 1
    deliver(one, a, 0)
    with pytest.raises(Violation, match="without a permit"):
        deliver(one, a, 1)


def test_an_exclusive_subscription_has_one_consumer() -> None:
    one = history("Exclusive")
    first = consumer(one)
    with pytest.raises(Violation, match="holds it"):
        consumer(one, "b")
    one.left(first)
    consumer(one, "c")


@pytest.mark.parametrize("kind", ORDERED)
def test_an_ordered_consumer_misses_nothing(kind: Kind) -> None:
    one = history(kind)
    a = consumer(one)
    deliver(one, a, 0)
    with pytest.raises(Violation, match=r"not \(1, 1\)"):
        deliver(one, a, 2)


@pytest.mark.parametrize("kind", ORDERED)
@pytest.mark.parametrize("cumulative", [True, False])
def test_an_ordered_consumer_may_miss_what_was_acknowledged(kind: Kind, cumulative: bool) -> None:
    one = history(kind)
    a = consumer(one)
    deliver(one, a, 0, 1, 2)
    one.acknowledging([at(2)] if cumulative else [at(0), at(1), at(2)], cumulative=cumulative)
    one.left(a)
    deliver(one, consumer(one, "b"), 3, 4)


@pytest.mark.parametrize("kind", ORDERED)
def test_an_ordered_consumer_begins_anew_only_with_a_reason_and_at_the_first_that_is_left(kind: Kind) -> None:
    one = history(kind)
    a = consumer(one)
    a.rewinds = 0
    deliver(one, a, 0, 1)
    with pytest.raises(Violation, match="after"):
        deliver(one, a, 0)
    a.rewinds = 1
    deliver(one, a, 0, 1, 2)
    a.rewinds = 1
    with pytest.raises(Violation, match=r"not \(1, 0\)"):
        deliver(one, a, 1)


@pytest.mark.parametrize("kind", SHARED)
def test_a_message_is_with_one_consumer_at_a_time(kind: Kind) -> None:
    one = history(kind)
    a, b = consumer(one), consumer(one, "b")
    deliver(one, a, 0)
    with pytest.raises(Violation, match="came to b too"):
        deliver(one, b, 0)


def test_a_key_is_with_one_consumer_at_a_time() -> None:
    one = history("Key_Shared")
    a, b = consumer(one), consumer(one, "b")
    deliver(one, a, 0)
    with pytest.raises(Violation, match="'k' is with a"):
        deliver(one, b, 1)


def test_a_key_moves_with_its_consumer_gone() -> None:
    one = history("Key_Shared")
    a, b = consumer(one), consumer(one, "b")
    deliver(one, a, 0, 1)
    one.left(a)
    deliver(one, b, 0, 1, 2)


def test_messages_of_a_key_come_in_order() -> None:
    one = history("Key_Shared")
    with pytest.raises(Violation, match="which is confirmed"):
        deliver(one, consumer(one), 1)


def test_a_message_that_is_confirmed_late_must_not_come_after_later_ones_of_its_key() -> None:
    one = Subscription("topic", "sub", "Key_Shared")
    a = consumer(one)
    deliver(one, a, 1)
    one.confirmed(at(0), "k")
    with pytest.raises(Violation, match="for the first time after"):
        deliver(one, a, 0)


def test_nothing_of_a_key_overtakes_what_was_given_back() -> None:
    one = history("Key_Shared")
    a = consumer(one)
    deliver(one, a, 0, 1)
    (returned,) = one.given_back(a, [at(0)])
    deliver(one, a, 2, written_since=EARLY)  # may have been on its way
    returned.known_at = EARLY
    with pytest.raises(Violation, match="was given back"):
        deliver(one, a, 3, written_since=LATE)
    deliver(one, a, 0, written_since=LATE)
    deliver(one, a, 4, written_since=LATE)


def test_two_messages_at_one_position_are_noticed() -> None:
    with pytest.raises(Violation, match="two messages"):
        history("Shared").confirmed(at(0), "other")


def test_a_second_active_consumer_of_a_failover_subscription_is_noticed() -> None:
    failovers = Failovers()
    a, b = Consumer("a"), Consumer("b")
    assert failovers.told(a, active=True) == []
    assert failovers.told(b, active=True) == [a]
    assert failovers.told(a, active=False) == []
    assert failovers.active == {b}
