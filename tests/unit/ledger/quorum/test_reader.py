"""Reading from replicas: the next one on any trouble, and never beyond what is confirmed."""

from __future__ import annotations

import asyncio

import pytest
from magnetar.common.errors import EntryUnknown, EntryUnreadable, NoSuchEntry
from magnetar.common.metadata.values import LedgerMetadata
from magnetar.ledger.ledger_store import Run
from magnetar.ledger.quorum.reader import EntryUnavailable, QuorumLedgerReader
from magnetar.ledger.quorum.striping import Fragment

from tests.unit.ledger.quorum.replica_world import REF, ReplicaWorld, entry, in_world

SIZE_MAX = 1 << 20


def flat(runs: list[Run], first: int) -> list[bytes]:
    """Entries of runs that follow each other from `first` on."""
    entries: list[bytes] = []
    for run in runs:
        assert run.first_entry_id == first + len(entries)
        entries += run.entries
    return entries


async def reads(reader: QuorumLedgerReader, first: int, last: int, size: int = SIZE_MAX) -> None:
    """The whole range comes in one answer."""
    assert flat(await reader.read(first, last, size), first) == [entry(n) for n in range(first, last + 1)]


def asked(world: ReplicaWorld) -> list[str]:
    return [name for name, bookie in world.bookies.items() if bookie.reads]


def close_at(world: ReplicaWorld, last: int) -> None:
    value = world.stored()
    value.state, value.last_entry_id = LedgerMetadata.CLOSED, last
    world.store(value)


def test_a_range_is_read_from_one_bookie_in_one_request() -> None:
    async def scenario(world: ReplicaWorld) -> None:
        world.put(range(100))
        await reads(world.reader(end=99), 3, 98)
        assert sum(len(bookie.reads) for bookie in world.bookies.values()) == 1

    in_world(scenario)


def test_a_ledgers_reads_stay_with_one_bookie_and_ledgers_are_spread() -> None:
    async def scenario(world: ReplicaWorld) -> None:
        world.put(range(10))
        reader = world.reader(end=9)
        for n in range(10):
            await reads(reader, n, n)
        assert len(asked(world)) == 1
        firsts = {world.order.sort(ledger_id, ["a", "b", "c"])[0] for ledger_id in range(9)}
        assert firsts == {"a", "b", "c"}

    in_world(scenario)


@pytest.mark.parametrize("trouble", ["down", "limbo", "missing", "damaged", "lying"])
def test_the_next_replica_is_read_on_any_trouble(trouble: str) -> None:
    async def scenario(world: ReplicaWorld) -> None:
        world.put(range(10))
        for name in world.order.sort(7, world.ensemble)[:2]:
            bookie = world.bookies[name]
            if trouble == "down":
                bookie.down = True
            elif trouble == "damaged":
                bookie.damaged.add(4)
            elif trouble == "lying":
                bookie.lying = True
            else:
                del bookie.held[4]
                bookie.limbo = trouble == "limbo"
        await reads(world.reader(end=9), 0, 9)

    in_world(scenario)


def test_a_bookie_that_does_not_answer_is_not_waited_for_and_then_asked_last() -> None:
    async def scenario(world: ReplicaWorld) -> None:
        world.put(range(10))
        first = world.bookies[world.order.sort(7, world.ensemble)[0]]
        first.silent = True
        reader = world.reader(end=9)
        await reads(reader, 0, 9)
        assert world.loop.time() < 0.3
        await reads(reader, 0, 9)
        assert world.loop.time() < 0.3
        assert len(first.reads) == 1

    in_world(scenario)


def test_near_bookies_are_preferred_to_far_ones_and_healthy_far_ones_to_failing_near_ones() -> None:
    async def scenario(world: ReplicaWorld) -> None:
        order = type(world.order)(world.clock, lambda bookie_id: bookie_id == "b")
        assert all(order.sort(n, ["a", "b", "c"])[0] == "b" for n in range(5))
        order.failed("b")
        assert all(order.sort(n, ["a", "b", "c"])[-1] == "b" for n in range(5))
        await asyncio.sleep(10)
        assert order.sort(0, ["a", "b", "c"])[0] == "b"
        order.failed("b")
        order.answered("b")
        assert order.sort(0, ["a", "b", "c"])[0] == "b"

    in_world(scenario)


def test_a_closed_ledger_is_never_read_beyond_its_last_entry() -> None:
    async def scenario(world: ReplicaWorld) -> None:
        world.put(range(10))
        reader = world.reader(end=6)
        assert reader.last_confirmed == 6
        await reads(reader, 0, 6)
        assert flat(await reader.read(5, 9, SIZE_MAX), 5) == [entry(5), entry(6)]
        for first, last in ((7, 9), (3, 2), (-1, 2)):
            with pytest.raises(NoSuchEntry):
                await reader.read(first, last, SIZE_MAX)
        assert all(last <= 6 for bookie in world.bookies.values() for _, last, _ in bookie.reads)

    in_world(scenario)


def test_an_open_ledger_is_never_read_beyond_a_lac_that_was_heard() -> None:
    async def scenario(world: ReplicaWorld) -> None:
        world.put(range(10))
        world.lac(3, "a")
        world.lac(6, "b")
        world.bookies["c"].down = True
        reader = world.reader()
        assert reader.last_confirmed == -1
        await reader.refresh()
        assert reader.last_confirmed == 6
        assert flat(await reader.read(0, 9, SIZE_MAX), 0) == [entry(n) for n in range(7)]
        with pytest.raises(NoSuchEntry):
            await reader.read(7, 7, SIZE_MAX)
        world.lac(8, "b")
        await reads(reader, 7, 8)
        for name in "ab":
            world.bookies[name].down = True
        await reader.refresh()
        assert reader.last_confirmed == 8, "silence takes nothing back"

    in_world(scenario)


def test_a_ledger_that_was_closed_meanwhile_ends_where_metadata_says() -> None:
    async def scenario(world: ReplicaWorld) -> None:
        world.put(range(10))
        world.lac(3)
        reader = world.reader()
        close_at(world, 5)
        await reader.refresh()
        assert reader.last_confirmed == 5
        await reads(reader, 0, 5)

    in_world(scenario)


def test_a_reader_beside_its_writer_follows_the_watermark() -> None:
    async def scenario(world: ReplicaWorld) -> None:
        world.put(range(10))
        confirmed = 2
        reader = world.reader(confirmed=lambda: confirmed)
        with pytest.raises(NoSuchEntry):
            await reader.read(3, 3, SIZE_MAX)
        confirmed = 4
        await reads(reader, 0, 4)

    in_world(scenario)


@pytest.mark.parametrize("sizes", [(3, 3, 2), (5, 2, 2), (4, 3, 2)])
def test_fewer_entries_only_for_max_bytes_but_at_least_one(sizes: tuple[int, int, int]) -> None:
    async def scenario(world: ReplicaWorld) -> None:
        world.put(range(120))
        reader = world.reader(end=119)
        assert flat(await reader.read(5, 119, 1), 5) == [entry(5)]
        await reads(reader, 0, 119)
        for size in (7, 20, 100, 400):
            found = flat(await reader.read(0, 119, size), 0)
            assert sum(map(len, found)) <= size or len(found) == 1
            following = entry(len(found))
            assert sum(map(len, found)) + len(following) > size, "as many as fit"

    in_world(scenario, sizes=sizes)


def test_a_range_goes_on_over_fragments() -> None:
    async def scenario(world: ReplicaWorld) -> None:
        world.put(range(6))
        world.set_fragments(
            world.stored(),
            Fragment(0, ("a", "b", "c")),
            Fragment(3, ("a", "d", "c")),
            Fragment(6, tuple("ade")),
        )
        for n in range(3, 9):
            for name in "abcde":
                world.bookies[name].held.pop(n, None)
            for name in "dc" if n < 6 else "ade":
                world.bookies[name].held[n] = entry(n)
        await reads(world.reader(end=8), 0, 8)

    in_world(scenario, spares=2)


def test_a_bad_entry_further_on_ends_the_answer_before_it() -> None:
    async def scenario(world: ReplicaWorld) -> None:
        world.put(range(10))
        for bookie in world.bookies.values():
            bookie.damaged.add(6)
        close_at(world, 9)
        reader = world.reader(end=9)
        assert flat(await reader.read(2, 9, SIZE_MAX), 2) == [entry(n) for n in range(2, 6)]
        with pytest.raises(EntryUnreadable, match="is lost"):
            await reader.read(6, 9, SIZE_MAX)
        await reads(reader, 7, 9)

    in_world(scenario)


def test_entry_is_not_lost_while_a_bookie_may_have_it() -> None:
    async def scenario(world: ReplicaWorld) -> None:
        world.put(range(10))
        close_at(world, 9)
        reader = world.reader(end=9)
        world.bookies["a"].damaged.add(6)
        del world.bookies["b"].held[6]
        for trouble in ("down", "limbo"):
            world.bookies["c"].held.pop(6, None)
            world.bookies["c"].down = trouble == "down"
            world.bookies["c"].limbo = trouble == "limbo"
            with pytest.raises(EntryUnavailable) as waiting:
                await reader.read(6, 6, SIZE_MAX)
            assert isinstance(waiting.value, EntryUnknown)
            assert waiting.value.retriable
        world.bookies["c"].held[6] = entry(6)
        await reads(reader, 6, 6)

    in_world(scenario)


def test_nothing_of_an_open_ledger_is_called_lost() -> None:
    async def scenario(world: ReplicaWorld) -> None:
        reader = world.reader(confirmed=lambda: 4)
        with pytest.raises(EntryUnavailable):
            await reader.read(0, 4, SIZE_MAX)

    in_world(scenario)


def test_an_entry_that_was_moved_to_other_bookies_is_found_there() -> None:
    async def scenario(world: ReplicaWorld) -> None:
        world.put(range(10))
        close_at(world, 9)
        reader = world.reader(end=9)
        await reads(reader, 0, 9)
        world.set_fragments(world.stored(), Fragment(0, ("d", "e", "f")))
        for old, new in zip("abc", "def", strict=True):
            world.bookies[new].held, world.bookies[old].held = world.bookies[old].held, {}
        await reads(reader, 0, 9)

    in_world(scenario, spares=3)


def test_a_reader_beside_its_writer_follows_moves_of_earlier_fragments() -> None:
    async def scenario(world: ReplicaWorld) -> None:
        world.put(range(10))
        world.set_fragments(world.stored(), Fragment(0, ("a", "b", "c")), Fragment(5, ("b", "a", "c")))
        layout = world.layout()  # the writer's, which changes only what it writes to
        reader = QuorumLedgerReader(
            REF,
            layout,
            world.context,
            reload=world.now,
            confirmed=lambda: layout.last_fragment.first_entry_id + 4,
        )
        world.set_fragments(world.stored(), Fragment(0, ("d", "e", "f")), Fragment(5, ("b", "a", "c")))
        for old, new in zip("abc", "def", strict=True):
            world.bookies[new].held = {n: world.bookies[old].held.pop(n) for n in range(5)}
        await reads(reader, 0, 9)
        layout.change_ensemble(9, ("b", "a", "d"))
        world.bookies["d"].held |= {n: entry(n) for n in range(9, 14)}
        await reads(reader, 9, 13)

    in_world(scenario, spares=3)


@pytest.mark.parametrize("down", ["a", "c", "e"])
def test_striped_ledgers_are_read_in_stretches_at_the_same_time(down: str) -> None:
    async def scenario(world: ReplicaWorld) -> None:
        world.put(range(200))
        world.bookies[down].down = True
        reader = world.reader(end=199)
        await reads(reader, 0, 0)
        before = world.loop.time()
        await reads(reader, 0, 199)
        assert world.loop.time() - before < 0.05

    in_world(scenario, sizes=(5, 3, 2))


def test_reads_that_are_cancelled_leave_nothing_behind() -> None:
    async def scenario(world: ReplicaWorld) -> None:
        world.put(range(10))
        for bookie in world.bookies.values():
            bookie.silent = True
        task = asyncio.create_task(world.reader(end=9).read(0, 9, SIZE_MAX))
        await asyncio.sleep(1)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert asyncio.all_tasks() == {asyncio.current_task()}

    in_world(scenario)
