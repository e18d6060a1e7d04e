"""Serving while metadata is unreachable: every topic with clients proves repeatedly that this broker still
owns it.

A temporary loss of metadata must not stop publishing and consuming. But after the session timeout without
metadata, another broker may own the topics. The ledgers decide: a new owner fences a topic's cursor ledger
before it delivers anything. So each loaded topic with clients appends to its cursor ledger, at most once a
second, until metadata answers again. A topic that cannot append loses its clients and delivers nothing until
it can (`Tenure`). No topic is loaded meanwhile, because that needs metadata.
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
"""Seconds before the lease expires at which topics start proving, so that delivery does not wait for the
first proof.
"""


class OwnershipProof:
    """Checks the lease once a second."""

    def __init__(self, registry: TopicRegistry, lease: Lease) -> None:
        self._registry = registry
        self._lease = lease
        self._silent = False

    async def run(self) -> None:
        """Runs until it is cancelled."""
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
            log.warning("metadata does not answer: topics prove their ownership on the bookies")
            self._registry.refuse_loads(ServiceNotReady("metadata does not answer: topics cannot be loaded"))
        else:
            log.info("metadata answers again")
            self._registry.refuse_loads(None)
