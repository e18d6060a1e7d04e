"""Clusters, and whether this broker is well."""

from __future__ import annotations

from aiohttp import web
from magnetar.broker.admin.routing import BROKER, add_get


def add_routes(app: web.Application) -> None:
    add_get(app, "/admin/v2/clusters", _clusters, action="admin")
    add_get(app, "/admin/v2/brokers/health", _health, action="health")
    add_get(app, "/health", _health, action="health")


async def _clusters(request: web.Request) -> web.Response:
    return web.json_response([request.app[BROKER].config.cluster_name])


async def _health(request: web.Request) -> web.Response:
    # The event loop answers this, so the broker's loop runs.
    not_ready = request.app[BROKER].not_ready
    if not_ready is not None:
        return web.Response(status=503, text=f"not ready: {not_ready}")
    return web.Response(text="ok")
