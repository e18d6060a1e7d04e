"""Clusters, and whether this broker is well."""

from __future__ import annotations

from typing import Final

from aiohttp import web
from magnetar.broker.admin.call import Call, answer
from magnetar.broker.admin.routing import Route


async def _clusters(call: Call) -> web.Response:
    return answer([call.broker.config.cluster_name])


async def _health(call: Call) -> web.Response:
    # The event loop answers this, so the broker's loop runs.
    not_ready = call.broker.not_ready
    if not_ready is not None:
        return web.Response(status=503, text=f"not ready: {not_ready}")
    return web.Response(text="ok")


ROUTES: Final = [
    Route(
        object="clusters",
        method="GET",
        path="/admin/v2/clusters",
        handler=_clusters,
        summary="The names of all clusters.",
        answer="List<String>",
    ),
    *(
        Route(
            object="brokers",
            method="GET",
            path=path,
            handler=_health,
            summary="Whether this broker serves clients.",
            action="health",
            answer="ok",
            errors={503: "nobody is served now, and why"},
        )
        for path in ("/admin/v2/brokers/health", "/health")
    ),
]
