"""The plan of a search leaves out ledgers by id and time, and joins ledgers that one reader reads."""

from __future__ import annotations

from typing import Any

import click
import pytest
from magnetar.cli.search.option_types import GivenId
from magnetar.cli.search.search_plan import (
    TIME_SLACK_MS,
    ColdStretch,
    HotStretch,
    TopicPlan,
    plan_search,
    topics_of,
)
from magnetar.ledger.cold.search.condition import BEGINNING, Condition, MessagePosition

NAME = "persistent://public/default/orders"
HOUR_MS = 3_600_000
START_MS = 1_700_000_000_000


def cold(ledger_id: int, hour: int = 0) -> dict[str, Any]:
    """An offloaded ledger of an hour."""
    return {
        "ledgerId": ledger_id,
        "entries": 10,
        "isOffloaded": True,
        "offloadedTo": {
            "location": "file:///cold",
            "path": f"orders/{ledger_id}",
            "manifestSha256": "ab" * 32,
            "objectBytes": 1_000,
            "openedTimestamp": START_MS + hour * HOUR_MS,
            "maxPublishTimestamp": START_MS + (hour + 1) * HOUR_MS - 1,
        },
    }


def hot(ledger_id: int) -> dict[str, Any]:
    return {"ledgerId": ledger_id, "entries": 5, "isOffloaded": False}


def plan(ledgers: list[dict[str, Any]], condition: Condition, **options: Any) -> TopicPlan:
    (found,) = plan_search({NAME: {"ledgers": ledgers}}, condition, **options)
    return found


def shape(found: TopicPlan) -> list[Any]:
    return [
        stretch.objects.ledger_id
        if isinstance(stretch, ColdStretch)
        else (stretch.first_ledger_id, stretch.last_ledger_id)
        for stretch in found.stretches
    ]


LEDGERS = [cold(1), cold(2), hot(3), hot(4), cold(5), {"ledgerId": 6, "isOffloaded": False}]


def test_hot_ledgers_that_follow_each_other_are_read_at_once_and_the_last_one_to_its_end() -> None:
    found = plan(LEDGERS, Condition())
    assert shape(found) == [1, 2, (3, 4), 5, (6, None)]
    assert (found.cold_ledgers, found.object_bytes, found.entries) == (3, 3_000, 40)
    assert shape(plan(LEDGERS, Condition(), through_brokers=True)) == [(1, None)]
    assert shape(plan([], Condition())) == []
    assert shape(plan([cold(1)], Condition())) == [1]


def test_ids_leave_out_other_ledgers() -> None:
    at = GivenId(MessagePosition(4, 7, 2), None)
    found = plan(LEDGERS, Condition(), at=at)
    assert shape(found) == [(4, 4)]
    assert (found.condition.entry_id, found.condition.batch_index) == (7, 2)
    whole = plan(LEDGERS, Condition(), at=GivenId(MessagePosition(2, 7), None))
    assert (shape(whole), whole.condition.batch_index) == ([2], None)
    start = GivenId(MessagePosition(4, 1), None)
    found = plan(LEDGERS, Condition(), start=start)
    assert (shape(found), found.condition.start) == ([(4, 4), 5, (6, None)], MessagePosition(4, 1))
    assert shape(plan(LEDGERS, Condition(), at=GivenId(MessagePosition(99, 0), None))) == []


def test_times_leave_out_ledgers_that_are_off_by_more_than_clocks_may_be() -> None:
    hours = [cold(number + 1, hour=10 * number) for number in range(4)]
    middle_ms = START_MS + 15 * HOUR_MS
    assert shape(plan(hours, Condition(since_ms=middle_ms))) == [3, 4]
    assert shape(plan(hours, Condition(until_ms=middle_ms))) == [1, 2]
    assert shape(plan(hours, Condition(since_ms=middle_ms, by_event_time=True))) == [1, 2, 3, 4]
    opened_ms = START_MS + 10 * HOUR_MS
    assert shape(plan(hours, Condition(until_ms=opened_ms - TIME_SLACK_MS))) == [1]
    assert shape(plan(hours, Condition(until_ms=opened_ms - TIME_SLACK_MS + 1))) == [1, 2]
    newest_ms = START_MS + HOUR_MS - 1
    assert shape(plan(hours, Condition(since_ms=newest_ms + TIME_SLACK_MS)))[0] == 1
    assert shape(plan(hours, Condition(since_ms=newest_ms + TIME_SLACK_MS + 1)))[0] == 2
    unknown = cold(1)
    unknown["offloadedTo"] |= {"openedTimestamp": 0, "maxPublishTimestamp": 0}
    assert shape(plan([unknown], Condition(since_ms=middle_ms, until_ms=middle_ms + 1))) == [1]


def parted() -> dict[str, Any]:
    """Eleven partitions, in the order in which JSON has them: by name."""
    names = sorted(f"{NAME}-partition-{number}" for number in range(11))
    return {
        "version": 0,
        "partitions": {name: {"ledgers": [hot(100 + int(name.rpartition("-")[2]))]} for name in names},
    }


def test_partitions_are_searched_in_order_and_a_search_goes_on_in_one() -> None:
    infos = topics_of(NAME, parted())
    plans = plan_search(infos, Condition())
    assert [each.partition for each in plans] == list(range(11))
    start = GivenId(MessagePosition(109, 3), 9)
    later = plan_search(infos, Condition(), start=start)
    assert [(each.partition, each.condition.start) for each in later] == [
        (9, MessagePosition(109, 3)),
        (10, BEGINNING),
    ]
    by_ledger = plan_search(infos, Condition(), start=GivenId(MessagePosition(110, 3), None))
    assert [each.partition for each in by_ledger] == [10]
    at = GivenId(MessagePosition(103, 0), 3)
    assert [each.partition for each in plan_search(infos, Condition(), at=at)] == [3]


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (GivenId(MessagePosition(5, 0), None), "does not tell its partition"),
        (GivenId(MessagePosition(5, 0), 11), "the topic has 11 partitions"),
    ],
)
def test_an_id_without_its_partition_is_a_usage_error(given: GivenId, reason: str) -> None:
    with pytest.raises(click.UsageError, match=reason):
        plan_search(topics_of(NAME, parted()), Condition(), start=given)
    with pytest.raises(click.UsageError, match="the topic has no partitions"):
        plan_search(
            topics_of(NAME, {"ledgers": [hot(5)]}), Condition(), start=GivenId(MessagePosition(5, 0), 0)
        )


def test_a_name_without_its_domain_is_completed() -> None:
    assert list(topics_of("orders", {"ledgers": []})) == [NAME]
    assert isinstance(plan([hot(1)], Condition()).stretches[0], HotStretch)
