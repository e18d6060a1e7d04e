"""Where clients are sent to."""

from __future__ import annotations

from dataclasses import dataclass, field

from magnetar.common.errors import ServiceNotReady
from magnetar.common.metadata.values import BrokerRegistration


@dataclass(slots=True)
class ServiceUrls:
    """A broker's addresses; this broker's are filled in once its sockets are bound. Empty where there is no
    such address.
    """

    broker_url: str = ""
    """`pulsar://host:port`"""
    http_url: str = ""
    broker_url_tls: str = ""
    http_url_tls: str = ""
    listeners: dict[str, ServiceUrls] = field(default_factory=dict)
    """The same for clients that name an advertised listener."""

    @property
    def any_http_url(self) -> str:
        """Where HTTP is, with TLS only where it is not there without; empty before it listens."""
        return self.http_url or self.http_url_tls

    def of_listener(self, name: str) -> ServiceUrls:
        """For clients of that listener, "" for who names none. Raises ServiceNotReady for an unknown one."""
        if not name:
            return self
        if name not in self.listeners:
            known = ", ".join(map(repr, sorted(self.listeners))) or "none"
            raise ServiceNotReady(
                f"this broker has no listener {name!r} (advertisedListeners); it has {known}"
            )
        return self.listeners[name]

    def fill(self, addresses: BrokerRegistration.Addresses) -> None:
        """Write them down for others."""
        addresses.broker_url = self.broker_url
        addresses.broker_url_tls = self.broker_url_tls
        addresses.http_url = self.http_url
        addresses.http_url_tls = self.http_url_tls


def urls_of(addresses: BrokerRegistration.Addresses) -> ServiceUrls:
    """The addresses that another broker registered."""
    return ServiceUrls(
        addresses.broker_url, addresses.http_url, addresses.broker_url_tls, addresses.http_url_tls
    )
