"""Where clients connect, as configured."""

from __future__ import annotations

from dataclasses import dataclass

from magnetar.common.config.settings import setting


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenerConfig:
    """Where clients connect."""

    bind_address: str = setting(
        "127.0.0.1",
        "Address to listen on. Loopback unless told otherwise (Pulsar: 0.0.0.0); images set 0.0.0.0.",
        key="bindAddress",
    )
    advertised_address: str = setting(
        "", "Host name that lookups tell clients; empty means the bind address.", key="advertisedAddress"
    )
    advertised_listeners: str = setting(
        "",
        "Where clients that name a listener are sent: NAME:pulsar://HOST:PORT,... and NAME:pulsar+ssl://..., "
        "NAME:http://... likewise. In place of advertisedAddress.",
        key="advertisedListeners",
    )
    internal_listener_name: str = setting(
        "",
        "The advertised listener for clients that name none, and for other brokers; empty means the first.",
        key="internalListenerName",
    )
    broker_service_port: int = setting(
        6650, "Port of the binary protocol; 0 picks a free one.", key="brokerServicePort", minimum=0
    )
    web_service_port: int = setting(
        8080, "Port of HTTP: admin API, metrics, health; 0 picks a free one.", key="webServicePort", minimum=0
    )
    keep_alive_interval_s: int = setting(
        30,
        "Seconds of silence after which a connection is pinged, and again until it is closed.",
        key="keepAliveIntervalSeconds",
        minimum=1,
    )
    connections_per_ip_max: int = setting(
        0,
        "Connections accepted at once from one client address; 0 is no limit.",
        key="brokerMaxConnectionsPerIp",
        minimum=0,
    )
    liveness_check_timeout_ms: int = setting(
        5_000,
        "Milliseconds to wait for a sign of life of an existing holder before a newcomer is refused.",
        key="connectionLivenessCheckTimeoutMillis",
        minimum=0,
    )
    connections_max: int = setting(
        0, "Connections accepted at once; 0 is no limit.", key="brokerMaxConnections", minimum=0
    )
