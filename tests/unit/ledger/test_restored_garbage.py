"""Garbage collection under metadata that was put back from a copy: nothing goes until an operator says so."""

from __future__ import annotations

from magnetar.common.metadata.store import Delete, Listing
from magnetar.common.metadata.values import Restoration, encode
from magnetar.ledger.deleted_ledgers import load_condemned
from magnetar.ledger.garbage_collector import PAUSED, SMALL_NUMBER

from tests.simulation.garbage_workload import GARBAGE, stored
from tests.simulation.power_loss import KEYS, Process, World
from tests.unit.ledger.test_garbage_collector import EAGER, Bench, alarms, simulate


async def say(bench: Bench, state: Restoration.State.ValueType, lost: tuple[int, int] = (0, 0)) -> None:
    record = Restoration(state=state, id=b"r" * 16, lost_from=lost[0], lost_until=lost[1])
    await bench.process.metadata.put(KEYS.restoration, encode(record))


def test_nothing_goes_before_the_release_and_what_is_missing_goes_after_it() -> None:
    async def act(bench: Bench) -> None:
        kept = await bench.ledgers(3)
        [gone] = await bench.ledgers(1)
        await bench.restart()
        await bench.process.metadata.commit([Delete(KEYS.ledger(gone.id))])
        for state in (Restoration.WRITING, Restoration.RESTORED, Restoration.RECONCILED):
            await say(bench, state)
            before = alarms("restored")
            await bench.collect()
            assert alarms("restored") == before + 2
            assert PAUSED._value.get() == 1
            assert stored(bench.store, gone)
        await say(bench, Restoration.RELEASED)
        await bench.collect()
        assert not stored(bench.store, gone)
        assert PAUSED._value.get() == 0
        await bench.intact(kept)

    simulate(act, EAGER)


def test_ledgers_made_after_the_copy_go_once_released_however_many_they_are() -> None:
    async def act(bench: Bench) -> None:
        kept = await bench.ledgers(2)
        late = await bench.ledgers(2 * SMALL_NUMBER)
        await bench.restart()
        for ref in late:
            await bench.process.metadata.commit([Delete(KEYS.ledger(ref.id))])
        await say(bench, Restoration.RELEASED, (late[0].id, late[-1].id + 1))
        await bench.collect()
        assert not any(stored(bench.store, ref) for ref in late)
        await bench.intact(kept)

    simulate(act)


def test_others_that_are_missing_raise_the_alarm_as_ever() -> None:
    async def act(bench: Bench) -> None:
        refs = await bench.ledgers(2 * SMALL_NUMBER)
        await bench.restart()
        for ref in refs[1:]:
            await bench.process.metadata.commit([Delete(KEYS.ledger(ref.id))])
        await say(bench, Restoration.RELEASED, (refs[-1].id + 1, refs[-1].id + 1_000))
        before = alarms("too many")
        await bench.collect()
        assert alarms("too many") == before + 2
        assert all(stored(bench.store, ref) for ref in refs)

    simulate(act)


def test_revisions_that_begin_anew_are_followed_once_an_operator_vouched_for_them() -> None:
    async def act(bench: Bench) -> None:
        backup = bench.world.metadata.fork()
        [late] = await bench.ledgers(1)
        [doomed] = await bench.ledgers(1)
        await bench.restart()
        await bench.store.delete(doomed)
        await bench.collect()  # which remembers how far metadata was
        seen = load_condemned(bench.world.disk).revision
        await bench.store.close()
        bench.process = Process(bench.process.loop, World(bench.world.disk, backup), GARBAGE)
        bench.store = await bench.process.open_store()
        before = alarms("stale")
        await bench.collect()
        assert alarms("stale") == before + 2
        await say(bench, Restoration.RELEASED, (late.id, late.id + 1_000))
        await bench.collect()
        assert alarms("stale") == before + 2
        assert not stored(bench.store, late)
        now = load_condemned(bench.world.disk).revision
        assert now < seen, "and it stays so over a restart"
        await bench.restart()
        await bench.ledgers(1)
        await bench.restart()
        await bench.collect()
        assert alarms("stale") == before + 2

    simulate(act)


def test_a_restoration_of_long_ago_vouches_for_no_other_metadata_after_a_restart() -> None:
    """A snapshot that is put back without a word says of itself that it was released, too."""

    async def act(bench: Bench) -> None:
        await bench.ledgers(1)
        await say(bench, Restoration.RELEASED)
        backup = bench.world.metadata.fork()
        await bench.restart()
        [late] = await bench.ledgers(1)
        [doomed] = await bench.ledgers(1)
        await bench.restart()
        await bench.store.delete(doomed)
        await bench.collect()
        await bench.store.close()
        before = alarms("stale")
        bench.process = Process(bench.process.loop, World(bench.world.disk, backup), GARBAGE)
        bench.store = await bench.process.open_store()
        await bench.collect()
        assert alarms("stale") == before + 2
        assert stored(bench.store, late)

    simulate(act)


def test_seen_metadata_revision_is_stored_without_deletions() -> None:
    async def act(bench: Bench) -> None:
        await bench.ledgers(1)
        backup = bench.world.metadata.fork()
        [late] = await bench.ledgers(1)
        await bench.restart()
        await bench.collect()
        await bench.store.close()
        before = alarms("stale")
        bench.process = Process(bench.process.loop, World(bench.world.disk, backup), GARBAGE)
        bench.store = await bench.process.open_store()
        await bench.collect()
        assert alarms("stale") == before + 2
        assert stored(bench.store, late)

    simulate(act)


def test_metadata_that_went_back_is_not_believed_when_its_revisions_have_caught_up() -> None:
    """Nobody has said that a snapshot was put back: what was made after it would go once time has passed."""

    async def act(bench: Bench) -> None:
        await bench.ledgers(12)  # so few are missing that no other guard is met
        backup = bench.world.metadata.fork()
        [late] = await bench.ledgers(1)
        await bench.restart()
        await bench.collect()
        seen = load_condemned(bench.world.disk).revision
        await bench.store.close()
        bench.process = Process(bench.process.loop, World(bench.world.disk, backup), EAGER)
        bench.store = await bench.process.open_store()
        await bench.collect()
        while backup.revision <= seen:
            await bench.process.metadata.put(KEYS.tenant("any"), b"x")
        for _ in range(2):
            before = alarms("stale")
            await bench.collect()
            assert alarms("stale") == before + 2
            assert stored(bench.store, late)
            await bench.restart()
        await say(bench, Restoration.RELEASED, (late.id, late.id + 1_000))
        await bench.collect()
        assert not stored(bench.store, late)

    simulate(act, EAGER)


def test_a_ledger_that_is_made_while_ledgers_are_listed_does_not_make_the_listing_old() -> None:
    async def act(bench: Bench) -> None:
        await bench.ledgers(2)
        await bench.restart()

        def made_meanwhile(listing: Listing) -> Listing:
            bench.store.garbage.saw_revision(listing.revision + 1)
            return listing

        bench.listings(made_meanwhile)
        before = alarms("stale")
        await bench.store.garbage.collect()
        assert alarms("stale") == before

    simulate(act, EAGER)
