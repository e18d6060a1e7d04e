"""Periodic check that metadata answers. Lookups are served from a mirror, which is outdated when it does not.

Discovery keeps serving meanwhile: possibly outdated owners are better than none, and all discoveries lose
metadata at the same time. The check also detects metadata that was restored from a backup.
"""

from __future__ import annotations

import asyncio
from typing import Final

from magnetar.common.errors import MetadataError
from magnetar.common.metadata.keys import Keys
from magnetar.common.metadata.store import MetadataStore
from magnetar.common.obs.logs import get_logger
from magnetar.common.obs.metrics import REGISTRY
from prometheus_client import Gauge

log = get_logger(__name__)

LOOK_S: Final = 5.0
"""Interval between checks, in seconds."""

ANSWERS: Final = Gauge(
    "magnetar_discovery_metadata_answers",
    "1 while metadata answers; 0 while lookups use the last known owners.",
    registry=REGISTRY,
)


class MetadataPulse:
    """Reads one small key periodically."""

    def __init__(self, metadata: MetadataStore, keys: Keys) -> None:
        self._metadata = metadata
        self._key = keys.broker_leader
        self._heard_at = 0.0
        self.silent = False
        """Whether metadata failed to answer the last check."""

    @property
    def silent_s(self) -> float:
        """Return the time without an answer from metadata, in seconds; 0.0 while it answers."""
        return asyncio.get_running_loop().time() - self._heard_at if self.silent else 0.0

    async def follow(self) -> None:
        """Check until cancelled. Call after metadata has answered."""
        loop = asyncio.get_running_loop()
        self._heard_at = loop.time()
        ANSWERS.set(1)
        while True:
            await asyncio.sleep(LOOK_S)
            try:
                await self._metadata.get(self._key)
            except MetadataError as error:
                if not self.silent:
                    self.silent = True
                    ANSWERS.set(0)
                    log.warning("metadata does not answer; serving the last known owners", reason=str(error))
                continue
            if self.silent:
                log.info("metadata answers again", silent_s=round(self.silent_s, 1))
                self.silent = False
                ANSWERS.set(1)
            self._heard_at = loop.time()
