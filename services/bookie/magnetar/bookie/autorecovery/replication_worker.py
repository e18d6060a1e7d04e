"""A bookie's replication worker: takes an under-replicated ledger and copies the missing entries.

For each lost bookie in a fragment with a known end, its share is copied durably to a replacement; then the
ledger's metadata names the replacement, by compare-and-set with the version that was read. A gap is filled on
its own bookie, from the first entry that the bookie lacks, and removed. When the ledger needs no more repair
the mark is removed. A crash at any point leaves unreferenced copies and the mark; the next worker continues
from the metadata.

A ledger that cannot be repaired now (no replica answers, no replacement is available) is retried later, or as
soon as the set of bookies changes. The worker never removes an entry, and never names a bookie that lacks
entries of its share.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from magnetar.bookie.autorecovery.cluster_view import ClusterView, Mark
from magnetar.bookie.autorecovery.config import AutoRecoveryConfig
from magnetar.bookie.autorecovery.entry_copier import CopyFailed, EntryCopier, TargetFailed
from magnetar.bookie.autorecovery.ledger_locks import LedgerLocks
from magnetar.bookie.autorecovery.metrics import COPYING, LEDGERS
from magnetar.bookie.autorecovery.open_tail import OpenTails, Recover
from magnetar.bookie.autorecovery.repair_queue import RepairQueue
from magnetar.bookie.autorecovery.replication_marks import remove_mark
from magnetar.common.errors import MagnetarError, MetadataError, UnknownOutcome, VersionMismatch
from magnetar.common.metadata.keys import Keys
from magnetar.common.metadata.restoration import require_reconciled
from magnetar.common.metadata.store import Check, MetadataStore, Op, Put
from magnetar.common.metadata.values import LedgerMetadata, UnderReplicated, decode, encode
from magnetar.common.obs.logs import get_logger
from magnetar.common.runtime.task_owner import TaskOwner
from magnetar.ledger.ledger_store import LedgerRef
from magnetar.ledger.quorum.entry_rewrite import Replace
from magnetar.ledger.quorum.repair_plan import (
    Fill,
    FragmentRange,
    Move,
    Plan,
    lost_of,
    plan_repair,
    striping_of,
    with_fill,
    with_move,
    without_void_gaps,
)

log = get_logger(__name__)

ATTEMPTS_MAX: Final = 20
"""Maximum failed compare-and-sets in one attempt at a ledger before it is retried later."""


@dataclass(slots=True)
class _Attempt:
    """One repair attempt at one ledger."""

    ref: LedgerRef
    copied: dict[tuple[int, int, str], tuple[str, Check]] = field(default_factory=dict)
    """Maps (first entry, last entry, bookie) to the guard under which the copies made in this attempt hold:
    the target's cookie must not have been written since, by a start (perhaps with an emptied disk) or by the
    release of unreferenced copies.
    """
    stuck: dict[tuple[int, int, str], str] = field(default_factory=dict)
    """Entries that could not be copied in this attempt, with the reasons."""
    unfit: set[str] = field(default_factory=set)
    """Bookies that refused copies in this attempt."""
    lost_sets: int = 0


class ReplicationWorker:
    """Runs up to `copied_ledgers_max` attempts at a time, from `start` to `close`."""

    def __init__(
        self,
        metadata: MetadataStore,
        keys: Keys,
        view: ClusterView,
        locks: LedgerLocks,
        copier: EntryCopier,
        tails: OpenTails,
        rng: random.Random,
        config: AutoRecoveryConfig,
        replacement: Replace,
        recover: Recover,
    ) -> None:
        self._metadata = metadata
        self._keys = keys
        self._view = view
        self._locks = locks
        self._copier = copier
        self._tails = tails
        self._config = config
        self._replacement = replacement
        self._recover = recover
        self._queue = RepairQueue(rng, config.retry_after_ms / 1000)
        self._news = asyncio.Event()
        self._tasks = TaskOwner("replication worker")
        self._stops: list[Callable[[], None]] = []

    def start(self) -> None:
        now = asyncio.get_running_loop().time()
        for ledger_id in self._view.marks:
            self._queue.add(ledger_id, now)
        self._stops = [self._view.on_mark(self._on_mark), self._view.on_bookies(self._on_bookies)]
        for number in range(self._config.copied_ledgers_max):
            self._tasks.spawn(self._run(), f"worker {number}")

    async def close(self) -> None:
        """Stops immediately; idempotent."""
        for stop in self._stops:
            stop()
        await self._tasks.close()

    def _on_mark(self, ledger_id: int, mark: Mark | None) -> None:
        if mark is None:
            self._queue.remove(ledger_id)
            self._tails.forget(ledger_id)
        else:
            self._queue.add(ledger_id, asyncio.get_running_loop().time())
            self._news.set()

    def _on_bookies(self) -> None:
        self._queue.wake_all(asyncio.get_running_loop().time())
        self._news.set()

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            ledger_id = self._queue.take(loop.time())
            if ledger_id is None:
                await self._wait_for_news()
                continue
            COPYING.inc()
            try:
                await self._attempt(ledger_id)
            except asyncio.CancelledError:
                raise
            except MagnetarError as error:
                LEDGERS.labels(outcome="failed").inc()
                log.warning("an under-replicated ledger has to wait", ledger=ledger_id, reason=str(error))
                self._queue.rest(ledger_id, loop.time())
            except Exception:
                LEDGERS.labels(outcome="failed").inc()
                log.exception("an under-replicated ledger could not be mended", ledger=ledger_id)
                self._queue.rest(ledger_id, loop.time())
            finally:
                COPYING.dec()

    async def _wait_for_news(self) -> None:
        self._news.clear()
        due = self._queue.next_due()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(due):
                await self._news.wait()

    async def _attempt(self, ledger_id: int) -> None:
        """Repairs one ledger as far as possible now, and updates the queue."""
        loop = asyncio.get_running_loop()
        lock = await self._locks.acquire(ledger_id)
        if lock is None:
            LEDGERS.labels(outcome="locked").inc()
            self._queue.rest(ledger_id, loop.time())
            return
        try:
            rest_s = await self._mend(ledger_id)
        finally:
            await self._locks.release(ledger_id, lock)
        if rest_s is None:
            LEDGERS.labels(outcome="done").inc()
            self._queue.done(ledger_id, loop.time())
        else:
            LEDGERS.labels(outcome="waiting").inc()
            self._queue.rest(ledger_id, loop.time(), rest_s if rest_s > 0 else None)

    async def _mend(self, ledger_id: int) -> float | None:
        """Repairs a ledger as far as possible; returns None if it is done, otherwise the seconds until the
        next attempt (0: the usual retry delay).
        """
        mark_at = await self._metadata.get(self._keys.under_replicated(ledger_id))
        if mark_at is None:
            return None
        mark = decode(UnderReplicated, mark_at.value)
        attempt = _Attempt(LedgerRef(mark.ref.id, mark.ref.key))
        while True:
            found = await self._metadata.get(self._keys.ledger(ledger_id))
            ledger = None if found is None else decode(LedgerMetadata, found.value)
            if found is None or ledger is None or ledger.ref.key != attempt.ref.key:
                log.info("an under-replicated ledger was deleted", ledger=ledger_id)
                return None if await self._unmark(ledger_id, mark_at.version) else 0.0
            up = self._view.registry.bookies
            lost = lost_of(mark.missing_bookie_ids, self._view.decommissions, up)
            plan = plan_repair(ledger, lost, up)
            if plan.is_empty:
                return None if await self._unmark(ledger_id, mark_at.version) else 0.0
            if ledger.state == LedgerMetadata.IN_RECOVERY:
                # The recovery ends with a compare-and-set, which a write from here would make fail.
                if not await self._tails.is_abandoned(ledger, found.version):
                    return self._tails.grace_s
                await self._recover_abandoned(attempt.ref)
                continue
            if await self._mend_once(attempt, ledger, found.version, plan):
                continue
            if plan.tail_lacks and await self._tails.is_abandoned(ledger, found.version):
                await self._recover_abandoned(attempt.ref)
                continue
            if attempt.stuck:
                raise CopyFailed("; ".join(dict.fromkeys(attempt.stuck.values())))
            return self._tails.grace_s if plan.tail_lacks else 0.0

    async def _mend_once(self, attempt: _Attempt, ledger: LedgerMetadata, version: int, plan: Plan) -> bool:
        """Executes one step of a plan; returns False if every remaining step has failed in this attempt."""
        for move in plan.moves:
            step = (move.fragment.first, move.fragment.last, move.lost)
            if step not in attempt.stuck and await self._move(attempt, ledger, version, move, step):
                return True
        for fill in plan.fills:
            step = (fill.first, fill.last, fill.bookie_id)
            if step not in attempt.stuck and await self._fill(attempt, ledger, version, fill, step):
                return True
        if plan.void_gaps:
            await self._write(attempt, without_void_gaps(ledger), version)
            return True
        return False

    async def _move(
        self,
        attempt: _Attempt,
        ledger: LedgerMetadata,
        version: int,
        move: Move,
        step: tuple[int, int, str],
    ) -> bool:
        ensemble = move.fragment.bookie_ids
        target, guard = attempt.copied.get(step, (None, None))
        if target is None or guard is None or target in ensemble:
            unfit = {*attempt.unfit, move.lost}
            position = ensemble.index(move.lost)
            target = self._replacement(ensemble, position, striping_of(ledger), excluded=unfit)
            if target is None:
                attempt.stuck[step] = f"no other bookie can take the place of {move.lost}"
                return False
            try:
                guard = await self._copy(attempt.ref, ledger, move.fragment, step, target)
            except TargetFailed as error:
                log.info("another bookie has to take the copies", ledger=attempt.ref.id, reason=str(error))
                attempt.unfit.add(target)
                return True
            except CopyFailed as error:
                attempt.stuck[step] = str(error)
                return False
            attempt.copied[step] = target, guard
        after = with_move(ledger, move, target)
        assert after is not None, "the plan was made of this metadata"
        if await self._write(attempt, after, version, guard):
            log.info(
                "a lost bookie's entries have a new place",
                ledger=attempt.ref.id,
                first=move.fragment.first,
                last=move.fragment.last,
                lost=move.lost,
                bookie=target,
            )
        return True

    async def _fill(
        self,
        attempt: _Attempt,
        ledger: LedgerMetadata,
        version: int,
        fill: Fill,
        step: tuple[int, int, str],
    ) -> bool:
        _, guard = attempt.copied.get(step, (None, None))
        if guard is None:
            try:
                guard = await self._copy(attempt.ref, ledger, fill.fragment, step, fill.bookie_id)
            except CopyFailed as error:
                attempt.stuck[step] = str(error)
                return False
            attempt.copied[step] = fill.bookie_id, guard
        after = with_fill(ledger, fill)
        assert after is not None, "the plan was made of this metadata"
        if await self._write(attempt, after, version, guard):
            log.info(
                "a gap is filled",
                ledger=attempt.ref.id,
                first=fill.first,
                last=fill.last,
                bookie=fill.bookie_id,
            )
        return True

    async def _copy(
        self,
        ref: LedgerRef,
        ledger: LedgerMetadata,
        fragment: FragmentRange,
        step: tuple[int, int, str],
        target: str,
    ) -> Check:
        """Copies a bookie's share of a range to `target`; returns the guard under which the copies are valid.
        Raises CopyFailed.
        """
        first, last, bookie = step
        cookie = await self._metadata.get(self._keys.cookie(target))
        if cookie is None:
            raise TargetFailed(f"bookie {target} has no identity: it was decommissioned")
        ensemble = fragment.bookie_ids
        position = ensemble.index(bookie)
        striping = striping_of(ledger)
        if not striping.striped:
            # An earlier attempt may have copied much of it; and a recovery records a bookie that did not
            # answer in time as lacking the whole fragment.
            first = await self._copier.there_until(ref, first, last, target)
        await self._copier.copy_share(ref, striping, ensemble, position, first, last, target)
        return Check(cookie.key, cookie.version)

    async def _write(
        self, attempt: _Attempt, after: LedgerMetadata, version: int, guard: Check | None = None
    ) -> bool:
        """Writes a ledger's metadata by compare-and-set; returns False if it changed meanwhile and must be
        read again.
        """
        ops: list[Op] = [Put(self._keys.ledger(attempt.ref.id), encode(after), version)]
        if guard is not None:
            ops.append(guard)
        try:
            await self._metadata.commit(ops)
        except (VersionMismatch, UnknownOutcome) as error:
            attempt.lost_sets += 1
            if guard is not None and isinstance(error, VersionMismatch) and error.key == guard.key:
                attempt.copied = {step: each for step, each in attempt.copied.items() if each[1] != guard}
            if attempt.lost_sets > ATTEMPTS_MAX:
                raise MetadataError(f"metadata of ledger {attempt.ref.id} changes too often") from error
            return False
        return True

    async def _unmark(self, ledger_id: int, version: int) -> bool:
        self._tails.forget(ledger_id)
        return await remove_mark(self._metadata, self._keys, ledger_id, version)

    async def _recover_abandoned(self, ref: LedgerRef) -> None:
        # Restored metadata may lack its latest ensemble.
        await require_reconciled(self._metadata, self._keys)
        log.warning("recovering an idle open ledger", ledger=ref.id)
        await self._recover(ref)
        self._tails.forget(ref.id)
