"""The first items of an order, out of many."""

from __future__ import annotations

from magnetar.broker.admin.stats.top_rows import SUMS, Selection, Sums, topic_row
from magnetar.common.naming.topic_name import TopicName

from tests.unit.broker.admin.fake_broker import FakeSubscription, FakeTopic


def test_a_selection_is_the_head_of_the_sorted_items_and_keeps_at_most_twice_as_many() -> None:
    selection: Selection[int] = Selection(3)
    kept = 0
    for number in range(1000):
        selection.add(number * 7919 % 1000, (f"{number:04}",), number * 7919 % 1000)
        kept = max(kept, len(selection._kept))
    assert selection.items() == [999, 998, 997]
    assert selection.total == 1000
    assert kept <= 6


def test_equal_items_are_in_the_order_of_names_in_both_directions() -> None:
    for ascending in (False, True):
        selection: Selection[str] = Selection(2, ascending)
        for name in ("c", "a", "b"):
            selection.add(5, (name,), name)
        assert selection.items() == ["a", "b"]


def test_sums_are_those_of_the_rows_of_topics() -> None:
    topics = []
    for number in range(3):
        topic = FakeTopic(TopicName.parse(f"persistent://acme/demo/t{number}"), producer_count=number)
        topic.stats.messages_in = 10 * number
        topic.subscriptions["s"] = FakeSubscription(consumer_count=2, entries_behind=number)
        topics.append(topic)
    sums = Sums()
    for topic in topics:
        sums.add(topic)
    row = sums.row("namespace", "acme/demo")
    assert (row["namespace"], row["topics"], row["msgBacklog"], row["msgInCounter"]) == (
        "acme/demo",
        3,
        3,
        30,
    )
    shown = [topic_row(topic, "b") for topic in topics]
    assert {name: row[name] for name in SUMS} == {name: sum(each[name] for each in shown) for name in SUMS}
