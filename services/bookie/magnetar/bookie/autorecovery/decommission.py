"""Decommission of this bookie: it becomes read-only until an operator withdraws the request.

When the request is removed together with the bookie's cookie, the bookie is empty: it stays read-only, its
process may be stopped and its directory deleted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from magnetar.bookie.autorecovery.cluster_view import ClusterView
from magnetar.common.errors import MetadataError
from magnetar.common.metadata.keys import Keys
from magnetar.common.metadata.store import MetadataStore
from magnetar.common.obs.logs import get_logger

log = get_logger(__name__)

RETRY_AFTER_S: Final = 1.0


class DecommissionFollower:
    """Follows the decommission request of this bookie; `set_read_only` is a plain call."""

    def __init__(
        self,
        bookie_id: str,
        metadata: MetadataStore,
        keys: Keys,
        view: ClusterView,
        set_read_only: Callable[[bool], None],
    ) -> None:
        self._bookie_id = bookie_id
        self._metadata = metadata
        self._cookie_key = keys.cookie(bookie_id)
        self._view = view
        self._set_read_only = set_read_only
        self._changed = asyncio.Event()

    async def run(self) -> None:
        """Runs until the bookie is decommissioned."""
        stop = self._view.on_bookies(self._changed.set)
        try:
            while True:
                await self._wait_until(leaving=True)
                log.warning("decommissioning: this bookie takes no new ledgers", bookie=self._bookie_id)
                self._set_read_only(True)
                await self._wait_until(leaving=False)
                if not await self._exists():
                    break
                log.info("not decommissioned after all", bookie=self._bookie_id)
                self._set_read_only(False)
        finally:
            stop()
        log.info(
            "decommissioned: no ledger has entries here; stop the process and delete its data",
            bookie=self._bookie_id,
        )

    async def _wait_until(self, *, leaving: bool) -> None:
        while self._view.leaves(self._bookie_id) != leaving:
            self._changed.clear()
            await self._changed.wait()

    async def _exists(self) -> bool:
        """Returns whether the bookie's cookie exists. A completed decommission removes the cookie, a
        withdrawn one does not.
        """
        while True:
            try:
                return await self._metadata.get(self._cookie_key) is not None
            except MetadataError:
                await asyncio.sleep(RETRY_AFTER_S)
