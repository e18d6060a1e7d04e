"""Configuration of a console process. Keys are those of Pulsar's clients and proxy where the meaning is the
same.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final
from urllib.parse import urlsplit

from magnetar.common.config.settings import setting
from magnetar.common.security.tls.client_context import ClientFiles
from magnetar.common.security.tls.config import TlsConfig, tls_problems
from magnetar.console.cluster_access import ClusterAccess
from magnetar.console.oidc_config import OidcConfig

_EVERY_ADDRESS: Final = ("0.0.0.0", "::")


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenerConfig:
    """Settings of the ports for browsers."""

    bind_address: str = setting(
        "127.0.0.1",
        "Address to listen on; loopback by default. Container images set 0.0.0.0.",
        key="bindAddress",
    )
    web_service_port: int | None = setting(
        8090,
        "HTTP port of the console; 0 picks a free port, empty: none without TLS.",
        key="webServicePort",
        minimum=0,
        maximum=65535,
    )
    web_service_port_tls: int | None = setting(
        None,
        "HTTPS port of the console, usually 8493; 0 picks a free port, empty: none.",
        key="webServicePortTls",
        minimum=0,
        maximum=65535,
    )
    shutdown_timeout_ms: int = setting(
        15_000,
        "Timeout of a graceful shutdown, in milliseconds, after which the process exits anyway.",
        key="magnetarConsoleShutdownTimeoutMs",
        minimum=1,
    )

    @property
    def ports(self) -> dict[str, int]:
        """The configured ports by their keys."""
        found = {"webServicePort": self.web_service_port, **self.tls_ports}
        return {key: port for key, port in found.items() if port is not None}

    @property
    def tls_ports(self) -> dict[str, int | None]:
        """The ports with TLS by their keys; None: no such port."""
        return {"webServicePortTls": self.web_service_port_tls}


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterConfig:
    """Settings of the cluster that the console shows."""

    admin_url: str = setting(
        "http://localhost:8080",
        "URL of the cluster's admin API: of a broker or a discovery.",
        key="webServiceUrl",
    )
    service_url: str = setting(
        "pulsar://localhost:6650",
        "URL for clients, by which messages are read and published.",
        key="brokerServiceUrl",
    )
    trust_certs_file: str = setting(
        "",
        "Authorities of the cluster's certificates, a PEM file; empty means the platform's.",
        key="brokerClientTrustCertsFilePath",
    )
    verify_hostname: bool = setting(
        True,
        "Check that the cluster's certificates have the names that it is reached by.",
        key="tlsHostnameVerificationEnabled",
    )
    prometheus_url: str = setting(
        "",
        "URL of the Prometheus that evaluates Magnetar's alerts, such as http://prometheus:9090: the "
        "overview shows those that fire. Empty: none.",
        key="magnetarConsolePrometheusUrl",
    )

    def access(self) -> ClusterAccess:
        files = ClientFiles(trust_certs=self.trust_certs_file, verify_hostname=self.verify_hostname)
        return ClusterAccess(
            admin_url=self.admin_url,
            service_url=self.service_url,
            tls=files,
            prometheus_url=self.prometheus_url,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsoleConfig:
    """A console of a cluster."""

    listener: ListenerConfig = field(default_factory=ListenerConfig)
    cluster: ClusterConfig = field(default_factory=ClusterConfig)
    tls: TlsConfig = field(default_factory=TlsConfig)
    oidc: OidcConfig = field(default_factory=OidcConfig)

    @property
    def shown_host(self) -> str:
        """Host of the console's own URLs, written as in a URL."""
        host = self.listener.bind_address
        if host in _EVERY_ADDRESS:
            return "localhost"
        return f"[{host}]" if ":" in host else host

    def problems(self) -> list[str]:
        """Return all conflicts between values that are each valid."""
        found = []
        for key, url, schemes in (
            ("webServiceUrl", self.cluster.admin_url, ("http", "https")),
            ("brokerServiceUrl", self.cluster.service_url, ("pulsar", "pulsar+ssl")),
        ):
            if not _is_url(url, schemes):
                found.append(f"{key} = {url!r} is not a URL; write it as {schemes[0]}://HOST:PORT")
        prometheus = self.cluster.prometheus_url
        if prometheus and not _is_url(prometheus, ("http", "https")):
            found.append(
                f"magnetarConsolePrometheusUrl = {prometheus!r} is not a URL; write it as http://HOST:PORT"
            )
        ports = list(self.listener.ports.values())
        if not ports:
            found.append("webServicePort and webServicePortTls are both empty: give one of them")
        if len(ports) == 2 and ports[0] == ports[1] > 0:
            found.append(f"webServicePort and webServicePortTls are both {ports[0]}")
        return (
            found
            + self.oidc.problems()
            + tls_problems(self.tls, self.listener.tls_ports, certificates_are_identities=False)
        )

    def warnings(self) -> list[str]:
        """Return warnings about valid settings that may be unintended."""
        host = self.listener.bind_address
        if self.listener.web_service_port is not None and host not in ("127.0.0.1", "::1", "localhost"):
            return [
                f"webServicePort listens on {host} without TLS: tokens of visitors pass as plain text; set "
                "webServicePortTls, or end TLS in a proxy in front of it"
            ]
        return []


def _is_url(url: str, schemes: tuple[str, ...]) -> bool:
    try:
        parts = urlsplit(url)
        return parts.scheme in schemes and bool(parts.netloc) and not any(each.isspace() for each in url)
    except ValueError:
        return False
