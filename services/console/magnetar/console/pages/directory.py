"""Tenants, namespaces and topics: searched, and in pages."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlencode

from aiohttp import web
from magnetar.common.errors import InvalidName
from magnetar.common.naming.namespace_name import NamespaceName
from magnetar.common.naming.topic_name import TopicName
from magnetar.console.admin_paths import MAGNETAR, V2, namespace_path, namespaces_path
from magnetar.console.visit import Visit

PAGE: Final = 50
"""Rows on a page."""


@dataclass(frozen=True, slots=True)
class Page:
    """A part of a list that matches a search."""

    rows: list[Any]
    number: int
    """The number of this page, from 1."""
    pages: int
    total: int
    """Rows on all pages."""


def page_of(rows: Iterable[str], search: str, number: int, size: int = PAGE) -> Page:
    """Return a page of the rows that contain the text, by name; the last page for a number beyond it."""
    wanted = search.casefold()
    found = sorted(each for each in rows if wanted in each.casefold()) if wanted else sorted(rows)
    pages = max(1, -(-len(found) // size))
    number = max(1, min(number, pages))
    return Page(found[(number - 1) * size : number * size], number, pages, len(found))


async def _tenants(visit: Visit) -> web.Response:
    names = await visit.admin.get(f"{V2}/tenants")
    page = page_of(names or [], visit.text("q"), visit.number("page", 1))
    return await visit.page("tenants.html", title="Tenants", page=page, q=visit.text("q"))


async def _namespaces(visit: Visit) -> web.Response:
    tenant = visit.required("tenant")
    names = await visit.admin.get(namespaces_path(tenant))
    page = page_of(names or [], visit.text("q"), visit.number("page", 1))
    title = f"Namespaces of {tenant}"
    return await visit.page("namespaces.html", title=title, tenant=tenant, page=page, q=visit.text("q"))


async def _topics(visit: Visit) -> web.Response:
    namespace = visit.namespace()
    search, number = visit.text("q"), visit.number("page", 1)
    values: dict[str, Any] = {"namespace": str(namespace), "tenant": namespace.tenant, "q": search}
    if visit.text("show") == "loaded":
        values |= {"show": "loaded", "page": await _loaded(visit, namespace, number)}
    else:
        values |= {"show": "all", "page": await _named(visit, namespace, search, number)}
    if visit.is_part:
        return await visit.page("_topics.html", **values)
    return await visit.page("topics.html", title=f"Topics of {namespace}", **values)


async def _named(visit: Visit, namespace: NamespaceName, search: str, number: int) -> Page:
    """Return topics by name; partitions are found below the name of their topic."""
    path = namespace_path(namespace)
    domains = ("persistent", "non-persistent")
    roots = [f"{V2}/{domain}/{path.removeprefix(f'{V2}/namespaces/')}/partitioned" for domain in domains]
    names, *partitioned = await asyncio.gather(
        visit.admin.get(f"{path}/topics", mode="ALL"), *(visit.admin.get(root) for root in roots)
    )
    whole = {name for found in partitioned for name in found or []}
    found = list(names or [])
    if whole:
        # In the order of the answer, which is almost that of a page: sorting is quick then.
        found = list(dict.fromkeys([*(base_of(name, whole) for name in found), *sorted(whole)]))
    return page_of(found, search, number)


def base_of(name: str, partitioned: set[str]) -> str:
    """Return the partitioned topic that a name is a partition of; else the name."""
    base, _, index = name.rpartition("-partition-")
    return base if index.isdigit() and base in partitioned else name


async def _loaded(visit: Visit, namespace: NamespaceName, number: int) -> Page:
    """Return topics that brokers have loaded, with their figures. Brokers page them, and do not search."""
    query = {"limit": PAGE, "excludePublishers": True, "excludeConsumers": True}
    path = f"{namespace_path(namespace, MAGNETAR)}/topics/stats"
    answer = await visit.admin.get(path, offset=(number - 1) * PAGE, **query)
    total = int(answer["total"])
    rows = [topic_row(name, stats) for name, stats in answer["topics"].items()]
    return Page(rows, number, max(1, -(-total // PAGE)), total)


def topic_row(name: str, stats: dict[str, Any]) -> dict[str, Any]:
    """Return the figures of a topic in a list."""
    subscriptions = stats.get("subscriptions", {})
    return {
        "name": name,
        "rate_in": stats.get("msgRateIn", 0.0),
        "rate_out": stats.get("msgRateOut", 0.0),
        "stored": stats.get("storageSize", 0),
        "backlog": sum(each.get("msgBacklog", 0) for each in subscriptions.values()),
        "backlog_bytes": stats.get("backlogSize", 0),
        "age": stats.get("oldestBacklogMessageAgeSeconds", -1),
        "subscriptions": len(subscriptions),
    }


async def _open(visit: Visit) -> web.Response:
    """Go to what the text in the head of a page names: a topic, a namespace, or a part of a topic's name."""
    text = visit.text("q").strip()
    parts = text.split("/")
    if "://" in text or (len(parts) == 3 and all(parts)):
        try:
            return visit.redirect(f"/topic?{urlencode({'topic': TopicName.parse(text).full})}")
        except InvalidName as error:
            return await visit.page("problem.html", title="Problem", reason=str(error), status=400)
    if len(parts) == 2 and all(parts):
        return visit.redirect(f"/topics?{urlencode({'namespace': text})}")
    return visit.redirect(f"/topics?{urlencode({'namespace': 'public/default', 'q': text})}")


READS = {"/tenants": _tenants, "/namespaces": _namespaces, "/topics": _topics, "/open": _open}
