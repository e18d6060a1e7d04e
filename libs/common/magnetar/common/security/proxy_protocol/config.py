"""Settings of the PROXY protocol at the ports of the binary protocol."""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import ip_network

from magnetar.common.config.settings import setting


@dataclass(frozen=True, slots=True, kw_only=True)
class ProxyProtocolConfig:
    """Which connections begin with a PROXY header."""

    enabled: bool = setting(
        False,
        "Connections of load balancers (magnetarProxyProtocolFrom) to the ports of the binary protocol begin "
        "with a header of the PROXY protocol, version 1 or 2, before TLS. Limits per address, logs and "
        "statistics then have the client's address.",
        key="haProxyProtocolEnabled",
    )
    networks: tuple[str, ...] = setting(
        (),
        "Addresses and networks (10.1.0.0/16) of load balancers. Their connections must begin with a PROXY "
        "header; from other addresses none is read. Required by haProxyProtocolEnabled.",
        key="magnetarProxyProtocolFrom",
    )

    def problems(self) -> list[str]:
        """Return what keeps these settings from being used."""
        found = []
        for text in self.networks:
            try:
                ip_network(text)
            except ValueError as error:
                found.append(
                    f"magnetarProxyProtocolFrom: {error}; write an address or a network, 10.1.0.0/16"
                )
        if self.enabled and not self.networks:
            found.append(
                "haProxyProtocolEnabled=true needs magnetarProxyProtocolFrom, the addresses of load "
                "balancers; any other client could choose its address"
            )
        return found
