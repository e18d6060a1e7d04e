"""The rules of the live table: rates, order, filter, pages, and what is below a row."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from magnetar.cli.top.live_table import (
    INTERVAL_MAX_S,
    TABS,
    VIEWS,
    Column,
    Question,
    Row,
    Sample,
    cell,
    explanation_of,
    filtered,
    in_order,
    opened,
    pause_s,
    question_of,
    sorted_by,
    sorted_by_next,
    title,
    turned,
    with_rates,
)


def row(name: str, **more: Any) -> Row:
    return {"topic": f"persistent://a/b/{name}", "msgRateIn": 1.0, "msgInCounter": 100, **more}


def test_rates_come_from_two_samples_and_order_the_rows() -> None:
    question = question_of("topics")
    before = Sample([row("x", msgInCounter=100), row("y", msgInCounter=100)], 2, at_s=10.0)
    now = Sample([row("x", msgInCounter=110), row("y", msgInCounter=150)], 2, at_s=12.0)
    rows = with_rates(question, now, before)
    assert [(each["topic"][-1], each["msgRateIn"]) for each in rows] == [("y", 25.0), ("x", 5.0)]
    assert now.rows[0]["msgRateIn"] == 1.0, "the sample is as it was"


@pytest.mark.parametrize(
    "before",
    [
        None,
        Sample([row("other")], 1, at_s=1.0),
        Sample([row("x", msgInCounter=101)], 1, at_s=1.0),
        Sample([row("x", msgInCounter=50)], 1, at_s=2.0),
    ],
    ids=["first", "new row", "counters began anew", "no time between"],
)
def test_without_an_earlier_sample_of_a_row_the_averages_of_the_broker_stay(before: Sample | None) -> None:
    (found,) = with_rates(question_of("topics"), Sample([row("x")], 1, at_s=2.0), before)
    assert found["msgRateIn"] == 1.0


def test_the_share_of_a_processor_comes_from_its_seconds() -> None:
    question = question_of("brokers")
    rows = with_rates(
        question,
        Sample([{"broker": "b", "msgRateIn": 0.0, "cpuSeconds": 11.0}], 1, at_s=4.0),
        Sample([{"broker": "b", "msgRateIn": 0.0, "cpuSeconds": 10.0}], 1, at_s=2.0),
    )
    assert rows[0]["cpuPercent"] == 50.0


def test_equal_rows_are_in_the_order_of_names_and_unknown_figures_last() -> None:
    rows = [row("c"), row("a"), row("b", msgRateIn=None), row("d", msgRateIn=0.5)]
    question = question_of("topics")
    assert [each["topic"][-1] for each in in_order(question, rows)] == ["a", "c", "d", "b"]
    assert [each["topic"][-1] for each in in_order(replace(question, ascending=True), rows)] == list("dacb")


def test_a_column_sorts_the_other_way_round_when_it_is_chosen_again() -> None:
    question = replace(question_of("topics"), offset=200)
    assert sorted_by(question, "msgRateIn") == replace(question, ascending=True, offset=0)
    assert sorted_by(question, "topic") == replace(question, sort="topic", ascending=True, offset=0)
    assert sorted_by(question, "msgBacklog") == replace(question, sort="msgBacklog", offset=0)


@pytest.mark.parametrize("view", list(VIEWS))
def test_stepping_through_the_columns_comes_back_to_the_first(view: str) -> None:
    question = question_of(view)
    seen = [question.sort]
    for _ in VIEWS[view].columns:
        question = sorted_by_next(question)
        seen.append(question.sort)
    assert seen[0] == seen[-1]
    assert set(seen) == {each.key for each in VIEWS[view].columns}
    assert sorted_by_next(sorted_by_next(question), -1).sort == question.sort


def test_pages_stay_within_the_rows_and_the_reach_of_the_broker() -> None:
    question = question_of("topics", limit=100)
    assert turned(question, -1, 250) == question
    last = turned(turned(question, 1, 250), 1, 250)
    assert last.offset == 200
    assert turned(last, 1, 250) == last
    far = replace(question, offset=4_900)
    assert turned(far, 1, 1_000_000) == far
    assert filtered(last, " text ") == replace(question, contains="text")


def test_rows_open_down_to_consumers() -> None:
    below = opened(question_of("namespaces", limit=7), {"namespace": "a/b"})
    assert below == replace(question_of("topics", limit=7), namespace="a/b")
    below = opened(below, row("x"))
    assert below is not None
    assert (below.view, below.topic, below.limit) == ("subscriptions", "persistent://a/b/x", 7)
    below = opened(below, {**row("x"), "subscription": "s"})
    assert below is not None
    assert (below.view, below.topic, below.subscription) == ("consumers", "persistent://a/b/x", "s")
    assert opened(below, {}) is None
    assert opened(question_of("bookies"), {}) is None


def test_requests_take_at_most_a_tenth_of_the_time() -> None:
    assert pause_s(2.0, 0.05) == 2.0
    assert pause_s(2.0, 1.5) == 15.0
    assert pause_s(2.0, 100.0) == INTERVAL_MAX_S


def test_names_with_control_characters_cannot_move_the_cursor() -> None:
    shown = cell(Column("topic", "topic"), {"topic": "persistent://a/b/\x1b[2J\n"})
    assert shown.isprintable()
    assert shown.startswith("a/b/")


@pytest.mark.parametrize(
    ("kind", "value", "text"),
    [
        ("count", 1234, "1,234"),
        ("count", 12_340_000, "12.3 M"),
        ("rate", 0.25, "0.2"),
        ("rate", 0, "0"),
        ("rate", 1234.5, "1,234"),
        ("bytes", 1536, "1.5 K"),
        ("bytes", -1, "-"),
        ("age", -1, "-"),
        ("age", 90, "1.5 min"),
        ("percent", 12.4, "12 %"),
        ("time", 0, "-"),
        ("time", 86_400_000, "01-02 00:00"),
        ("text", None, "-"),
    ],
)
def test_figures_are_short(kind: Any, value: Any, text: str) -> None:
    assert cell(Column("it", "it", kind), {"it": value}) == text


def test_the_title_says_what_is_shown() -> None:
    question = Question(contains="x", offset=100, namespace="a/b")
    assert title(question, 1234, 100) == "topics 101-200 of 1,234  in a/b  with 'x'  by in/s ▼"
    assert title(question_of("bookies"), 0, 0) == "bookies 0-0 of 0  by bookie ▲"


def test_an_explanation_has_code_sentence_and_next_step() -> None:
    reason = {"code": "no_permits", "text": "it has none", "next": "receive", "stops": False, "since": "T"}
    value = {
        "subscription": "s",
        "topic": "t",
        "moves": False,
        "backlog": 5,
        "reasons": [reason],
        "partitions": {},
    }
    found = explanation_of(question_of("subscriptions"), {}, value)
    assert found.heading == "s of t stands still, backlog 5"
    assert found.reasons == [("no_permits since T", "(in part) it has none", "receive")]
    moving = explanation_of(question_of("subscriptions"), {}, {**value, "moves": True, "reasons": []})
    assert moving.reasons == [("moves", "nothing stops it", "")]


def test_every_tab_sorts_by_one_of_its_columns() -> None:
    assert TABS[:4] == ("topics", "subscriptions", "brokers", "bookies")
    for view in VIEWS.values():
        assert view.sort in {each.key for each in view.columns}
