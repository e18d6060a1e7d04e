"""Dependencies of command handlers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

from magnetar.common.cluster.topic_finder import TopicFinder
from magnetar.common.errors import TooManyRequests
from magnetar.common.metadata.values import BrokerRegistration
from magnetar.common.naming.topic_name import TopicName
from magnetar.common.security.authentication.authenticator import Authenticator
from magnetar.common.security.authorization.authorizer import Authorizer
from magnetar.common.wire.pulsar_pb2 import BaseCommand
from magnetar.discovery.config import DiscoveryConfig
from magnetar.discovery.handlers.partitions import PartitionCounts


class Brokers(Protocol):
    """Forwards requests to brokers."""

    async def ask(self, command: BaseCommand) -> BaseCommand:
        """Return any broker's response to a command; it has the command's request id.

        Raises ServiceNotReady when no broker answers, TooManyRequests.
        """
        ...


@dataclass(slots=True)
class Services:
    """The parts of discovery that handlers use."""

    config: DiscoveryConfig
    finder: TopicFinder
    partitions: PartitionCounts
    brokers: Brokers
    authorizer: Authorizer
    authenticator: Authenticator | None = None
    """Checks who clients are; None with authentication off."""
    in_process: int = 0
    """Number of requests in progress that need a broker."""

    @contextmanager
    def question(self) -> Iterator[None]:
        """Count a request in progress. Raises TooManyRequests at the limit."""
        if self.in_process >= self.config.lookups.lookups_max:
            raise TooManyRequests("too many concurrent lookups (maxConcurrentLookupRequests); look up again")
        self.in_process += 1
        try:
            yield
        finally:
            self.in_process -= 1

    def owner(self, topic: TopicName) -> BrokerRegistration | None:
        """Return the owner broker of the topic, from the metadata mirror."""
        bundle = self.finder.rings.bundle_of(topic)
        return None if bundle is None else self.finder.owner(topic.namespace, bundle)
