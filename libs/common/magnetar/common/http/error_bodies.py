"""Error responses in the form of Pulsar's HTTP API: `{"reason": "..."}`."""

from __future__ import annotations

from aiohttp import web


def refused(status: int, reason: str) -> web.Response:
    """Return an error response with this status and reason."""
    return web.json_response({"reason": reason}, status=status)
