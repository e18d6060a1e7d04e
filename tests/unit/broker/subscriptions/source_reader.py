"""Pulls entries out of an entry source, as a subscription does."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from magnetar.broker.byte_budget import ByteBudget
from magnetar.broker.memory_config import MemoryConfig
from magnetar.broker.subscriptions.config import DispatchConfig
from magnetar.broker.subscriptions.entries.entry_source import EntrySource
from magnetar.ledger.managed_ledger.entry_cache import EntryCache

from tests.unit.broker.subscriptions.fakes import FakeCursor, FakeLedger


class Reader:
    """Pulls everything out of a source, waiting for its reads; remembers what came as a replay."""

    def __init__(
        self,
        ledger: FakeLedger,
        cursor: FakeCursor,
        config: DispatchConfig | None = None,
        budget: ByteBudget | None = None,
    ) -> None:
        self.wakes = asyncio.Event()
        self.tasks: set[asyncio.Task[Any]] = set()
        self.budget = budget or ByteBudget(MemoryConfig(), EntryCache(0))
        self.source = EntrySource(
            cast(Any, ledger),
            cast(Any, cursor),
            config or DispatchConfig(read_entries_max=5),
            self.budget,
            self.spawn,
            self.wakes.set,
        )

    def spawn(self, coro: Any, name: str) -> None:
        self.tasks.add(asyncio.ensure_future(coro))

    async def pull(self, count: int, lot: int = 3) -> list[tuple[int, bool]]:
        out: list[tuple[int, bool]] = []
        while len(out) < count:
            peeked = self.source.peek(lot)
            if peeked is None:
                if not self.source.reading and not self.tasks:
                    break
                self.wakes.clear()
                await asyncio.wait_for(self.wakes.wait(), 10)
                continue
            run, replayed = peeked
            taken = min(lot, len(run.entries), count - len(out))
            out += [(run.first_entry_id + index, replayed) for index in range(taken)]
            self.source.advance(taken)
        return out


def fresh(*ids: int) -> list[tuple[int, bool]]:
    return [(each, False) for each in ids]
