"""Ownership check before a topic is served: whether this broker owns it, or which one does."""

from __future__ import annotations

from typing import Final, Protocol

from magnetar.broker.service_urls import ServiceUrls
from magnetar.broker.tenure import Lease
from magnetar.common.errors import ServiceNotReady
from magnetar.common.naming.topic_name import TopicName
from magnetar.common.obs.metrics import REGISTRY
from prometheus_client import Counter

NOT_SERVED: Final = Counter(
    "magnetar_topics_not_served_total",
    "Requests for a topic that this broker does not own. Clients look the topic up again.",
    registry=REGISTRY,
)


class Ownership(Protocol):
    """Ownership of topics by this broker."""

    @property
    def lease(self) -> Lease | None:
        """How long the owned topics are certainly owned; None: always."""
        ...

    def check(self, name: TopicName) -> None:
        """Checks that this broker serves the topic. Raises ServiceNotReady, after which clients look it up
        again.
        """
        ...

    async def settled(self, name: TopicName) -> None:
        """Waits, for a bounded time, while the topic is handed to another broker; then call `check`."""
        ...

    async def claim(self, name: TopicName) -> None:
        """Checks like `check`, after assigning an unowned bundle. Raises as `where`."""
        ...

    async def where(self, name: TopicName, listener: str = "") -> ServiceUrls:
        """Returns the addresses of the topic's broker, for clients of that advertised listener ("": the
        default one).

        Raises NamespaceNotFound, ServiceNotReady, TooManyRequests, MetadataError.
        """
        ...


def not_served(name: TopicName) -> ServiceNotReady:
    """Builds the error for a request to a broker that does not own the topic."""
    NOT_SERVED.inc()
    return ServiceNotReady(f"topic {name} is not served by this broker; look it up again")
