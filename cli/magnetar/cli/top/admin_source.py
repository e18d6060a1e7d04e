"""Reads what `magnetar top` shows from the admin API: one bounded request for each refresh."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

from magnetar.cli.admin.explain import own_path
from magnetar.cli.admin.http_client import ask, namespace_path, subscription_path, topic_path
from magnetar.cli.top.live_table import Explanation, Question, Row, Sample, explanation_of, in_order

if TYPE_CHECKING:
    from magnetar.cli.admin.target import Target

_OWN: Final = "/admin/magnetar/v1"
_TOP: Final = f"{_OWN}/broker-stats/top"

_NOT_OF_BROKERS: Final = frozenset({"cpuPercent", "residentBytes", "connections", "startedMs"})
"""Columns of brokers that brokers do not sort by: there are few brokers, and all of them are shown."""


def request_of(question: Question) -> tuple[str, dict[str, object]]:
    """Returns path and query that answer a question about any view but consumers."""
    sort = question.sort
    if question.view == "brokers" and sort in _NOT_OF_BROKERS:
        sort = "broker"
    query: dict[str, object] = {
        "of": question.view,
        "sort": sort,
        "ascending": question.ascending,
        "offset": question.offset,
        "limit": question.limit,
    }
    if question.contains:
        query["contains"] = question.contains
    if question.topic:
        query["topic"] = question.topic
    if question.namespace and question.view in ("topics", "subscriptions"):
        return f"{own_path(namespace_path(question.namespace))}/top", query
    return _TOP, query


def read_sample(target: Target, question: Question) -> Sample:
    """Asks once. Raises ClickException."""
    if question.view == "consumers":
        return _consumers(target, question)
    path, query = request_of(question)
    value = ask(target, "GET", path, query=query).value
    return Sample(value["rows"], value["total"], value["atMs"] / 1000, value["unreachable"])


def _consumers(target: Target, question: Question) -> Sample:
    query = {"excludePublishers": True}
    value = ask(target, "GET", f"{topic_path(question.topic)}/stats", query=query).value
    subscription = value["subscriptions"].get(question.subscription, {"consumers": []})
    text = question.contains.lower()
    found: list[Row] = [
        each
        for each in subscription["consumers"]
        if text in each["consumerName"].lower() or text in each["address"].lower()
    ]
    page = in_order(question, found)[question.offset : question.offset + question.limit]
    return Sample(page, len(found), time.monotonic())


def read_explanation(target: Target, question: Question, row: Row) -> Explanation | None:
    """Asks why a topic is where it is, or why a subscription stands still; None for other rows. Raises
    ClickException.
    """
    if question.view == "topics":
        path = topic_path(row["topic"])
    elif question.view == "subscriptions":
        path = subscription_path(row["topic"], row["subscription"])
    elif question.view == "consumers":
        path = subscription_path(question.topic, question.subscription)
    else:
        return None
    value: dict[str, Any] = ask(target, "GET", f"{own_path(path)}/explain").value
    return explanation_of(question, row, value)
