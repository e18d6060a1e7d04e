"""`magnetar discovery` as a process: the entry point of a cluster and the common tasks of every process."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import AsyncExitStack
from functools import partial
from typing import TYPE_CHECKING

from magnetar.common.errors import ConfigError, MagnetarError
from magnetar.common.metadata.keys import Keys
from magnetar.common.metadata.open_store import open_metadata_store
from magnetar.common.runtime.blocking import ThreadPool
from magnetar.common.security.authentication.provider_table import authentication_problems
from magnetar.discovery.config import DiscoveryConfig
from magnetar.discovery.discovery import Discovery
from magnetar.standalone.lazy_http import Edge, LazyHttp
from magnetar.standalone.ports import port_problems
from magnetar.standalone.process_watch import watch_process
from magnetar.standalone.service import Address
from magnetar.standalone.start_error import CannotStart, listed, reason

if TYPE_CHECKING:  # without a TLS port there is no use for it
    from magnetar.common.security.tls.ports import TlsPorts


class DiscoveryProcess:
    """Implements `service.Service`. Use it once: `start`, then `close`."""

    def __init__(self, config: DiscoveryConfig) -> None:
        self._config = config
        self._opened = AsyncExitStack()
        self._discovery: Discovery | None = None
        self._http_port = self._https_port = 0

    @property
    def shutdown_timeout_ms(self) -> int:
        return self._config.listener.shutdown_timeout_ms

    @property
    def addresses(self) -> Sequence[Address]:
        assert self._discovery is not None, "the discovery has started"
        host = self._config.shown_host
        return [
            *self._clients(host),
            *self._web(host),
            Address("metadata", self._config.metadata.url),
        ]

    def _clients(self, host: str) -> Iterator[Address]:
        assert self._discovery is not None, "the discovery has started"
        if self._discovery.port:
            yield Address("clients", f"pulsar://{host}:{self._discovery.port}")
        if self._discovery.port_tls:
            yield Address("clients", f"pulsar+ssl://{host}:{self._discovery.port_tls}")

    def _web(self, host: str) -> Iterator[Address]:
        pages = "(to brokers; /metrics, /health)"
        if self._http_port:
            yield Address("HTTP", f"http://{host}:{self._http_port}", pages)
        if self._https_port:
            yield Address("HTTPS", f"https://{host}:{self._https_port}", pages)

    async def start(self) -> None:
        """See `Service.start`. Waits while metadata is unavailable; HTTP reports that."""
        try:
            await self._start()
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """See `Service.close`."""
        await self._opened.aclose()

    async def _start(self) -> None:
        config = self._config
        problems = config.problems() + authentication_problems(config.authentication)
        if problems:
            raise ConfigError(listed("invalid configuration", problems))
        listener = config.listener
        problems = port_problems(listener.bind_address, listener.ports)
        if problems:
            raise CannotStart(listed("magnetar cannot start", problems))
        try:
            url = config.metadata.url
            access = config.metadata_access.access(url, config.control_tls.refresh_s)
            metadata = await open_metadata_store(url, access)
        except MagnetarError as error:
            raise CannotStart(listed("magnetar cannot start", [f"metadata: {error}"])) from error
        self._opened.push_async_callback(metadata.close)
        pool = ThreadPool(1, "http")
        self._opened.callback(pool.close)
        watch_process(self._opened)
        keys = Keys(config.metadata.cluster_name)
        self._discovery = discovery = Discovery(config, metadata, keys, random.SystemRandom())
        http = LazyHttp(partial(_load_http, discovery), pool)
        self._opened.push_async_callback(http.close)
        self._opened.push_async_callback(discovery.close)
        try:
            tls = self._open_tls()
            if tls is not None:
                discovery.tls = tls.binary if listener.service_port_tls is not None else None
            if listener.web_service_port is not None:
                self._http_port = http.start(listener.bind_address, listener.web_service_port)
            if listener.web_service_port_tls is not None and tls is not None:
                port = listener.web_service_port_tls
                self._https_port = http.start(listener.bind_address, port, tls.web)
            await discovery.start()
        except OSError as error:
            raise CannotStart(listed("magnetar cannot start", [reason(error)])) from error

    def _open_tls(self) -> TlsPorts | None:
        """Load the certificates of the ports with TLS; None without such a port. Raises ConfigError."""
        if all(port is None for port in self._config.listener.tls_ports.values()):
            return None
        from magnetar.common.security.tls.ports import TlsPorts

        tls = TlsPorts(self._config.tls)
        self._opened.push_async_callback(tls.close)
        tls.start()
        return tls


def _load_http(discovery: Discovery) -> Callable[[], Edge]:
    from magnetar.discovery.http.server import HttpEdge

    return partial(HttpEdge, discovery)
