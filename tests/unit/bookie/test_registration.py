"""A bookie stays in the list of those that are up, whatever happens to its session."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from magnetar.bookie.registration import Registration
from magnetar.common.errors import MetadataError
from magnetar.common.metadata.keys import Keys
from magnetar.common.metadata.store import Delete
from magnetar.common.metadata.values import BookieRegistration, decode
from magnetar.sim.loop import SimLoop, run
from magnetar.sim.metadata import MetadataFaults, SimMetadataServer, SimMetadataStore

KEYS = Keys("test")
KEY = KEYS.bookie("b1")


@dataclass(slots=True)
class Bench:
    server: SimMetadataServer
    faults: MetadataFaults
    registration: Registration
    read_only: bool = False
    disk_fails: bool = False
    metadata_is_lost: bool = False

    def registered(self) -> BookieRegistration | None:
        found = self.server.get(KEY)
        return None if found is None else decode(BookieRegistration, found.value)


def simulate(scenario: Callable[[Bench], Awaitable[None]]) -> None:
    loop = SimLoop(1)

    async def main() -> None:
        server, faults = SimMetadataServer(), MetadataFaults()
        store = SimMetadataStore(server, loop.rng, faults=faults)

        def describe() -> BookieRegistration:
            if bench.disk_fails:
                raise OSError("no free bytes can be told")
            return BookieRegistration(bookie_id="b1", address="host:1", read_only=bench.read_only)

        async def require_ours() -> None:
            if bench.metadata_is_lost:
                raise MetadataError("metadata is empty")

        bench = Bench(server, faults, Registration(store, KEYS, describe, 3_000, require_ours))
        async with asyncio.timeout(3600):
            await scenario(bench)
        await bench.registration.close()

    run(loop, main())


async def eventually(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(120):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


def test_it_is_there_from_the_start_to_the_close() -> None:
    async def scenario(bench: Bench) -> None:
        assert not bench.registration.registered
        await bench.registration.start()
        assert bench.registration.registered
        found = bench.registered()
        assert found is not None
        assert found.address == "host:1"
        await asyncio.sleep(60)
        assert bench.registered() is not None, "the session is kept alive"
        await bench.registration.close()
        assert not bench.registration.registered
        await eventually(lambda: bench.registered() is None)

    simulate(scenario)


def test_a_change_of_mode_is_written() -> None:
    async def scenario(bench: Bench) -> None:
        await bench.registration.start()
        bench.read_only = True
        bench.registration.changed()
        await eventually(lambda: bool((found := bench.registered()) and found.read_only))
        bench.read_only = False
        bench.registration.changed()
        await eventually(lambda: not ((found := bench.registered()) and found.read_only))
        assert bench.registered() is not None

    simulate(scenario)


def test_it_comes_back_after_its_session_ended() -> None:
    async def scenario(bench: Bench) -> None:
        await bench.registration.start()
        bench.faults.unreachable = True
        await eventually(lambda: bench.registered() is None)
        bench.read_only = True
        bench.registration.changed()
        bench.faults.unreachable = False
        await eventually(lambda: bool((found := bench.registered()) and found.read_only))

    simulate(scenario)


def test_it_does_not_come_back_in_metadata_that_is_not_its_own() -> None:
    """etcd came back empty: a bookie in it would take new ledgers, of which a copy knows nothing."""

    async def scenario(bench: Bench) -> None:
        await bench.registration.start()
        bench.metadata_is_lost = True
        bench.server.forget_clients()
        await asyncio.sleep(60)
        assert bench.registered() is None
        assert not bench.registration.registered
        bench.metadata_is_lost = False
        await eventually(lambda: bench.registered() is not None)

    simulate(scenario)


def test_it_comes_back_when_it_is_gone_while_its_session_lives() -> None:
    async def scenario(bench: Bench) -> None:
        await bench.registration.start()
        bench.server.commit([Delete(KEY)])
        await eventually(lambda: bench.registered() is not None)
        bench.faults.unreachable = True
        await asyncio.sleep(2.5)  # metadata that does not answer for less than the session's time is no loss
        assert bench.registered() is not None
        bench.faults.unreachable = False
        await asyncio.sleep(60)
        assert bench.registered() is not None

    simulate(scenario)


def test_it_comes_back_though_what_it_says_could_not_be_told_at_first() -> None:
    async def scenario(bench: Bench) -> None:
        await bench.registration.start()
        bench.disk_fails = True
        bench.registration.changed()
        await asyncio.sleep(10)
        bench.disk_fails, bench.read_only = False, True
        bench.registration.changed()
        await eventually(lambda: bool((found := bench.registered()) and found.read_only))

    simulate(scenario)


def test_it_waits_for_metadata_that_is_away_at_the_start() -> None:
    async def scenario(bench: Bench) -> None:
        bench.faults.unreachable = True
        starting = asyncio.ensure_future(bench.registration.start())
        await asyncio.sleep(30)
        assert not starting.done()
        bench.faults.unreachable = False
        await starting
        assert bench.registered() is not None

    simulate(scenario)


def test_it_survives_writes_whose_outcome_is_not_known() -> None:
    async def scenario(bench: Bench) -> None:
        bench.faults.unknown_probability = 0.5
        await bench.registration.start()
        for _ in range(20):
            bench.read_only = not bench.read_only
            bench.registration.changed()
            await eventually(
                lambda: bool((found := bench.registered()) and found.read_only == bench.read_only)
            )
        bench.faults.unknown_probability = 0

    simulate(scenario)


def test_a_close_while_metadata_is_away_leaves_it_to_the_end_of_the_session() -> None:
    async def scenario(bench: Bench) -> None:
        await bench.registration.start()
        bench.faults.unreachable = True
        await bench.registration.close()
        await eventually(lambda: bench.registered() is None)

    simulate(scenario)
