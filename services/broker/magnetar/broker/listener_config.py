"""Configuration of the listeners that clients connect to."""

from __future__ import annotations

from dataclasses import dataclass

from magnetar.common.config.settings import setting


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenerConfig:
    """Settings of the listeners that clients connect to."""

    bind_address: str = setting(
        "127.0.0.1",
        "Address to listen on; loopback by default (Pulsar: 0.0.0.0). Container images set 0.0.0.0.",
        key="bindAddress",
    )
    advertised_address: str = setting(
        "", "Host name in lookup responses; empty means the bind address.", key="advertisedAddress"
    )
    advertised_listeners: str = setting(
        "",
        "Broker addresses by listener name, for clients that name a listener: "
        "NAME:pulsar://HOST:PORT,... and likewise NAME:pulsar+ssl://... and NAME:http://...; replaces "
        "advertisedAddress.",
        key="advertisedListeners",
    )
    internal_listener_name: str = setting(
        "",
        "Advertised listener for clients that name none, and for other brokers; empty means the first.",
        key="internalListenerName",
    )
    broker_service_port: int = setting(
        6650, "Port of the binary protocol; 0 picks a free one.", key="brokerServicePort", minimum=0
    )
    web_service_port: int = setting(
        8080,
        "HTTP port of the admin API, metrics and health checks; 0 picks a free one.",
        key="webServicePort",
        minimum=0,
    )
    keep_alive_interval_s: int = setting(
        30,
        "Idle seconds before a connection is pinged, and again before it is closed.",
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
        "Milliseconds to wait for a liveness response of an existing producer or consumer before a "
        "conflicting new one is refused.",
        key="connectionLivenessCheckTimeoutMillis",
        minimum=0,
    )
    connections_max: int = setting(
        0, "Maximum open client connections; 0 is no limit.", key="brokerMaxConnections", minimum=0
    )
