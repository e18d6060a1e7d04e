"""How the simulated metadata store misbehaves (what it promises is in the stores' contract test)."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable

import pytest
from magnetar.common.errors import MetadataError, UnknownOutcome, VersionMismatch, WatchLost
from magnetar.common.metadata.store import ABSENT, Put
from magnetar.sim.loop import SimLoop, run
from magnetar.sim.metadata import MetadataFaults, SimMetadataServer, SimMetadataStore

Scenario = Callable[[SimMetadataServer, SimMetadataStore], Awaitable[None]]


def simulate(scenario: Scenario, seed: int = 1, faults: MetadataFaults | None = None) -> str:
    loop = SimLoop(seed)

    async def main() -> None:
        server = SimMetadataServer()
        await scenario(server, SimMetadataStore(server, loop.rng, faults=faults))

    run(loop, main())
    return loop.trace_hash()


@pytest.mark.parametrize("applied", [True, False])
def test_a_lost_outcome_has_happened_or_not_and_the_guard_key_tells(applied: bool) -> None:
    async def scenario(server: SimMetadataServer, store: SimMetadataStore) -> None:
        store.lose_next_outcome(applied=applied)
        with pytest.raises(UnknownOutcome):
            await store.put("/a", b"1", ABSENT)
        assert (await store.get("/a") is not None) == applied
        await store.put("/b", b"2", ABSENT)

    simulate(scenario)


def test_unknown_outcomes_come_in_both_kinds_and_reads_are_spared() -> None:
    async def scenario(server: SimMetadataServer, store: SimMetadataStore) -> None:
        unknown = {True: 0, False: 0}
        for number in range(200):
            key = f"/{number}"
            try:
                await store.put(key, b"")
            except UnknownOutcome:
                unknown[await store.get(key) is not None] += 1
        assert min(unknown.values()) > 10
        assert sum(unknown.values()) < 100

    simulate(scenario, faults=MetadataFaults(unknown_probability=0.3))


def test_a_write_may_land_after_its_outcome_was_given_as_unknown_and_its_guards_still_count() -> None:
    async def scenario(server: SimMetadataServer, store: SimMetadataStore) -> None:
        for number in range(2):
            with pytest.raises(UnknownOutcome):
                await store.put(f"/{number}", b"late", ABSENT)
            assert await store.get(f"/{number}") is None
        server.commit([Put("/1", b"other", ABSENT)])
        await asyncio.sleep(0.6)
        assert server.dump() == {"/0": b"late", "/1": b"other"}
        assert server.landed_late == 1
        assert server.lost_races == {"/1": 1}

    simulate(scenario, faults=MetadataFaults(late_probability=1.0, late_max_s=0.5))


def test_the_same_seed_gives_the_same_run() -> None:
    async def scenario(server: SimMetadataServer, store: SimMetadataStore) -> None:
        async def write(writer: int) -> None:
            for number in range(20):
                try:
                    await store.put("/shared", b"%d %d" % (writer, number))
                except UnknownOutcome:
                    pass

        await asyncio.gather(*map(write, range(3)))

    def hashed(seed: int) -> str:
        return simulate(scenario, seed, MetadataFaults(unknown_probability=0.2))

    assert hashed(7) == hashed(7)
    assert hashed(7) != hashed(8)


def test_keys_survive_a_crash_and_a_request_under_way_still_arrives() -> None:
    def landed(seed: int) -> bool:
        found = []

        async def scenario(server: SimMetadataServer, store: SimMetadataStore) -> None:
            await store.put("/before", b"1")
            write = asyncio.ensure_future(store.put("/under-way", b"1"))
            await asyncio.sleep(0.0001)
            store.crash()
            await asyncio.sleep(1)
            assert not write.done()
            write.cancel()
            with pytest.raises(MetadataError):
                await store.get("/before")
            after = SimMetadataStore(server, random.Random(2))
            assert await after.get("/before") is not None
            found.append(await after.get("/under-way") is not None)

        simulate(scenario, seed)
        return found[0]

    assert all(map(landed, range(10)))


def test_a_crashed_process_loses_its_ephemeral_keys_after_its_time_and_no_earlier() -> None:
    async def scenario(server: SimMetadataServer, store: SimMetadataStore) -> None:
        other = SimMetadataStore(server, random.Random(2))
        session = await store.session(9_000)
        await session.put_ephemeral("/owner", b"me")
        await asyncio.sleep(60)
        assert await other.get("/owner") is not None
        store.crash()
        await asyncio.sleep(5)
        assert await other.get("/owner") is not None
        await asyncio.sleep(10)
        assert await other.get("/owner") is None

    simulate(scenario)


def test_an_owner_cut_off_loses_its_session_and_learns_it_when_it_is_back() -> None:
    async def scenario(server: SimMetadataServer, store: SimMetadataStore) -> None:
        session = await store.session(9_000)
        await session.put_ephemeral("/owner", b"me")
        learned = asyncio.ensure_future(session.expired())
        store.faults.unreachable = True
        with pytest.raises(MetadataError):
            await store.get("/owner")
        with pytest.raises(UnknownOutcome):
            await store.put("/x", b"1")
        await asyncio.sleep(30)
        assert server.dump() == {}
        assert not learned.done()
        store.faults.unreachable = False
        await asyncio.wait_for(learned, 10)

    simulate(scenario)


def test_a_session_can_be_expired_under_its_owner() -> None:
    async def scenario(server: SimMetadataServer, store: SimMetadataStore) -> None:
        session = await store.session(9_000)
        await session.put_ephemeral("/owner", b"me")
        session.expire()
        await session.expired()
        assert server.dump() == {}
        with pytest.raises(MetadataError):
            await session.put_ephemeral("/owner", b"me")

    simulate(scenario)


def test_a_session_whose_grant_was_lost_ends_by_itself() -> None:
    async def scenario(server: SimMetadataServer, store: SimMetadataStore) -> None:
        store.lose_next_outcome(applied=True)
        with pytest.raises(UnknownOutcome):
            await store.session(9_000)
        server.commit([Put("/owner", b"", ephemeral=True)], lease=1)
        await asyncio.sleep(15)
        assert server.dump() == {}

    simulate(scenario)


def test_keys_outlive_the_loop_and_leases_do_not() -> None:
    server = SimMetadataServer()

    async def first_life() -> None:
        store = SimMetadataStore(server, random.Random(1))
        await (await store.session(9_000)).put_ephemeral("/owner", b"")
        await store.put("/stays", b"")

    run(SimLoop(1), first_life())

    async def second_life() -> None:
        server.forget_clients()
        assert list(server.dump()) == ["/stays"]

    run(SimLoop(2), second_life())


def test_watches_can_be_cut_and_another_process_sees_changes_late_but_in_order() -> None:
    async def scenario(server: SimMetadataServer, store: SimMetadataStore) -> None:
        other = SimMetadataStore(server, random.Random(2), faults=MetadataFaults(watch_delay_max_s=5))
        watch, cut = other.watch("/"), store.watch("/")
        for number in range(30):
            await store.put(f"/{number}", b"")
        started = asyncio.get_running_loop().time()
        seen = [(await watch.__anext__()).key for _ in range(30)]
        assert seen == [f"/{number}" for number in range(30)]
        assert asyncio.get_running_loop().time() - started > 0.1
        store.lose_watches()
        with pytest.raises(WatchLost):
            await cut.__anext__()
        assert [item.key for item in (await store.children("/")).items] == sorted(seen)

    simulate(scenario)


def test_two_processes_compete_by_compare_and_set() -> None:
    async def scenario(server: SimMetadataServer, store: SimMetadataStore) -> None:
        other = SimMetadataStore(server, random.Random(2))
        outcomes = await asyncio.gather(
            store.put("/a", b"1", ABSENT), other.put("/a", b"2", ABSENT), return_exceptions=True
        )
        assert {type(outcome) for outcome in outcomes} == {int, VersionMismatch}

    simulate(scenario)
