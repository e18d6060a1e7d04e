"""What every metadata store promises, checked on each of them."""

from __future__ import annotations

import asyncio
import random
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import TypeVar

import pytest
from magnetar.common.errors import MetadataError, VersionMismatch, WatchLost
from magnetar.common.metadata.etcd_store import EtcdMetadataStore
from magnetar.common.metadata.served_store import ServedMetadataStore
from magnetar.common.metadata.sqlite_store import SqliteMetadataStore
from magnetar.common.metadata.store import (
    ABSENT,
    TXN_OPS_MAX,
    VALUE_BYTES_MAX,
    Check,
    Delete,
    MetadataStore,
    Op,
    Put,
    Versioned,
    Watch,
    WatchEvent,
)
from magnetar.common.metadata.store_server import MetadataServer
from magnetar.sim.loop import SimLoop
from magnetar.sim.loop import run as run_simulated
from magnetar.sim.metadata import SimMetadataServer, SimMetadataStore

from tests.etcd_server import EtcdServer, grpc_stays, grpc_streams_end

T = TypeVar("T")
Open = Callable[[], Awaitable[MetadataStore]]
Run = Callable[[Callable[[Open], Awaitable[T]]], T]

WATCH_EVENTS_MAX = 8


@pytest.fixture(scope="module")
def etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdServer]:
    with grpc_stays(), EtcdServer.running(tmp_path_factory.mktemp("etcd")) as server:
        yield server


@pytest.fixture(params=["sqlite", "served", "etcd", "sim"])
def run(request: pytest.FixtureRequest, tmp_path: Path, etcd: EtcdServer) -> Run[object]:
    """Runs a scenario; it is given a function that opens the same store anew each time."""
    opened: list[MetadataStore] = []

    async def drive(scenario: Callable[[Open], Awaitable[object]], open_store: Open) -> object:
        async def remembering() -> MetadataStore:
            opened.append(await open_store())
            return opened[-1]

        try:
            return await scenario(remembering)
        finally:
            for store in opened:
                await store.close()

    def on_sqlite(scenario: Callable[[Open], Awaitable[object]]) -> object:
        async def open_store() -> MetadataStore:
            return await SqliteMetadataStore.open(tmp_path / "metadata.db", watch_events_max=WATCH_EVENTS_MAX)

        return asyncio.run(drive(scenario, open_store))

    def on_served(scenario: Callable[[Open], Awaitable[object]]) -> object:
        async def main() -> object:
            with tempfile.TemporaryDirectory() as directory:  # a unix socket's path is short
                path = Path(directory) / "metadata"
                kept = await SqliteMetadataStore.open(tmp_path / "metadata.db")
                server = MetadataServer(kept)
                await server.start(path)

                async def open_store() -> MetadataStore:
                    return ServedMetadataStore(path, watch_events_max=WATCH_EVENTS_MAX)

                try:
                    return await drive(scenario, open_store)
                finally:
                    await server.close()
                    await kept.close()
                    await grpc_streams_end()

        return asyncio.run(main())

    def on_sim(scenario: Callable[[Open], Awaitable[object]]) -> object:
        server, rng = SimMetadataServer(), random.Random(1)

        async def open_store() -> MetadataStore:
            return SimMetadataStore(server, rng, watch_events_max=WATCH_EVENTS_MAX)

        return run_simulated(SimLoop(1), drive(scenario, open_store))

    def on_etcd(scenario: Callable[[Open], Awaitable[object]]) -> object:
        etcd.clear()

        async def open_store() -> MetadataStore:
            return await EtcdMetadataStore.open(
                [etcd.endpoint], watch_events_max=WATCH_EVENTS_MAX, page_keys=2
            )

        async def main() -> object:
            try:
                return await drive(scenario, open_store)
            finally:
                await grpc_streams_end()

        return asyncio.run(main())

    return {"sqlite": on_sqlite, "served": on_served, "etcd": on_etcd, "sim": on_sim}[request.param]


def test_an_absent_key_reads_as_none(run: Run[None]) -> None:
    async def scenario(open_store: Open) -> None:
        store = await open_store()
        assert await store.get("/a") is None

    run(scenario)


def test_a_put_is_read_back_with_its_version(run: Run[None]) -> None:
    async def scenario(open_store: Open) -> None:
        store = await open_store()
        version = await store.put("/a", b"1")
        assert version > 0
        assert await store.get("/a") == Versioned("/a", b"1", version)
        second = await store.put("/a", b"2", version)
        assert second > version
        assert await store.get("/a") == Versioned("/a", b"2", second)

    run(scenario)


def test_a_put_at_another_version_writes_nothing_and_tells_both_versions(run: Run[None]) -> None:
    async def scenario(open_store: Open) -> None:
        store = await open_store()
        version = await store.put("/a", b"1", ABSENT)
        with pytest.raises(VersionMismatch) as lost:
            await store.put("/a", b"2", ABSENT)
        assert (lost.value.key, lost.value.expected, lost.value.actual) == ("/a", ABSENT, version)
        with pytest.raises(VersionMismatch):
            await store.put("/b", b"2", version)
        assert await store.get("/a") == Versioned("/a", b"1", version)
        assert await store.get("/b") is None

    run(scenario)


def test_a_version_is_never_used_again_even_after_a_delete(run: Run[None]) -> None:
    async def scenario(open_store: Open) -> None:
        store = await open_store()
        first = await store.put("/a", b"1")
        await store.delete("/a", first)
        assert await store.get("/a") is None
        assert await store.put("/a", b"1", ABSENT) > first
        with pytest.raises(VersionMismatch):
            await store.delete("/a", first)

    run(scenario)


def test_removing_an_absent_key_is_no_error(run: Run[None]) -> None:
    async def scenario(open_store: Open) -> None:
        store = await open_store()
        await store.delete("/a")
        await store.delete("/a", ABSENT)
        with pytest.raises(VersionMismatch):
            await store.delete("/a", 7)

    run(scenario)


def test_children_are_those_of_the_prefix_in_key_order_at_one_revision(run: Run[None]) -> None:
    async def scenario(open_store: Open) -> None:
        store = await open_store()
        keys = ["/p/b", "/p/a", "/p/a/x", "/p/é", "/p/\U0010ffff", "/q", "/o/z", "/pa"]
        last = 0
        for key in keys:
            last = await store.put(key, key.encode())
        listing = await store.children("/p/")
        assert listing.revision == last
        assert [item.key for item in listing.items] == ["/p/a", "/p/a/x", "/p/b", "/p/é", "/p/\U0010ffff"]
        assert all(item.value == item.key.encode() for item in listing.items)
        assert (await store.children("/none/")).items == []

    run(scenario)


def test_a_transaction_is_all_or_nothing(run: Run[None]) -> None:
    async def scenario(open_store: Open) -> None:
        store = await open_store()
        a = await store.put("/a", b"1")
        with pytest.raises(VersionMismatch) as lost:
            await store.commit([Put("/b", b"1"), Delete("/a"), Check("/a", a + 1), Put("/c", b"1", 99)])
        assert lost.value.key == "/a"
        assert [item.key for item in (await store.children("/")).items] == ["/a"]
        revision = await store.commit(
            [Put("/b", b"1", ABSENT), Put("/c", b"2"), Delete("/a"), Check("/d", 0)]
        )
        assert (await store.children("/")).items == [
            Versioned("/b", b"1", revision),
            Versioned("/c", b"2", revision),
        ]

    run(scenario)


def test_guards_see_the_state_before_the_transaction(run: Run[None]) -> None:
    async def scenario(open_store: Open) -> None:
        store = await open_store()
        a = await store.put("/a", b"1")
        await store.commit([Put("/a", b"2"), Check("/a", a)])
        current = await store.get("/a")
        assert current is not None
        assert current.value == b"2"

    run(scenario)


def test_a_transaction_that_only_checks_changes_no_revision(run: Run[None]) -> None:
    async def scenario(open_store: Open) -> None:
        store = await open_store()
        a = await store.put("/a", b"1")
        assert await store.commit([Check("/a", a)]) == a
        assert await store.put("/a", b"2", a) == a + 1

    run(scenario)


@pytest.mark.parametrize(
    "ops",
    [
        [Put("/a", b""), Delete("/a")],
        [Put("/a", b"x" * (VALUE_BYTES_MAX + 1))],
        [Put("/a", b""), *(Check(f"/{number}", ABSENT) for number in range(TXN_OPS_MAX))],
    ],
    ids=["twice", "long", "many"],
)
def test_invalid_key_is_refused_by_every_store(run: Run[None], ops: list[Op]) -> None:
    async def scenario(open_store: Open) -> None:
        store = await open_store()
        with pytest.raises(ValueError, match="/a"):
            await store.commit(ops)
        assert await store.get("/a") is None

    run(scenario)


def test_exactly_one_concurrent_compare_and_set_wins(run: Run[None]) -> None:
    async def scenario(open_store: Open) -> None:
        store = await open_store()
        version = await store.put("/counter", b"0")
        outcomes = await asyncio.gather(
            *(store.put("/counter", b"%d" % writer, version) for writer in range(20)), return_exceptions=True
        )
        winners = [writer for writer, outcome in enumerate(outcomes) if isinstance(outcome, int)]
        assert len(winners) == 1
        assert all(isinstance(outcome, VersionMismatch | int) for outcome in outcomes)
        current = await store.get("/counter")
        assert current == Versioned("/counter", b"%d" % winners[0], outcomes[winners[0]])  # type: ignore[arg-type]

    run(scenario)


def test_a_lost_guard_does_not_touch_the_commits_beside_it(run: Run[None]) -> None:
    async def scenario(open_store: Open) -> None:
        store = await open_store()
        outcomes = await asyncio.gather(
            store.put("/a", b"1"),
            store.commit([Put("/x", b"1"), Check("/never", 5)]),
            store.put("/b", b"1"),
            return_exceptions=True,
        )
        assert isinstance(outcomes[1], VersionMismatch)
        assert [item.key for item in (await store.children("/")).items] == ["/a", "/b"]

    run(scenario)


def test_keys_and_revision_survive_closing_and_opening(run: Run[None]) -> None:
    async def scenario(open_store: Open) -> None:
        store = await open_store()
        version = await store.put("/a", b"1")
        await store.close()
        store = await open_store()
        assert await store.get("/a") == Versioned("/a", b"1", version)
        assert await store.put("/b", b"1") > version

    run(scenario)


async def next_events(watch: Watch, count: int) -> list[WatchEvent]:
    return [await asyncio.wait_for(watch.__anext__(), 20) for _ in range(count)]


def test_a_watch_sees_the_changes_under_its_prefix_in_order(run: Run[None]) -> None:
    async def scenario(open_store: Open) -> None:
        store = await open_store()
        await store.put("/w/before", b"0")
        watch = store.watch("/w/")
        a = await store.put("/w/a", b"1")
        await store.put("/elsewhere", b"1")
        both = await store.commit([Put("/w/b", b"2"), Put("/w/a", b"3")])
        await store.delete("/w/absent")
        gone = await store.commit([Delete("/w/before")])
        assert await next_events(watch, 4) == [
            WatchEvent("/w/a", b"1", a),
            WatchEvent("/w/b", b"2", both),
            WatchEvent("/w/a", b"3", both),
            WatchEvent("/w/before", None, gone),
        ]
        await watch.aclose()

    run(scenario)


def test_a_failed_transaction_is_not_watched(run: Run[None]) -> None:
    async def scenario(open_store: Open) -> None:
        store = await open_store()
        watch = store.watch("/")
        with pytest.raises(VersionMismatch):
            await store.commit([Put("/a", b"1"), Check("/b", 9)])
        last = await store.put("/c", b"1")
        assert await next_events(watch, 1) == [WatchEvent("/c", b"1", last)]

    run(scenario)


def test_a_watch_that_falls_behind_ends_with_an_error_that_says_to_list_again(run: Run[None]) -> None:
    async def scenario(open_store: Open) -> None:
        store = await open_store()
        watch = store.watch("/")
        for number in range(WATCH_EVENTS_MAX + 1):
            await store.put(f"/{number}", b"")
        await asyncio.sleep(0.1)
        with pytest.raises(WatchLost, match="list the prefix again"):
            await next_events(watch, 1)

    run(scenario)


def test_closing_a_watch_ends_its_iteration(run: Run[None]) -> None:
    async def scenario(open_store: Open) -> None:
        store = await open_store()
        watch = store.watch("/")

        async def collect() -> list[WatchEvent]:
            return [event async for event in watch]

        waiting = asyncio.ensure_future(collect())
        await asyncio.sleep(0)
        await watch.aclose()
        assert await waiting == []
        await store.put("/a", b"1")
        with pytest.raises(StopAsyncIteration):
            await watch.__anext__()

    run(scenario)


def test_closing_the_store_ends_watches_and_refuses_calls(run: Run[None]) -> None:
    async def scenario(open_store: Open) -> None:
        store = await open_store()
        watch = store.watch("/")
        await store.close()
        await store.close()
        with pytest.raises(StopAsyncIteration):
            await watch.__anext__()
        with pytest.raises(StopAsyncIteration):
            await store.watch("/").__anext__()
        with pytest.raises(MetadataError):
            await store.get("/a")
        with pytest.raises(MetadataError):
            await store.put("/a", b"1")
        with pytest.raises(MetadataError):
            await store.session(1000)

    run(scenario)


def test_ephemeral_keys_go_with_their_session(run: Run[None]) -> None:
    async def scenario(open_store: Open) -> None:
        store = await open_store()
        session, other = await store.session(10_000), await store.session(10_000)
        version = await session.put_ephemeral("/e/1", b"mine", ABSENT)
        await other.put_ephemeral("/e/2", b"other")
        await store.put("/e/3", b"stays")
        assert await store.get("/e/1") == Versioned("/e/1", b"mine", version)
        with pytest.raises(VersionMismatch):
            await other.put_ephemeral("/e/1", b"stolen", ABSENT)
        watch = store.watch("/e/")
        assert not session.has_ended
        await session.close()
        await session.close()
        await asyncio.wait_for(session.expired(), 20)
        assert session.has_ended
        assert [item.key for item in (await store.children("/e/")).items] == ["/e/2", "/e/3"]
        [event] = await next_events(watch, 1)
        assert (event.key, event.value) == ("/e/1", None)
        assert event.version > version
        with pytest.raises(MetadataError):
            await session.put_ephemeral("/e/1", b"late")
        assert await store.get("/e/1") is None

    run(scenario)


def test_closing_the_store_ends_its_sessions(run: Run[None]) -> None:
    async def scenario(open_store: Open) -> None:
        store = await open_store()
        session = await store.session(10_000)
        await session.put_ephemeral("/e", b"1")
        await store.close()
        assert await (await open_store()).get("/e") is None

    run(scenario)


def test_a_transaction_of_a_session_writes_keys_that_go_with_it_beside_keys_that_stay(run: Run[None]) -> None:
    async def scenario(open_store: Open) -> None:
        store = await open_store()
        session = await store.session(10_000)
        gone = await session.put_ephemeral("/owner/whole", b"mine")
        ops: list[Op] = [
            Put("/ring", b"cut in two", ABSENT),
            Delete("/owner/whole", gone),
            Put("/owner/half-1", b"mine", ABSENT, ephemeral=True),
            Put("/owner/half-2", b"mine", ABSENT, ephemeral=True),
        ]
        version = await session.commit(ops)
        assert [item.version for item in (await store.children("/owner/")).items] == [version, version]
        with pytest.raises(VersionMismatch):
            await session.commit(ops)
        await session.close()
        assert (await store.children("/owner/")).items == []
        assert await store.get("/ring") == Versioned("/ring", b"cut in two", version)
        with pytest.raises(MetadataError):
            await session.commit([Put("/ring", b"late")])

    run(scenario)


def test_an_ephemeral_key_goes_with_the_session_that_put_it_last(run: Run[None]) -> None:
    async def scenario(open_store: Open) -> None:
        store = await open_store()
        giver, taker = await store.session(10_000), await store.session(10_000)
        version = await giver.put_ephemeral("/e", b"giver")
        version = await taker.put_ephemeral("/e", b"taker", version)
        await giver.close()
        assert await store.get("/e") == Versioned("/e", b"taker", version)
        await taker.close()
        assert await store.get("/e") is None

    run(scenario)


def test_an_ephemeral_key_without_a_session_is_refused(run: Run[None]) -> None:
    async def scenario(open_store: Open) -> None:
        store = await open_store()
        with pytest.raises(ValueError, match="no session"):
            await store.commit([Put("/e", b"1", ephemeral=True)])

    run(scenario)


def test_a_plain_put_over_an_ephemeral_key_makes_it_stay(run: Run[None]) -> None:
    async def scenario(open_store: Open) -> None:
        store = await open_store()
        session = await store.session(10_000)
        await session.put_ephemeral("/e", b"1")
        version = await store.put("/e", b"2")
        await session.close()
        assert await store.get("/e") == Versioned("/e", b"2", version)

    run(scenario)
