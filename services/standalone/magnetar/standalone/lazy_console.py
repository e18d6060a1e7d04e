"""The console of a standalone, at /console of its HTTP ports: loaded with its first page."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from magnetar.common.runtime.blocking import BlockingPool

if TYPE_CHECKING:  # loaded with HTTP, and with the first page
    from aiohttp import web
    from magnetar.console.console import Console

PREFIX: Final = "/console"
"""Path of the console."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsoleAccess:
    """Addresses of the broker that serves the console, as visitors reach it; empty before it serves."""

    admin_url: str
    service_url: str
    trust_certs_file: str
    verify_hostname: bool


class LazyConsole:
    """Serves /console; the package is imported in a thread, so that messages flow meanwhile."""

    def __init__(self, access: Callable[[], ConsoleAccess], pool: BlockingPool) -> None:
        """`access` returns the broker's addresses of now."""
        self._access = access
        self._pool = pool
        self._loading = asyncio.Lock()
        self._console: Console | None = None

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Returns the answer to a request below PREFIX."""
        async with self._loading:
            if self._console is None:
                access = self._access()
                try:
                    make = await self._pool.run(_load)
                except ModuleNotFoundError as error:
                    return _unavailable(404, f"there is no console here: {error}; install magnetar-console")
                if not access.service_url:
                    return _unavailable(503, "the broker is starting; load the page again")
                self._console = make(access)
            console = self._console
        return await console.handle(request)

    async def close(self) -> None:
        """End live views and connections. Idempotent."""
        if self._console is not None:
            await self._console.close()


def _load() -> Callable[[ConsoleAccess], Console]:
    from magnetar.common.security.tls.client_context import ClientFiles
    from magnetar.console.cluster_access import ClusterAccess
    from magnetar.console.console import Console

    def make(access: ConsoleAccess) -> Console:
        files = ClientFiles(trust_certs=access.trust_certs_file, verify_hostname=access.verify_hostname)
        cluster = ClusterAccess(admin_url=access.admin_url, service_url=access.service_url, tls=files)
        return Console(cluster, PREFIX)

    return make


def _unavailable(status: int, text: str) -> web.Response:
    from aiohttp import web

    return web.Response(status=status, text=text)
