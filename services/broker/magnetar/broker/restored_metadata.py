"""Stops automatic deletions while restored metadata is not released.

A subscription created after the copy may be missing, or recreated by its consumer at the end of the topic.
Its unconsumed messages would then be trimmed, or the topic deleted because it has no subscriptions. Automatic
deletions therefore wait for `magnetar admin metadata release`, as deletions on bookies do. Deletions
requested by clients and operators are executed.
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
    """Maintains the flag `restored` of the managed-ledger context. No restoration begins while a broker is
    up.
    """

    def __init__(self, ledgers: ManagedLedgerContext) -> None:
        self._ledgers = ledgers

    async def look(self) -> None:
        """Reads whether restored metadata is unreleased. Raises MetadataError, StorageError."""
        ledgers = self._ledgers
        ledgers.restored.holds = holds_deletion(await read_restoration(ledgers.metadata, ledgers.keys))

    async def follow(self) -> None:
        """Polls until the metadata is released."""
        if self._ledgers.restored.holds:
            log.warning(
                "metadata was restored: no topic is trimmed, or deleted as inactive, until an operator "
                "runs `magnetar admin metadata release`"
            )
        while self._ledgers.restored.holds:
            await asyncio.sleep(LOOK_AGAIN_S)
            try:
                await self.look()
            except MagnetarError as error:
                log.warning("release of restored metadata could not be checked", error=str(error))
            else:
                if not self._ledgers.restored.holds:
                    log.info("metadata was released: topics are trimmed again")
