"""The store of a worker beyond the contract: the parent process at the other end of a socket, and leases."""

from __future__ import annotations

import asyncio
import math
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from magnetar.common.errors import MetadataError, UnknownOutcome, WatchLost
from magnetar.common.metadata.served_methods import CHILDREN
from magnetar.common.metadata.served_store import ServedMetadataStore
from magnetar.common.metadata.sqlite_store import SqliteMetadataStore
from magnetar.common.metadata.store import Put
from magnetar.common.metadata.store_server import PART_ITEMS_MAX, MetadataServer

from tests.etcd_server import grpc_stays, grpc_streams_end


@asynccontextmanager
async def served(directory: Path) -> AsyncIterator[tuple[MetadataServer, Path]]:
    kept = await SqliteMetadataStore.open(directory / "metadata.db")
    server = MetadataServer(kept)
    with tempfile.TemporaryDirectory() as short:
        try:
            await server.start(Path(short) / "metadata")
            yield server, Path(short) / "metadata"
        finally:
            await server.close()
            await kept.close()


def run(directory: Path, act: Callable[[MetadataServer, Path], Awaitable[None]]) -> None:
    async def main() -> None:
        try:
            async with served(directory) as (server, path):
                await act(server, path)
        finally:
            await grpc_streams_end()

    with grpc_stays():
        asyncio.run(main())


def test_a_session_without_keep_alives_expires_and_its_keys_go(tmp_path: Path) -> None:
    async def act(_: MetadataServer, path: Path) -> None:
        silent, other = ServedMetadataStore(path), ServedMetadataStore(path)
        session = await silent.session(3_000)
        await session.put_ephemeral("/e", b"1")
        watch = other.watch("/e")
        assert await other.get("/e") is not None
        await silent._tasks.close()  # the process is suspended
        event = await asyncio.wait_for(watch.__anext__(), 20)
        assert event.value is None
        with pytest.raises(MetadataError, match="has ended"):
            await session.put_ephemeral("/e", b"late")
        assert session.has_ended
        assert session.alive_until_s == -math.inf
        await silent.close()
        await other.close()

    run(tmp_path, act)


def test_a_session_lives_as_long_as_its_keep_alives(tmp_path: Path) -> None:
    async def act(_: MetadataServer, path: Path) -> None:
        store = ServedMetadataStore(path)
        session = await store.session(3_000)
        await session.put_ephemeral("/e", b"1")
        await asyncio.sleep(4)
        assert not session.has_ended
        assert await store.get("/e") is not None
        await store.close()

    run(tmp_path, act)


def test_the_changes_of_one_client_are_watched_by_another(tmp_path: Path) -> None:
    async def act(_: MetadataServer, path: Path) -> None:
        one, other = ServedMetadataStore(path), ServedMetadataStore(path)
        watch = one.watch("/a")
        listing = await one.children("/a")
        version = await other.put("/a/b", b"1")
        event = await asyncio.wait_for(watch.__anext__(), 20)
        assert (event.key, event.value, event.version) == ("/a/b", b"1", version)
        assert version > listing.revision
        await one.close()
        await other.close()

    run(tmp_path, act)


def test_a_listing_of_many_keys_comes_in_parts_of_one_revision(tmp_path: Path) -> None:
    async def act(_: MetadataServer, path: Path) -> None:
        store = ServedMetadataStore(path)
        count = PART_ITEMS_MAX + 7
        for first in range(0, count, 100):
            await store.commit([Put(f"/k/{n:06}", b"v") for n in range(first, min(count, first + 100))])
        listing = await store.children("/k/")
        assert [item.key for item in listing.items] == [f"/k/{n:06}" for n in range(count)]
        assert listing.revision == listing.items[-1].version
        assert CHILDREN.path == "/magnetar.metadata.served.v1.MetadataStore/Children"
        await store.close()

    run(tmp_path, act)


def test_without_the_parent_process_reads_fail_writes_are_unknown_and_watches_are_lost(
    tmp_path: Path,
) -> None:
    async def act(server: MetadataServer, path: Path) -> None:
        store = ServedMetadataStore(path)
        watch = store.watch("/")
        await store.put("/a", b"1")
        await watch.__anext__()
        await server.close()
        with pytest.raises(MetadataError, match="parent process did not answer Get"):
            await store.get("/a")
        with pytest.raises(MetadataError, match="parent process did not answer Children"):
            await store.children("/a")
        with pytest.raises(UnknownOutcome):
            await store.put("/a", b"2")
        with pytest.raises(MetadataError):
            await store.session(1_000)
        with pytest.raises(WatchLost):
            await watch.__anext__()
        await store.close()

    run(tmp_path, act)
