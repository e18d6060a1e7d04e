"""Limbo repair: fetches entries that this bookie may have lost from peers, then clears the mark.

A ledger is in limbo if this bookie may have lost confirmed entries of it. Until the mark is cleared the
bookie answers 'unknown' instead of 'no such entry'. The mark of a **closed** ledger is cleared once every
entry that metadata assigns to this bookie was read back or fetched.

For an open ledger the settled fragments are fetched and the mark stays: above the last add confirmed it is
unknown what this bookie had confirmed, and a recovery could mistake 'no such entry' for an absence. Such a
ledger is fenced on this bookie, so its writer ends it at its next append. If nothing moves for
`openLedgerRereplicationGracePeriod` it is recovered (as in `open_tail`).
"""

from __future__ import annotations

import asyncio
import random
from typing import Final

from magnetar.bookie.autorecovery.local_copies import Finding, OwnCopies
from magnetar.bookie.autorecovery.metrics import IN_DOUBT
from magnetar.bookie.autorecovery.open_tail import OpenTails, Recover
from magnetar.common.errors import MagnetarError, StorageError
from magnetar.common.metadata.keys import Keys
from magnetar.common.metadata.restoration import is_compared, read_restoration
from magnetar.common.metadata.store import MetadataStore
from magnetar.common.metadata.values import LedgerMetadata, decode
from magnetar.common.obs.logs import get_logger
from magnetar.ledger.bookie_protocol.bookie_client import BookieClients
from magnetar.ledger.bookie_protocol.bookie_pb2 import OK, LedgerState
from magnetar.ledger.ledger_store import LedgerRef
from magnetar.ledger.quorum.repair_plan import is_closed, settled_fragments

log = get_logger(__name__)

PAGE_LEDGERS: Final = 100
WAIT_S: Final = 5.0
WAIT_MAX_S: Final = 300.0
"""Longest wait in seconds between attempts; the wait doubles while nothing improves."""


class LimboRepair:
    """Limbo repair of one bookie. Marks are set only at its start, so `run` ends when none is left."""

    def __init__(
        self,
        bookie_id: str,
        metadata: MetadataStore,
        keys: Keys,
        clients: BookieClients,
        copies: OwnCopies,
        tails: OpenTails,
        recover: Recover,
        rng: random.Random,
    ) -> None:
        self._bookie_id = bookie_id
        self._metadata = metadata
        self._keys = keys
        self._own = clients.client(bookie_id)
        self._copies = copies
        self._tails = tails
        self._recover = recover
        self._rng = rng

    async def run(self) -> None:
        """Runs until no ledger is in limbo."""
        wait_s = WAIT_S
        before = -1
        while True:
            try:
                left = await self.repair()
            except MagnetarError as error:
                log.warning("doubts cannot be resolved now", bookie=self._bookie_id, reason=str(error))
                left = max(before, 1)
            if not left:
                return
            wait_s = WAIT_S if left < before else min(2 * wait_s, WAIT_MAX_S)
            before = left
            await asyncio.sleep(wait_s * self._rng.uniform(0.75, 1.25))

    async def repair(self) -> int:
        """Checks each ledger in limbo once; returns how many existing ones still are."""
        left, after = 0, -1
        while True:
            page = await self._own.list_ledgers(after_ledger_id=after, limit=PAGE_LEDGERS, only_limbo=True)
            for state in page.ledgers:
                try:
                    resolved = not state.limbo or await self._resolve(state)
                except StorageError as error:
                    # Other ledgers may succeed.
                    log.warning("a doubt stays", ledger=state.ledger.id, reason=str(error))
                    resolved = False
                left += not resolved
            if not page.more or not page.ledgers:
                break
            after = page.ledgers[-1].ledger.id
        IN_DOUBT.set(left)
        return left

    async def _resolve(self, state: LedgerState) -> bool:
        """Tries to clear one ledger's limbo mark; returns whether it is cleared."""
        ref = LedgerRef(state.ledger.id, state.ledger.key)
        found = await self._metadata.get(self._keys.ledger(ref.id))
        ledger = None if found is None else decode(LedgerMetadata, found.value)
        if found is None or ledger is None or ledger.ref.key != ref.key:
            return True  # deleted: the mark goes with the ledger's bytes
        sound = True
        for fragment in settled_fragments(ledger):
            if self._bookie_id in fragment.bookie_ids:
                sound &= await self._copies.check(
                    ledger, fragment, lambda size: None, lambda finding: self._report(ref, finding)
                )
        if not is_closed(ledger):
            if not await self._tails.is_abandoned(ledger, found.version):
                return False
            if not is_compared(await read_restoration(self._metadata, self._keys)):
                return False  # metadata may lack its latest ensemble
            log.warning("recovering an idle ledger in limbo", ledger=ref.id)
            await self._recover(ref)
            return False
        if not sound:
            return False
        self._tails.forget(ref.id)
        cleared = await self._own.clear_limbo(ref)
        if cleared.code != OK or cleared.limbo:
            return False
        log.info("a doubt is resolved", bookie=self._bookie_id, ledger=ref.id)
        return True

    def _report(self, ref: LedgerRef, finding: Finding) -> None:
        log.warning(
            "entries in doubt",
            bookie=self._bookie_id,
            ledger=ref.id,
            finding=finding.kind,
            first=finding.first,
            last=finding.last,
            repaired=finding.repaired,
            reason=finding.reason or None,
        )
