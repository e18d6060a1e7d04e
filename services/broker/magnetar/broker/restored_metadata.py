"""Stops automatic deletions while restored metadata is not released.

A subscription that was made after the copy may be gone, or made anew by its consumer at the end of the topic.
What it had not consumed would be trimmed, or the topic deleted for want of subscriptions. So these wait for
`magnetar admin metadata release`, as deletions on bookies do. What clients and operators ask to be deleted is
deleted.
"""

from __future__ import annotations

import asyncio
from typing import Final

from magnetar.common.errors import MagnetarError
from magnetar.common.metadata.restoration import holds_deletion, read_restoration
from magnetar.common.obs.logs import get_logger
from magnetar.ledger.managed_ledger.context import ManagedLedgerContext

log = get_logger(__name__)

LOOK_AGAIN_S: Final = 30.0


class RestoredMetadata:
    """Keeps `restored` of the context of all managed ledgers. No restoration begins while a broker is up."""

    def __init__(self, ledgers: ManagedLedgerContext) -> None:
        self._ledgers = ledgers

    async def look(self) -> None:
        """Raises MetadataError, StorageError."""
        ledgers = self._ledgers
        ledgers.restored.holds = holds_deletion(await read_restoration(ledgers.metadata, ledgers.keys))

    async def follow(self) -> None:
        """Until it is released."""
        if self._ledgers.restored.holds:
            log.warning(
                "metadata was restored: no topic is trimmed, or deleted as inactive, until somebody says "
                "`magnetar admin metadata release`"
            )
        while self._ledgers.restored.holds:
            await asyncio.sleep(LOOK_AGAIN_S)
            try:
                await self.look()
            except MagnetarError as error:
                log.warning("whether metadata is released could not be seen", error=str(error))
            else:
                if not self._ledgers.restored.holds:
                    log.info("metadata was released: topics are trimmed again")
