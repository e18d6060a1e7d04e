"""A small HTTP port for health and metrics: GET only, one request per connection.

Bookies have no other HTTP, and brokers serve health here until their main HTTP port is up.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Final

from magnetar.common.obs.logs import get_logger

log = get_logger(__name__)

REQUEST_BYTES_MAX: Final = 8192
REQUEST_TIMEOUT_S: Final = 10.0
CONNECTIONS_MAX: Final = 64
"""Limit of open connections; a further one closes the oldest, so that health checks still get through."""

Page = Callable[[], tuple[int, str, bytes]]
"""Returns (status, content type, body)."""

_REASONS: Final = {
    200: "OK",
    400: "Bad Request",
    404: "Not Found",
    405: "Method Not Allowed",
    503: "Unavailable",
}


class HttpPages:
    """A listening socket and its pages; one request per connection."""

    def __init__(self, pages: dict[str, Page]) -> None:
        self._pages = pages
        self._server: asyncio.Server | None = None
        self._connections: dict[asyncio.Task[None], None] = {}
        """Open connections, the oldest first."""

    async def start(self, host: str, port: int) -> int:
        """Listen; returns the port. Raises OSError."""
        self._server = await asyncio.start_server(self._connected, host, port, limit=REQUEST_BYTES_MAX)
        return int(self._server.sockets[0].getsockname()[1])

    async def close(self) -> None:
        """Stops listening and closes open connections; idempotent."""
        server, self._server = self._server, None
        if server is None:
            return
        server.close()
        for task in list(self._connections):
            task.cancel()
        if self._connections:
            await asyncio.wait(self._connections)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None, "a handler runs in a task"
        if len(self._connections) >= CONNECTIONS_MAX:
            oldest = next((each for each in self._connections if not each.cancelling()), task)
            oldest.cancel()
        self._connections[task] = None
        try:
            async with asyncio.timeout(REQUEST_TIMEOUT_S):
                await self._serve(reader, writer)
        except (TimeoutError, OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # who asks too slowly, too much, or goes away gets nothing
        except asyncio.CancelledError:
            pass  # closing, or one too many came
        finally:
            del self._connections[task]
            writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        words = head.partition(b"\r\n")[0].split()
        if len(words) != 3 or not words[2].startswith(b"HTTP/1."):
            answer = 400, "text/plain", b"not an HTTP request\n"
        elif words[0] != b"GET":
            answer = 405, "text/plain", b"GET only\n"
        else:
            answer = self._page(words[1].partition(b"?")[0].decode("latin-1"))
        status, kind, body = answer
        writer.write(
            f"HTTP/1.1 {status} {_REASONS[status]}\r\nContent-Type: {kind}\r\n"
            f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode()
            + body
        )
        await writer.drain()

    def _page(self, path: str) -> tuple[int, str, bytes]:
        page = self._pages.get(path)
        if page is None:
            return 404, "text/plain", ("there are: " + " ".join(self._pages) + "\n").encode()
        try:
            return page()
        except Exception as error:
            log.exception("a page could not be made", path=path)
            return 503, "text/plain", f"{error!r}\n".encode()


def json_page(status: int, value: object) -> tuple[int, str, bytes]:
    """Returns a page with one JSON value."""
    return status, "application/json", json.dumps(value).encode() + b"\n"


def text_page(answer: tuple[int, str]) -> tuple[int, str, bytes]:
    """Returns a plain-text page from status and text."""
    status, text = answer
    return status, "text/plain; charset=utf-8", text.encode()
