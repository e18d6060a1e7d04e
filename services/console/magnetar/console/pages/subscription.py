"""One subscription: its position, what waits, its consumers, and what can be done about it."""

from __future__ import annotations

import asyncio
import time
from typing import Any, Final

from aiohttp import web
from magnetar.console.admin_paths import MAGNETAR, subscription_path, topic_path
from magnetar.console.errors import AdminRefused
from magnetar.console.pages.acked_ranges import strip_of
from magnetar.console.pages.changes import done_text
from magnetar.console.pages.topic import subscription_row
from magnetar.console.pages.topic_facts import ROWS_MAX, ledgers_of, topic_facts
from magnetar.console.visit import Visit

HOLES_CHARS_MAX: Final = 4000
REASONS_MAX: Final = 50


async def _subscription(visit: Visit) -> web.Response:
    topic, name = visit.topic(), visit.required("name")
    facts, internal, explained = await asyncio.gather(
        topic_facts(visit.admin, topic, getEarliestTimeInBacklog=True),
        _internal(visit),
        _explained(visit, name),
    )
    cursor = internal.get("cursors", {}).get(name, {})
    holes = str(cursor.get("individuallyDeletedMessages", ""))
    stats = facts.subscriptions.get(name)
    if stats is None:
        raise AdminRefused(404, f"subscription {name} of {topic.full} does not exist")
    return await visit.page(
        "subscription.html",
        title=f"{name} of {topic.full}",
        topic=topic.full,
        namespace=str(topic.namespace),
        partitions=facts.parts[:ROWS_MAX],
        row=subscription_row(name, stats, time.time() * 1000),
        rows_max=ROWS_MAX,
        stats=stats,
        cursor=cursor,
        holes=holes[:HOLES_CHARS_MAX],
        strip=strip_of(ledgers_of(internal), str(cursor.get("markDeletePosition", "")), holes),
        **explained,
        done=done_text(visit.text("done")),
        now=time.strftime("%Y-%m-%dT%H:%M", time.gmtime()),
    )


async def _explain(visit: Visit) -> web.Response:
    name = visit.required("name")
    return await visit.page(
        "_explain.html", topic=visit.topic().full, name=name, **await _explained(visit, name)
    )


async def _internal(visit: Visit) -> dict[str, Any]:
    """Return internal statistics; empty for a partitioned topic, whose partitions have them."""
    try:
        found: dict[str, Any] = await visit.admin.get(f"{topic_path(visit.topic())}/internalStats") or {}
    except AdminRefused as error:
        if error.status in (404, 405):
            return {}
        raise
    return found


async def _explained(visit: Visit, name: str) -> dict[str, Any]:
    """Return why the subscription, or that of each partition, delivers nothing; the reason why that is not
    known in its place.
    """
    try:
        path = f"{subscription_path(visit.topic(), name, MAGNETAR)}/explain"
        found = await visit.admin.get(path)
    except AdminRefused as error:
        return {"explained": [], "unexplained": error.reason}
    parts = found.get("partitions") or {found.get("topic", ""): found}
    return {"explained": explained_rows(parts), "unexplained": ""}


def explained_rows(parts: dict[str, dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the explanations of partitions, those that stand still first."""
    rows = [
        {
            "topic": topic,
            "moves": bool(each.get("moves")),
            "reasons": each.get("reasons", [])[:REASONS_MAX],
            "backlog": each.get("backlog", 0),
        }
        for topic, each in parts.items()
    ]
    rows.sort(key=lambda each: (each["moves"], -each["backlog"], each["topic"]))
    return rows[:ROWS_MAX]


READS = {"/subscription": _subscription, "/subscription/explain": _explain}
