"""Decides when an open ledger whose last fragment is on a lost bookie is recovered.

Its writer repairs it first. A writer that appends detects the lost bookie at once and replaces it, and one
that finds no replacement records gaps, which are filled like any others. So this module handles ledgers
without appends: idle ones, and those whose writer is gone and whose topic has not been loaded since. They
lack a copy until they are closed, and a second loss could make them impossible to recover.

So, as in BookKeeper, such a ledger is recovered (fenced, completed, closed) after
`openLedgerRereplicationGracePeriod`. Other than in BookKeeper this happens only

- if nothing moved in that time: its metadata, and the last entry and last add confirmed that its
  bookies report. A writer that still appends, with or without the lost bookie, is never fenced;
- when enough writable bookies are there to take the lost one's place: as long as they are not, a new ledger
  could not be had either, and fencing would turn a ledger with one copy less into a topic without service.

A running idle writer detects the fence at its next append: its topic is loaded again, and nothing
is lost. An interrupted recovery is finished after the same time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from magnetar.bookie.autorecovery.cluster_view import ClusterView
from magnetar.common.metadata.values import LedgerMetadata
from magnetar.ledger.bookie_protocol.bookie_client import BookieClients, BookieUnreachable
from magnetar.ledger.bookie_protocol.bookie_pb2 import OK, LedgerState
from magnetar.ledger.ledger_store import LedgerRef
from magnetar.ledger.quorum.repair_plan import has_room

Recover = Callable[[LedgerRef], Awaitable[object]]
"""Fences a ledger, finds its end and closes it (`LedgerRecovery.recover`)."""


@dataclass(frozen=True, slots=True)
class _Seen:
    """The last seen state of a ledger: its metadata version and its bookies' answers."""

    version: int
    last_entry_id: int
    lac: int
    since_s: float


class OpenTails:
    """Tracks, for waiting ledgers, since when nothing has moved."""

    def __init__(self, view: ClusterView, clients: BookieClients, grace_s: float) -> None:
        self._view = view
        self._clients = clients
        self.grace_s = grace_s
        self._seen: dict[int, _Seen] = {}

    def forget(self, ledger_id: int) -> None:
        self._seen.pop(ledger_id, None)

    async def is_abandoned(self, metadata: LedgerMetadata, version: int) -> bool:
        """Returns whether nothing moved for the grace period and the ledger may be recovered now.

        Call it again after a grace period.
        """
        if metadata.state == LedgerMetadata.OPEN and not self._has_room(metadata):
            return False
        ref = LedgerRef(metadata.ref.id, metadata.ref.key)
        answers = await asyncio.gather(
            *(
                self._ask(bookie, ref)
                for bookie in metadata.fragments[-1].bookie_ids
                if self._view.is_up(bookie)
            )
        )
        heard = [answer for answer in answers if answer is not None]
        now = asyncio.get_running_loop().time()
        last = max((answer.last_entry_id for answer in heard if answer.code == OK), default=-1)
        lac = max((answer.lac for answer in heard if answer.code == OK), default=-1)
        seen = self._seen.get(ref.id)
        if not heard or seen is None or (seen.version, seen.last_entry_id, seen.lac) != (version, last, lac):
            self._seen[ref.id] = _Seen(version, last, lac, now)
            return False
        return now >= seen.since_s + self.grace_s

    def _has_room(self, metadata: LedgerMetadata) -> bool:
        writable = [info.bookie_id for info in self._view.registry.writable()]
        return has_room(metadata, writable, self._view.decommissions)

    async def _ask(self, bookie_id: str, ref: LedgerRef) -> LedgerState | None:
        try:
            return await self._clients.client(bookie_id).read_lac(ref)
        except BookieUnreachable:
            return None
