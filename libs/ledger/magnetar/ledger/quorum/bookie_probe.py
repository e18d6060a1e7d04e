"""Whether a bookie that failed answers again: asked once for all the ledgers of a process.

A bookie that is dead, or stands still, stays registered until its session has ended, and one that is cut off
from us for as long as that lasts. To take it back only to lose it again costs each ledger two writes of
metadata.
"""

from __future__ import annotations

import asyncio
from typing import Final

from magnetar.common.runtime.task_owner import TaskOwner
from magnetar.ledger.bookie_protocol.bookie_client import BookieClients, BookieUnreachable
from magnetar.ledger.ledger_store import LedgerRef

UNANSWERED_S: Final = 1.0
"""Time for which 'it does not answer' is returned without another probe."""


class Revival:
    """Asks bookies for a sign of life. One per process."""

    __slots__ = ("_asking", "_clients", "_tasks")

    def __init__(self, clients: BookieClients, tasks: TaskOwner) -> None:
        self._clients = clients
        self._tasks = tasks
        self._asking: dict[str, asyncio.Task[bool]] = {}

    async def answers(self, bookie_id: str, ref: LedgerRef) -> bool:
        """Whether it answers to a question about a ledger, which it need not know."""
        asking = self._asking.get(bookie_id)
        if asking is None:
            asking = self._asking[bookie_id] = self._tasks.spawn(
                self._ask(bookie_id, ref), f"does {bookie_id} answer"
            )
            asking.add_done_callback(lambda _: self._asking.pop(bookie_id))
        return await asyncio.shield(asking)

    async def _ask(self, bookie_id: str, ref: LedgerRef) -> bool:
        try:
            await self._clients.client(bookie_id).read_lac(ref)
        except BookieUnreachable:
            await asyncio.sleep(UNANSWERED_S)
            return False
        return True
