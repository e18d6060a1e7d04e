"""Ownership in a standalone: there is no other broker, so this one serves every topic."""

from __future__ import annotations

from typing import Final

from magnetar.broker.namespaces import Namespaces
from magnetar.broker.service_urls import ServiceUrls
from magnetar.common.errors import NamespaceNotFound
from magnetar.common.naming.topic_name import TopicName


class SoleOwnership:
    """An `Ownership` of all topics."""

    lease: Final = None

    def __init__(self, namespaces: Namespaces, urls: ServiceUrls) -> None:
        self._namespaces = namespaces
        self._urls = urls

    def check(self, name: TopicName) -> None:
        """Every topic is served here."""

    async def settled(self, name: TopicName) -> None:
        """There is no other broker to go to."""

    async def claim(self, name: TopicName) -> None:
        """Every topic is served here."""

    async def where(self, name: TopicName, listener: str = "") -> ServiceUrls:
        """Answer with this broker.

        Raises NamespaceNotFound, ServiceNotReady when there is no such listener, MetadataError.
        """
        if not await self._namespaces.exists(name.namespace):
            raise NamespaceNotFound(f"namespace {name.namespace} does not exist; create it first")
        return self._urls.of_listener(listener)
