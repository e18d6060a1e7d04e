"""Targets of proxied connections: brokers registered in metadata, by any of their addresses.

Discovery refuses all other targets. Otherwise it would give every client access to the network behind it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final
from urllib.parse import urlsplit

from magnetar.common.errors import NotAllowed, ServiceNotReady
from magnetar.common.metadata.values import BrokerRegistration

_SCHEMES: Final = ("pulsar://", "pulsar+ssl://")

WANTED_CHARS_SHOWN: Final = 256
"""Maximum length of a requested target in errors and logs."""


def broker_at(wanted: str, brokers: Iterable[BrokerRegistration]) -> BrokerRegistration:
    """Return the broker with this address, `host:port` or a URL. Raises NotAllowed when there is none."""
    address = _host_and_port(wanted)
    for broker in brokers:
        if address in (_host_and_port(url) for url in _urls(broker)):
            return broker
    raise NotAllowed(
        f"{wanted[:WANTED_CHARS_SHOWN]!r} is not the address of a broker of this cluster; discovery connects "
        "to brokers only; look the topic up again"
    )


def reached_at(broker: BrokerRegistration, url: str) -> tuple[str, int]:
    """Return host and port in `url`, an address of the broker's own and not of an advertised listener.

    Raises ServiceNotReady when there is none.
    """
    try:
        parts = urlsplit(url)
        if parts.hostname and parts.port:
            parts.hostname.encode("idna")  # as who connects does
            return parts.hostname, parts.port
    except ValueError:
        pass  # An invalid port or host name.
    raise ServiceNotReady(f"broker {broker.broker_id} registered no usable address: {url!r}")


def _urls(broker: BrokerRegistration) -> Iterator[str]:
    for addresses in (broker.addresses, *broker.listeners.values()):
        yield from (url for url in (addresses.broker_url, addresses.broker_url_tls) if url)


def _host_and_port(url: str) -> str:
    for scheme in _SCHEMES:
        url = url.removeprefix(scheme)
    return url.removesuffix("/").lower()
