"""Parsing of service URLs: pulsar://host:port,host:port and pulsar+ssl://..."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from magnetar.client.errors import ClientError

_PORTS: Final = {"pulsar": 6650, "pulsar+ssl": 6651}


@dataclass(frozen=True, slots=True)
class ServiceUrl:
    """Addresses of brokers or proxies, any of which may be used."""

    tls: bool
    addresses: tuple[tuple[str, int], ...]

    @staticmethod
    def parse(text: str) -> ServiceUrl:
        """Parses a service URL. Raises ClientError with the reason."""
        scheme, separator, rest = text.partition("://")
        if not separator or scheme not in _PORTS:
            raise ClientError(
                f"{text!r} is not a service URL; it has the form pulsar://host:port or pulsar+ssl://host:port"
            )
        addresses = []
        for each in rest.rstrip("/").split(","):
            try:
                parts = urlsplit(f"//{each.strip()}")
                host, port = parts.hostname, parts.port or _PORTS[scheme]
            except ValueError as error:
                raise ClientError(f"{text!r} is not a service URL: {each!r}: {error}") from error
            if not host:
                raise ClientError(f"{text!r} is not a service URL: it names no host")
            addresses.append((host, port))
        return ServiceUrl(scheme == "pulsar+ssl", tuple(addresses))
