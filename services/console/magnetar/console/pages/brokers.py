"""Brokers with the bundles that they own as a map, and one bundle."""

from __future__ import annotations

from typing import Any, Final

from aiohttp import web
from magnetar.console.pages.bundle_map import BrokerFigures, brokers_of, find_bundle, level_of
from magnetar.console.pages.changes import done_text
from magnetar.console.visit import Visit

SHOWN_MAX: Final = 200
"""Bundles shown of each broker, those with the most messages."""

BROKERS_MAX: Final = 50
"""Brokers whose bundles are shown; the table has all."""


async def _brokers(visit: Visit) -> web.Response:
    only = visit.text("namespace").strip()
    brokers = await brokers_of(visit.admin)
    return await visit.page("brokers.html", title="Brokers", only=only, **_values(brokers, only))


async def _map(visit: Visit) -> web.Response:
    only = visit.text("namespace").strip()
    brokers = await brokers_of(visit.admin)
    return await visit.page("_brokers.html", only=only, **_values(brokers, only))


def _values(brokers: list[BrokerFigures], only: str) -> dict[str, Any]:
    bundles = [each for broker in brokers for each in broker.bundles]
    most = max((each.rate for each in bundles), default=0.0)
    rows = []
    for broker in brokers[:BROKERS_MAX]:
        wanted = [each for each in broker.bundles if only in ("", each.namespace)]
        shown = [(each, level_of(each.rate, most)) for each in wanted[:SHOWN_MAX]]
        count = len(wanted) if only else broker.bundle_count
        rows.append((broker, shown, count))
    return {"brokers": brokers, "rows": rows}


async def _bundle(visit: Visit) -> web.Response:
    namespace, bundle = visit.namespace(), visit.required("bundle")
    brokers = await brokers_of(visit.admin)
    found = find_bundle(brokers, str(namespace), bundle)
    lower, _, upper = bundle.partition("_")
    return await visit.page(
        "bundle.html",
        title=f"Bundle {bundle} of {namespace}",
        namespace=str(namespace),
        bundle=bundle,
        figures=found,
        share=share_of_ring(lower, upper),
        destinations=[
            each.broker_id
            for each in brokers
            if not each.is_draining and (found is None or each.broker_id != found.broker)
        ],
        done=done_text(visit.text("done")),
    )


def share_of_ring(lower: str, upper: str) -> float:
    """Return the part of the namespace's hash ring that a range covers, in percent; 0 for no range."""
    try:
        return max(0.0, (int(upper, 16) - int(lower, 16)) / 0xFFFFFFFF * 100)
    except ValueError:
        return 0.0


READS = {"/brokers": _brokers, "/brokers/map": _map, "/bundle": _bundle}
