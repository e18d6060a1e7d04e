"""The auditor: marks ledgers on lost or decommissioned bookies, ledgers with gaps, and unfinished recoveries.

It checks all ledgers after a bookie was away for `lostBookieRecoveryDelay`, after an operator decommissions
one, a while after its election, and every `auditorPeriodicBookieCheckInterval`. A bookie that returns is no
longer lost; replication workers check which bookies are up and drop marks that they have not started. The
auditor deletes nothing, so a ledger created during a pass and missed by it safely waits for the next one.

A decommission is complete when a pass, begun after the bookie stopped accepting fragments, finds no entry on
it: then its cookie and the decommission request are removed together.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import Final

from magnetar.bookie.autorecovery.cluster_view import ClusterView, Mark
from magnetar.bookie.autorecovery.config import AutoRecoveryConfig
from magnetar.bookie.autorecovery.lost_bookies import LostBookies
from magnetar.bookie.autorecovery.metrics import AUDITS, LOST_BOOKIES, MARKED
from magnetar.bookie.autorecovery.replication_marks import merge_mark
from magnetar.common.errors import DataCorruption, MetadataError, UnsupportedFormat, VersionMismatch
from magnetar.common.metadata.election import Leadership
from magnetar.common.metadata.keys import Keys
from magnetar.common.metadata.ledger_pages import ledger_pages
from magnetar.common.metadata.store import ABSENT, Delete, MetadataStore, Op, Put, Versioned
from magnetar.common.metadata.values import Decommission, LedgerMetadata, UnderReplicated, decode, encode
from magnetar.common.obs.logs import get_logger
from magnetar.common.runtime.clock import Clock
from magnetar.ledger.quorum.repair_plan import members_to_replace, needs_mark

log = get_logger(__name__)

MARKS_AT_ONCE: Final = 64
"""Marks per transaction; etcd's default limit is 128 operations."""

LEDGERS_AT_ONCE: Final = 64
"""Ledgers checked before yielding to the event loop."""

PAUSE_S: Final = 1.0
"""Minimum seconds between two passes, also after a failed one."""


class Auditor:
    """One leader term of the auditor. `run` raises MetadataError, or VersionMismatch if the leadership is
    lost.
    """

    def __init__(
        self,
        metadata: MetadataStore,
        keys: Keys,
        view: ClusterView,
        clock: Clock,
        config: AutoRecoveryConfig,
        leadership: Leadership,
    ) -> None:
        self._metadata = metadata
        self._keys = keys
        self._view = view
        self._clock = clock
        self._config = config
        self._leadership = leadership
        self._lost = LostBookies(config.lost_bookie_recovery_delay_s)
        self._wake = asyncio.Event()
        self._looked_for: frozenset[str] = frozenset()
        self._next_pass = clock.monotonic() + config.lost_bookie_recovery_delay_s
        self._left: dict[str, set[int]] = {}
        """Ledgers marked because of each bookie being decommissioned, while their marks exist."""

    async def run(self) -> None:
        stop_bookies = self._view.on_bookies(self._wake.set)
        stop_marks = self._view.on_mark(self._on_mark)
        try:
            while True:
                self._wake.clear()
                await self._look()
                await self._wait()
        finally:
            stop_bookies()
            stop_marks()
            LOST_BOOKIES.set(0)

    def _on_mark(self, ledger_id: int, mark: Mark | None) -> None:
        if mark is not None:
            return
        for ledgers in self._left.values():
            ledgers.discard(ledger_id)
            if not ledgers:
                self._wake.set()  # check whether the bookie is empty

    async def _look(self) -> None:
        """Makes a pass if there is a reason for one."""
        now = self._clock.monotonic()
        self._lost.update(self._view.cookies, self._view.registry.bookies, now)
        lost = self._lost.lost(now)
        LOST_BOOKIES.set(len(lost))
        leaving = frozenset(self._view.decommissions)
        self._left = {bookie: ledgers for bookie, ledgers in self._left.items() if bookie in leaving}
        wanted = lost | leaving
        self._looked_for &= wanted
        takes_nothing = self._taking_nothing(leaving)
        emptied = any(not ledgers and bookie in takes_nothing for bookie, ledgers in self._left.items())
        if wanted == self._looked_for and not emptied and now < self._next_pass:
            return
        for bookie in sorted(lost - self._looked_for - leaving):
            log.warning("a bookie is lost, its ledgers will be copied", bookie=bookie)
        try:
            await self._pass(wanted, leaving, takes_nothing)
        except MetadataError:
            AUDITS.labels(outcome="failed").inc()
            raise
        AUDITS.labels(outcome="done").inc()
        self._looked_for = wanted
        interval = self._config.audit_interval_s
        self._next_pass = self._clock.monotonic() + interval if interval else float("inf")

    async def _wait(self) -> None:
        """Waits for an event or a due time, at least the minimum pause."""
        await asyncio.sleep(PAUSE_S)
        now = self._clock.monotonic()
        self._lost.update(self._view.cookies, self._view.registry.bookies, now)
        next_loss = self._lost.next_loss(now)
        due = self._next_pass if next_loss is None else min(self._next_pass, next_loss)
        if self._lost.lost(now) - self._looked_for:
            return  # became due in the pause
        try:
            async with asyncio.timeout(None if due == float("inf") else max(due - now, 0.0)):
                await self._wake.wait()
        except TimeoutError:
            pass

    def _taking_nothing(self, leaving: Collection[str]) -> set[str]:
        """Returns the bookies being decommissioned that accept no new fragments any more."""
        up = self._view.registry.bookies
        return {bookie for bookie in leaving if bookie not in up or up[bookie].read_only}

    async def _pass(
        self, wanted: frozenset[str], leaving: frozenset[str], takes_nothing: Collection[str]
    ) -> None:
        """Checks every ledger once and marks those that need repair."""
        self._left = {bookie: set() for bookie in sorted(leaving)}
        found = dict.fromkeys(sorted(leaving), 0)
        seen = marked = 0
        async for page in ledger_pages(self._metadata, self._keys):
            for start in range(0, len(page.items), LEDGERS_AT_ONCE):
                batch = page.items[start : start + LEDGERS_AT_ONCE]
                seen += len(batch)
                marked += await self._mark(batch, wanted, found)
                await asyncio.sleep(0)
        if wanted or marked:
            log.info("all ledgers were checked", ledgers=seen, marked=marked, lost=sorted(wanted))
        for bookie in found:
            if found[bookie] or bookie not in takes_nothing:
                await self._note_progress(bookie, found[bookie])
            else:
                await self._let_go(bookie)

    async def _mark(self, items: Collection[Versioned], wanted: frozenset[str], found: dict[str, int]) -> int:
        """Marks those of some ledgers that need repair; returns the number of new or extended marks."""
        fresh: list[tuple[LedgerMetadata, list[str]]] = []
        larger: list[tuple[LedgerMetadata, list[str]]] = []
        known = self._view.cookies
        for item in items:
            try:
                ledger = decode(LedgerMetadata, item.value)
            except (DataCorruption, UnsupportedFormat) as error:
                log.error("a ledger's metadata cannot be read", key=item.key, reason=str(error))
                continue
            missing = members_to_replace(ledger, wanted, known, self._view.registry.bookies)
            for bookie in missing:
                if bookie in found:
                    found[bookie] += 1
                    self._left[bookie].add(ledger.ref.id)
            if not needs_mark(ledger, missing):
                continue
            mark = self._view.marks.get(ledger.ref.id)
            if mark is None:
                fresh.append((ledger, missing))
            elif not set(missing) <= set(mark.missing):
                larger.append((ledger, missing))
        count = len(fresh) + len(larger)
        for start in range(0, len(fresh), MARKS_AT_ONCE):
            larger += await self._mark_fresh(fresh[start : start + MARKS_AT_ONCE])
        for ledger, missing in larger:
            now_ms = self._clock.wall_ms()
            guards = [self._leadership.check()]
            await merge_mark(self._metadata, self._keys, ledger.ref, missing, now_ms, guards)
        MARKED.inc(count)
        return count

    async def _mark_fresh(
        self, fresh: list[tuple[LedgerMetadata, list[str]]]
    ) -> list[tuple[LedgerMetadata, list[str]]]:
        """Writes new marks in one transaction; returns all of them if one of them exists already."""
        now_ms = self._clock.wall_ms()
        ops: list[Op] = [self._leadership.check()]
        for ledger, missing in fresh:
            mark = UnderReplicated(ref=ledger.ref, missing_bookie_ids=missing, created_ms=now_ms)
            ops.append(Put(self._keys.under_replicated(ledger.ref.id), encode(mark), ABSENT))
        try:
            await self._metadata.commit(ops)
        except VersionMismatch as error:
            if error.key == self._leadership.key:
                raise
            return fresh
        return []

    async def _note_progress(self, bookie_id: str, ledgers: int) -> None:
        key = self._keys.decommission(bookie_id)
        wish = await self._metadata.get(key)
        if wish is None:
            return
        value = decode(Decommission, wish.value)
        value.ledgers = ledgers
        value.audited_ms = self._clock.wall_ms()
        ops: list[Op] = [self._leadership.check(), Put(key, encode(value), wish.version)]
        await self._commit_about(bookie_id, ops)

    async def _let_go(self, bookie_id: str) -> None:
        """Removes a drained bookie's identity together with its decommission request."""
        key, cookie_key = self._keys.decommission(bookie_id), self._keys.cookie(bookie_id)
        wish, cookie = await self._metadata.get(key), await self._metadata.get(cookie_key)
        if wish is None:
            return
        ops: list[Op] = [self._leadership.check(), Delete(key, wish.version)]
        if cookie is not None:
            ops += [Delete(cookie_key, cookie.version), Delete(self._keys.bookie_mark(bookie_id))]
        if await self._commit_about(bookie_id, ops):
            log.info("a bookie is decommissioned: no ledger has entries on it any more", bookie=bookie_id)

    async def _commit_about(self, bookie_id: str, ops: list[Op]) -> bool:
        try:
            await self._metadata.commit(ops)
        except VersionMismatch as error:
            if error.key == self._leadership.key:
                raise
            log.info("a decommission changed meanwhile", bookie=bookie_id)
            return False
        return True
