"""Errors as Pulsar's HTTP has them."""

from __future__ import annotations

from aiohttp import web


def refused(status: int, reason: str) -> web.Response:
    """An error in the form of Pulsar's."""
    return web.json_response({"reason": reason}, status=status)
