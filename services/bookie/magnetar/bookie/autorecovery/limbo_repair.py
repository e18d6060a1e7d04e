"""Resolving a bookie's doubts: what it may have held is fetched from peers; then it is certain again.

A ledger in limbo is one of which this bookie may have lost entries that it had confirmed. Until the mark is
cleared it says 'unknown' where it would have said 'not here'. The mark of a **closed** ledger goes once every
entry that metadata gives this bookie was read back or fetched: then there is nothing that it could lack.

Of a ledger that is not closed, what has its final place is fetched and the mark stays: above the last add
confirmed nobody can tell for this bookie what it had confirmed before, and its 'not here' could be taken for
an absence by a recovery. Such a ledger is fenced on this bookie already, so its writer will end it at its
next append. If nothing moves for `openLedgerRereplicationGracePeriod` it is recovered (as in `open_tail`).
"""

from __future__ import annotations

import asyncio
import random
from typing import Final

from magnetar.bookie.autorecovery.fragments import is_closed, settled_fragments
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

log = get_logger(__name__)

PAGE_LEDGERS: Final = 100
WAIT_S: Final = 5.0
WAIT_MAX_S: Final = 300.0
"""Between looks at what is still in doubt; doubling while nothing gets better."""


class LimboRepair:
    """Limbo repair of one bookie; doubts begin at its start, so `run` ends when none is left."""

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
        """Until nothing is in doubt any more."""
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
        """Look at each ledger in doubt once; returns how many of those that exist still are."""
        left, after = 0, -1
        while True:
            page = await self._own.list_ledgers(after_ledger_id=after, limit=PAGE_LEDGERS, only_limbo=True)
            for state in page.ledgers:
                try:
                    resolved = not state.limbo or await self._resolve(state)
                except StorageError as error:
                    # Others may be easier.
                    log.warning("a doubt stays", ledger=state.ledger.id, reason=str(error))
                    resolved = False
                left += not resolved
            if not page.more or not page.ledgers:
                break
            after = page.ledgers[-1].ledger.id
        IN_DOUBT.set(left)
        return left

    async def _resolve(self, state: LedgerState) -> bool:
        """Try to resolve one doubt; whether there is none any more."""
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
                return False  # its last bookies may be others than metadata says
            log.warning("a ledger in doubt that nobody writes to is recovered", ledger=ref.id)
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
