"""The model of `magnetar top`: views, columns, what is asked for next, and rates from two samples.

It opens no connection and draws nothing, so that every rule of the screen is a plain function.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Final, Literal

Row = dict[str, Any]
Kind = Literal["text", "count", "rate", "bytes", "byterate", "age", "percent", "time"]

LIMIT_MAX: Final = 1_000
"""Maximum rows of a page; the broker's own limit."""

REACH_MAX: Final = 5_000
"""Rows that pages reach, as of the broker; a filter finds the others."""

LOAD_SHARE_MAX: Final = 0.1
"""Maximum share of the time that is spent on requests: slow answers lengthen the interval."""

INTERVAL_MAX_S: Final = 60.0

UNKNOWN: Final = "-"

COUNTERS: Final[Mapping[str, str]] = {
    "msgRateIn": "msgInCounter",
    "msgRateOut": "msgOutCounter",
    "msgThroughputIn": "bytesInCounter",
    "msgThroughputOut": "bytesOutCounter",
    "messageAckRate": "ackCounter",
}
"""Counters by the rates that two samples of them give."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table. `key` is the member of a row, and what the broker sorts by."""

    key: str
    title: str
    kind: Kind = "text"


@dataclass(frozen=True, slots=True)
class View:
    """A table: what it lists and how it is sorted at first."""

    name: str
    names: tuple[str, ...]
    """Members that together identify a row."""
    sort: str
    columns: tuple[Column, ...]


_RATES: Final = (
    Column("msgRateIn", "in/s", "rate"),
    Column("msgRateOut", "out/s", "rate"),
    Column("msgThroughputIn", "B in/s", "byterate"),
    Column("msgThroughputOut", "B out/s", "byterate"),
)
_CLIENTS: Final = (Column("producers", "prod", "count"), Column("consumers", "cons", "count"))

VIEWS: Final[Mapping[str, View]] = {
    view.name: view
    for view in (
        View(
            "topics",
            ("topic",),
            "msgRateIn",
            (
                Column("topic", "topic"),
                *_RATES,
                Column("msgBacklog", "backlog", "count"),
                Column("oldestBacklogMessageAgeSeconds", "oldest", "age"),
                Column("storageSize", "stored", "bytes"),
                Column("subscriptions", "subs", "count"),
                *_CLIENTS,
            ),
        ),
        View(
            "subscriptions",
            ("topic", "subscription"),
            "msgBacklog",
            (
                Column("topic", "topic"),
                Column("subscription", "subscription"),
                Column("type", "type"),
                Column("msgBacklog", "backlog", "count"),
                Column("backlogSize", "behind", "bytes"),
                Column("unackedMessages", "unacked", "count"),
                Column("msgRateIn", "in/s", "rate"),
                Column("msgRateOut", "out/s", "rate"),
                Column("messageAckRate", "ack/s", "rate"),
                Column("consumers", "cons", "count"),
            ),
        ),
        View(
            "brokers",
            ("broker",),
            "msgRateIn",
            (
                Column("broker", "broker"),
                *_RATES,
                Column("cpuPercent", "cpu", "percent"),
                Column("residentBytes", "memory", "bytes"),
                Column("connections", "conn", "count"),
                Column("topics", "topics", "count"),
                Column("subscriptions", "subs", "count"),
                *_CLIENTS,
                Column("msgBacklog", "backlog", "count"),
                Column("startedMs", "since", "time"),
            ),
        ),
        View(
            "bookies",
            ("bookie",),
            "bookie",
            (
                Column("bookie", "bookie"),
                Column("state", "state"),
                Column("rack", "rack"),
                Column("freeBytes", "free", "bytes"),
                Column("ledgersToMove", "to move", "count"),
                Column("address", "address"),
                Column("startedMs", "since", "time"),
            ),
        ),
        View(
            "namespaces",
            ("namespace",),
            "msgRateIn",
            (
                Column("namespace", "namespace"),
                *_RATES,
                Column("msgBacklog", "backlog", "count"),
                Column("storageSize", "stored", "bytes"),
                Column("topics", "topics", "count"),
                Column("subscriptions", "subs", "count"),
                *_CLIENTS,
            ),
        ),
        View(
            "consumers",
            ("consumerName", "address"),
            "msgRateOut",
            (
                Column("consumerName", "consumer"),
                Column("address", "address"),
                Column("msgRateOut", "out/s", "rate"),
                Column("messageAckRate", "ack/s", "rate"),
                Column("availablePermits", "permits", "count"),
                Column("unackedMessages", "unacked", "count"),
                Column("clientVersion", "client"),
                Column("connectedSince", "since"),
            ),
        ),
    )
}
"""All tables by name; the first five have the keys 1 to 5, consumers are below a subscription."""

TABS: Final = tuple(name for name in VIEWS if name != "consumers")


@dataclass(frozen=True, slots=True)
class Question:
    """The rows that are shown: a view, the part of the cluster, order, filter and page."""

    view: str = "topics"
    sort: str = "msgRateIn"
    ascending: bool = False
    contains: str = ""
    namespace: str = ""
    topic: str = ""
    subscription: str = ""
    offset: int = 0
    limit: int = 100


@dataclass(frozen=True, slots=True)
class Sample:
    """One answer. `at_s` is a monotonic time of its broker or of this process, in seconds."""

    rows: Sequence[Row] = ()
    total: int = 0
    at_s: float = 0.0
    unreachable: Mapping[str, str] = field(default_factory=dict)
    """Brokers whose rows are missing, with their errors."""


def question_of(view: str, *, namespace: str = "", limit: int = 100) -> Question:
    """Returns the first question of a view. Raises KeyError for an unknown view."""
    found = VIEWS[view]
    return Question(view, found.sort, _ascends(found, found.sort), namespace=namespace, limit=limit)


def column_of(question: Question) -> Column:
    """Returns the column that sorts."""
    return next(each for each in VIEWS[question.view].columns if each.key == question.sort)


def _ascends(view: View, key: str) -> bool:
    """Texts begin with the first, numbers with the largest."""
    return any(each.key == key and each.kind in ("text", "time") for each in view.columns)


def sorted_by(question: Question, key: str) -> Question:
    """Returns the question sorted by a column; the other way round where it sorted already."""
    if key == question.sort:
        return replace(question, ascending=not question.ascending, offset=0)
    return replace(question, sort=key, ascending=_ascends(VIEWS[question.view], key), offset=0)


def sorted_by_next(question: Question, step: int = 1) -> Question:
    """Returns the question sorted by the column `step` to the right of the one that sorts."""
    keys = [each.key for each in VIEWS[question.view].columns]
    return sorted_by(question, keys[(keys.index(question.sort) + step) % len(keys)])


def filtered(question: Question, text: str) -> Question:
    """Returns the question with rows whose name contains a text, in any case."""
    return replace(question, contains=text.strip(), offset=0)


def turned(question: Question, step: int, total: int) -> Question:
    """Returns the question about the page `step` further, if there is one that pages reach."""
    offset = question.offset + step * question.limit
    if not 0 <= offset < total or offset + question.limit > REACH_MAX:
        return question
    return replace(question, offset=offset)


def opened(question: Question, row: Row) -> Question | None:
    """Returns the question about what is below a row; None where nothing is."""
    match question.view:
        case "namespaces":
            return question_of("topics", namespace=row["namespace"], limit=question.limit)
        case "topics":
            below = question_of("subscriptions", namespace=namespace_of(row["topic"]), limit=question.limit)
            return replace(below, topic=row["topic"])
        case "subscriptions":
            below = question_of("consumers", namespace=namespace_of(row["topic"]), limit=question.limit)
            return replace(below, topic=row["topic"], subscription=row["subscription"])
    return None


def namespace_of(topic: str) -> str:
    """Returns the tenant/namespace of a full topic name."""
    return "/".join(topic.partition("://")[2].split("/")[:2])


def key_of(question: Question, row: Row) -> str:
    """Returns what identifies a row in its table."""
    return "\x00".join(str(row.get(name, "")) for name in VIEWS[question.view].names)


def with_rates(question: Question, now: Sample, before: Sample | None) -> list[Row]:
    """Returns the rows of a sample in order, with the rates since the one before.

    A row without an earlier one, or whose counters began anew, keeps the broker's averages of the last
    minute.
    """
    earlier = {} if before is None else {key_of(question, row): row for row in before.rows}
    elapsed = 0.0 if before is None else now.at_s - before.at_s
    rows = []
    for row in now.rows:
        shown = dict(row)
        known = earlier.get(key_of(question, row))
        if known is not None and elapsed > 0:
            for rate, counter in COUNTERS.items():
                if counter in row and counter in known and row[counter] >= known[counter]:
                    shown[rate] = (row[counter] - known[counter]) / elapsed
            if "cpuSeconds" in row and row["cpuSeconds"] >= known.get("cpuSeconds", float("inf")):
                shown["cpuPercent"] = 100 * (row["cpuSeconds"] - known["cpuSeconds"]) / elapsed
        rows.append(shown)
    return in_order(question, rows)


def in_order(question: Question, rows: Sequence[Row]) -> list[Row]:
    """Returns rows sorted as asked; equal ones by name, and those without a figure last."""
    named = sorted(rows, key=lambda row: key_of(question, row))
    known = [row for row in named if row.get(question.sort) is not None]
    known.sort(key=lambda row: row[question.sort], reverse=not question.ascending)
    return known + [row for row in named if row.get(question.sort) is None]


def pause_s(interval_s: float, took_s: float) -> float:
    """Returns the seconds until the next request: requests take at most a tenth of the time."""
    return min(max(interval_s, took_s / LOAD_SHARE_MAX), max(interval_s, INTERVAL_MAX_S))


# Text


def printable(value: object) -> str:
    """Returns a text from the cluster without control characters, which a terminal would obey."""
    return "".join(each if each.isprintable() else "\N{REPLACEMENT CHARACTER}" for each in str(value))


def cell(column: Column, row: Row) -> str:
    """Returns the text of a cell."""
    value = row.get(column.key)
    if value is None:
        return UNKNOWN
    if column.key == "topic":
        return printable(str(value).removeprefix("persistent://"))
    match column.kind:
        case "count":
            return count(value)
        case "rate":
            return f"{value:.1f}" if 0 < value < 10 else count(value)
        case "bytes":
            return UNKNOWN if value < 0 else byte_count(value)
        case "byterate":
            return byte_count(value)
        case "percent":
            return f"{value:.0f} %"
        case "age":
            return age(value)
        case "time":
            return moment(value)
    return printable(value)


def count(value: float) -> str:
    """Returns a count; from ten million on, in millions."""
    return f"{value:,.0f}" if value < 10_000_000 else f"{value / 1_000_000:,.1f} M"


def byte_count(value: float) -> str:
    """Returns bytes with a binary unit."""
    for unit in ("B", "K", "M", "G", "T"):
        if value < 1024 or unit == "T":
            break
        value /= 1024
    return f"{value:.0f} {unit}" if unit == "B" or value >= 100 else f"{value:.1f} {unit}"


def age(seconds: float) -> str:
    """Returns an age in its largest unit; a negative one is unknown."""
    if seconds < 0:
        return UNKNOWN
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.0f} s"


def moment(time_ms: float) -> str:
    """Returns a time in UTC; 0 is unknown."""
    return datetime.fromtimestamp(time_ms / 1000, UTC).strftime("%m-%d %H:%M") if time_ms else UNKNOWN


def title(question: Question, total: int, shown: int) -> str:
    """Returns the line above a table: what it shows, of how many, in which order."""
    first = min(question.offset + 1, total)
    parts = [f"{question.view} {first:,}-{question.offset + shown:,} of {total:,}"]
    if question.subscription:
        parts.append(f"of {printable(question.subscription)} at {printable(question.topic)}")
    elif question.topic:
        parts.append(f"of {printable(question.topic)}")
    elif question.namespace:
        parts.append(f"in {printable(question.namespace)}")
    if question.contains:
        parts.append(f"with {printable(question.contains)!r}")
    parts.append(f"by {column_of(question).title} {'▲' if question.ascending else '▼'}")
    return "  ".join(parts)


@dataclass(frozen=True, slots=True)
class Explanation:
    """An explanation as lines: a heading, and a (code, sentence, next step) for each reason."""

    heading: str
    reasons: Sequence[tuple[str, str, str]] = ()


def explanation_of(question: Question, row: Row, value: Mapping[str, Any]) -> Explanation:
    """Returns the broker's answer about a topic, or about a subscription, as lines."""
    if "moves" in value and isinstance(value["moves"], bool):
        parts = list(value.get("partitions", {}).values()) or [value]
        state = "moves" if value["moves"] else "stands still"
        heading = f"{value['subscription']} of {value['topic']} {state}, backlog {value['backlog']:,}"
        found = [reason for part in parts for reason in part["reasons"]]
    else:
        heading = f"{value['topic']}, in bundle {value['bundle']}, at {value['broker'] or 'no broker'}"
        found = [*value["reasons"], *({**each, "stops": True} for each in value["moves"])]
    reasons = []
    for each in found:
        since = f" since {each['since']}" if each.get("since") else ""
        sentence = each["text"] if each.get("stops", True) else f"(in part) {each['text']}"
        reasons.append((printable(each["code"]) + since, printable(sentence), printable(each["next"] or "")))
    if not reasons:
        reasons.append(("moves", "nothing stops it", ""))
    return Explanation(printable(heading), reasons)
