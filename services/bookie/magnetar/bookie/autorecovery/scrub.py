"""The scrub: a bookie reads back all its entries in the background and repairs those not intact.

It goes by metadata rather than by the log's content, so missing entries are found as well as damaged ones.
The last fragment of an open ledger is skipped, since its entries may be in flight.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Final

from magnetar.bookie.autorecovery.config import AutoRecoveryConfig
from magnetar.bookie.autorecovery.local_copies import Finding, OwnCopies
from magnetar.bookie.autorecovery.metrics import SCRUB_FINDINGS, SCRUB_REPAIRED, SCRUBBED_BYTES, SCRUBS
from magnetar.bookie.data_check import DataCheck
from magnetar.common.errors import DataCorruption, MagnetarError, UnsupportedFormat
from magnetar.common.metadata.keys import Keys
from magnetar.common.metadata.ledger_pages import ledger_pages
from magnetar.common.metadata.store import MetadataStore
from magnetar.common.metadata.values import LedgerMetadata, decode
from magnetar.common.obs.logs import get_logger
from magnetar.ledger.quorum.repair_plan import settled_fragments

log = get_logger(__name__)

RETRY_AFTER_S: Final = 10.0
RETRY_AFTER_MAX_S: Final = 1_800.0
"""Longest wait in seconds between passes after possible data loss, while something could not be repaired; the
wait doubles.
"""


class Scrub:
    """Scrubs one bookie: `run` repeats until cancelled, `scrub` makes one pass."""

    def __init__(
        self,
        bookie_id: str,
        metadata: MetadataStore,
        keys: Keys,
        copies: OwnCopies,
        data_check: DataCheck,
        rng: random.Random,
        config: AutoRecoveryConfig,
    ) -> None:
        self._bookie_id = bookie_id
        self._metadata = metadata
        self._keys = keys
        self._copies = copies
        self._data_check = data_check
        self._rng = rng
        self._config = config

    async def run(self) -> None:
        """Runs passes: after possible data loss at once and until everything is intact, then one per
        interval. The first regular pass starts after a random part of it, so that bookies started together do
        not scrub together.
        """
        wait_s = RETRY_AFTER_S
        while not await self._attempt(self._resolve_doubt):
            await asyncio.sleep(wait_s)
            wait_s = min(2 * wait_s, RETRY_AFTER_MAX_S)
        interval_s = self._config.scrub_interval_s
        if interval_s:
            await asyncio.sleep(interval_s * self._rng.random())
            while True:
                await self._attempt(self.scrub)
                await asyncio.sleep(interval_s)

    async def _resolve_doubt(self) -> bool:
        if not await self._data_check.is_needed():
            return True
        log.warning("data may be missing: everything is compared with metadata", bookie=self._bookie_id)
        if not await self.scrub():
            return False
        await self._data_check.done()
        return True

    async def _attempt(self, look: Callable[[], Awaitable[bool]]) -> bool:
        try:
            return await look()
        except (MagnetarError, OSError) as error:
            log.warning("the scrub was broken off", bookie=self._bookie_id, reason=str(error))
            return False

    async def scrub(self) -> bool:
        """Makes one pass; returns whether every entry of this bookie is intact after it. Raises
        MetadataError, or BookieUnreachable if the bookie itself does not answer.
        """
        sound, ledgers = True, 0
        async for page in ledger_pages(self._metadata, self._keys):
            for item in page.items:
                try:
                    ledger = decode(LedgerMetadata, item.value)
                except (DataCorruption, UnsupportedFormat):
                    continue  # the auditor reports it
                if any(self._bookie_id in fragment.bookie_ids for fragment in ledger.fragments):
                    ledgers += 1
                    sound &= await self._scrub_ledger(ledger.ref.id)
                await asyncio.sleep(0)
        SCRUBS.inc()
        log.info("scrubbed", bookie=self._bookie_id, ledgers=ledgers, sound=sound)
        return sound

    async def _scrub_ledger(self, ledger_id: int) -> bool:
        # The page may be hours old.
        found = await self._metadata.get(self._keys.ledger(ledger_id))
        if found is None:
            return True
        ledger = decode(LedgerMetadata, found.value)
        sound = True
        for fragment in settled_fragments(ledger):
            if self._bookie_id in fragment.bookie_ids:
                sound &= await self._copies.check(
                    ledger, fragment, SCRUBBED_BYTES.inc, lambda finding: self._report(ledger, finding)
                )
        return sound

    def _report(self, ledger: LedgerMetadata, finding: Finding) -> None:
        SCRUB_FINDINGS.labels(finding=finding.kind).inc()
        SCRUB_REPAIRED.inc(finding.repaired)
        log.warning(
            "the scrub found entries that this bookie should have and lacks",
            bookie=self._bookie_id,
            ledger=ledger.ref.id,
            finding=finding.kind,
            first=finding.first,
            last=finding.last,
            repaired=finding.repaired,
            reason=finding.reason or None,
        )
