"""Periodic work of an owner for the offloaded ledgers of its topics: it reads the progress of jobs, verifies
their objects, and then lets bookies delete the ledgers.

Two tasks of one broker iterate over the loaded topics. One ledger is verified at a time: verification reads
every byte of its objects, and clients have priority. After a failed verification a ledger waits longer each
time, and a location that was slow to fail is skipped until the next pass, so that others need not wait for
it. Objects found damaged twice are offloaded again; the first failure may be an unmounted directory.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from magnetar.broker.task_spawner import Spawn
from magnetar.broker.topics.persistent_topic import PersistentTopic
from magnetar.broker.topics.topic import Topic
from magnetar.common.errors import MagnetarError
from magnetar.common.obs.logs import get_logger
from magnetar.common.runtime.cooperative_iteration import iterate_cooperatively
from magnetar.ledger.cold.cold_reader import ColdLedger, ColdStore, ObjectsDamaged
from magnetar.ledger.ledger_store import LedgerRef
from magnetar.ledger.managed_ledger import bookie_release
from magnetar.ledger.managed_ledger.context import ManagedLedgerContext
from magnetar.ledger.managed_ledger.managed_ledger import ManagedLedger

log = get_logger(__name__)

TOPICS_A_SECOND: Final = 500
"""Maximum topics read from metadata each second, to bound the load on metadata."""

RETRY_MIN_S: Final = 60.0
RETRY_MAX_S: Final = 3600.0
"""Maximum seconds between two verifications of a ledger after a failure."""

DAMAGED_TIMES: Final = 2
"""Failed verifications, with damaged objects, after which the ledger is offloaded again."""

SLOW_S: Final = 30.0
"""Seconds after which a failure is attributed to the store, which would be as slow for the next ledger."""

WAITING_MAX: Final = 10_000
"""Maximum ledgers remembered as waiting; further ones are tried in each pass."""


@dataclass(slots=True)
class _Waiting:
    """A ledger whose objects could not be verified."""

    until_s: float
    wait_s: float
    damaged: int


@dataclass(slots=True)
class _Skipped:
    """Ledgers that are skipped now: waiting ones, and those that this pass has tried."""

    waiting: Mapping[LedgerRef, _Waiting]
    now_s: float
    tried: set[LedgerRef] = field(default_factory=set)

    def __contains__(self, ref: object) -> bool:
        assert isinstance(ref, LedgerRef)
        found = self.waiting.get(ref)
        return ref in self.tried or (found is not None and found.until_s > self.now_s)


class OffloadUpkeep:
    """Runs on one event loop. `interval_s` is called before each pass: the setting may change."""

    def __init__(
        self,
        topics: Callable[[], Mapping[str, Topic]],
        ledgers: ManagedLedgerContext,
        cold: ColdStore,
        interval_s: Callable[[], float],
    ) -> None:
        self._topics = topics
        self._ledgers = ledgers
        self._cold = cold
        self._interval_s = interval_s
        self._clock = ledgers.clock
        self._waiting: dict[LedgerRef, _Waiting] = {}

    def start(self, spawn: Spawn) -> None:
        """Starts the periodic tasks; the caller of `spawn` owns them."""
        spawn(self._for_ever(self.refresh), "offloaded ledgers: refresh")
        spawn(self._for_ever(self.let_go), "offloaded ledgers: leaving bookies")

    async def refresh(self) -> None:
        """Runs one pass: reads the offload progress of each loaded topic's ledgers."""
        async for ledger in self._managed_ledgers():
            try:
                await ledger.refresh_offload()
            except MagnetarError as error:
                log.warning("cannot read a topic's offload state", topic=ledger.name, error=str(error))
            await asyncio.sleep(1 / TOPICS_A_SECOND)

    async def let_go(self) -> None:
        """Runs one pass: verifies each ledger that is due, then lets bookies delete it."""
        slow: set[str] = set()
        async for ledger in self._managed_ledgers():
            skip = _Skipped(self._waiting, self._clock.monotonic())
            while (cold := ledger.due_to_leave(skip)) is not None:
                skip.tried.add(cold.ref)
                if cold.location in slow:
                    await asyncio.sleep(0)
                    continue
                began_s = skip.now_s = self._clock.monotonic()
                if not await self._leave(ledger, cold) and self._clock.monotonic() - began_s > SLOW_S:
                    slow.add(cold.location)

    # --- inside ---

    async def _for_ever(self, one_pass: Callable[[], Awaitable[None]]) -> None:
        while True:
            await asyncio.sleep(self._interval_s())
            try:
                await one_pass()
            except Exception:
                log.exception("upkeep of offloaded ledgers failed")

    async def _managed_ledgers(self) -> AsyncIterator[ManagedLedger]:
        """Yields the managed ledgers of loaded topics with closed ledgers; most topics have none."""
        async for topic in iterate_cooperatively(list(self._topics().values())):
            if isinstance(topic, PersistentTopic) and not topic.closing and topic.ledger.has_closed_ledgers:
                yield topic.ledger

    async def _leave(self, ledger: ManagedLedger, cold: ColdLedger) -> bool:
        """Verifies and releases a ledger; returns False when its objects or the metadata could not be
        read.
        """
        try:
            verified = await self._cold.verify(cold)
            if not await ledger.leave_bookies(verified):
                await ledger.refresh_offload()  # the ledger has other objects now
        except ObjectsDamaged as error:
            await self._damaged(ledger, cold, error)
        except MagnetarError as error:
            log.warning(
                "cannot verify an offloaded ledger, retrying; bookies keep it",
                topic=cold.topic,
                ledger=cold.ref.id,
                error=str(error),
            )
            self._wait_for(cold)
            return False
        except Exception:
            # An error with one ledger must not block the ledgers after it.
            log.exception("verification of an offloaded ledger failed", topic=cold.topic, ledger=cold.ref.id)
            self._wait_for(cold)
        else:
            self._waiting.pop(cold.ref, None)
        return True

    async def _damaged(self, ledger: ManagedLedger, cold: ColdLedger, error: ObjectsDamaged) -> None:
        waiting = self._waiting.get(cold.ref)
        times = 1 + (waiting.damaged if waiting is not None else 0)
        log.error(
            "objects of an offloaded ledger are damaged; bookies keep it",
            topic=cold.topic,
            ledger=cold.ref.id,
            times=times,
            error=str(error),
        )
        if times < DAMAGED_TIMES:
            self._wait_for(cold, damaged=times)
            return
        try:
            await bookie_release.want_again(self._ledgers, cold, str(error))
            await ledger.refresh_offload()
        except MagnetarError as failed:
            log.warning(
                "cannot request another offload of a damaged ledger, retrying",
                topic=cold.topic,
                ledger=cold.ref.id,
                error=str(failed),
            )
            self._wait_for(cold, damaged=times)
        else:
            self._waiting.pop(cold.ref, None)

    def _wait_for(self, cold: ColdLedger, *, damaged: int = 0) -> None:
        before = self._waiting.pop(cold.ref, None)
        wait_s = RETRY_MIN_S if before is None else min(before.wait_s * 2, RETRY_MAX_S)
        if len(self._waiting) >= WAITING_MAX:
            del self._waiting[next(iter(self._waiting))]
        self._waiting[cold.ref] = _Waiting(self._clock.monotonic() + wait_s, wait_s, damaged)
