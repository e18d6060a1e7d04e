"""Routes of the busiest topics, subscriptions, namespaces, brokers and bookies: the first rows by a column,
of the whole cluster, in one bounded answer.

The called broker asks the others for their first rows and merges them, so a caller needs one address. A
broker that does not answer in time is named with its error, and the rows of the others are shown.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any, Final

from aiohttp import web
from magnetar.broker.admin.edge.call import Call, answer
from magnetar.broker.admin.edge.errors import Refused
from magnetar.broker.admin.edge.peers import PEERS
from magnetar.broker.admin.edge.routing import Route
from magnetar.broker.admin.objects.brokers import broker_id
from magnetar.broker.admin.objects.namespaces import NAMESPACE_ERRORS
from magnetar.broker.admin.objects.topics import require_namespace
from magnetar.broker.admin.stats.top_rows import (
    COLUMNS,
    NAMES,
    SUBSCRIPTION,
    TOPIC,
    Selection,
    Sums,
    bookie_row,
    held_up,
    subscription_row,
    topic_row,
)
from magnetar.broker.load.process_usage import resident_bytes
from magnetar.broker.metrics.views import SubscriptionView, TopicView
from magnetar.common.cluster.bookie_states import bookie_states
from magnetar.common.errors import MagnetarError, StorageError
from magnetar.common.metadata.values import BrokerRegistration
from magnetar.common.naming.namespace_name import NamespaceName
from magnetar.common.runtime.cooperative_iteration import iterate_cooperatively
from magnetar.common.security.authorization.operations import Operation

LIMIT_MAX: Final = 1_000
"""Maximum rows of an answer."""

REACH_MAX: Final = 5_000
"""Maximum of offset and limit together: further rows are found by a filter."""

REASONS_MAX: Final = 200
"""Maximum rows of an answer with reasons, each of which may read an entry."""

PEER_S: Final = 5.0
"""Time limit for the rows of another broker, in seconds."""

CONTAINS_CHARS_MAX: Final = 256

_HERE: Final = "here"
_KINDS: Final = tuple(COLUMNS)
_KINDS_OF_NAMESPACE: Final = ("topics", "subscriptions")
_DEFAULT_SORT: Final = "msgRateIn"
_SUMMED: Final = ("namespaces", "brokers")


@dataclass(frozen=True, slots=True)
class Wanted:
    """A checked request."""

    kind: str
    sort: str
    ascending: bool
    offset: int
    limit: int
    contains: str
    topic: str
    """Only rows of this topic; empty: of all topics."""
    reasons: bool

    @property
    def reach(self) -> int:
        return self.offset + self.limit


def wanted_of(call: Call, kinds: tuple[str, ...]) -> Wanted:
    """Reads the request for one of these kinds of rows. Raises Refused (400, 412)."""
    query = call.request.query
    kind = query.get("of") or "topics"
    if kind not in kinds:
        raise Refused(412, f"unknown rows {kind[:80]!r}: of is one of {', '.join(kinds)}")
    sort = query.get("sort") or ("bookie" if kind == "bookies" else _DEFAULT_SORT)
    if sort not in COLUMNS[kind]:
        raise Refused(
            412, f"unknown column {sort[:80]!r}: sort of {kind} is one of {', '.join(COLUMNS[kind])}"
        )
    offset, limit = call.query_number("offset", 0), call.query_number("limit", 100)
    if offset < 0 or not 0 < limit <= LIMIT_MAX or offset + limit > REACH_MAX:
        raise Refused(
            412,
            f"offset must be at least 0, limit from 1 to {LIMIT_MAX}, and both together at most {REACH_MAX}, "
            f"not {offset} and {limit}: further rows are found with contains",
        )
    reasons = call.flag("reasons")
    if reasons and (kind != "subscriptions" or offset + limit > REASONS_MAX):
        raise Refused(
            412,
            f"reasons are given for the first {REASONS_MAX} subscriptions: set of, offset and limit to that",
        )
    contains = query.get("contains", "")
    if len(contains) > CONTAINS_CHARS_MAX:
        raise Refused(412, f"contains has at most {CONTAINS_CHARS_MAX} characters, not {len(contains)}")
    return Wanted(
        kind, sort, call.flag("ascending"), offset, limit, contains.lower(), query.get("topic", ""), reasons
    )


async def _all(call: Call) -> web.Response:
    return await _top(call, None)


async def _of_namespace(call: Call) -> web.Response:
    await require_namespace(call.broker, call.namespace, "Namespace does not exist")
    return await _top(call, call.namespace)


async def _top(call: Call, namespace: NamespaceName | None) -> web.Response:
    wanted = wanted_of(call, _KINDS if namespace is None else _KINDS_OF_NAMESPACE)
    others = [] if call.flag(_HERE) or wanted.kind == "bookies" else await _others(call, namespace)
    (rows, total), *answers = await asyncio.gather(
        _rows_here(call, wanted, namespace), *(_ask(call, each, wanted) for each in others)
    )
    unreachable: dict[str, str] = {}
    for broker, found in zip(others, answers, strict=True):
        if isinstance(found, str):
            unreachable[broker.broker_id] = found
        else:
            rows, total = rows + found["rows"], total + found["total"]
    if others and wanted.kind == "namespaces":
        rows = _merged(rows)
        total = len(rows)
    selection: Selection[dict[str, Any]] = Selection(wanted.reach, wanted.ascending)
    async for row in iterate_cooperatively(rows):
        selection.add(row[wanted.sort], tuple(row[name] for name in NAMES[wanted.kind]), row)
    return answer(
        {
            "broker": broker_id(call),
            "atMs": call.broker.ledgers.clock.wall_ms(),
            "of": wanted.kind,
            "sort": wanted.sort,
            "total": total,
            "offset": wanted.offset,
            "rows": selection.items()[wanted.offset :],
            "unreachable": unreachable,
        }
    )


async def _others(call: Call, namespace: NamespaceName | None) -> list[BrokerRegistration]:
    """Returns the other brokers that may have rows."""
    cluster, elsewhere = call.broker.cluster, call.broker.topics_elsewhere
    if cluster is None or elsewhere is None:
        return []
    if namespace is not None:
        return await elsewhere.owners(namespace)
    own = broker_id(call)
    return [each for each in cluster.directory.all() if each.broker_id != own]


async def _ask(call: Call, broker: BrokerRegistration, wanted: Wanted) -> Any:
    """Returns the answer of another broker with its first rows, or a text that says why there is none."""
    reach = REACH_MAX if wanted.kind in _SUMMED else wanted.reach
    found: dict[str, Any] = {"rows": [], "total": 0}
    try:
        async with asyncio.timeout(PEER_S):
            for offset in range(0, reach, LIMIT_MAX):
                query = {
                    **call.request.query,
                    _HERE: "true",
                    "offset": str(offset),
                    "limit": str(min(LIMIT_MAX, reach - offset)),
                }
                page = await call.request.app[PEERS].ask(
                    broker, "GET", call.request.rel_url.raw_path, query, caller=call.request
                )
                found = {"rows": found["rows"] + page["rows"], "total": page["total"]}
                if len(found["rows"]) >= page["total"]:
                    break
    except TimeoutError:
        return f"no answer within {PEER_S:g} s"
    except (MagnetarError, Refused) as error:
        return str(error)
    return found


def _merged(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Returns one row for each namespace, the sums of those of its brokers."""
    found: dict[str, dict[str, Any]] = {}
    for row in rows:
        known = found.setdefault(row["namespace"], row)
        if known is not row:
            for name, value in row.items():
                if name != "namespace":
                    known[name] += value
    return list(found.values())


async def _rows_here(
    call: Call, wanted: Wanted, namespace: NamespaceName | None
) -> tuple[list[dict[str, Any]], int]:
    """Returns the first rows of this broker, up to the end of the page, and how many there are."""
    if wanted.kind == "bookies":
        ledgers = call.broker.ledgers
        bookies = [bookie_row(each) for each in await bookie_states(ledgers.metadata, ledgers.keys)]
        rows = [row for row in bookies if wanted.contains in row["bookie"].lower()]
        return rows, len(rows)
    topics = [
        topic
        for topic in list(call.broker.topics.values())
        if (namespace is None or topic.name.namespace == namespace)
        and (not wanted.topic or topic.name.full == wanted.topic)
    ]
    own = broker_id(call)
    if wanted.kind == "topics":
        return await _topic_rows(topics, wanted, own)
    if wanted.kind == "subscriptions":
        return await _subscription_rows(topics, wanted, own)
    sums: dict[str, Sums] = {}
    if wanted.kind == "brokers":
        sums[own] = Sums()
    async for topic in iterate_cooperatively(topics):
        name = own if wanted.kind == "brokers" else str(topic.name.namespace)
        sums.setdefault(name, Sums()).add(topic)
    # All of them: only the parts of all brokers together say how far up a namespace is.
    rows = [its.row(wanted.kind[:-1], name) for name, its in sums.items() if wanted.contains in name.lower()]
    if wanted.kind == "brokers":
        rows = [{**row, **_process(call)} for row in rows]
    return rows, len(rows)


def _process(call: Call) -> Mapping[str, Any]:
    """Returns the figures of this broker's process."""
    broker = call.broker
    return {
        "connections": broker.connections,
        "cpuSeconds": time.process_time(),
        "residentBytes": resident_bytes(),
        "cacheBytes": broker.ledgers.cache.bytes,
        "startedMs": broker.started_ms,
        "version": version("magnetar-broker"),
        "notReady": broker.not_ready or "",
    }


async def _topic_rows(topics: list[TopicView], wanted: Wanted, own: str) -> tuple[list[dict[str, Any]], int]:
    selection: Selection[TopicView] = Selection(wanted.reach, wanted.ascending)
    figure = TOPIC[wanted.sort]
    async for topic in iterate_cooperatively(topics):
        name = topic.name.full
        if wanted.contains in name.lower():
            selection.add(figure(topic), (name,), topic)
    return [topic_row(topic, own) for topic in selection.items()], selection.total


Member = tuple[TopicView, str, SubscriptionView]


def _members(topics: list[TopicView]) -> Iterator[Member]:
    for topic in topics:
        for name, its in list(topic.subscriptions.items()):
            yield topic, name, its


async def _subscription_rows(
    topics: list[TopicView], wanted: Wanted, own: str
) -> tuple[list[dict[str, Any]], int]:
    selection: Selection[Member] = Selection(wanted.reach, wanted.ascending)
    figure = SUBSCRIPTION[wanted.sort]
    async for member in iterate_cooperatively(_members(topics)):
        topic, name, its = member
        full = topic.name.full
        if wanted.contains in full.lower() or wanted.contains in name.lower():
            selection.add(figure(topic, name, its), (full, name), member)
    rows = []
    async for topic, name, its in iterate_cooperatively(selection.items()):
        row = subscription_row(topic, name, its, own)
        if wanted.reasons:
            try:
                row |= await held_up(topic, its)
            except StorageError:  # Its backlog is shown, without an age.
                row |= {"codes": ["read_failed"], "oldestPublishTime": 0}
        rows.append(row)
    return rows, selection.total


_QUERY: Final = (
    "of:String=topics",
    "sort:String",
    "ascending:boolean=false",
    "offset:int=0",
    "limit:int=100",
    "contains:String",
    "topic:String",
    "reasons:boolean=false",
    f"{_HERE}:boolean=false",
)
_ERRORS: Final = {412: "unknown rows or column; offset, limit or contains is out of range"}

ROUTES: Final = [
    Route(
        object="broker-stats",
        method="GET",
        path="/admin/magnetar/v1/broker-stats/top",
        handler=_all,
        summary="Get the first topics, subscriptions, namespaces, brokers or bookies of the cluster by "
        "a column, among loaded topics.",
        query=_QUERY,
        answer="Top",
        errors=_ERRORS,
        operation=Operation.SUPER_USER,
    ),
    Route(
        object="namespaces",
        method="GET",
        path="/admin/magnetar/v1/namespaces/{tenant}/{namespace}/top",
        handler=_of_namespace,
        summary="Get the first topics or subscriptions of a namespace by a column, among loaded topics.",
        query=_QUERY,
        answer="Top",
        errors={**NAMESPACE_ERRORS, **_ERRORS},
        operation=Operation.NAMESPACE_USE,
    ),
]
