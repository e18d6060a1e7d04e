"""Everything a discovery can be told. Keys are those of Pulsar's proxy where the meaning is the same."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from magnetar.common.config.settings import setting
from magnetar.common.errors import ConfigError
from magnetar.common.metadata.open_store import etcd_endpoints

_ETCD: Final = "etcd:"
_EVERY_ADDRESS: Final = ("0.0.0.0", "::")


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenerConfig:
    """Where clients connect."""

    bind_address: str = setting(
        "127.0.0.1",
        "Address to listen on; loopback by default (Pulsar: 0.0.0.0). Container images set 0.0.0.0.",
        key="bindAddress",
    )
    service_port: int = setting(
        6650,
        "Port of the binary protocol; 0 picks a free one.",
        key="servicePort",
        minimum=0,
        maximum=65535,
    )
    web_service_port: int = setting(
        8080,
        "Port of HTTP: redirects to brokers, or carried there; metrics, health; 0 picks a free one.",
        key="webServicePort",
        minimum=0,
        maximum=65535,
    )
    keep_alive_interval_s: int = setting(
        30,
        "Idle seconds before a connection is pinged, and again before it is closed.",
        key="keepAliveIntervalSeconds",
        minimum=1,
    )
    connections_max: int = setting(
        10_000,
        "Connections accepted at once, those to brokers among them; 0 is no limit.",
        key="maxConcurrentInboundConnections",
        minimum=0,
    )
    shutdown_timeout_ms: int = setting(
        15_000,
        "Maximum milliseconds of a clean shutdown; after that, the process ends anyway.",
        key="magnetarDiscoveryShutdownTimeoutMs",
        minimum=1,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataConfig:
    """Which cluster it is the front door of."""

    cluster_name: str = setting("", "Name of the cluster. Has to be given.", key="clusterName")
    url: str = setting(
        "", "Where metadata is kept: etcd:HOST:PORT,... Has to be given.", key="metadataStoreUrl"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class LookupConfig:
    """Questions about topics."""

    lookups_max: int = setting(
        50_000,
        "Concurrent requests that need a broker's answer; more get TooManyRequests.",
        key="maxConcurrentLookupRequests",
        minimum=1,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ProxyConfig:
    """Connections that are carried to brokers."""

    through_service_url: bool = setting(
        False,
        "Tell clients that look a topic up to reach its broker through this service, and carry HTTP to "
        "brokers rather than redirect to them, for clients that cannot reach brokers themselves. Those that "
        "ask to be connected to a broker are, whatever is set here.",
        key="magnetarProxyThroughServiceUrl",
    )
    connect_timeout_ms: int = setting(
        10_000,
        "Milliseconds that connecting to a broker may take.",
        key="brokerProxyConnectTimeoutMs",
        minimum=1,
    )
    read_timeout_ms: int = setting(
        75_000,
        "Milliseconds of silence of a broker, which pings twice in that time, after which a connection to it "
        "is closed; 0 is no limit.",
        key="brokerProxyReadTimeoutMs",
        minimum=0,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class DiscoveryConfig:
    """A discovery of a cluster."""

    listener: ListenerConfig = field(default_factory=ListenerConfig)
    metadata: MetadataConfig = field(default_factory=MetadataConfig)
    lookups: LookupConfig = field(default_factory=LookupConfig)
    proxy: ProxyConfig = field(default_factory=ProxyConfig)

    @property
    def shown_host(self) -> str:
        """The host under which it is reached, as far as can be said, written as in a URL."""
        host = self.listener.bind_address
        if host in _EVERY_ADDRESS:
            return "localhost"
        return f"[{host}]" if ":" in host else host

    def problems(self) -> list[str]:
        """All problems between values that are each valid."""
        found = []
        if not self.metadata.cluster_name:
            found.append("clusterName has to be given: the name that the brokers of this cluster use too")
        url = self.metadata.url
        if not url.startswith(_ETCD):
            found.append(f"metadataStoreUrl = {url!r}: a cluster's metadata is in etcd:HOST:PORT,...")
        else:
            try:
                etcd_endpoints(url)
            except ConfigError as error:
                found.append(str(error))
        listener = self.listener
        if listener.service_port == listener.web_service_port != 0:
            found.append(f"servicePort and webServicePort are both {listener.service_port}")
        return found

    def warnings(self) -> list[str]:
        """Warnings about valid settings that may be unintended."""
        return []
