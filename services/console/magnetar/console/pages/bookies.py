"""Bookies with their space and state, and the progress of auto-recovery."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from aiohttp import web
from magnetar.console.admin_paths import MAGNETAR, V2
from magnetar.console.visit import Visit

LEDGERS_SHOWN: Final = 100
"""Under-replicated ledgers shown."""

_PATH: Final = f"{MAGNETAR}/bookies"


async def _bookies(visit: Visit) -> web.Response:
    values = await _values(visit)
    return await visit.page("bookies.html", title="Bookies", **values)


async def _part(visit: Visit) -> web.Response:
    return await visit.page("_bookies.html", **await _values(visit))


async def _values(visit: Visit) -> dict[str, Any]:
    report, racks = await asyncio.gather(
        visit.admin.get(_PATH, limit=LEDGERS_SHOWN), visit.admin.get(f"{V2}/bookies/racks-info")
    )
    assigned = {
        bookie: each.get("rack", "") for group in (racks or {}).values() for bookie, each in group.items()
    }
    bookies = report.get("bookies", [])
    return {
        "report": report,
        "bookies": [{**each, "assigned": assigned.get(each["bookieId"], "")} for each in bookies],
        "down": sum(each["state"] == "down" for each in bookies),
        "ledgers": report.get("underReplicatedLedgers", []),
    }


async def _ledgers(visit: Visit) -> web.Response:
    """Counts on demand: the broker reads the metadata of all ledgers for it."""
    found = await visit.admin.get(f"{_PATH}/ledgers")
    rows = sorted(found.get("bookies", {}).items())
    return await visit.page("_bookie_ledgers.html", found=found, rows=rows)


READS = {"/bookies": _bookies, "/bookies/part": _part, "/bookies/ledgers": _ledgers}
