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
    "Times that a topic was asked for here which another broker, or none, serves. Clients look it up again.",
    registry=REGISTRY,
)


class Ownership(Protocol):
    """Which topics this broker serves."""

    @property
    def lease(self) -> Lease | None:
        """How long what is ours certainly stays so; None: for ever."""
        ...

    def check(self, name: TopicName) -> None:
        """Go on when the topic is served here. Raises ServiceNotReady, after which clients look it up."""
        ...

    async def settled(self, name: TopicName) -> None:
        """Wait, not for long, while the topic goes to another broker; `check` says whether it did."""
        ...

    async def claim(self, name: TopicName) -> None:
        """Checks like `check`, after assigning an unowned bundle. Raises as `where`."""
        ...

    async def where(self, name: TopicName, listener: str = "") -> ServiceUrls:
        """Where the topic is served, for clients of that advertised listener ("": the default one).

        Raises NamespaceNotFound, ServiceNotReady, TooManyRequests, MetadataError.
        """
        ...


def not_served(name: TopicName) -> ServiceNotReady:
    """The answer to who asks the wrong broker."""
    NOT_SERVED.inc()
    return ServiceNotReady(f"topic {name} is not served by this broker; look it up again")
