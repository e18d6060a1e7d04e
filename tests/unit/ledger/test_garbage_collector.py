"""What garbage collection promises, one thing at a time; tests/simulation cuts the power in between.

The promises are functions, since the mutation tests run them as well.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace

import pytest
from magnetar.common.errors import MetadataError
from magnetar.common.metadata.store import Delete, Listing
from magnetar.common.obs.metrics import REGISTRY
from magnetar.ledger.garbage_collector import ALARMS, PAUSED, SMALL_NUMBER
from magnetar.ledger.ledger_store import LedgerRef, Run
from magnetar.ledger.local_store import LocalLedgerStore
from magnetar.ledger.segment_log.config import SegmentLogConfig
from magnetar.ledger.segment_log.segment import Segment
from magnetar.sim.loop import SimCrash, SimLoop, run
from structlog.testing import capture_logs

from tests.simulation.garbage_workload import GARBAGE, GRACE_S, stored
from tests.simulation.power_loss import KEYS, Process, World
from tests.unit.ledger.ledger_store_contract import Heard

ENTRY = 500
EAGER = replace(GARBAGE, compaction_live_ratio=1.0)
"""Rewrites a segment as soon as one ledger in it is dead, so that a wrong verdict shows."""

Act = Callable[["Bench"], Awaitable[None]]


@dataclass(slots=True)
class Bench:
    """A store in a simulated world, with ledgers to delete."""

    process: Process
    store: LocalLedgerStore

    @property
    def world(self) -> World:
        return self.process.world

    async def ledgers(self, count: int, entries: int = 4) -> list[LedgerRef]:
        """Closed ledgers whose entries lie interleaved in one segment; what is in it tells them apart."""
        writers = [await self.store.create(Heard().listener(), properties={}) for _ in range(count)]
        for number in range(entries):
            for writer in writers:
                writer.append(Run([payload(writer.ref, number)]))
            await asyncio.sleep(0.02)
        for writer in writers:
            await writer.close()
        return [writer.ref for writer in writers]

    async def restart(self, *, outage: str = "close") -> None:
        """Stop and start: what was the open segment is sealed then."""
        if outage == "close":
            await self.store.close()
        elif outage == "kill":
            self.world.kill()
        self.store = await self.process.open_store()

    async def entries(self, ref: LedgerRef) -> list[bytes]:
        reader = await self.store.open(ref)
        found: list[bytes] = []
        while len(found) <= reader.last_confirmed:
            for part in await reader.read(len(found), reader.last_confirmed, 1 << 20):
                found += part.entries
        return found

    async def intact(self, refs: list[LedgerRef], entries: int = 4) -> None:
        for ref in refs:
            assert await self.entries(ref) == [payload(ref, number) for number in range(entries)]

    async def collect(self) -> None:
        """Two passes with the grace period between."""
        await self.store.garbage.collect()
        await asyncio.sleep(GRACE_S)
        await self.store.garbage.collect()

    def segment_files(self) -> list[str]:
        return [path for path in self.world.disk.paths() if path.endswith(".seg")]

    def listings(self, spoil: Callable[[Listing], Listing]) -> None:
        """From now on metadata answers otherwise."""
        children = self.process.metadata.children

        async def spoiled(prefix: str) -> Listing:
            return spoil(await children(prefix))

        self.process.metadata.children = spoiled  # type: ignore[method-assign]


def payload(ref: LedgerRef, number: int) -> bytes:
    return f"{ref.id}/{number}/".encode().ljust(ENTRY, b".")


def simulate(act: Act, config: SegmentLogConfig = GARBAGE) -> None:
    loop = SimLoop(1, time_max_s=1_000)

    async def main() -> None:
        process = Process(loop, World.new(), config)
        await act(Bench(process, await process.open_store()))

    run(loop, main())


def alarms(reason: str) -> float:
    value = ALARMS.labels(reason=reason)._value.get()
    assert isinstance(value, float)
    return value


# --- promises that mutations break ---


async def a_stale_listing_deletes_nothing(bench: Bench) -> None:
    kept = await bench.ledgers(3)
    await bench.ledgers(12)  # so few are missing that no other guard is met
    await bench.restart()
    everything = await bench.process.metadata.children(KEYS.ledgers_prefix)
    missing = {KEYS.ledger(ref.id) for ref in kept}
    rest = [item for item in everything.items if item.key not in missing]
    await bench.store.create(Heard().listener(), properties={})  # by which the store knows how late it is
    bench.listings(lambda listing: Listing(everything.revision, rest))
    await bench.collect()
    await bench.intact(kept)


def stale_listing(seed: int) -> None:
    simulate(a_stale_listing_deletes_nothing, EAGER)


async def a_listing_of_two_revisions_deletes_nothing(bench: Bench) -> None:
    kept = await bench.ledgers(3)
    await bench.ledgers(12)
    await bench.restart()
    missing = {KEYS.ledger(ref.id) for ref in kept}

    def mixed(listing: Listing) -> Listing:
        newest = max(item.version for item in listing.items)
        return Listing(newest - 1, [item for item in listing.items if item.key not in missing])

    bench.store.garbage._revision = 0  # a listing that is new enough, but not of one moment
    bench.listings(mixed)
    await bench.collect()
    await bench.intact(kept)


def mixed_listing(seed: int) -> None:
    simulate(a_listing_of_two_revisions_deletes_nothing, EAGER)


async def lost_metadata_deletes_nothing(bench: Bench) -> None:
    refs = await bench.ledgers(2 * SMALL_NUMBER)
    await bench.restart()
    before = alarms("too many")
    bench.listings(lambda listing: Listing(listing.revision, listing.items[: SMALL_NUMBER - 1]))
    with capture_logs() as lines:
        await bench.collect()
    # Operators search for it by these words.
    assert {line["reason"] for line in lines if line["event"] == "garbage collection paused"} == {"too many"}
    assert alarms("too many") == before + 2
    assert PAUSED._value.get() == 1
    del bench.process.metadata.children
    await bench.collect()
    assert PAUSED._value.get() == 0
    await bench.intact(refs)


def lost_metadata(seed: int) -> None:
    simulate(lost_metadata_deletes_nothing, EAGER)


async def bytes_stay_for_the_grace_period(bench: Bench) -> None:
    [ref] = await bench.ledgers(1)
    await bench.restart()
    await bench.store.delete(ref)
    await bench.store.garbage.collect()
    await asyncio.sleep(0.9 * GRACE_S)
    await bench.store.garbage.collect()
    assert stored(bench.store, ref)
    await asyncio.sleep(0.2 * GRACE_S)
    await bench.store.garbage.collect()
    assert not stored(bench.store, ref)


def grace(seed: int) -> None:
    simulate(bytes_stay_for_the_grace_period)


async def readers_finish_before_their_file_goes(bench: Bench) -> None:
    refs = await bench.ledgers(8)
    await bench.restart()
    for ref in refs[2:]:
        await bench.store.delete(ref)
    await bench.store.garbage.collect()
    await asyncio.sleep(GRACE_S)
    reads: list[tuple[LedgerRef, asyncio.Future[list[bytes]]]] = []
    collecting = asyncio.ensure_future(bench.store.garbage.collect())
    while not collecting.done():
        ref = refs[len(reads) % 2]
        reads.append((ref, asyncio.ensure_future(bench.entries(ref))))
        await asyncio.sleep(0.0001)
    for ref, found in reads:
        assert await found == [payload(ref, number) for number in range(4)]
    await collecting
    assert len(bench.store.log.finished_segments()) == 1, "nothing was compacted"


def readers(seed: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("magnetar.sim.disk.SimFile.pread_nowait", lambda self, length, offset: None)
        simulate(readers_finish_before_their_file_goes)


async def what_an_interruption_duplicated_is_found_again(bench: Bench) -> None:
    refs = await bench.ledgers(8)
    await bench.restart()
    await asyncio.sleep(GARBAGE.sort_after_s)
    with pytest.MonkeyPatch.context() as patch:

        def die(self: Segment) -> None:
            bench.world.disk.crashed = True
            raise SimCrash("between the output's name and the end of its inputs")

        patch.setattr(Segment, "unlink", die)
        patch.setattr(Segment, "recycle", die)
        with pytest.raises(SimCrash):
            await bench.collect()
    bench.world.disk.crashed = False
    await bench.restart(outage="kill")
    assert bench.store.log.ledger(refs[0]).has_copies
    ledger = await bench.store.log.fence(refs[0])
    assert ledger.byte_length == 4 * ENTRY, "copies count once"
    await bench.store.garbage.collect()
    assert not any(bench.store.log.ledger(ref).has_copies for ref in refs)
    await bench.intact(refs)


def interruption(seed: int) -> None:
    simulate(what_an_interruption_duplicated_is_found_again)


# --- tests ---


@pytest.mark.parametrize(
    "promise", [stale_listing, mixed_listing, lost_metadata, grace, readers, interruption]
)
def test_promise(promise: Callable[[int], None]) -> None:
    promise(0)


def test_a_deletion_before_a_restart_is_not_taken_for_lost_metadata() -> None:
    async def act(bench: Bench) -> None:
        doomed = await bench.ledgers(3 * SMALL_NUMBER, entries=2)
        kept = await bench.ledgers(2, entries=2)
        await bench.restart()
        for ref in doomed:
            await bench.store.delete(ref)
        await bench.store.garbage.collect()  # condemned, and the grace period begins
        await bench.restart(outage="kill")
        await bench.collect()
        assert not any(stored(bench.store, ref) for ref in doomed)
        await bench.intact(kept, entries=2)

    simulate(act)


def test_metadata_restored_from_an_older_copy_deletes_nothing() -> None:
    async def act(bench: Bench) -> None:
        backup = bench.world.metadata.fork()
        kept = await bench.ledgers(3)
        [doomed] = await bench.ledgers(1)
        await bench.restart()
        await bench.store.delete(doomed)
        await bench.collect()
        await bench.store.close()
        bench.process = Process(bench.process.loop, World(bench.world.disk, backup), GARBAGE)
        bench.store = await bench.process.open_store()
        before = alarms("stale")
        await bench.collect()
        assert alarms("stale") == before + 2
        assert all(stored(bench.store, ref) for ref in kept)

    simulate(act)


def test_an_unreachable_metadata_store_deletes_nothing() -> None:
    async def act(bench: Bench) -> None:
        [ref] = await bench.ledgers(1)
        await bench.restart()
        await bench.store.delete(ref)

        def fails(listing: Listing) -> Listing:
            raise MetadataError("no answer")

        bench.listings(fails)
        await bench.collect()
        assert stored(bench.store, ref)
        del bench.process.metadata.children
        await bench.collect()
        assert not stored(bench.store, ref)

    simulate(act)


def test_few_externally_deleted_ledgers_are_collected() -> None:
    async def act(bench: Bench) -> None:
        refs = await bench.ledgers(SMALL_NUMBER + 1)
        await bench.restart()
        for ref in refs[1:]:
            await bench.process.metadata.commit([Delete(KEYS.ledger(ref.id))])
        await bench.collect()
        assert [stored(bench.store, ref) for ref in refs] == [True] + [False] * SMALL_NUMBER

    simulate(act)


def test_a_ledger_that_is_written_here_is_kept_although_a_listing_lacks_it() -> None:
    async def act(bench: Bench) -> None:
        await bench.ledgers(12)
        writer = await bench.store.create(Heard().listener(), properties={})
        for number in range(12):
            writer.append(Run([payload(writer.ref, number).ljust(6000, b".")]))
            await asyncio.sleep(0.02)
        await bench.process.metadata.commit([Delete(KEYS.ledger(writer.ref.id))])
        await bench.collect()
        assert not bench.store.garbage.is_gone(writer.ref)
        assert len(await bench.store.log.read(writer.ref, 0, 0, 1)) == 1

    simulate(act)


def test_bytes_that_metadata_no_longer_names_are_counted_until_their_space_is_back() -> None:
    def counted() -> float:
        return REGISTRY.get_sample_value("magnetar_orphan_bytes", {"where": "log"}) or 0.0

    async def act(bench: Bench) -> None:
        refs = await bench.ledgers(6)
        await bench.restart()
        await bench.store.garbage.collect()
        assert counted() == 0
        for ref in refs[:2]:
            await bench.process.metadata.delete(KEYS.ledger(ref.id))
        bench.store.garbage.hint()
        await bench.store.garbage.collect()
        assert 2 * 4 * ENTRY <= counted() < 3 * 4 * ENTRY
        await bench.collect()
        assert counted() == 0
        await bench.intact(refs[2:])

    simulate(act, EAGER)


def test_the_last_ledger_missing_is_always_suspicious() -> None:
    async def act(bench: Bench) -> None:
        refs = await bench.ledgers(2)
        await bench.restart()
        for ref in refs:
            await bench.process.metadata.commit([Delete(KEYS.ledger(ref.id))])
        await bench.collect()
        assert all(stored(bench.store, ref) for ref in refs)

    simulate(act)


def test_passes_come_by_themselves() -> None:
    async def act(bench: Bench) -> None:
        [ref] = await bench.ledgers(1)
        await bench.restart()
        await bench.store.delete(ref)
        await asyncio.sleep(25.0)
        assert not stored(bench.store, ref)
        await bench.store.close()

    simulate(act, replace(GARBAGE, gc_wait_ms=10_000))


def test_an_idle_store_asks_metadata_nothing() -> None:
    async def act(bench: Bench) -> None:
        await bench.ledgers(2)
        await bench.restart()
        await bench.collect()

        def never(listing: Listing) -> Listing:
            raise AssertionError("listed again without a reason")

        bench.listings(never)
        await bench.collect()

    simulate(act)
