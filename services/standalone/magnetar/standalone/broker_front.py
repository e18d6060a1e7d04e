"""A broker with its ports, shared by standalone and `magnetar broker`; independent of the storage below."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import replace
from functools import partial
from itertools import combinations
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from magnetar.broker.advertised_listeners import internal_host, listener_problems
from magnetar.broker.broker import Broker
from magnetar.broker.config import BrokerConfig
from magnetar.broker.listener_config import ListenerConfig
from magnetar.common.runtime.blocking import BlockingPool
from magnetar.common.security.authentication.config import TLS_PROVIDER
from magnetar.common.security.tls.config import tls_problems
from magnetar.ledger.managed_ledger.context import ManagedLedgerContext
from magnetar.standalone.lazy_console import ConsoleAccess
from magnetar.standalone.lazy_http import Edge, LazyHttp
from magnetar.standalone.ports import port_problems
from magnetar.standalone.process import ask_to_stop
from magnetar.standalone.service import Address

if TYPE_CHECKING:  # a standalone has no use for the one, and without a TLS port there is none for the other
    from magnetar.broker.admin.edge.pages_beside import PagesBeside
    from magnetar.broker.ownership.cluster import Cluster
    from magnetar.common.security.tls.ports import TlsPorts

_EVERY_ADDRESS: Final = ("0.0.0.0", "::")


class BrokerFront:
    """A broker and its ports; they close with `opened`, the broker first. Used once."""

    def __init__(
        self,
        opened: AsyncExitStack,
        config: BrokerConfig,
        ledgers: ManagedLedgerContext,
        pool: BlockingPool,
        *,
        metadata_url: str,
        cluster: Cluster | None = None,
        has_console: bool = False,
        shared: ListenerConfig | None = None,
    ) -> None:
        """`metadata_url` is shown to operators. `cluster` is passed to Broker. `has_console`: the console is
        at the HTTP ports too. `shared` has the ports at which other processes listen as well.
        """
        self.config = config
        self.broker = Broker(config, ledgers, ledgers.metadata, ledgers.keys, ledgers.clock, cluster)
        self.broker.metadata_url = metadata_url
        self.broker.stop_process = ask_to_stop
        self._opened = opened
        self._pool = pool
        self._has_console = has_console
        self._shared = shared
        self.broker.shares_ports = shared is not None
        self._http = LazyHttp(self._load_http, pool, shares_ports=shared is not None)
        self._tls: TlsPorts | None = None

    def _load_http(self) -> Callable[[], Edge]:
        from magnetar.broker.admin.edge.server import HttpEdge
        from magnetar.broker.admin.table import routes

        beside: PagesBeside | None = None
        if self._has_console:
            from magnetar.broker.admin.edge.pages_beside import PagesBeside as Pages
            from magnetar.standalone.lazy_console import PREFIX, LazyConsole

            console = LazyConsole(self._console_access, self._pool)
            beside = Pages(PREFIX, console.handle, console.close)
        return partial(HttpEdge, self.broker, routes(self.broker), beside)

    def _console_access(self) -> ConsoleAccess:
        """Where the console of this process finds this broker: as any visitor, without rights of its own."""
        urls, client = self.broker.urls, self.config.broker_client
        return ConsoleAccess(
            admin_url=urls.any_http_url,
            service_url=urls.broker_url or urls.broker_url_tls,
            trust_certs_file=client.trust_certs_file,
            verify_hostname=client.verify_hostname,
        )

    @property
    def broker_url(self) -> str:
        """Service URL for clients; empty before `open`."""
        return self.broker.urls.broker_url

    @property
    def http_url(self) -> str:
        """Where HTTP is, with TLS only where it is not there without; empty before `open_http`."""
        return self.broker.urls.any_http_url

    @property
    def bound_listener(self) -> ListenerConfig:
        """The configuration with the ports that it listens at."""
        listener, broker = self.config.listener, self.broker
        return replace(
            listener,
            broker_service_port=_bound(listener.broker_service_port, broker.port),
            broker_service_port_tls=_bound(listener.broker_service_port_tls, broker.port_tls),
            web_service_port=_bound(listener.web_service_port, _port(broker.urls.http_url)),
            web_service_port_tls=_bound(listener.web_service_port_tls, _port(broker.urls.http_url_tls)),
        )

    @property
    def addresses(self) -> list[Address]:
        """Where clients connect, for the ready line."""
        urls = self.broker.urls
        pages = "(/docs, /metrics, /health, /admin/v2)"
        found = [
            Address("clients", urls.broker_url),
            Address("clients", urls.broker_url_tls),
            Address("HTTP", urls.http_url, pages),
            Address("HTTPS", urls.http_url_tls, pages),
        ]
        return [each for each in found if each.text]

    def open_http(self) -> None:
        """Listen for HTTP. Call before `open`, so that health reports 'not ready' until then and during
        close.

        Loads the certificate of TLS ports. Raises OSError, ConfigError.
        """
        listener, host = self.config.listener, self.config.listener.advertised_address
        self._open_tls()
        self._opened.push_async_callback(self._http.close)
        if listener.web_service_port is not None:
            port = self._http.start(listener.bind_address, listener.web_service_port)
            self.broker.urls.http_url = f"http://{host}:{port}"
        if listener.web_service_port_tls is not None:
            assert self._tls is not None, "there is a TLS port"
            port = self._http.start(listener.bind_address, listener.web_service_port_tls, self._tls.web)
            self.broker.urls.http_url_tls = f"https://{host}:{port}"
        if self._shared is not None:
            self._open_shared_http(self._shared)

    def _open_shared_http(self, shared: ListenerConfig) -> None:
        if shared.web_service_port is not None:
            self._http.start(shared.bind_address, shared.web_service_port)
        if shared.web_service_port_tls is not None:
            assert self._tls is not None, "there is a TLS port"
            self._http.start(shared.bind_address, shared.web_service_port_tls, self._tls.web)

    def _open_tls(self) -> None:
        """Load what TLS ports need. Nothing of it is imported without one."""
        if all(port is None for port in self.config.listener.tls_ports.values()):
            return
        from magnetar.common.security.tls.ports import TlsPorts

        self._tls = TlsPorts(self.config.tls)
        self._opened.push_async_callback(self._tls.close)
        self._tls.start()
        self.broker.tls = self._tls.binary

    async def open(self) -> None:
        """Serve clients. Raises MagnetarError or OSError."""
        self._opened.push_async_callback(self.broker.close)
        await self.broker.start()

    async def open_shared(self) -> None:
        """Serve clients at the shared ports too; after `open`. Raises OSError."""
        if self._shared is not None:
            await self.broker.listen(self._shared)


def advertised(config: BrokerConfig) -> BrokerConfig:
    """Return the configuration with the advertised host filled in, written as in a URL.

    A wildcard bind address does not determine an advertised host name; localhost is used then, as in Pulsar's
    standalone.
    """
    listener = config.listener
    host = listener.advertised_address or internal_host(listener) or listener.bind_address
    if host in _EVERY_ADDRESS:
        host = "localhost"
    elif ":" in host and not host.startswith("["):
        host = f"[{host}]"
    return replace(config, listener=replace(listener, advertised_address=host))


def contradictions(config: BrokerConfig, others: Mapping[str, int]) -> list[str]:
    """Problems between client addresses that are each valid. `others` has further ports by their keys; those
    that are not positive are none.
    """
    listener = config.listener
    problems = listener_problems(listener) + tls_problems(
        config.tls,
        listener.tls_ports,
        certificates_are_identities=TLS_PROVIDER in config.authentication.providers,
    )
    problems += config.broker_client.problems()
    if listener.broker_service_port is None and listener.broker_service_port_tls is None:
        problems.append("brokerServicePort and brokerServicePortTls are both empty: give one of them")
    if listener.web_service_port is None and listener.web_service_port_tls is None:
        problems.append("webServicePort and webServicePortTls are both empty: give one of them")
    for (one, port), (other, same) in combinations({**listener.ports, **others}.items(), 2):
        if port == same > 0:
            problems.append(f"{one} and {other} are both {port}")
    return problems


def ports_in_use(listener: ListenerConfig) -> list[str]:
    """Problems of the ports, before storage is opened. The real bind decides."""
    return port_problems(listener.bind_address, listener.ports)


def _bound(configured: int | None, port: int) -> int | None:
    return None if configured is None else port


def _port(url: str) -> int:
    return urlsplit(url).port or 0
