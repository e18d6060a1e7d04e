"""`magnetar console` as a process: pages about a cluster for a browser."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from functools import partial
from typing import TYPE_CHECKING

from magnetar.common.errors import ConfigError
from magnetar.common.runtime.blocking import ThreadPool
from magnetar.console.cluster_access import ClusterAccess
from magnetar.console.config import ConsoleConfig
from magnetar.console.oidc_config import OidcConfig
from magnetar.standalone.lazy_http import Edge, LazyHttp
from magnetar.standalone.ports import port_problems
from magnetar.standalone.process_watch import watch_process
from magnetar.standalone.service import Address
from magnetar.standalone.start_error import CannotStart, listed, reason

if TYPE_CHECKING:  # without a TLS port there is no use for it
    from magnetar.common.security.tls.ports import TlsPorts


class ConsoleProcess:
    """Implements `service.Service`. Use it once: `start`, then `close`."""

    def __init__(self, config: ConsoleConfig) -> None:
        self._config = config
        self._opened = AsyncExitStack()
        self._http_port = self._https_port = 0

    @property
    def shutdown_timeout_ms(self) -> int:
        return self._config.listener.shutdown_timeout_ms

    @property
    def addresses(self) -> Sequence[Address]:
        host, cluster = self._config.shown_host, self._config.cluster
        found = []
        if self._http_port:
            found.append(Address("console", f"http://{host}:{self._http_port}"))
        if self._https_port:
            found.append(Address("console", f"https://{host}:{self._https_port}"))
        return [*found, Address("shows", cluster.admin_url)]

    async def start(self) -> None:
        """See `Service.start`."""
        try:
            await self._start()
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """See `Service.close`."""
        await self._opened.aclose()

    async def _start(self) -> None:
        config, listener = self._config, self._config.listener
        problems = config.problems()
        if problems:
            raise ConfigError(listed("invalid configuration", problems))
        problems = port_problems(listener.bind_address, listener.ports)
        if problems:
            raise CannotStart(listed("magnetar cannot start", problems))
        pool = ThreadPool(1, "http")
        self._opened.callback(pool.close)
        watch_process(self._opened)
        http = LazyHttp(partial(_load_http, config.cluster.access(), config.oidc), pool)
        self._opened.push_async_callback(http.close)
        try:
            tls = self._open_tls()
            if listener.web_service_port is not None:
                self._http_port = http.start(listener.bind_address, listener.web_service_port)
            if listener.web_service_port_tls is not None and tls is not None:
                port = listener.web_service_port_tls
                self._https_port = http.start(listener.bind_address, port, tls.web)
        except OSError as error:
            raise CannotStart(listed("magnetar cannot start", [reason(error)])) from error

    def _open_tls(self) -> TlsPorts | None:
        """Load the certificate of the TLS port; None without such a port. Raises ConfigError."""
        if self._config.listener.web_service_port_tls is None:
            return None
        from magnetar.common.security.tls.ports import TlsPorts

        tls = TlsPorts(self._config.tls)
        self._opened.push_async_callback(tls.close)
        tls.start()
        return tls


def _load_http(access: ClusterAccess, oidc: OidcConfig) -> Callable[[], Edge]:
    from magnetar.console.server import HttpEdge

    return partial(HttpEdge, access, oidc)
