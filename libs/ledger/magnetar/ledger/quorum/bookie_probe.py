"""Probes whether a failed bookie answers again: one probe for all ledgers of a process.

A dead or hanging bookie stays registered until its session expires, and an unreachable one stays registered
as long as it is cut off from this process. Reusing such a bookie only to lose it again costs each ledger two
metadata writes.
"""

from __future__ import annotations

import asyncio
from typing import Final

from magnetar.common.runtime.task_owner import TaskOwner
from magnetar.ledger.bookie_protocol.bookie_client import BookieClients, BookieUnreachable
from magnetar.ledger.ledger_store import LedgerRef

UNANSWERED_S: Final = 1.0
"""Time in seconds for which a negative result is reused without another probe."""


class Revival:
    """Probes bookies. One per process."""

    __slots__ = ("_asking", "_clients", "_tasks")

    def __init__(self, clients: BookieClients, tasks: TaskOwner) -> None:
        self._clients = clients
        self._tasks = tasks
        self._asking: dict[str, asyncio.Task[bool]] = {}

    async def answers(self, bookie_id: str, ref: LedgerRef) -> bool:
        """Returns whether the bookie answers a request about a ledger, which it need not store."""
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
