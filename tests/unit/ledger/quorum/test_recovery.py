"""Recovery, rule by rule (storage contract, section 3)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import pytest
from magnetar.common.errors import NoSuchLedger, NotEnoughBookies, UnknownOutcome, VersionMismatch
from magnetar.common.metadata.store import ABSENT, Check, Op, Put
from magnetar.common.metadata.values import LedgerMetadata
from magnetar.ledger.ledger_store import ClosedLedger, LedgerRef
from magnetar.ledger.quorum.striping import Fragment

from tests.unit.ledger.quorum.replica_world import REF, ReplicaWorld, entry, in_world


def size_of(last: int) -> int:
    return sum(len(entry(n)) for n in range(last + 1))


async def recovered(world: ReplicaWorld, last: int, **options: Any) -> None:
    """Recover, and look at everything that must hold afterwards."""
    value, closed = await world.recovery(**options).recover(REF)
    assert closed == ClosedLedger(REF, last, size_of(last))
    assert value == world.stored()
    assert (value.state, value.last_entry_id) == (LedgerMetadata.CLOSED, last)
    assert value.byte_length == size_of(last)
    assert value.closed_ms > 0


Scenario = Callable[[ReplicaWorld], Coroutine[Any, Any, None]]


def test_a_ledger_that_was_wholly_confirmed_ends_at_its_lac() -> None:
    async def scenario(world: ReplicaWorld) -> None:
        world.put(range(10))
        world.lac(9, "b")
        await recovered(world, 9)
        assert all(bookie.fenced for bookie in world.bookies.values())
        assert not any(bookie.appended for bookie in world.bookies.values())

    in_world(scenario)


def test_an_empty_ledger_ends_before_its_first_entry() -> None:
    in_world(lambda world: recovered(world, -1))


def test_an_entry_found_on_any_bookie_is_rewritten_to_all_qw() -> None:
    async def scenario(world: ReplicaWorld) -> None:
        world.put(range(5))
        world.put(range(5, 8), positions=[2])
        world.lac(4)
        await recovered(world, 7)
        assert world.has_everywhere(range(8))
        assert not world.stored().gaps

    in_world(scenario)


def test_recovery_writes_carry_the_old_writers_lac() -> None:
    async def scenario(world: ReplicaWorld) -> None:
        world.put(range(8), positions=[2])
        world.lac(4, "c")
        await recovered(world, 7, batch_bytes=20)
        written = [each for bookie in world.bookies.values() for each in bookie.appended]
        assert {lac for _, _, lac in written} == {4}
        assert min(first for first, _, _ in written) == 5

    in_world(scenario)


def test_recovery_reads_forward_from_the_highest_lac_with_reads_that_fence() -> None:
    async def scenario(world: ReplicaWorld) -> None:
        world.put(range(10))
        world.lac(2, "a")
        world.lac(6, "b")
        await recovered(world, 9)
        reads = [each for bookie in world.bookies.values() for each in bookie.reads]
        assert min(first for first, _, _ in reads) == 7
        assert all(fence for _, _, fence in reads)

    in_world(scenario)


def test_recovery_never_reads_below_the_last_fragment() -> None:
    async def scenario(world: ReplicaWorld) -> None:
        world.put(range(6))
        value = world.stored()
        world.set_fragments(value, Fragment(0, ("a", "b", "c")), Fragment(6, ("a", "d", "c")))
        for bookie_id in "ac":
            world.bookies[bookie_id].held[6] = entry(6)
        await recovered(world, 6)
        assert world.bookies["d"].held.keys() == {6}
        assert not world.bookies["b"].fenced, "an earlier fragment is confirmed"

    in_world(scenario, spares=1)


def test_without_enough_bookies_fenced_recovery_stops() -> None:
    async def scenario(world: ReplicaWorld) -> None:
        world.put(range(3))
        world.bookies["a"].down = world.bookies["c"].down = True
        with pytest.raises(NotEnoughBookies, match="can't be recovered now") as stopped:
            await world.recovery().recover(REF)
        assert stopped.value.retriable
        assert world.stored().state == LedgerMetadata.IN_RECOVERY
        world.bookies["c"].down = False
        await recovered(world, 2)

    in_world(scenario)


def test_a_bookie_that_is_down_does_not_stop_a_recovery() -> None:
    async def scenario(world: ReplicaWorld) -> None:
        world.put(range(8))
        world.lac(4)
        world.bookies["a"].down = True
        await recovered(world, 7)

    in_world(scenario)


def test_a_bookie_that_never_answers_holds_a_recovery_up_only_shortly() -> None:
    async def scenario(world: ReplicaWorld) -> None:
        world.put(range(8))
        world.lac(4)
        world.bookies["a"].silent = True
        await recovered(world, 7)
        assert world.loop.time() < 2

    in_world(scenario)


def test_no_such_entry_from_fewer_than_qw_minus_qa_plus_one_ends_nothing() -> None:
    async def scenario(world: ReplicaWorld) -> None:
        # Entry 3 may have been confirmed on b and c: a alone cannot deny it.
        world.put(range(3))
        world.bookies["b"].limbo = world.bookies["c"].limbo = True
        with pytest.raises(NotEnoughBookies, match="fewer than 2 are certain"):
            await world.recovery().recover(REF)
        world.bookies["b"].limbo = False
        await recovered(world, 2)

    in_world(scenario)


def test_no_such_entry_in_doubt_does_not_count() -> None:
    async def scenario(world: ReplicaWorld) -> None:
        world.put(range(3))
        world.bookies["a"].down = True
        world.bookies["b"].limbo = True
        with pytest.raises(NotEnoughBookies, match="ENTRY_UNKNOWN"):
            await world.recovery().recover(REF)

    in_world(scenario)


def test_an_unreadable_entry_is_not_an_absent_one() -> None:
    async def scenario(world: ReplicaWorld) -> None:
        world.put(range(4))
        world.lac(2)
        del world.bookies["a"].held[3]
        world.bookies["b"].damaged.add(3)
        world.bookies["c"].down = True
        with pytest.raises(NotEnoughBookies, match="ENTRY_UNREADABLE"):
            await world.recovery().recover(REF)
        world.bookies["c"].down = False
        await recovered(world, 3)
        assert not world.bookies["b"].damaged, "rewritten from the sound copy"

    in_world(scenario)


def test_a_record_damaged_on_the_way_is_not_an_absent_one() -> None:
    async def scenario(world: ReplicaWorld) -> None:
        world.put(range(4))
        world.lac(2)
        world.bookies["a"].lying = world.bookies["b"].lying = True
        await recovered(world, 3)
        assert world.has_everywhere(range(4))

    in_world(scenario)


def test_a_bookie_that_does_not_take_the_rewrite_is_replaced_in_memory_and_published_by_the_close() -> None:
    async def scenario(world: ReplicaWorld) -> None:
        world.put(range(8), positions=[0, 1])
        world.lac(4, "a")
        world.put(range(5), positions=[2])
        world.bookies["c"].takes_appends = False
        seen: list[LedgerMetadata] = []
        world.server.subscribe(lambda _: seen.append(world.stored()))
        await recovered(world, 7)
        assert world.layout().fragments == [
            Fragment(0, ("a", "b", "c")),
            Fragment(5, ("a", "b", "d")),
        ]
        assert world.has_everywhere(range(8))
        assert [value.state for value in seen] == [LedgerMetadata.IN_RECOVERY, LedgerMetadata.CLOSED]
        assert len(seen[0].fragments) == 1, "nothing of it is seen before the ledger is closed"

    in_world(scenario, spares=1)


def test_a_recovery_that_stops_leaves_the_ensemble_as_it_was() -> None:
    async def scenario(world: ReplicaWorld) -> None:
        world.put(range(8), positions=[0])
        for bookie_id in "bc":
            world.bookies[bookie_id].takes_appends = False
        with pytest.raises(NotEnoughBookies, match="fewer than 2"):
            await world.recovery().recover(REF)
        assert len(world.stored().fragments) == 1
        assert world.stored().state == LedgerMetadata.IN_RECOVERY
        world.bookies["b"].takes_appends = True
        await recovered(world, 7)

    in_world(scenario)


def test_without_a_replacement_what_a_bookie_lacks_is_recorded_as_a_gap_and_marked() -> None:
    async def scenario(world: ReplicaWorld) -> None:
        world.put(range(8), positions=[0, 1])
        world.lac(4)
        world.bookies["c"].takes_appends = False
        await recovered(world, 7)
        gaps = [(gap.bookie_id, gap.first_entry_id, gap.last_entry_id) for gap in world.stored().gaps]
        assert gaps == [("c", 0, 7)], "of the confirmed entries as well"
        assert world.server.get(world.keys.under_replicated(REF.id)) is not None

    in_world(scenario)


def test_mark_of_another_process_does_not_stop_the_close() -> None:
    async def scenario(world: ReplicaWorld) -> None:
        world.put(range(8), positions=[0, 1])
        world.lac(4)
        world.server.commit([Put(world.keys.under_replicated(REF.id), b"mark")])
        await recovered(world, 7)
        found = world.server.get(world.keys.under_replicated(REF.id))
        assert found is not None
        assert found.value == b"mark"
        assert found.version == world.server.revision, "touched, so that it is not removed unseen"

    in_world(scenario)


def test_confirmed_entries_that_a_slow_bookie_lacks_are_recorded() -> None:
    async def scenario(world: ReplicaWorld) -> None:
        world.put(range(8), positions=[0, 1])
        world.put(range(3), positions=[2])
        world.lac(5)
        await recovered(world, 7)
        gaps = [(gap.bookie_id, gap.first_entry_id, gap.last_entry_id) for gap in world.stored().gaps]
        assert gaps == [("c", 3, 5)]

    in_world(scenario)


@pytest.mark.parametrize("spares", [0, 1])
def test_a_bookie_that_cannot_be_asked_may_lack_confirmed_entries_and_that_is_recorded(spares: int) -> None:
    """It died, the writer confirmed more by the others, and died before it could record that."""

    async def scenario(world: ReplicaWorld) -> None:
        world.put(range(8), positions=[0, 1])
        world.put(range(3), positions=[2])
        world.lac(5)
        world.bookies["c"].down = True
        await recovered(world, 7)
        [gap] = world.stored().gaps
        assert gap.bookie_id == "c"
        assert gap.first_entry_id <= 3
        assert gap.last_entry_id >= 5
        assert world.server.get(world.keys.under_replicated(REF.id)) is not None

    in_world(scenario, spares=spares)


def test_a_long_tail_takes_round_trips_by_batch_not_by_entry() -> None:
    async def scenario(world: ReplicaWorld) -> None:
        world.put(range(20_000))
        world.lac(-1)
        await recovered(world, 19_999, batch_bytes=64 << 10)
        assert sum(len(bookie.reads) for bookie in world.bookies.values()) < 20
        assert world.loop.time() < 0.5

    in_world(scenario)


def test_a_crashed_recovery_is_finished_by_another_from_the_same_start() -> None:
    async def scenario(world: ReplicaWorld) -> None:
        world.put(range(5))
        world.put(range(5, 9), positions=[1])
        world.lac(4)
        for delay in (0.002, 0.004, 0.006, 0.01):
            task = asyncio.create_task(world.recovery(batch_bytes=1).recover(REF))
            await asyncio.sleep(delay)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        world.bookies["b"].reads.clear()
        await recovered(world, 8)
        assert world.has_everywhere(range(9))

    in_world(scenario)


def test_recovering_a_closed_ledger_again_only_commits_the_operations() -> None:
    async def scenario(world: ReplicaWorld) -> None:
        world.put(range(5))
        await recovered(world, 4)
        before = world.stored()
        for bookie in world.bookies.values():
            bookie.down = True
        told: list[ClosedLedger] = []

        def ops(closed: ClosedLedger) -> Sequence[Op]:
            told.append(closed)
            return [Put("/head", b"mine", ABSENT)]

        _, closed = await world.recovery().recover(REF, ops)
        assert told == [closed]
        assert closed.last_entry_id == 4
        assert world.stored() == before
        assert world.server.get("/head") is not None

    in_world(scenario)


def test_closing_and_the_owners_operations_are_one_transaction() -> None:
    async def scenario(world: ReplicaWorld) -> None:
        world.put(range(5))

        def refused(_: ClosedLedger) -> Sequence[Op]:
            return [Check("/head", 5)]

        with pytest.raises(VersionMismatch) as lost:
            await world.recovery().recover(REF, refused)
        assert lost.value.key == "/head"
        assert world.stored().state == LedgerMetadata.IN_RECOVERY
        await world.recovery().recover(REF, lambda closed: [Put("/head", str(closed).encode(), ABSENT)])
        head = world.server.get("/head")
        assert head is not None
        assert head.version == world.server.revision == world.server.get(world.keys.ledger(REF.id)).version  # type: ignore[union-attr]

    in_world(scenario)


def test_a_racing_close_of_the_writer_is_decided_by_the_compare_and_set() -> None:
    async def scenario(world: ReplicaWorld) -> None:
        world.put(range(5))
        value = world.stored()
        value.state, value.last_entry_id, value.byte_length = LedgerMetadata.CLOSED, 3, size_of(3)
        for bookie in world.bookies.values():
            bookie.delay_s = 0.1
        task = asyncio.create_task(world.recovery().recover(REF))
        await asyncio.sleep(0.15)
        world.store(value)  # as if it came before our own first write
        _, closed = await task
        assert closed == ClosedLedger(REF, 3, size_of(3))
        assert world.stored() == value

    in_world(scenario)


def test_concurrent_recoveries_agree_on_one_end() -> None:
    async def scenario(world: ReplicaWorld) -> None:
        world.put(range(5))
        world.put(range(5, 9), positions=[0])
        world.lac(4)

        async def slow_view() -> tuple[LedgerMetadata, ClosedLedger]:
            return await world.recovery(batch_bytes=1).recover(REF)

        results = await asyncio.gather(*(slow_view() for _ in range(4)))
        assert len({closed for _, closed in results}) == 1
        assert all(value == world.stored() for value, _ in results)
        assert world.has_everywhere(range(results[0][1].last_entry_id + 1))

    in_world(scenario)


@pytest.mark.parametrize("happened", [True, False])
def test_an_unknown_outcome_of_the_close_is_read_again(happened: bool) -> None:
    async def scenario(world: ReplicaWorld) -> None:
        world.put(range(5))
        await world.metadata.put("/unrelated", b"")
        commits = 0
        commit = world.metadata.commit

        async def unsure(ops: Sequence[Op]) -> int:
            nonlocal commits
            commits += 1
            if commits != 2:
                return await commit(ops)
            if happened:
                await commit(ops)
            raise UnknownOutcome("who knows")

        world.metadata.commit = unsure  # type: ignore[method-assign]
        if happened:
            await recovered(world, 4)
        else:
            with pytest.raises(UnknownOutcome):
                await world.recovery().recover(REF)
            await recovered(world, 4)

    in_world(scenario)


def test_a_ledger_that_is_gone_or_has_another_key_cannot_be_recovered() -> None:
    async def scenario(world: ReplicaWorld) -> None:
        for ref in (LedgerRef(REF.id, 1), LedgerRef(99, REF.key)):
            with pytest.raises(NoSuchLedger):
                await world.recovery().recover(ref)

    in_world(scenario)


@pytest.mark.parametrize("sizes", [(3, 2, 2), (5, 3, 2), (4, 2, 1), (1, 1, 1)])
def test_striped_ledgers_are_recovered_as_well(sizes: tuple[int, int, int]) -> None:
    async def scenario(world: ReplicaWorld) -> None:
        world.put(range(200))
        world.lac(50)
        await recovered(world, 199, batch_bytes=256)
        assert world.has_everywhere(range(200))

    in_world(scenario, sizes=sizes)


def test_a_hole_ends_the_ledger_before_what_follows_it() -> None:
    async def scenario(world: ReplicaWorld) -> None:
        world.put(range(5))
        world.put(range(6, 9), positions=[0])
        world.lac(4)
        await recovered(world, 4)

    in_world(scenario)


def test_the_length_is_counted_when_bookies_do_not_agree_on_it() -> None:
    async def scenario(world: ReplicaWorld) -> None:
        world.put(range(10))
        world.lac(7)
        del world.bookies["a"].held[3]
        await recovered(world, 9)
        assert any(first == 0 for bookie in world.bookies.values() for first, _, _ in bookie.reads)

    in_world(scenario)


def test_the_length_is_known_without_reading_when_bookies_agree() -> None:
    async def scenario(world: ReplicaWorld) -> None:
        world.put(range(10))
        world.put(range(10, 12), positions=[1])
        world.lac(7)
        await recovered(world, 11)
        assert all(first >= 8 for bookie in world.bookies.values() for first, _, _ in bookie.reads)

    in_world(scenario)
