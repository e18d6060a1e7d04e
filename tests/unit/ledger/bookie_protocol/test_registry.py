"""The registry follows registrations through whatever metadata does."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from magnetar.common.metadata.keys import Keys
from magnetar.common.metadata.values import BookieRack, BookieRegistration, encode
from magnetar.ledger.bookie_protocol.registry import BookieRegistry
from magnetar.sim.loop import SimLoop, run
from magnetar.sim.metadata import MetadataFaults, SimMetadataServer, SimMetadataStore

KEYS = Keys("test")


def registration(bookie_id: str, port: int, *, read_only: bool = False, rack: str = "/r") -> bytes:
    value = BookieRegistration(
        bookie_id=bookie_id, address=f"host:{port}", rack=rack, read_only=read_only, protocol_version=1
    )
    return encode(value)


async def eventually(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


def simulate(scenario: Callable[[SimMetadataStore, BookieRegistry, MetadataFaults], Awaitable[None]]) -> None:
    loop = SimLoop(1)

    async def main() -> None:
        faults = MetadataFaults()
        server = SimMetadataServer()
        theirs = SimMetadataStore(server, loop.rng)
        ours = SimMetadataStore(server, loop.rng, faults=faults)
        registry = BookieRegistry(ours, KEYS)
        await scenario(theirs, registry, faults)
        await registry.close()

    run(loop, main())


def test_bookies_registered_before_and_after_the_start_are_known() -> None:
    async def scenario(store: SimMetadataStore, registry: BookieRegistry, _faults: MetadataFaults) -> None:
        session = await store.session(10_000)
        await session.put_ephemeral(KEYS.bookie("a/1"), registration("a/1", 1, rack="/east/1"))
        await registry.start()
        assert registry.bookies["a/1"].rack == "/east/1"
        changes: list[int] = []
        registry.on_change(lambda: changes.append(len(registry.bookies)))
        await session.put_ephemeral(KEYS.bookie("b"), registration("b", 2, read_only=True))
        await eventually(lambda: "b" in registry.bookies)
        assert [info.bookie_id for info in registry.writable()] == ["a/1"]
        await session.put_ephemeral(KEYS.bookie("b"), registration("b", 2))
        await eventually(lambda: len(registry.writable()) == 2)
        assert changes == [2, 2]
        await session.close()

    simulate(scenario)


def test_the_rack_that_an_operator_names_comes_before_the_bookies_own() -> None:
    async def scenario(store: SimMetadataStore, registry: BookieRegistry, _faults: MetadataFaults) -> None:
        async def say(bookie_id: str, rack: str) -> None:
            value = BookieRack(bookie_id=bookie_id, group="default", rack=rack)
            await store.put(KEYS.bookie_rack(bookie_id), encode(value))

        def racks() -> dict[str, str]:
            return {bookie_id: info.rack for bookie_id, info in registry.bookies.items()}

        session = await store.session(10_000)
        await session.put_ephemeral(KEYS.bookie("a"), registration("a", 1, rack="/own"))
        await say("a", "/r1")
        await say("not-up", "/r2")
        await registry.start()
        assert racks() == {"a": "/r1"}
        changes: list[dict[str, str]] = []
        registry.on_change(lambda: changes.append(racks()))
        await say("a", "/r3")
        await eventually(lambda: racks() == {"a": "/r3"})
        await session.put_ephemeral(KEYS.bookie("not-up"), registration("not-up", 2))
        await eventually(lambda: racks() == {"a": "/r3", "not-up": "/r2"})
        await store.put(KEYS.bookie_rack("not-up"), b"no value at all")
        await eventually(lambda: racks() == {"a": "/r3", "not-up": "/r"})
        await store.delete(KEYS.bookie_rack("a"))
        await eventually(lambda: racks() == {"a": "/own", "not-up": "/r"})
        assert len(changes) == 4
        await session.close()

    simulate(scenario)


def test_a_bookie_that_lost_its_session_is_not_up_and_its_address_stays_known() -> None:
    async def scenario(store: SimMetadataStore, registry: BookieRegistry, _faults: MetadataFaults) -> None:
        session = await store.session(10_000)
        await session.put_ephemeral(KEYS.bookie("a"), registration("a", 1))
        await registry.start()
        await session.close()
        await eventually(lambda: not registry.bookies)
        assert registry.address("a") == "host:1"
        assert registry.address("b") is None

    simulate(scenario)


def test_while_metadata_does_not_answer_everything_stays_as_it_was_and_then_catches_up() -> None:
    async def scenario(store: SimMetadataStore, registry: BookieRegistry, faults: MetadataFaults) -> None:
        session = await store.session(10_000)
        await session.put_ephemeral(KEYS.bookie("a"), registration("a", 1))
        await session.put_ephemeral(KEYS.bookie("b"), registration("b", 1))
        await registry.start()
        faults.unreachable = True
        await asyncio.sleep(5)
        assert sorted(registry.bookies) == ["a", "b"]
        await session.put_ephemeral(KEYS.bookie("a"), registration("a", 7))
        await store.delete(KEYS.bookie("b"))
        faults.unreachable = False
        await eventually(lambda: registry.address("a") == "host:7" and "b" not in registry.bookies)
        await session.close()

    simulate(scenario)


def test_a_watch_that_is_lost_is_replaced_by_a_new_listing() -> None:
    async def main(loop: SimLoop) -> None:
        server = SimMetadataServer()
        theirs, ours = SimMetadataStore(server, loop.rng), SimMetadataStore(server, loop.rng)
        registry = BookieRegistry(ours, KEYS)
        await theirs.put(KEYS.bookie("a"), registration("a", 1))
        await registry.start()
        await theirs.put(KEYS.bookie("b"), registration("b", 2))
        ours.lose_watches()  # with the event on its way
        await theirs.delete(KEYS.bookie("a"))
        await eventually(lambda: list(registry.bookies) == ["b"])
        await registry.close()

    loop = SimLoop(1)
    run(loop, main(loop))


def test_a_registration_that_cannot_be_read_is_a_bookie_that_is_not_up() -> None:
    async def scenario(store: SimMetadataStore, registry: BookieRegistry, _faults: MetadataFaults) -> None:
        await store.put(KEYS.bookie("a"), b"\xff\xff")
        await store.put(KEYS.bookie("b"), registration("b", 2))
        await registry.start()
        assert list(registry.bookies) == ["b"]

    simulate(scenario)


def test_an_address_is_the_bookies_that_registered_it_last() -> None:
    """A machine died and its address was given to another one: the dead bookie is not looked for there."""

    async def scenario(store: SimMetadataStore, registry: BookieRegistry, _faults: MetadataFaults) -> None:
        session = await store.session(10_000)
        await session.put_ephemeral(KEYS.bookie("a"), registration("a", 1))
        await registry.start()
        assert registry.address("a") == "host:1"
        await store.delete(KEYS.bookie("a"))
        await eventually(lambda: not registry.bookies)
        assert registry.address("a") == "host:1"
        await session.put_ephemeral(KEYS.bookie("d"), registration("d", 1))
        await eventually(lambda: "d" in registry.bookies)
        assert (registry.address("d"), registry.address("a")) == ("host:1", None)
        await session.put_ephemeral(KEYS.bookie("a"), registration("a", 2))
        await eventually(lambda: "a" in registry.bookies)
        assert (registry.address("d"), registry.address("a")) == ("host:1", "host:2")
        await session.close()

    simulate(scenario)


def test_a_bookie_whose_address_another_one_took_gets_no_new_ledgers_before_its_session_ends() -> None:
    async def scenario(store: SimMetadataStore, registry: BookieRegistry, _faults: MetadataFaults) -> None:
        def seen() -> list[object]:
            return [registry.address("a"), registry.address("d"), [b.bookie_id for b in registry.writable()]]

        await store.put(KEYS.bookie("d"), registration("d", 9))
        await store.put(KEYS.bookie("a"), registration("a", 1))  # later, and first in the listing
        await store.put(KEYS.bookie("d"), registration("d", 1))
        await registry.start()
        assert seen() == [None, "host:1", ["d"]]
        assert sorted(registry.bookies) == ["a", "d"], "its session has not ended"
        await store.delete(KEYS.bookie("d"))
        await eventually(lambda: "d" not in registry.bookies)
        assert seen() == ["host:1", None, ["a"]], "of two that registered it, the one that is gone has it not"
        await store.put(KEYS.bookie("d"), registration("d", 1))
        await eventually(lambda: "d" in registry.bookies)
        await store.put(KEYS.bookie("d"), registration("d", 2))
        await eventually(lambda: registry.address("d") == "host:2")
        assert seen() == ["host:1", "host:2", ["a", "d"]]

    simulate(scenario)


def test_the_data_directory_of_a_bookie_is_known_with_its_address() -> None:
    async def scenario(store: SimMetadataStore, registry: BookieRegistry, _faults: MetadataFaults) -> None:
        async def register(directory_id: bytes) -> None:
            value = BookieRegistration(bookie_id="a", address="host:1", directory_id=directory_id)
            await store.put(KEYS.bookie("a"), encode(value))

        await register(b"one")
        await registry.start()
        assert registry.directory("a") == b"one"
        await register(b"two")
        await eventually(lambda: registry.directory("a") == b"two")
        await store.delete(KEYS.bookie("a"))
        await eventually(lambda: not registry.bookies)
        assert registry.directory("a") == b"two", "as long as its address is known"
        assert registry.directory("unheard-of") == b""

    simulate(scenario)
