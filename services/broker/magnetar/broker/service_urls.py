"""Addresses of brokers that clients connect to."""

from __future__ import annotations

from dataclasses import dataclass, field

from magnetar.common.errors import ServiceNotReady
from magnetar.common.metadata.values import BrokerRegistration


@dataclass(slots=True)
class ServiceUrls:
    """A broker's addresses; this broker's are filled in once its sockets are bound. An empty field means no
    such address.
    """

    broker_url: str = ""
    """`pulsar://host:port`"""
    http_url: str = ""
    broker_url_tls: str = ""
    http_url_tls: str = ""
    listeners: dict[str, ServiceUrls] = field(default_factory=dict)
    """Addresses by advertised listener."""

    @property
    def any_http_url(self) -> str:
        """Where HTTP is, with TLS only where it is not there without; empty before it listens."""
        return self.http_url or self.http_url_tls

    def of_listener(self, name: str) -> ServiceUrls:
        """Returns the addresses of a listener; "" means the default ones. Raises ServiceNotReady for an
        unknown listener.
        """
        if not name:
            return self
        if name not in self.listeners:
            known = ", ".join(map(repr, sorted(self.listeners))) or "none"
            raise ServiceNotReady(
                f"this broker has no listener {name!r} (advertisedListeners); it has {known}"
            )
        return self.listeners[name]

    def fill(self, addresses: BrokerRegistration.Addresses) -> None:
        """Copies the addresses into a broker's registration."""
        addresses.broker_url = self.broker_url
        addresses.broker_url_tls = self.broker_url_tls
        addresses.http_url = self.http_url
        addresses.http_url_tls = self.http_url_tls


def urls_of(addresses: BrokerRegistration.Addresses) -> ServiceUrls:
    """Returns the addresses that another broker has registered."""
    return ServiceUrls(
        addresses.broker_url, addresses.http_url, addresses.broker_url_tls, addresses.http_url_tls
    )
