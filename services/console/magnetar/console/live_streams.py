"""Server-sent events: a bounded number of streams, which end with the console."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
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

        async def events() -> AsyncGenerator[Any, None]:
            loop = asyncio.get_running_loop()
            ends = loop.time() + LIFE_S
            while loop.time() < ends:
                yield await figures()
                try:
                    async with asyncio.timeout(EVERY_S):
                        await self._closing.wait()
                except TimeoutError:
                    pass

        return await self.relay(request, events())

    async def relay(self, request: web.Request, events: AsyncGenerator[Any, None]) -> web.StreamResponse:
        """Send events as JSON until they end, the browser leaves or the console closes; close them then."""
        async with aclosing(events):
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
                async for event in events:
                    await response.write(f"data: {json.dumps(event)}\n\n".encode())
                    if self._closing.is_set():
                        break
            finally:
                self._open -= 1
            return response
