"""Serving while metadata is silent: every topic with clients proves again and again that it is still ours.

Losing metadata for a while must not stop publishing and consuming. But when it has been silent for the time
of our session, another broker may own everything by now. The ledgers know: whoever takes a topic over fences
its cursor ledger before it delivers anything. So each loaded topic with clients appends to its cursor ledger,
at most once a second, until metadata is heard again; one that cannot loses its clients, and delivers nothing
until it can (`Tenure`). Nothing is loaded meanwhile (that needs metadata anyway).
"""

from __future__ import annotations

import asyncio
from typing import Final

from magnetar.broker.tenure import Lease
from magnetar.broker.topics.registry.topic_registry import TopicRegistry
from magnetar.common.errors import ServiceNotReady
from magnetar.common.obs.logs import get_logger

log = get_logger(__name__)

INTERVAL_S: Final = 1.0

AHEAD_S: Final = 1.5
"""So long before the lease is over topics begin to: what they deliver does not wait for the first proof."""


class OwnershipProof:
    """Looks at the lease once a second."""

    def __init__(self, registry: TopicRegistry, lease: Lease) -> None:
        self._registry = registry
        self._lease = lease
        self._silent = False

    async def run(self) -> None:
        """For ever; ends by cancellation."""
        while True:
            await asyncio.sleep(INTERVAL_S)
            left_s = self._lease.look()
            silent = left_s <= 0
            if silent != self._silent:
                self._silent = silent
                self._changed()
            if left_s < AHEAD_S:
                await self._registry.prove_ownership(silent=silent, look=self._lease.look)
            self._lease.release()

    def _changed(self) -> None:
        if self._silent:
            log.warning("metadata is silent: topics prove on the bookies that they are ours")
            self._registry.refuse_loads(
                ServiceNotReady("metadata does not answer: topics that are not loaded have to wait for it")
            )
        else:
            log.info("metadata is heard again")
            self._registry.refuse_loads(None)
