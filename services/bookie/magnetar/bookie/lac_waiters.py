"""Requests that wait for a ledger's last add confirmed to advance."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Final

from magnetar.ledger.segment_log.log_ledger import LogLedger

WAIT_MS_MAX: Final = 60_000
"""Longest wait in milliseconds; longer requests are cut to it."""


class LacWaiters:
    """Requests waiting for a last add confirmed. Their number is limited: above the limit a request is
    answered at once.
    """

    def __init__(self, waiters_max: int) -> None:
        self._max = waiters_max
        self._count = 0
        self._waiting: dict[int, set[tuple[int, asyncio.Future[None]]]] = {}

    async def wait(self, ledger_id: int, above: int, wait_ms: int) -> None:
        """Returns after `advanced` or `wake` for the ledger, or after the timeout."""
        if self._count >= self._max:
            return
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiting = self._waiting.setdefault(ledger_id, set())
        waiting.add((above, waiter))
        self._count += 1
        try:
            await asyncio.wait({waiter}, timeout=min(wait_ms, WAIT_MS_MAX) / 1000)
        finally:
            self._count -= 1
            waiting.discard((above, waiter))
            if not waiting and self._waiting.get(ledger_id) is waiting:
                del self._waiting[ledger_id]

    def advanced(self, ledgers: Iterable[LogLedger]) -> None:
        """Wakes the requests whose ledger's last add confirmed has advanced far enough."""
        if not self._waiting:
            return
        for ledger in ledgers:
            for above, waiter in self._waiting.get(ledger.ref.id, ()):
                if ledger.lac > above and not waiter.done():
                    waiter.set_result(None)

    def wake(self, ledger_id: int) -> None:
        """Wakes all requests for this ledger, for example because it is fenced."""
        for _, waiter in self._waiting.get(ledger_id, ()):
            if not waiter.done():
                waiter.set_result(None)

    def close(self) -> None:
        """Answers all waiting requests."""
        for ledger_id in self._waiting:
            self.wake(ledger_id)
