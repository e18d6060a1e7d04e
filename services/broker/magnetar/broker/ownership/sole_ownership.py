"""Ownership in a standalone: this broker serves every topic because there is no other."""

from __future__ import annotations

from typing import Final

from magnetar.broker.namespaces import Namespaces
from magnetar.broker.service_urls import ServiceUrls
from magnetar.common.errors import NamespaceNotFound
from magnetar.common.naming.topic_name import TopicName


class SoleOwnership:
    """Ownership of all topics."""

    lease: Final = None

    def __init__(self, namespaces: Namespaces, urls: ServiceUrls) -> None:
        self._namespaces = namespaces
        self._urls = urls

    def check(self, name: TopicName) -> None:
        """Does nothing: every topic is served here."""

    async def settled(self, name: TopicName) -> None:
        """Does nothing: there are no handovers."""

    async def claim(self, name: TopicName) -> None:
        """Does nothing: every topic is served here."""

    async def where(self, name: TopicName, listener: str = "") -> ServiceUrls:
        """Returns this broker's addresses.

        Raises NamespaceNotFound, ServiceNotReady when the listener does not exist, MetadataError.
        """
        if not await self._namespaces.exists(name.namespace):
            raise NamespaceNotFound(f"namespace {name.namespace} does not exist; create it first")
        return self._urls.of_listener(listener)
