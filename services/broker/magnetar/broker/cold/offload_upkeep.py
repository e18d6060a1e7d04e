"""Periodic work of an owner for the offloaded ledgers of its topics: it reads the progress of jobs,
and lets bookies go of ledgers whose objects it has verified.

Two tasks of one broker, each going through the loaded topics in turn. One verification at a time: it reads
every byte of a ledger's objects, and clients come first. A ledger whose objects cannot be verified waits
longer each time, and a location that took long to say so is left alone until the next pass: others are not
to wait for it. Objects found damaged twice are wanted again: once may be a directory that is not mounted.
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
"""Topics read from metadata each second at most, to leave metadata time for others."""

RETRY_MIN_S: Final = 60.0
RETRY_MAX_S: Final = 3600.0
"""Seconds between two verifications of a ledger after one failed."""

DAMAGED_TIMES: Final = 2
"""Verifications that have to find objects damaged before they are wanted again."""

SLOW_S: Final = 30.0
"""A failure that took longer is one of the store, which would answer for the next ledger as late."""

WAITING_MAX: Final = 10_000
"""Ledgers that are kept in mind as waiting; more are tried in each pass."""


@dataclass(slots=True)
class _Waiting:
    """A ledger whose objects could not be verified."""

    until_s: float
    wait_s: float
    damaged: int


@dataclass(slots=True)
class _Skipped:
    """Ledgers that are not tried now: those that wait, and those that one pass has tried."""

    waiting: Mapping[LedgerRef, _Waiting]
    now_s: float
    tried: set[LedgerRef] = field(default_factory=set)

    def __contains__(self, ref: object) -> bool:
        assert isinstance(ref, LedgerRef)
        found = self.waiting.get(ref)
        return ref in self.tried or (found is not None and found.until_s > self.now_s)


class OffloadUpkeep:
    """Used on one event loop. `interval_s` is asked for each time: it may be changed."""

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
        """Look for ever, in tasks of their owner."""
        spawn(self._for_ever(self.refresh), "offloaded ledgers: refresh")
        spawn(self._for_ever(self.let_go), "offloaded ledgers: leaving bookies")

    async def refresh(self) -> None:
        """One pass: learn how far the ledgers of each loaded topic are."""
        async for ledger in self._managed_ledgers():
            try:
                await ledger.refresh_offload()
            except MagnetarError as error:
                log.warning("cannot read a topic's offload state", topic=ledger.name, error=str(error))
            await asyncio.sleep(1 / TOPICS_A_SECOND)

    async def let_go(self) -> None:
        """One pass: each ledger that is due leaves bookies, once it is verified."""
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
        """Yield the managed ledgers of loaded topics with closed ledgers; most topics have none."""
        async for topic in iterate_cooperatively(list(self._topics().values())):
            if isinstance(topic, PersistentTopic) and not topic.closing and topic.ledger.has_closed_ledgers:
                yield topic.ledger

    async def _leave(self, ledger: ManagedLedger, cold: ColdLedger) -> bool:
        """False when its objects, or the metadata, could not be had."""
        try:
            verified = await self._cold.verify(cold)
            if not await ledger.leave_bookies(verified):
                await ledger.refresh_offload()  # they are not its objects any more
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
            # Whatever it is, the ledgers behind this one are to have their turn.
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
