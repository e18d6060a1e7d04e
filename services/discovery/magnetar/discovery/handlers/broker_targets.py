"""Which brokers a client may be connected to: those that metadata knows, by any of their addresses.

Nothing else may be reached through discovery, whatever a client asks for: otherwise it would open the network
behind it to everybody in front of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final
from urllib.parse import urlsplit

from magnetar.common.errors import NotAllowed, ServiceNotReady
from magnetar.common.metadata.values import BrokerRegistration

_SCHEMES: Final = ("pulsar://", "pulsar+ssl://")

WANTED_CHARS_SHOWN: Final = 256
"""Longest name of a requested target, in errors and logs."""


def broker_at(wanted: str, brokers: Iterable[BrokerRegistration]) -> BrokerRegistration:
    """The broker with this address, written `host:port` or as a URL. Raises NotAllowed when there is none."""
    address = _host_and_port(wanted)
    for broker in brokers:
        if address in (_host_and_port(url) for url in _urls(broker)):
            return broker
    raise NotAllowed(
        f"{wanted[:WANTED_CHARS_SHOWN]!r} is no address of a broker of this cluster, and nothing else is "
        "reached through discovery; look the topic up again"
    )


def reached_at(broker: BrokerRegistration) -> tuple[str, int]:
    """Host and port at which this process reaches the broker: its own address, not that of a listener.

    Raises ServiceNotReady when it has none without TLS.
    """
    url = broker.addresses.broker_url
    try:
        parts = urlsplit(url)
        if parts.hostname and parts.port:
            parts.hostname.encode("idna")  # as who connects does
            return parts.hostname, parts.port
    except ValueError:
        pass  # no number for a port, or a name that cannot be
    raise ServiceNotReady(f"broker {broker.broker_id} has no address for discovery: {url!r}")


def _urls(broker: BrokerRegistration) -> Iterator[str]:
    for addresses in (broker.addresses, *broker.listeners.values()):
        yield from (url for url in (addresses.broker_url, addresses.broker_url_tls) if url)


def _host_and_port(url: str) -> str:
    for scheme in _SCHEMES:
        url = url.removeprefix(scheme)
    return url.removesuffix("/").lower()
