from __future__ import annotations

from dataclasses import dataclass

from magnetar.broker.dispatch.eligibility import Code, reason
from magnetar.broker.dispatch.shared import SharedDispatcher
from magnetar.broker.reason import Reason


@dataclass(eq=False)
class Fake:
    name: str
    permits: int
    priority_level: int = 0

    @property
    def capacity(self) -> int:
        return max(0, self.permits)

    @property
    def held_back_by(self) -> Reason | None:
        return None if self.permits > 0 else reason(Code.NO_PERMITS, "no permits")


def deal(dispatcher: SharedDispatcher[Fake]) -> list[str]:
    """Entries one at a time until nobody can take any."""
    order = []
    while (choice := dispatcher.next()) is not None:
        consumer, entries = choice
        assert 0 < entries <= consumer.permits
        consumer.permits -= 1
        dispatcher.took()
        order.append(consumer.name)
    return order


def dispatcher_of(*consumers: Fake, entries_max: int = 1) -> SharedDispatcher[Fake]:
    dispatcher: SharedDispatcher[Fake] = SharedDispatcher(entries_max)
    for consumer in consumers:
        dispatcher.add(consumer)
    return dispatcher


def test_turns_go_round_the_consumers_with_permits_and_lower_levels_wait() -> None:
    # The picture of Pulsar's concepts: C1 2 permits, C2 1, C3 1 on level 0, C4 2, C5 1 on level 1.
    dispatcher = dispatcher_of(
        Fake("C1", 2), Fake("C2", 1), Fake("C3", 1), Fake("C4", 2, 1), Fake("C5", 1, 1)
    )
    assert deal(dispatcher) == ["C1", "C2", "C3", "C1", "C4", "C5", "C4"]


def test_a_turn_has_at_most_the_configured_entries() -> None:
    dispatcher = dispatcher_of(Fake("a", 1000), Fake("b", 7), entries_max=20)
    first = dispatcher.next()
    dispatcher.took()
    second = dispatcher.next()
    assert first is not None
    assert second is not None
    assert (first[0].name, first[1]) == ("a", 20)
    assert (second[0].name, second[1]) == ("b", 7)


def test_a_single_consumer_gets_all_it_has_permits_for() -> None:
    dispatcher = dispatcher_of(Fake("a", 1000), entries_max=20)
    choice = dispatcher.next()
    assert choice is not None
    assert choice[1] == 1000


def test_a_better_level_that_gets_permits_again_comes_first() -> None:
    better, worse = Fake("better", 0), Fake("worse", 5, 1)
    dispatcher = dispatcher_of(better, worse)
    choice = dispatcher.next()
    assert choice is not None
    assert choice[0] is worse
    dispatcher.took()
    better.permits = 1
    choice = dispatcher.next()
    assert choice is not None
    assert choice[0] is better


def test_no_consumer_is_chosen_without_permits() -> None:
    assert dispatcher_of(Fake("a", 0), Fake("b", -3)).next() is None
    assert dispatcher_of().next() is None


def test_a_consumer_that_left_gets_nothing_more() -> None:
    a, b = Fake("a", 9), Fake("b", 9)
    dispatcher = dispatcher_of(a, b)
    dispatcher.next()
    dispatcher.took()
    dispatcher.remove(b)
    assert deal(dispatcher) == ["a"] * 9


def test_a_turn_in_which_nothing_was_taken_is_not_over() -> None:
    a, b = Fake("a", 9), Fake("b", 9)
    dispatcher = dispatcher_of(a, b)
    order = []
    for _ in range(6):
        dispatcher.next()  # there was nothing to deliver
        choice = dispatcher.next()
        assert choice is not None
        dispatcher.took()
        order.append(choice[0].name)
    assert order == ["a", "b"] * 3


def test_a_leaver_takes_no_turn_of_another() -> None:
    consumers = [Fake(name, 9) for name in "abc"]
    dispatcher = dispatcher_of(*consumers)
    for _ in "ab":
        dispatcher.next()
        dispatcher.took()
    dispatcher.remove(consumers[0])
    choice = dispatcher.next()
    assert choice is not None
    assert choice[0].name == "c"


def test_a_newcomer_comes_last_in_the_round() -> None:
    dispatcher = dispatcher_of(Fake("a", 2), Fake("b", 2))
    dispatcher.next()
    dispatcher.took()
    dispatcher.add(Fake("c", 2))
    assert deal(dispatcher) == ["b", "a", "c"] * 2
