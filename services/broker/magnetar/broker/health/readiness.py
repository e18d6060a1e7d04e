"""Readiness of a broker: whether new clients may be sent to it."""

from __future__ import annotations

from typing import Protocol

from magnetar.broker.ownership.cluster import Cluster
from magnetar.common.metadata.store import ABSENT


class ReadinessSource(Protocol):
    """The state of a broker that readiness depends on."""

    @property
    def not_ready(self) -> str | None:
        """Why no client is served now; None while clients are."""
        ...

    @property
    def leaving(self) -> str | None:
        """Reason why new clients should not connect, although current ones are served; None otherwise."""
        ...

    @property
    def cannot_store(self) -> str | None:
        """Reason why no message can be stored now, according to the write path; None while one can be."""
        ...

    @property
    def cluster(self) -> Cluster | None:
        """The other brokers, and which bundles they own; None in a standalone."""
        ...


def not_ready(broker: ReadinessSource) -> str | None:
    """Returns the reason why new clients should not connect to this broker; None when it is ready."""
    why = broker.not_ready or broker.leaving
    if why is None and broker.cluster is not None and broker.cluster.presence.version == ABSENT:
        return "the broker is not registered in metadata"
    if why is None and broker.cannot_store is not None:
        return f"the broker cannot store messages: {broker.cannot_store}"
    return why
