"""What a broker has for offloaded ledgers, made together and closed together."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Final, TypeVar

from magnetar.broker.cold.cold_ledgers import ColdLedgers
from magnetar.broker.cold.keeper import ColdKeeper
from magnetar.broker.offload.config import OffloadConfig
from magnetar.broker.spawn import Spawn
from magnetar.broker.topics.topic import Topic
from magnetar.common.obs.logs import get_logger
from magnetar.common.runtime.blocking import ThreadPool
from magnetar.ledger.managed_ledger.context import ManagedLedgerContext

log = get_logger(__name__)

CLOSE_WAIT_S: Final = 5.0
"""For reads of an object store that are under way when the broker stops."""


T = TypeVar("T")


class _LatePool:
    """Threads that are there once somebody has something for them: most brokers never read an object."""

    def __init__(self, threads_max: int) -> None:
        self._threads_max = threads_max
        self._pool: ThreadPool | None = None

    def run(self, call: Callable[[], T]) -> asyncio.Future[T]:
        """See `BlockingPool.run`."""
        if self._pool is None:
            self._pool = ThreadPool(self._threads_max, "cold")
        return self._pool.run(call)

    def close(self) -> None:
        """Wait for running calls; blocks."""
        if self._pool is not None:
            self._pool.close()

    async def close_soon(self) -> None:
        """`close`, without keeping the loop waiting. A store that does not answer is not waited for long."""
        if self._pool is None:
            return
        done, _ = await asyncio.wait(
            [asyncio.ensure_future(asyncio.to_thread(self.close))], timeout=CLOSE_WAIT_S
        )
        if not done:
            log.warning("an object store still keeps a thread waiting")


class ColdTier:
    """Gives `ledgers` the objects to read, unless it has some; threads start with the first read."""

    def __init__(
        self,
        topics: Callable[[], Mapping[str, Topic]],
        ledgers: ManagedLedgerContext,
        config: OffloadConfig,
    ) -> None:
        self._pool = _LatePool(config.cold_threads)
        self.ledgers = ColdLedgers(self._pool, ledgers.clock, cache_bytes=config.cold_cache_megabytes << 20)
        if ledgers.cold is None:
            ledgers.cold = self.ledgers
        self.keeper = ColdKeeper(topics, ledgers, ledgers.cold, lambda: config.refresh_interval_s)

    def start(self, spawn: Spawn) -> None:
        """Follow what jobs do, and let bookies go, in tasks of their owner."""
        self.keeper.start(spawn)

    async def close(self) -> None:
        """End what is read; idempotent."""
        await self.ledgers.close()
        await self._pool.close_soon()
