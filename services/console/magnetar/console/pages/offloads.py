"""Offload runs: of a namespace by topic, and of a topic by ledger, with the reason of what failed."""

from __future__ import annotations

from typing import Any, Final
from urllib.parse import urlencode

from aiohttp import web
from magnetar.console.admin_paths import MAGNETAR, namespace_path, topic_path
from magnetar.console.visit import Visit

LEDGERS_SHOWN: Final = 200


async def _offloads(visit: Visit) -> web.Response:
    name = visit.namespace() if visit.text("namespace") else None
    values: dict[str, Any] = {"namespace": "", "found": {}, "topics": [], "next": ""}
    if name is not None:
        after = visit.text("after")
        query = {"after": after} if after else {}
        found = await visit.admin.get(f"{namespace_path(name, MAGNETAR)}/offload", **query)
        following = found.get("next", "")
        values = {
            "namespace": str(name),
            "found": found,
            "topics": sorted(found.get("topics", []), key=_attention),
            "next": urlencode({"namespace": str(name), "after": following}) if following else "",
        }
    return await visit.page("offloads.html", title="Offload runs", **values)


def _attention(row: dict[str, Any]) -> tuple[bool, bool, str]:
    """Order of topics: those where a job failed, then those with work, then by name."""
    return not row["failed"], not (row["running"] or row["waiting"]), row["topic"]


async def _of_topic(visit: Visit) -> web.Response:
    name = visit.topic()
    found = await visit.admin.get(f"{topic_path(name, MAGNETAR)}/offload")
    return await visit.page(
        "_topic_offload.html", topic=name.full, found=found, rows=found.get("states", [])[:LEDGERS_SHOWN]
    )


READS = {"/offloads": _offloads, "/topic/offload": _of_topic}
