"""The cold tier of a broker: reads of offloaded ledgers, and their upkeep."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Final

from magnetar.broker.cold.cold_ledgers import ColdLedgers
from magnetar.broker.cold.offload_upkeep import OffloadUpkeep
from magnetar.broker.cold.store_threads import StoreThreads
from magnetar.broker.offload_policy.config import OffloadConfig
from magnetar.broker.task_spawner import Spawn
from magnetar.broker.topics.topic import Topic
from magnetar.common.obs.logs import get_logger
from magnetar.common.runtime.blocking import BlockingPool
from magnetar.ledger.managed_ledger.context import ManagedLedgerContext

log = get_logger(__name__)

POOLS_MAX: Final = 8
"""Maximum thread pools: reads of as many locations do not wait for each other."""

LOCATIONS_MAX: Final = 1_000
"""Maximum locations with an assigned thread pool."""

CLOSE_WAIT_S: Final = 5.0
"""Seconds to wait for running reads of an object store when the broker stops."""


class _Pools:
    """Threads by location, started at the first read: most brokers never read an object."""

    def __init__(self, threads_max: int) -> None:
        self._threads_max = threads_max
        self._pools: list[StoreThreads] = []
        self._by_location: dict[str, StoreThreads] = {}

    def of(self, location: str) -> BlockingPool:
        """Returns the threads of a location; many locations share some."""
        pool = self._by_location.get(location)
        if pool is None:
            if len(self._pools) < POOLS_MAX:
                self._pools.append(StoreThreads(self._threads_max, "cold"))
            if len(self._by_location) >= LOCATIONS_MAX:
                self._by_location.clear()
            pool = self._pools[len(self._by_location) % len(self._pools)]
            self._by_location[location] = pool
        return pool

    async def close_soon(self) -> None:
        """Ends the threads, without waiting long for a store that does not answer, even at the end of the
        process.
        """
        for pool in self._pools:
            pool.stop()
        try:
            async with asyncio.timeout(CLOSE_WAIT_S):
                for pool in self._pools:
                    await pool.ended()
        except TimeoutError:
            log.warning("an object store is still blocking a thread at close")


class ColdTier:
    """Connects `ledgers` to object storage, unless it already has a store; threads start with the first
    read.
    """

    def __init__(
        self,
        topics: Callable[[], Mapping[str, Topic]],
        ledgers: ManagedLedgerContext,
        config: OffloadConfig,
    ) -> None:
        self._pools = _Pools(config.cold_threads)
        self.ledgers = ColdLedgers(
            self._pools.of, ledgers.clock, cache_bytes=config.cold_cache_megabytes << 20
        )
        if ledgers.cold is None:
            ledgers.cold = self.ledgers
        self.keeper = OffloadUpkeep(topics, ledgers, ledgers.cold, lambda: config.refresh_interval_s)

    def start(self, spawn: Spawn) -> None:
        """Starts the refresh and release tasks; the caller of `spawn` owns them."""
        self.keeper.start(spawn)

    async def close(self) -> None:
        """Ends all reads; idempotent."""
        await self.ledgers.close()
        await self._pools.close_soon()
