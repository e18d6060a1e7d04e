"""Route of paged statistics of a namespace's topics, in addition to Pulsar's routes for single topics and
brokers.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any, Final

from aiohttp import web
from magnetar.broker.admin.edge.call import Call
from magnetar.broker.admin.edge.errors import Refused
from magnetar.broker.admin.edge.json_stream import TURN, stream_json, with_members
from magnetar.broker.admin.edge.peers import PEERS
from magnetar.broker.admin.edge.routing import Route
from magnetar.broker.admin.objects.brokers import broker_id
from magnetar.broker.admin.objects.namespaces import NAMESPACE_ERRORS
from magnetar.broker.admin.objects.topics import require_namespace
from magnetar.broker.admin.routes.topics.stats import owner_of, plain_wanted
from magnetar.broker.admin.stats.topic_stats import topic_stats
from magnetar.broker.metrics.views import TopicView
from magnetar.common.metadata.values import BrokerRegistration
from magnetar.common.runtime.cooperative_iteration import iterate_cooperatively
from magnetar.common.security.authorization.operations import Operation

LIMIT_MAX: Final = 10_000
_LIMIT: Final = 1_000
_SORTED_AT_ONCE: Final = 1_000
_ASKED_AT_ONCE: Final = 200
"""Maximum topics in one call to another broker."""

_HERE: Final = "here"
"""Query parameter that restricts a call to topics of the called broker."""


async def _page(call: Call) -> web.StreamResponse:
    """Returns pages of statistics of loaded topics only. Pages of several brokers follow one another."""
    offset, limit = call.query_number("offset", 0), call.query_number("limit", _LIMIT)
    if offset < 0 or not 0 < limit <= LIMIT_MAX:
        raise Refused(
            412, f"offset must be at least 0 and limit from 1 to {LIMIT_MAX}, not {offset} and {limit}"
        )
    await require_namespace(call.broker, call.namespace, "Namespace does not exist")
    async with call.request.app[TURN]:
        topics: list[Any] = await _in_order(call)
    wanted, owner = plain_wanted(call), owner_of(call)

    def stats(first: int, count: int) -> Iterator[tuple[str, Any]]:
        for topic in islice(topics, first, first + count):
            yield topic.name.full, topic_stats(topic, wanted, owner)

    sections = await _sections(call, len(topics))
    shown: list[Iterable[tuple[str, Any]]] = []
    cuts = cut([each.total for each in sections], offset, limit)
    for section, (first, count) in zip(sections, cuts, strict=True):
        if section.broker is None:
            shown.append(stats(first, count))
        else:
            shown.append(await _read(call, section.broker, first, count))
    head = {"total": sum(each.total for each in sections), "offset": offset}
    return await stream_json(call.request, with_members(head, "topics", chain.from_iterable(shown)))


@dataclass(frozen=True, slots=True)
class _Section:
    """The topics of one broker on a page."""

    broker: BrokerRegistration | None
    """The broker; None means this one."""
    total: int


async def _sections(call: Call, here: int) -> list[_Section]:
    """Returns all topics of the namespace, grouped by broker id."""
    elsewhere = call.broker.topics_elsewhere
    if elsewhere is None or call.flag(_HERE):
        return [_Section(None, here)]
    own = broker_id(call)
    others = await elsewhere.owners(call.namespace)
    pages = await asyncio.gather(*(_ask(call, broker, 0, 1) for broker in others))
    sections = {
        broker.broker_id: _Section(broker, page["total"]) for broker, page in zip(others, pages, strict=True)
    }
    sections[own] = _Section(None, here)
    return [section for _, section in sorted(sections.items())]


def cut(totals: Iterable[int], offset: int, limit: int) -> list[tuple[int, int]]:
    """Returns the part of each section on the page, as (first, count)."""
    found = []
    for total in totals:
        count = max(0, min(limit, total - offset))
        found.append((min(offset, total), count))
        offset, limit = max(0, offset - total), limit - count
    return found


async def _read(call: Call, broker: BrokerRegistration, first: int, count: int) -> list[tuple[str, Any]]:
    """Reads a section in several calls: parsing it at once would delay messages."""
    found: list[tuple[str, Any]] = []
    for at in range(first, first + count, _ASKED_AT_ONCE):
        page = await _ask(call, broker, at, min(_ASKED_AT_ONCE, first + count - at))
        found += page["topics"].items()
    return found


async def _ask(call: Call, broker: BrokerRegistration, offset: int, limit: int) -> Any:
    query = {**call.request.query, _HERE: "true", "offset": str(offset), "limit": str(limit)}
    return await call.request.app[PEERS].ask(
        broker, "GET", call.request.rel_url.raw_path, query, caller=call.request
    )


async def _in_order(call: Call) -> list[TopicView]:
    """Returns the namespace's loaded topics by name, sorted in steps: there may be tens of thousands."""
    runs: list[list[TopicView]] = [[]]
    namespace = call.namespace
    async for topic in iterate_cooperatively(list(call.broker.topics.values())):
        if topic.name.namespace == namespace:
            runs[-1].append(topic)
            if len(runs[-1]) == _SORTED_AT_ONCE:
                runs[-1].sort(key=_name)
                await asyncio.sleep(0)
                runs.append([])
    runs[-1].sort(key=_name)
    return [topic async for topic in iterate_cooperatively(heapq.merge(*runs, key=_name))]


def _name(topic: TopicView) -> str:
    return topic.name.full


ROUTES: Final = [
    Route(
        object="namespaces",
        method="GET",
        path="/admin/magnetar/v1/namespaces/{tenant}/{namespace}/topics/stats",
        handler=_page,
        summary="Get statistics of the loaded topics of a namespace, one page at a time, ordered by broker "
        "and name.",
        query=(
            "offset:int=0",
            f"limit:int={_LIMIT}",
            f"{_HERE}:boolean=false",
            "excludePublishers:boolean=false",
            "excludeConsumers:boolean=false",
        ),
        answer="TopicStatsPage",
        errors={**NAMESPACE_ERRORS, 412: "offset or limit is out of range"},
        operation=Operation.NAMESPACE_USE,
    )
]
