"""Lookups of topic owners for HTTP requests: bounded in time, for one advertised listener."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Final, TypeVar

from aiohttp import web
from magnetar.common.errors import ServiceNotReady

T = TypeVar("T")

LOOKUP_TIMEOUT_S: Final = 20.0
"""Time to find the owner of a topic or bundle, including the assignment of an unowned bundle."""

LISTENER_HEADER: Final = "X-Pulsar-ListenerName"
"""Header in which Pulsar's clients name their advertised listener; the parameter `listenerName` does too."""


def listener_name(request: web.Request) -> str:
    """Return the advertised listener that the request names; empty when it names none."""
    return request.query.get("listenerName") or request.headers.get(LISTENER_HEADER) or ""


async def bounded_lookup(find: Awaitable[T], what: str) -> T:
    """Return the owner that `find` finds for `what`, a topic or bundle.

    Raises ServiceNotReady when that takes longer than LOOKUP_TIMEOUT_S, and whatever `find` raises.
    """
    try:
        async with asyncio.timeout(LOOKUP_TIMEOUT_S):
            return await find
    except TimeoutError as error:
        raise ServiceNotReady(f"no broker took {what} within {LOOKUP_TIMEOUT_S:g} s; try again") from error
