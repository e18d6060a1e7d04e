"""Inventory of the ledgers that bookies report."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from magnetar.ledger.bookie_protocol.bookie_client import BookieClients
from magnetar.ledger.bookie_protocol.bookie_pb2 import LedgerState
from magnetar.ledger.ledger_store import LedgerRef

PAGE_LEDGERS: Final = 5_000
"""Ledgers requested at a time."""


class Inventory:
    """A snapshot of the ledgers on some bookies. Ledgers without entries are omitted."""

    def __init__(self, held: Mapping[str, Sequence[LedgerState]]) -> None:
        """Creates an inventory. `held` maps each bookie to its listed ledgers."""
        self.bookies = frozenset(held)
        self._by_ref: dict[LedgerRef, dict[str, LedgerState]] = {}
        for bookie_id, states in held.items():
            for state in states:
                if state.last_entry_id >= 0:
                    ref = LedgerRef(state.ledger.id, state.ledger.key)
                    self._by_ref.setdefault(ref, {})[bookie_id] = state

    def __iter__(self) -> Iterator[LedgerRef]:
        return iter(sorted(self._by_ref, key=lambda ref: (ref.id, ref.key)))

    def of(self, ref: LedgerRef) -> Mapping[str, LedgerState]:
        """Returns the reported state of a ledger by bookie, of bookies that hold entries of it."""
        return self._by_ref.get(ref, {})

    @property
    def highest_id(self) -> int:
        """The highest ledger id; 0 without ledgers."""
        return max((ref.id for ref in self._by_ref), default=0)


async def take_inventory(clients: BookieClients, bookie_ids: Sequence[str]) -> Inventory:
    """Lists all ledgers of each bookie. Raises BookieUnreachable."""
    lists = await asyncio.gather(*(_ledgers_of(clients, bookie_id) for bookie_id in bookie_ids))
    return Inventory(dict(zip(bookie_ids, lists, strict=True)))


async def _ledgers_of(clients: BookieClients, bookie_id: str) -> list[LedgerState]:
    client, found, after = clients.client(bookie_id), list[LedgerState](), -1
    while True:
        page = await client.list_ledgers(after_ledger_id=after, limit=PAGE_LEDGERS)
        found += page.ledgers
        if not page.more or not page.ledgers:
            return found
        after = page.ledgers[-1].ledger.id
