"""Configuration of a discovery. Keys are those of Pulsar's proxy where the meaning is the same."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import combinations
from typing import Final

from magnetar.common.config.settings import setting
from magnetar.common.control.config import ControlTlsConfig
from magnetar.common.errors import ConfigError
from magnetar.common.metadata.open_store import etcd_endpoints
from magnetar.common.security.audit_config import AuditConfig
from magnetar.common.security.authentication.config import TLS_PROVIDER, AuthenticationConfig
from magnetar.common.security.authorization.config import AuthorizationConfig, authorization_problems
from magnetar.common.security.proxy_protocol.config import ProxyProtocolConfig
from magnetar.common.security.services.config import MetadataAccessConfig
from magnetar.common.security.tls.broker_client_config import BrokerClientConfig
from magnetar.common.security.tls.config import TlsConfig, tls_problems

_ETCD: Final = "etcd:"
_EVERY_ADDRESS: Final = ("0.0.0.0", "::")


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenerConfig:
    """Settings of the ports for clients."""

    bind_address: str = setting(
        "127.0.0.1",
        "Address to listen on; loopback by default (Pulsar: 0.0.0.0). Container images set 0.0.0.0.",
        key="bindAddress",
    )
    service_port: int | None = setting(
        6650,
        "Port of the binary protocol; 0 picks a free port, empty: none without TLS.",
        key="servicePort",
        minimum=0,
        maximum=65535,
    )
    service_port_tls: int | None = setting(
        None,
        "Port of the binary protocol with TLS, usually 6651; 0 picks a free port, empty: none.",
        key="servicePortTls",
        minimum=0,
        maximum=65535,
    )
    web_service_port: int | None = setting(
        8080,
        "HTTP port for redirects or forwarding to brokers, metrics and health; 0 picks a free port, empty: "
        "none without TLS.",
        key="webServicePort",
        minimum=0,
        maximum=65535,
    )
    web_service_port_tls: int | None = setting(
        None,
        "HTTPS port, usually 8443; 0 picks a free port, empty: none.",
        key="webServicePortTls",
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
        "Maximum concurrent connections, including those forwarded to brokers; 0 is no limit.",
        key="maxConcurrentInboundConnections",
        minimum=0,
    )
    shutdown_timeout_ms: int = setting(
        15_000,
        "Timeout of a graceful shutdown, in milliseconds, after which the process exits anyway.",
        key="magnetarDiscoveryShutdownTimeoutMs",
        minimum=1,
    )

    @property
    def ports(self) -> dict[str, int]:
        """The configured ports by their keys."""
        found = {"servicePort": self.service_port, "webServicePort": self.web_service_port, **self.tls_ports}
        return {key: port for key, port in found.items() if port is not None}

    @property
    def tls_ports(self) -> dict[str, int | None]:
        """The ports with TLS by their keys; None: no such port."""
        return {"servicePortTls": self.service_port_tls, "webServicePortTls": self.web_service_port_tls}


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataConfig:
    """Settings of the cluster that the discovery serves."""

    cluster_name: str = setting("", "Name of the cluster. Required.", key="clusterName")
    url: str = setting("", "URL of the metadata store: etcd:HOST:PORT,... Required.", key="metadataStoreUrl")


@dataclass(frozen=True, slots=True, kw_only=True)
class LookupConfig:
    """Settings of lookups."""

    lookups_max: int = setting(
        50_000,
        "Maximum concurrent requests that need a broker's response; further ones get TooManyRequests.",
        key="maxConcurrentLookupRequests",
        minimum=1,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ProxyConfig:
    """Settings of connections that are forwarded to brokers."""

    through_service_url: bool = setting(
        False,
        "Make lookups return this service as the address of brokers, and forward HTTP to brokers instead of "
        "redirecting, for clients that cannot reach brokers directly. Clients that request a proxied "
        "connection always get one.",
        key="magnetarProxyThroughServiceUrl",
    )
    tls_with_brokers: bool = setting(
        False,
        "Reach brokers at their TLS addresses, by the files of brokerClient...",
        key="tlsEnabledWithBroker",
    )
    forward_credentials: bool = setting(
        False,
        "Without effect: clients' credentials always go on to brokers, which check them.",
        key="forwardAuthorizationCredentials",
    )
    connect_timeout_ms: int = setting(
        10_000,
        "Timeout of connecting to a broker, in milliseconds.",
        key="brokerProxyConnectTimeoutMs",
        minimum=1,
    )
    read_timeout_ms: int = setting(
        75_000,
        "Milliseconds of silence of a broker after which a connection to it is closed; a broker pings twice "
        "in that time. 0 is no limit.",
        key="brokerProxyReadTimeoutMs",
        minimum=0,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class DiscoveryConfig:
    """A discovery of a cluster."""

    listener: ListenerConfig = field(default_factory=ListenerConfig)
    metadata: MetadataConfig = field(default_factory=MetadataConfig)
    metadata_access: MetadataAccessConfig = field(default_factory=MetadataAccessConfig)
    control_tls: ControlTlsConfig = field(default_factory=ControlTlsConfig)
    tls: TlsConfig = field(default_factory=TlsConfig)
    broker_client: BrokerClientConfig = field(default_factory=BrokerClientConfig)
    authentication: AuthenticationConfig = field(default_factory=AuthenticationConfig)
    authorization: AuthorizationConfig = field(default_factory=AuthorizationConfig)
    lookups: LookupConfig = field(default_factory=LookupConfig)
    proxy: ProxyConfig = field(default_factory=ProxyConfig)
    proxy_protocol: ProxyProtocolConfig = field(default_factory=ProxyProtocolConfig)
    audit: AuditConfig = field(default_factory=AuditConfig)

    @property
    def shown_host(self) -> str:
        """Return the host for the service's own URLs, written as in a URL."""
        host = self.listener.bind_address
        if host in _EVERY_ADDRESS:
            return "localhost"
        return f"[{host}]" if ":" in host else host

    def problems(self) -> list[str]:
        """Return all conflicts between values that are each valid."""
        found = []
        if not self.metadata.cluster_name:
            found.append("clusterName is required: use the same name as the brokers of this cluster")
        url = self.metadata.url
        if not url.startswith(_ETCD):
            found.append(f"metadataStoreUrl = {url!r}: a cluster needs etcd:HOST:PORT,...")
        else:
            try:
                etcd_endpoints(url)
            except ConfigError as error:
                found.append(str(error))
        listener = self.listener
        found += [
            f"{one} and {other} are both {port}"
            for (one, port), (other, same) in combinations(listener.ports.items(), 2)
            if port == same > 0
        ]
        if listener.service_port is None and listener.service_port_tls is None:
            found.append("servicePort and servicePortTls are both empty: give one of them")
        if listener.web_service_port is None and listener.web_service_port_tls is None:
            found.append("webServicePort and webServicePortTls are both empty: give one of them")
        found += (
            tls_problems(
                self.tls,
                listener.tls_ports,
                certificates_are_identities=TLS_PROVIDER in self.authentication.providers,
            )
            + self.broker_client.problems()
        )
        found += self.proxy_protocol.problems()
        found += authorization_problems(self.authentication.enabled, self.authorization)
        return found + self.metadata_access.problems(url) + self.control_tls.problems()

    def warnings(self) -> list[str]:
        """Return warnings about valid settings that may be unintended."""
        return []
