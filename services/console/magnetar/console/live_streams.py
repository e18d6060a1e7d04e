"""Server-sent events: a bounded number of streams, which end with the console."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any, Final

from aiohttp import web

STREAMS_MAX: Final = 64
"""Concurrent streams; a browser has one for each topic that it shows."""

EVERY_S: Final = 2.0
"""Seconds between two events of a stream."""

LIFE_S: Final = 3600.0
"""Seconds after which a stream ends; the browser then opens another one."""


class LiveStreams:
    """The streams of a console."""

    def __init__(self) -> None:
        self._closing = asyncio.Event()
        self._open = 0

    def close(self) -> None:
        """End all streams. Idempotent."""
        self._closing.set()

    async def serve(self, request: web.Request, figures: Callable[[], Awaitable[Any]]) -> web.StreamResponse:
        """Send what `figures` returns as JSON, again and again, until the browser leaves."""
        if self._open >= STREAMS_MAX:
            return web.Response(status=503, text=f"{STREAMS_MAX} live views are open already; close one")
        response = web.StreamResponse(
            headers={
                "Content-Type": "text/event-stream",
                "Cache-Control": "no-store",
                "X-Accel-Buffering": "no",
            }
        )
        self._open += 1
        try:
            await response.prepare(request)
            loop = asyncio.get_running_loop()
            ends = loop.time() + LIFE_S
            while not self._closing.is_set() and loop.time() < ends:
                event = json.dumps(await figures())
                await response.write(f"data: {event}\n\n".encode())
                try:
                    async with asyncio.timeout(EVERY_S):
                        await self._closing.wait()
                except TimeoutError:
                    pass
        finally:
            self._open -= 1
        return response
