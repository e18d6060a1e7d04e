"""The HTTP port of a discovery, and a session for asking it."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
from magnetar.discovery.http.server import HttpEdge

from tests.unit.discovery.front import Front


@asynccontextmanager
async def http_port(front: Front) -> AsyncIterator[tuple[aiohttp.ClientSession, str]]:
    """The session, and the URL of the port."""
    edge = HttpEdge(front.discovery)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.setblocking(False)
        await edge.start(listening)
        try:
            async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=30)) as session:
                yield session, f"http://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            await edge.close()
