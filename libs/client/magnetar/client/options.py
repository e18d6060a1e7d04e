"""How a client reaches a cluster."""

from __future__ import annotations

from dataclasses import dataclass

from magnetar.client.authentication.methods import Authentication


@dataclass(frozen=True, slots=True, kw_only=True)
class Tls:
    """Certificates of connections by pulsar+ssl://. Files are PEM and are read again when they change."""

    trust_certs_file: str = ""
    """Trusted authorities; empty: those of the platform."""
    certificate_file: str = ""
    """The client's certificate and its chain; empty: none."""
    key_file: str = ""
    allow_insecure: bool = False
    """Accept any server certificate, whatever its name."""
    verify_hostname: bool = True
    """Check that the server's certificate names its host."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientOptions:
    """Options of `Client`, which has their meanings. Times are in seconds."""

    service_url: str
    authentication: Authentication | None = None
    tls: Tls = Tls()
    listener_name: str = ""
    proxy_url: str = ""
    operation_timeout_s: float = 30.0
    connect_timeout_s: float = 10.0
    reconnect_timeout_s: float = float("inf")
    connections_per_broker: int = 1
    memory_limit_bytes: int = 64 * 1024 * 1024
    waits_for_service: bool = False
