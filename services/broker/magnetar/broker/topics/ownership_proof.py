"""Serving while metadata is silent: every topic with clients proves again and again that it is still ours.

Losing metadata for a while must not stop publishing and consuming. But when it has been silent for the time
of our session, another broker may own everything by now. The ledgers know: whoever takes a topic over fences
its cursor ledger before it delivers anything. So each loaded topic with clients appends to its cursor ledger,
at most once a second, until metadata is heard again; one that cannot loses its clients. Nothing is loaded
meanwhile (that needs metadata anyway).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from magnetar.broker.topics.topic_registry import TopicRegistry
from magnetar.common.errors import ServiceNotReady
from magnetar.common.obs.logs import get_logger
from magnetar.common.runtime.clock import Clock

log = get_logger(__name__)

INTERVAL_S: Final = 1.0


class OwnershipProof:
    """`heard_s` says when metadata last confirmed the ownership, `patience_s` for how long that is enough."""

    def __init__(
        self, registry: TopicRegistry, clock: Clock, heard_s: Callable[[], float], patience_s: float
    ) -> None:
        self._registry = registry
        self._clock = clock
        self._heard_s = heard_s
        self._patience_s = patience_s
        self._silent = False

    async def run(self) -> None:
        """For ever; ends by cancellation."""
        while True:
            await asyncio.sleep(INTERVAL_S)
            silent = self._clock.monotonic() - self._heard_s() > self._patience_s
            if silent != self._silent:
                self._silent = silent
                self._changed()
            if silent:
                self._registry.prove_ownership()

    def _changed(self) -> None:
        if self._silent:
            log.warning("metadata is silent: topics prove on the bookies that they are ours")
            self._registry.refuse_loads(
                ServiceNotReady("metadata does not answer: topics that are not loaded have to wait for it")
            )
        else:
            log.info("metadata is heard again")
            self._registry.refuse_loads(None)
