"""One subscription: its position, what waits, its consumers, and what can be done about it."""

from __future__ import annotations

import asyncio
import time
from typing import Any, Final

from aiohttp import web
from magnetar.console.admin_paths import topic_path
from magnetar.console.errors import AdminRefused
from magnetar.console.pages.changes import done_text
from magnetar.console.pages.topic import subscription_row
from magnetar.console.pages.topic_facts import ROWS_MAX, topic_facts
from magnetar.console.visit import Visit

HOLES_CHARS_MAX: Final = 4000


async def _subscription(visit: Visit) -> web.Response:
    topic, name = visit.topic(), visit.required("name")
    facts, cursor = await asyncio.gather(
        topic_facts(visit.admin, topic, whyNotDispatching=True, getEarliestTimeInBacklog=True),
        _cursor(visit, name),
    )
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
        holes=str(cursor.get("individuallyDeletedMessages", ""))[:HOLES_CHARS_MAX],
        done=done_text(visit.text("done")),
        now=time.strftime("%Y-%m-%dT%H:%M", time.gmtime()),
    )


async def _cursor(visit: Visit, name: str) -> dict[str, Any]:
    """Return the positions of a subscription; empty for a partitioned topic, whose partitions have them."""
    try:
        internal = await visit.admin.get(f"{topic_path(visit.topic())}/internalStats")
    except AdminRefused as error:
        if error.status in (404, 405):
            return {}
        raise
    found: dict[str, Any] = (internal or {}).get("cursors", {}).get(name, {})
    return found


READS = {"/subscription": _subscription}
