"""A workload on ledgers that come and go: garbage collection, compaction, sorting and recycling under way.

Metadata answers badly now and then: too late, from two revisions, not at all, or as if it had been lost.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace

from magnetar.common.errors import MetadataError
from magnetar.common.metadata.store import Listing
from magnetar.common.metadata.values import Restoration, encode
from magnetar.ledger.ledger_store import LedgerRef, LedgerWriter
from magnetar.ledger.local_store import LocalLedgerStore
from magnetar.ledger.segment_log.config import SegmentLogConfig

from tests.simulation.ledger_workload import LedgerWorkload, random_run
from tests.simulation.power_loss import KEYS, SMALL_SEGMENTS, Process

GRACE_S = 1.0

GARBAGE = replace(
    SMALL_SEGMENTS,
    gc_wait_ms=100_000_000,  # the workload asks for each pass itself
    gc_grace_s=GRACE_S,
    sort_after_s=4.0,
    compaction_bytes_per_s=4 << 20,
    recycled_segments_max=1,
)

Children = Callable[[str], Awaitable[Listing]]


@dataclass(slots=True)
class BadListings:
    """Stands before a metadata store's listings and spoils some."""

    children: Children
    rng: random.Random
    old: Listing | None = None
    served: dict[str, int] = field(default_factory=dict)

    async def __call__(self, prefix: str) -> Listing:
        listing = await self.children(prefix)
        old = self.old
        if old is None or self.rng.random() < 0.2:
            self.old = old = listing
        how = self.rng.choice(("good", "good", "stale", "stale", "mixed", "fails", "lost"))
        self.served[how] = self.served.get(how, 0) + 1
        if how == "fails":
            raise MetadataError("the metadata store cannot be reached")
        if how == "stale":
            return old
        if how == "mixed":
            known = {item.key for item in old.items}
            newest = [item for item in listing.items if item.key not in known][-1:]
            return Listing(old.revision, [*old.items, *newest]) if newest else listing
        if how == "lost":
            return Listing(listing.revision, [])
        return listing


@dataclass(slots=True)
class GarbageWorkload(LedgerWorkload):
    """Promises those of `LedgerWorkload`, and that bytes go late, but go."""

    steps: int = 36
    config: SegmentLogConfig = GARBAGE
    lacs: dict[int, int] = field(default_factory=dict)
    """Highest last add confirmed that a start found of each ledger; it is never forgotten."""

    def fork(self) -> GarbageWorkload:
        twin = super(GarbageWorkload, self).fork()
        assert isinstance(twin, GarbageWorkload)
        twin.lacs = dict(self.lacs)
        return twin

    async def open_store(self, process: Process) -> LocalLedgerStore:
        process.config = self.config
        return await super(GarbageWorkload, self).open_store(process)

    async def run(self, process: Process) -> None:
        rng = random.Random(self.seed)
        process.world.disk.faults.sync_errors = set(self.sync_error_at)
        good = process.metadata.children
        bad = BadListings(good, rng)
        store = await self.open_store(process)
        writers = [await self.create(store) for _ in range(9)]
        for step in range(self.steps):
            for _ in range(rng.randrange(1, 7)):
                self.append(rng.choice(writers), random_run(rng))
            await asyncio.sleep(rng.choice((0, 0.001, 0.003, 0.01)))
            if step % 3 == 1:
                place = rng.randrange(len(writers))
                writers[place] = await self.replace_writer(store, writers[place], rng)
            if step % 3 == 2:
                await self.delete_one(store, rng)
            if step % 9 == 5:
                process.metadata.children = bad  # type: ignore[method-assign]
                await self.collect_beside(store, writers, rng)
                process.metadata.children = good  # type: ignore[method-assign]
                await self.vouch(process, rng)
                await self.collect(store)
            if step == self.steps // 2:
                store, fresh = await self.restart(process, store, clean=rng.random() < 0.5)
                writers = [*fresh, *[await self.create(store) for _ in range(6)]]
        await asyncio.sleep(5.0)
        await self.collect(store)
        self.check_space(store)
        await store.close()

    async def delete_one(self, store: LocalLedgerStore, rng: random.Random) -> None:
        """Delete a closed ledger, old or new."""
        closed = [each for each in self.ledgers.values() if each.closed is not None and not each.deleting]
        if closed:
            promises = rng.choice(closed)
            promises.deleting = True
            await store.delete(promises.ref)
            promises.deleted = True

    async def vouch(self, process: Process, rng: random.Random) -> None:
        """Say, as an operator does, that metadata which went back is what it has to be: nothing is deleted
        before."""
        said = Restoration(id=rng.randbytes(16), state=Restoration.RELEASED)
        await process.metadata.put(KEYS.restoration, encode(said))

    async def collect_beside(
        self, store: LocalLedgerStore, writers: list[LedgerWriter], rng: random.Random
    ) -> None:
        """Collect garbage, twice with the grace period between, while entries are appended and read."""
        for _ in range(3):
            collecting = asyncio.ensure_future(store.garbage.collect())
            while not collecting.done():
                self.append(rng.choice(writers), random_run(rng))
                await self.read_some(store, rng)
                await asyncio.sleep(0.002)
            await collecting
            await asyncio.sleep(GRACE_S * 0.7)

    async def read_some(self, store: LocalLedgerStore, rng: random.Random) -> None:
        closed = [each for each in self.ledgers.values() if each.closed is not None and not each.deleting]
        if closed:
            promises = rng.choice(closed)
            assert promises.closed is not None
            await self.read_all(await store.open(promises.ref), promises, promises.closed)

    async def collect(self, store: LocalLedgerStore) -> None:
        """Passes with the grace period between them: the second one deletes."""
        await store.garbage.collect()
        await asyncio.sleep(GRACE_S)
        await store.garbage.collect()

    def check_space(self, store: LocalLedgerStore) -> None:
        """Nothing is kept that could have gone."""
        gone = {promises.ref for promises in self.ledgers.values() if promises.deleted}
        for segment in store.log.finished_segments():
            refs = set(segment.lines)
            assert not refs or refs - gone, f"{segment.path} holds nothing but deleted ledgers"

    async def check(self, process: Process) -> None:
        process.config = self.config
        store = await process.open_store()
        for promises in self.ledgers.values():
            if promises.deleting:
                await self.check_deleted(store, promises)
                continue
            known = store.log.ledger(promises.ref)
            last = self.lacs.get(promises.ref.id, -1)
            assert last <= known.lac <= promises.confirmed, (
                f"{promises.ref}: LAC was {last}, is {known.lac}, confirmed {promises.confirmed}"
            )
            self.lacs[promises.ref.id] = known.lac
            if promises.fence_answered:
                assert known.fenced, f"{promises.ref}: the fence was answered and is gone"
        await self.vouch(process, random.Random(self.seed))  # the power may have gone between
        await self.collect(store)
        for promises in self.ledgers.values():
            if not promises.deleting:
                await self.recover(store, promises)
        self.check_space(store)


def stored(store: LocalLedgerStore, ref: LedgerRef) -> bool:
    """Whether any segment holds a ledger."""
    return any(ref in segment.lines for segment in store.log.segments)
