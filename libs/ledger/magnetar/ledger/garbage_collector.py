"""Garbage collection: frees bytes only of ledgers certainly missing in metadata, after a grace period, within
a limit.

A pass lists the ledgers at one revision, which must not be older than any seen by this store. A ledger in the
log that the listing lacks is deleted; after the grace period its bytes are dead. Nothing is freed, and an
alarm is raised (log, `magnetar_log_gc_paused`), if the listing fails, is not of one revision or is stale, or
if more than a fifth of all ledgers is missing without a known deletion, as after lost or restored metadata.
Up to `SMALL_NUMBER` may always be missing, unless no ledger is left at all. Restored metadata is not trusted
until an operator has released it (`magnetar.common.metadata.restoration`).

A bookie (`Replica`) trusts only the metadata instance with which it started. It also frees closed ledgers
that exist but are stored only on other bookies, after a separate grace period; it checks each ledger in
metadata again before its bytes are dead; and a ledger may return to it: `revive`.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass
from typing import Final

from magnetar.common.errors import DataCorruption, MetadataError, StorageError
from magnetar.common.metadata.instance import read_instance_id
from magnetar.common.metadata.keys import Keys
from magnetar.common.metadata.restoration import holds_deletion, is_given_up, read_restoration
from magnetar.common.metadata.store import Listing, MetadataStore
from magnetar.common.metadata.values import LedgerMetadata, Restoration, decode
from magnetar.common.obs.logs import get_logger
from magnetar.common.obs.metrics import REGISTRY
from magnetar.common.runtime.blocking import BlockingPool
from magnetar.common.runtime.clock import Clock
from magnetar.common.runtime.disk import Disk
from magnetar.common.runtime.task_owner import TaskOwner
from magnetar.ledger.deleted_ledgers import Remembered, load_condemned, save_condemned
from magnetar.ledger.ledger_store import LedgerRef
from magnetar.ledger.segment_log.log import SegmentLog
from magnetar.ledger.segment_log.segment import Segment
from magnetar.ledger.segment_log.space import line_bytes
from prometheus_client import Counter, Gauge

log = get_logger(__name__)

SMALL_NUMBER: Final = 8
"""Number of missing ledgers that never pauses deletion: with few ledgers, one is soon a fifth. They are those
deleted just before a process died.
"""

WENT_BACK: Final = 2**64 - 1
"""Marks the revision of metadata that went back: later equal revisions are not trusted."""

FULL_WAIT_S: Final = 5.0
"""Minimum seconds between passes while the disk is full."""

CONFIRMED_AT_ONCE: Final = 1000
"""Maximum ledgers that a bookie checks one by one in a pass; the others wait for the next."""

PAUSED = Gauge(
    "magnetar_log_gc_paused",
    "1 while nothing is deleted because the list of ledgers is not to be trusted; the log says why.",
    registry=REGISTRY,
)
ALARMS = Counter(
    "magnetar_log_gc_alarms",
    "Garbage collections that were refused, by reason.",
    ["reason"],
    registry=REGISTRY,
)
ORPHAN_BYTES = Gauge(
    "magnetar_orphan_bytes",
    "Bytes of messages that nothing names any more, at the last look. where=log: in this process's log, of "
    "ledgers that metadata lacks, until their space is given back. where=metadata: of ledgers that metadata "
    "has and no topic names.",
    ["where"],
    registry=REGISTRY,
)


@dataclass(frozen=True, slots=True)
class Replica:
    """Parameters of a store that keeps one of several replicas."""

    instance_id: bytes
    """Instance of the metadata with which the store started; no other metadata may cause deletions."""
    moved_away: Callable[[LedgerMetadata], bool]
    """Returns whether an existing ledger is permanently stored on other bookies only."""
    moved_grace_s: float
    disown_copies: Callable[[], Awaitable[None]]
    """Called before moved ledgers become dead: on return, metadata accepts no change that names this store
    for copies made earlier, for example by a process that was suspended. Raises MetadataError.
    """
    on_dead: Callable[[Collection[LedgerRef]], None]
    """Called when ledgers become dead: from then on the store holds nothing of them."""


class GarbageCollector:
    """Created and closed by the local store. All calls on the loop.

    `in_use()` returns the ledgers with a writer here; they are never dead.
    """

    def __init__(
        self,
        segment_log: SegmentLog,
        metadata: MetadataStore,
        keys: Keys,
        disk: Disk,
        pool: BlockingPool,
        clock: Clock,
        in_use: Callable[[], Collection[LedgerRef]],
        replica: Replica | None = None,
    ) -> None:
        self._log = segment_log
        self._config = segment_log.config
        self._metadata = metadata
        self._keys = keys
        self._disk = disk
        self._pool = pool
        self._clock = clock
        self._in_use = in_use
        self._replica = replica
        self._revision = 0
        self._vouched_for = b""
        """The last restoration that an operator confirmed."""
        self._condemned: set[LedgerRef] | None = None
        self._saved = Remembered()
        self._ordered: set[LedgerRef] = set()
        self._gone_since: dict[LedgerRef, float] = {}
        self._moved_since: dict[LedgerRef, float] = {}
        self._dead: set[LedgerRef] = set()
        self._news = True
        self._judged: set[int] = set()
        self._stop = asyncio.Event()
        self._wake = asyncio.Event()
        self._passing = asyncio.Lock()
        self._tasks = TaskOwner("garbage collector")

    def start(self) -> None:
        """Starts periodic passes, the first one after a delay."""
        self._tasks.spawn(self._run(), "passes")

    def saw_revision(self, revision: int) -> None:
        """Records a metadata revision: older ones are stale."""
        self._revision = max(self._revision, revision)

    def deleted(self, ref: LedgerRef) -> None:
        """Records a known deletion of a ledger, by this store or by a hint to a bookie."""
        self._ordered.add(ref)
        self._news = True

    def hint(self) -> None:
        """Triggers a pass soon, because ledgers may have been deleted. The hint itself is not trusted."""
        self._news = True
        self._wake.set()

    def touched(self, ref: LedgerRef) -> None:
        """Restarts the ledger's grace periods after an append."""
        if self._moved_since or self._gone_since:
            self._moved_since.pop(ref, None)
            self._gone_since.pop(ref, None)

    def revive(self, ref: LedgerRef) -> None:
        """Revives a dead ledger of which the store accepts new data."""
        self.touched(ref)
        self._dead.discard(ref)
        self._news = True

    def is_gone(self, ref: LedgerRef) -> bool:
        """Returns whether metadata certainly lacks the ledger for longer than the grace period."""
        return ref in self._dead and ref in self._gone_since

    async def close(self) -> None:
        """Waits for the pass in progress and makes no more; idempotent."""
        self._stop.set()
        self._wake.set()
        self._log.space.stop()
        async with self._passing:
            pass
        await self._tasks.close()

    async def collect(self) -> None:
        """Makes one pass: finds deleted ledgers and frees the space of those past the grace period."""
        async with self._passing:
            segments = self._log.finished_segments()
            if self._stop.is_set() or not segments:
                return
            # A listing is expensive with many ledgers, so an idle server makes none.
            pending = (self._gone_since.keys() | self._moved_since.keys()) - self._dead
            news = self._news or pending or {segment.sequence for segment in segments} - self._judged
            if news and not await self._judge(segments):
                return
            await self._log.space.reclaim(self._dead)
            await self._count_gone()

    async def _run(self) -> None:
        while not self._stop.is_set():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._wake.wait(), self._wait_s())
                self._wake.clear()  # however many hints, passes keep a distance
                await asyncio.wait_for(self._stop.wait(), FULL_WAIT_S)
            if not self._stop.is_set():
                await self.collect()

    def _wait_s(self) -> float:
        wait_s = self._config.gc_wait_ms / 1000
        if self._gone_since.keys() - self._dead:
            wait_s = min(wait_s, max(self._config.gc_grace_s, 1.0))
        return min(wait_s, FULL_WAIT_S) if self._log.is_full() else wait_s

    async def _judge(self, segments: list[Segment]) -> bool:
        """Decides which ledgers are dead; returns False if the listing is not trusted."""
        if self._condemned is None:
            self._condemned = await self._load()
        self._news = False
        ordered = set(self._ordered)
        try:
            # Before the listing: a restoration that begins in between shows in the listing's revision.
            restoration = await read_restoration(self._metadata, self._keys)
            if holds_deletion(restoration):
                return self._refuse(
                    "restored",
                    "metadata was restored from a copy; nothing is deleted until an operator has checked "
                    "what it lacks (`magnetar admin metadata status`, then `release`)",
                )
            if self._replica is not None and not await self._is_ours(self._replica):
                return self._refuse(
                    "replaced",
                    "metadata came back empty, or is another cluster's; nothing is deleted until a copy of "
                    "what it was is put back (docs/backup.md)",
                )
            seen = self._revision  # what is committed while ledgers are listed is no part of it
            listing = await self._metadata.children(self._keys.ledgers_prefix)
        except (MetadataError, StorageError) as error:
            return self._refuse("unreachable", "the ledgers could not be listed", error=str(error))
        if not _is_of_one_revision(listing):
            return self._refuse(
                "mixed", "the ledgers were not listed at one revision", revision=listing.revision
            )
        if listing.revision < seen and not self._is_vouched_for(restoration):
            self._revision = WENT_BACK
            await self._save()
            return self._refuse(
                "stale",
                "metadata is older than what was seen before: it was put back from a copy or a snapshot; "
                "nothing is deleted until an operator marks it (`magnetar admin metadata mark-restored`) and "
                "has reconciled it (docs/backup.md)",
                revision=listing.revision,
                seen=None if seen == WENT_BACK else seen,
            )
        self.saw_revision(listing.revision)
        if restoration is not None:
            self._vouched_for = restoration.id
        in_use = set(self._in_use())
        try:
            (live, moved), stored = await self._pool.run(
                lambda: (
                    self._sort_out(listing),
                    {ref for segment in segments for ref in segment.lines},
                )
            )
        except StorageError as error:
            return self._refuse("undecodable", "metadata of a ledger can't be read", error=str(error))
        gone = stored - live - in_use
        unasked = gone - self._condemned - ordered
        unasked = {ref for ref in unasked if not is_given_up(restoration, ref.id)}
        if self._too_many(len(unasked), len(live)):
            return self._refuse(
                "too many",
                "too many ledgers are missing from metadata; nothing is deleted until they are back, or "
                "until magnetarLogGcShareMax=1 says that they are meant to be gone",
                missing=len(unasked),
                present=len(live),
            )
        PAUSED.set(0)
        now = self._clock.monotonic()
        self._gone_since = {ref: self._gone_since.get(ref, now) for ref in gone}
        dead = _over(self._gone_since, now, self._config.gc_grace_s)
        if self._replica is not None:
            moved = (moved & stored) - in_use
            self._moved_since = {ref: self._moved_since.get(ref, now) for ref in moved}
            moved = _over(self._moved_since, now, self._replica.moved_grace_s)
            dead |= moved
            try:
                if moved - self._dead:
                    await self._replica.disown_copies()
                dead = await self._confirmed(self._replica, dead)
            except (MetadataError, StorageError) as error:
                return self._refuse("unreachable", "a ledger could not be looked up", error=str(error))
            self._replica.on_dead(dead - self._dead)
        # Keep the same set object, so that `revive` affects a pass in progress.
        self._dead &= dead
        self._dead |= dead
        self._condemned = gone & (self._condemned | self._dead | ordered)
        self._judged = {segment.sequence for segment in segments}
        # Deleted ledgers in no finished segment are remembered while an open one may hold them.
        open_ones = [segment for segment in self._log.segments if segment.sequence not in self._judged]
        for ref in ordered:
            if ref in self._condemned or not any(
                ref in segment.indexes or ref in segment.summaries for segment in open_ones
            ):
                self._ordered.discard(ref)
        return await self._save()

    async def _is_ours(self, replica: Replica) -> bool:
        return await read_instance_id(self._metadata, self._keys) == replica.instance_id

    def _is_vouched_for(self, restoration: Restoration | None) -> bool:
        """Returns whether an operator confirmed that metadata went back on purpose: its revisions begin anew.
        Accepted once per restoration, so that a later decrease is detected again.
        """
        if restoration is None or restoration.id == self._vouched_for:
            return False
        log.warning("metadata was restored and released: its revisions are followed anew", was=self._revision)
        self._vouched_for = restoration.id
        self._revision = 0
        return True

    def _sort_out(self, listing: Listing) -> tuple[set[LedgerRef], set[LedgerRef]]:
        """Returns (the existing ledgers, those of them stored by others only). Blocks."""
        if self._replica is None:
            return ledgers_in(listing, self._keys), set()
        live, moved = set(), set()
        for item in listing.items:
            value = decode(LedgerMetadata, item.value)
            ref = LedgerRef(self._keys.ledger_id_of(item.key), value.ref.key)
            live.add(ref)
            if self._replica.moved_away(value):
                moved.add(ref)
        return live, moved

    async def _confirmed(self, replica: Replica, dead: set[LedgerRef]) -> set[LedgerRef]:
        """Returns the dead ledgers confirmed by another read of metadata for each new one. Raises
        MetadataError, DataCorruption, UnsupportedFormat.
        """
        confirmed = dead & self._dead
        for ref in sorted(dead - confirmed, key=lambda ref: (ref.id, ref.key))[:CONFIRMED_AT_ONCE]:
            found = await self._metadata.get(self._keys.ledger(ref.id))
            value = None if found is None else decode(LedgerMetadata, found.value)
            if value is None or value.ref.key != ref.key or replica.moved_away(value):
                confirmed.add(ref)
            else:
                log.warning("a ledger that seemed gone is there", ledger=ref.id)
                self.touched(ref)
        self._news |= len(confirmed) < len(dead)
        # Ledgers appended to meanwhile are not dead.
        return {ref for ref in confirmed if ref in self._gone_since or ref in self._moved_since}

    async def _count_gone(self) -> None:
        gone, segments = set(self._gone_since), self._log.finished_segments()
        left = await self._pool.run(lambda: _bytes_of(gone, segments)) if gone else 0
        ORPHAN_BYTES.labels(where="log").set(left)

    def _too_many(self, missing: int, present: int) -> bool:
        if missing <= self._config.gc_share_max * (missing + present):
            return False
        return missing > SMALL_NUMBER or not present

    def _refuse(self, reason: str, message: str, **context: object) -> bool:
        self._news = True
        PAUSED.set(1)
        ALARMS.labels(reason=reason).inc()
        log.error("garbage collection paused", reason=reason, why=message, **context)
        return False

    async def _load(self) -> set[LedgerRef]:
        try:
            saved = await self._pool.run(lambda: load_condemned(self._disk))
        except (DataCorruption, OSError) as error:
            log.warning("starting without the list of condemned ledgers", error=str(error))
            return set()
        self.saw_revision(saved.revision)
        self._saved, self._vouched_for = saved, saved.restoration_id
        return set(saved.refs)

    async def _save(self) -> bool:
        """Saves the decision before acting on it, with the metadata revision and restoration: the next start
        must detect older metadata even if nothing was deleted for long.
        """
        now = Remembered(self._revision, frozenset(self._condemned or ()), self._vouched_for)
        if now != self._saved:
            try:
                await self._pool.run(lambda: save_condemned(self._disk, now))
            except OSError as error:
                self._news = True
                log.warning("garbage collection waits: its list could not be saved", error=str(error))
                return self._log.is_full()  # space is worth more than the guard of the next start
            self._saved = now
        return True


def _over(since: dict[LedgerRef, float], now: float, grace_s: float) -> set[LedgerRef]:
    return {ref for ref, start in since.items() if now - start >= grace_s}


def _bytes_of(refs: Collection[LedgerRef], segments: list[Segment]) -> int:
    """Returns the approximate bytes of these ledgers in these segments. Blocks."""
    return sum(line_bytes(line) for segment in segments for ref, line in segment.lines.items() if ref in refs)


def _is_of_one_revision(listing: Listing) -> bool:
    return all(item.version <= listing.revision for item in listing.items)


def ledgers_in(listing: Listing, keys: Keys) -> set[LedgerRef]:
    """Returns the ledgers in a listing. Blocks while decoding."""
    refs = set()
    for item in listing.items:
        value = decode(LedgerMetadata, item.value)
        refs.add(LedgerRef(keys.ledger_id_of(item.key), value.ref.key))
    return refs
