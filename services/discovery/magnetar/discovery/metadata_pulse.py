"""Whether metadata answers: what is said of owned topics comes from memory, and may be old when it does not.

Discovery goes on meanwhile, since what it knows is better than nothing, and since all discoveries lose
metadata at once when it is down. Asking now and then also finds metadata that was restored from a backup.
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
"""Between two questions."""

ANSWERS: Final = Gauge(
    "magnetar_discovery_metadata_answers",
    "1 while metadata answers; 0 while owners of topics are named as they were when it last did.",
    registry=REGISTRY,
)


class MetadataPulse:
    """Asks for one small key again and again."""

    def __init__(self, metadata: MetadataStore, keys: Keys) -> None:
        self._metadata = metadata
        self._key = keys.broker_leader
        self._heard_at = 0.0
        self.silent = False
        """Metadata did not answer when it was last asked."""

    @property
    def silent_s(self) -> float:
        """For how long metadata has not answered, in seconds; 0.0 when it does."""
        return asyncio.get_running_loop().time() - self._heard_at if self.silent else 0.0

    async def follow(self) -> None:
        """Ask for ever; ends by cancellation. Metadata has answered a moment ago."""
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
                    log.warning("metadata does not answer, topics are found as it was", reason=str(error))
                continue
            if self.silent:
                log.info("metadata answers again", silent_s=round(self.silent_s, 1))
                self.silent = False
                ANSWERS.set(1)
            self._heard_at = loop.time()
