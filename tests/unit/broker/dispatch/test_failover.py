from __future__ import annotations

from dataclasses import dataclass
from itertools import permutations

import hypothesis.strategies as st
import pytest
from hypothesis import given
from magnetar.broker.dispatch.failover import FailoverDispatcher
from magnetar.broker.reason import Reason
from mmh3 import mmh3_32_uintdigest

TOPIC = "persistent://public/default/orders"


@dataclass(eq=False)
class Fake:
    name: str
    priority_level: int = 0
    capacity: int = 1
    held_back_by: Reason | None = None


def dispatcher(*consumers: Fake, partition: int = -1, topic: str = TOPIC) -> FailoverDispatcher[Fake]:
    made = FailoverDispatcher[Fake](topic, partition)
    for consumer in consumers:
        made.add(consumer)
    return made


def active_name(made: FailoverDispatcher[Fake]) -> str | None:
    return None if made.active is None else made.active.name


def by_partition(partitions: int, *names: str) -> str:
    """The active consumer's name for each partition, one letter each."""
    return "".join(
        active_name(dispatcher(*map(Fake, names), partition=index)) or "-" for index in range(partitions)
    )


def test_no_consumer_is_active_without_consumers() -> None:
    made = dispatcher()
    assert (made.active, made.next()) == (None, None)


def test_partitions_spread_over_the_consumers_by_name() -> None:
    assert by_partition(9, "A", "B", "C") == "ABCABCABC"
    assert by_partition(2, "A", "B", "C", "D") == "AB"


def test_a_leave_changes_the_active_consumer_wherever_the_formula_says() -> None:
    assert by_partition(2, "B", "C", "D") == "BC"


def test_the_order_of_joining_does_not_matter() -> None:
    for names in permutations("ABCD"):
        assert by_partition(6, *names) == "ABCDAB"


def test_a_better_priority_level_comes_before_the_name() -> None:
    consumers = [Fake("A", 2), Fake("B", 1), Fake("C", 1), Fake("D", 7)]
    assert [active_name(dispatcher(*consumers, partition=index)) for index in range(3)] == ["B", "C", "B"]
    made = dispatcher(*consumers, partition=0)
    for leaver in consumers[1:3]:
        made.remove(leaver)
    assert active_name(made) == "A"


def test_only_the_active_consumer_gets_anything() -> None:
    first, second = Fake("A", capacity=0), Fake("B", capacity=9)
    made = dispatcher(first, second, partition=0)
    assert made.next() is None
    first.capacity = 5
    assert made.next() == (first, 5)
    made.remove(first)
    assert made.next() == (second, 9)


def test_a_consumer_that_was_never_there_leaves_without_effect() -> None:
    made = dispatcher(Fake("A"))
    made.remove(Fake("A"))
    assert active_name(made) == "A"


def ring_choice(topic: str, names: list[str]) -> str:
    """The ring as a map of all points, as it is described."""
    points = {}
    for name in sorted(names):
        for number in range(100):
            points[mmh3_32_uintdigest(f"{name}{number}".encode()) & 0x7FFFFFFF] = name
    at = mmh3_32_uintdigest(topic.encode()) & 0x7FFFFFFF
    return points[min((point for point in points if point >= at), default=min(points))]


@given(st.sets(st.text("abc1", max_size=3), min_size=1, max_size=6), st.integers(0, 50))
def test_a_topic_without_partitions_has_the_next_consumer_on_the_ring(names: set[str], number: int) -> None:
    topic = f"{TOPIC}-{number}"
    made = dispatcher(*map(Fake, names), topic=topic)
    assert active_name(made) == ring_choice(topic, list(names))


def test_topics_spread_over_the_consumers_of_one_subscription() -> None:
    names = ["one", "two", "three"]
    chosen = {active_name(dispatcher(*map(Fake, names), topic=f"{TOPIC}-{n}")) for n in range(50)}
    assert chosen == set(names)


@pytest.mark.parametrize("leaver", range(4))
def test_on_the_ring_only_the_topics_of_a_leaver_get_another_active_consumer(leaver: int) -> None:
    consumers = [Fake(f"consumer-{n}") for n in range(4)]
    for number in range(40):
        made = dispatcher(*consumers, topic=f"{TOPIC}-{number}")
        before = made.active
        made.remove(consumers[leaver])
        assert made.active is not consumers[leaver]
        assert before is consumers[leaver] or made.active is before


def test_later_of_two_consumers_with_one_name_is_active() -> None:
    first, second = Fake("same"), Fake("same")
    made = dispatcher(first, second)
    assert made.active is second
    made.remove(second)
    assert made.active is first
