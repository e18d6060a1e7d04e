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
    broker_service_port: int | None = setting(
        6650,
        "Port of the binary protocol; 0 picks a free one, empty: none without TLS.",
        key="brokerServicePort",
        minimum=0,
        maximum=65_535,
    )
    broker_service_port_tls: int | None = setting(
        None,
        "Port of the binary protocol with TLS, usually 6651; 0 picks a free one, empty: none.",
        key="brokerServicePortTls",
        minimum=0,
        maximum=65_535,
    )
    web_service_port: int | None = setting(
        8080,
        "Port of HTTP: admin API, metrics, health; 0 picks a free one, empty: none without TLS.",
        key="webServicePort",
        minimum=0,
        maximum=65_535,
    )
    web_service_port_tls: int | None = setting(
        None,
        "Port of HTTPS, usually 8443; 0 picks a free one, empty: none.",
        key="webServicePortTls",
        minimum=0,
        maximum=65_535,
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

    @property
    def tls_ports(self) -> dict[str, int | None]:
        """The TLS ports by their keys; None where there is none."""
        return {
            "brokerServicePortTls": self.broker_service_port_tls,
            "webServicePortTls": self.web_service_port_tls,
        }

    @property
    def ports(self) -> dict[str, int]:
        """The ports to listen on, by their keys."""
        plain = {"brokerServicePort": self.broker_service_port, "webServicePort": self.web_service_port}
        return {key: port for key, port in {**plain, **self.tls_ports}.items() if port is not None}
