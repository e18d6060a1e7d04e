"""A broker with its ports: what standalone and `magnetar broker` have in common, whatever lies under it."""

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

if TYPE_CHECKING:  # a standalone has no use for it
    from magnetar.broker.ownership.cluster import Cluster

_EVERY_ADDRESS: Final = ("0.0.0.0", "::")


class BrokerFront:
    """A broker and its two ports; they close with `opened`, the broker first. Used once."""

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
        """`metadata_url` says where metadata is, for operators. `cluster`: as Broker has it."""
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
        """Where clients connect; empty before `open`."""
        return self.broker.urls.broker_url

    @property
    def port(self) -> int:
        """Port of the binary protocol; 0 before `open`."""
        return self.broker.port

    @property
    def http_url(self) -> str:
        """Where HTTP is; empty before `open_http`."""
        return self.broker.urls.http_url

    def open_http(self) -> None:
        """Listen for HTTP; before `open`, so that health says 'not ready' then and while the broker closes.

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
    """The same with the host that clients are sent to filled in, written as in a URL.

    Listening on every address says nothing of how this host is called elsewhere: then it is localhost, as in
    Pulsar's standalone.
    """
    listener = config.listener
    host = listener.advertised_address or internal_host(listener) or listener.bind_address
    if host in _EVERY_ADDRESS:
        host = "localhost"
    elif ":" in host and not host.startswith("["):
        host = f"[{host}]"
    return replace(config, listener=replace(listener, advertised_address=host))


def contradictions(listener: ListenerConfig) -> list[str]:
    """Problems between client addresses that are each valid."""
    problems = listener_problems(listener)
    if listener.broker_service_port == listener.web_service_port != 0:
        problems.append(f"brokerServicePort and webServicePort are both {listener.web_service_port}")
    return problems


def ports_in_use(listener: ListenerConfig) -> list[str]:
    """Problems of the ports, before storage is opened. The real bind decides."""
    ports = {"brokerServicePort": listener.broker_service_port, "webServicePort": listener.web_service_port}
    return port_problems(listener.bind_address, ports)
