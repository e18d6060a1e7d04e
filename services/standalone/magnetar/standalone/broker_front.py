"""A broker with its ports, shared by standalone and `magnetar broker`; independent of the storage below."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final

from magnetar.broker.advertised_listeners import internal_host, listener_problems
from magnetar.broker.broker import Broker
from magnetar.broker.config import BrokerConfig
from magnetar.broker.listener_config import ListenerConfig
from magnetar.common.runtime.blocking import BlockingPool
from magnetar.ledger.managed_ledger.context import ManagedLedgerContext
from magnetar.standalone.lazy_http import Edge, LazyHttp
from magnetar.standalone.ports import port_problems
from magnetar.standalone.process import ask_to_stop

if TYPE_CHECKING:  # Not used by a standalone.
    from magnetar.broker.ownership.cluster import Cluster

_EVERY_ADDRESS: Final = ("0.0.0.0", "::")


class BrokerFront:
    """A broker and its two ports, for a single use. They close with `opened`, the broker first."""

    def __init__(
        self,
        opened: AsyncExitStack,
        config: BrokerConfig,
        ledgers: ManagedLedgerContext,
        pool: BlockingPool,
        *,
        metadata_url: str,
        cluster: Cluster | None = None,
    ) -> None:
        """`metadata_url` is shown to operators. `cluster` is passed to Broker."""
        self.config = config
        self.broker = Broker(config, ledgers, ledgers.metadata, ledgers.keys, ledgers.clock, cluster)
        self.broker.metadata_url = metadata_url
        self.broker.stop_process = ask_to_stop
        self._opened = opened
        self._http = LazyHttp(self._load_http, pool)

    def _load_http(self) -> Callable[[], Edge]:
        from magnetar.broker.admin.edge.server import HttpEdge
        from magnetar.broker.admin.table import routes

        return partial(HttpEdge, self.broker, routes(self.broker))

    @property
    def broker_url(self) -> str:
        """Service URL for clients; empty before `open`."""
        return self.broker.urls.broker_url

    @property
    def port(self) -> int:
        """Port of the binary protocol; 0 before `open`."""
        return self.broker.port

    @property
    def http_url(self) -> str:
        """HTTP URL; empty before `open_http`."""
        return self.broker.urls.http_url

    def open_http(self) -> None:
        """Listen for HTTP. Call before `open`, so that health reports 'not ready' until then and during
        close.

        Raises OSError.
        """
        listener = self.config.listener
        self._opened.push_async_callback(self._http.close)
        port = self._http.start(listener.bind_address, listener.web_service_port)
        self.broker.urls.http_url = f"http://{listener.advertised_address}:{port}"

    async def open(self) -> None:
        """Serve clients. Raises MagnetarError or OSError."""
        self._opened.push_async_callback(self.broker.close)
        await self.broker.start()


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


def contradictions(listener: ListenerConfig) -> list[str]:
    """Return conflicts between client addresses that are each valid."""
    problems = listener_problems(listener)
    if listener.broker_service_port == listener.web_service_port != 0:
        problems.append(f"brokerServicePort and webServicePort are both {listener.web_service_port}")
    return problems


def ports_in_use(listener: ListenerConfig) -> list[str]:
    """Check the ports before storage is opened; return the problems. The later bind is authoritative."""
    ports = {"brokerServicePort": listener.broker_service_port, "webServicePort": listener.web_service_port}
    return port_problems(listener.bind_address, ports)
