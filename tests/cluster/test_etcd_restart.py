"""The metadata store while etcd is killed, stands still, restarts and compacts."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest
from magnetar.common.errors import MetadataError, UnknownOutcome, WatchLost
from magnetar.common.metadata.etcd_store import EtcdMetadataStore
from magnetar.common.metadata.store import ABSENT, Put, Versioned, Watch, WatchEvent

from tests.etcd_server import EtcdServer, forgets_when_killed
from tools.local_cluster.etcd_program import find_etcd

WAIT_S = 60.0
REQUEST_S = 2.0
"""Where a test waits for requests to run out of time; the others take etcd's answer for granted."""


@pytest.fixture
def etcd(tmp_path: Path) -> Iterator[EtcdServer]:
    with EtcdServer.running(tmp_path / "etcd") as server:
        yield server


def with_store(
    etcd: EtcdServer,
    scenario: Callable[[EtcdMetadataStore], Awaitable[None]],
    *,
    request_timeout_s: float = 5.0,
    before: tuple[str, ...] = (),
) -> None:
    async def main() -> None:
        store = await EtcdMetadataStore.open(
            [*before, etcd.endpoint], request_timeout_s=request_timeout_s, page_keys=10
        )
        try:
            await scenario(store)
        finally:
            await store.close()

    asyncio.run(main())


async def in_thread(call: Callable[[], object]) -> None:
    """The loop goes on while etcd starts."""
    await asyncio.get_running_loop().run_in_executor(None, call)


async def until_answered(store: EtcdMetadataStore, key: str) -> Versioned | None:
    """The value, from an etcd that is there again: it takes until the next attempt to connect to it."""
    async with asyncio.timeout(WAIT_S):
        while True:
            try:
                return await store.get(key)
            except MetadataError:
                continue


async def next_events(watch: Watch, count: int) -> list[WatchEvent]:
    return [await asyncio.wait_for(watch.__anext__(), WAIT_S) for _ in range(count)]


@pytest.fixture
def lasting_etcd(tmp_path: Path) -> Iterator[EtcdServer]:
    """One that keeps what it confirmed, though it is killed while it writes."""
    program = find_etcd()
    if version := forgets_when_killed(program):
        pytest.skip(f"etcd {version} forgets confirmed writes when it is killed: put another one on the PATH")
    with EtcdServer.running(tmp_path / "etcd", program=program) as server:
        yield server


@pytest.mark.full
def test_a_watch_misses_and_repeats_nothing_over_kills_under_commits(lasting_etcd: EtcdServer) -> None:
    """Every write is one transaction of two keys; those of unknown outcome are read again, not repeated."""

    async def scenario(store: EtcdMetadataStore) -> None:
        watch = store.watch("/w/")
        stop = asyncio.Event()
        written: dict[str, int] = {}

        async def write() -> None:
            number = 0
            while not stop.is_set():
                number += 1
                key = f"/w/{number:06d}"
                try:
                    written[key] = await store.commit([Put(key, b"", ABSENT), Put("/w/last", key.encode())])
                except UnknownOutcome:
                    found = await until_answered(store, key)
                    if found is not None:
                        written[key] = found.version
                except MetadataError:
                    continue  # not sent

        writing = asyncio.ensure_future(write())
        for _ in range(3):
            enough = len(written) + 10
            async with asyncio.timeout(WAIT_S):
                while len(written) < enough:  # noqa: ASYNC110 - nothing tells
                    await asyncio.sleep(0.05)
            await asyncio.sleep(0.3)
            lasting_etcd.kill()
            await asyncio.sleep(0.2)
            await in_thread(lasting_etcd.start)
        await asyncio.sleep(0.3)
        stop.set()
        await asyncio.wait_for(writing, WAIT_S)
        assert len(written) > 20
        events = await next_events(watch, 2 * len(written))
        assert {event.key: event.version for event in events if event.key != "/w/last"} == written
        assert [event.version for event in events] == sorted(event.version for event in events)
        assert len({(event.key, event.version) for event in events}) == len(events)
        await store.put("/w/end", b"")
        assert (await next_events(watch, 1))[0].key == "/w/end"
        listing = await store.children("/w/0")
        assert {item.key: item.version for item in listing.items} == written

    with_store(lasting_etcd, scenario)


def test_a_lost_answer_is_an_unknown_outcome_and_the_write_is_sent_once(etcd: EtcdServer) -> None:
    """A server that stands still holds the request. When it goes on it may carry it out, or see first that
    nobody waits for the answer."""

    async def scenario(store: EtcdMetadataStore) -> None:
        watch = store.watch("/")
        before = await store.put("/before", b"")
        etcd.pause()
        started = time.monotonic()
        with pytest.raises(UnknownOutcome, match="may have happened"):
            await store.put("/a", b"1")
        assert time.monotonic() - started < 5 * REQUEST_S
        etcd.resume()
        await until_answered(store, "/before")
        last = await store.put("/last", b"")
        events = await next_events(watch, last - before + 1)
        assert [event.key for event in events] in (["/before", "/last"], ["/before", "/a", "/last"])
        found = await store.get("/a")
        assert [found.version] if found else [event.version for event in events if event.key == "/a"] == []

    with_store(etcd, scenario, request_timeout_s=REQUEST_S)


@pytest.mark.full
def test_without_etcd_a_write_says_that_nothing_was_sent_and_all_calls_end_in_time(etcd: EtcdServer) -> None:
    async def scenario(store: EtcdMetadataStore) -> None:
        etcd.kill()
        await asyncio.sleep(0.2)
        started = time.monotonic()
        for call in (store.put("/a", b"1"), store.get("/a"), store.children("/"), store.session(2_000)):
            with pytest.raises(MetadataError) as failed:
                await call
            assert not isinstance(failed.value, UnknownOutcome), failed.value
        assert time.monotonic() - started < 4 * 5 * REQUEST_S
        await in_thread(etcd.start)
        assert await until_answered(store, "/a") is None

    with_store(etcd, scenario, request_timeout_s=REQUEST_S)


@pytest.mark.full
def test_a_watch_whose_changes_were_compacted_says_so(etcd: EtcdServer) -> None:
    async def scenario(store: EtcdMetadataStore) -> None:
        watch = store.watch("/w/")
        await store.put("/w/a", b"")
        await next_events(watch, 1)
        etcd.kill()
        await asyncio.sleep(0.2)

        def change_and_compact() -> None:
            etcd.start()
            for number in range(5):
                etcd.etcdctl("put", f"/w/{number}", "")
            etcd.compact()

        # The watcher is kept away meanwhile: its loop stands still.
        change_and_compact()
        with pytest.raises(WatchLost, match="compacted"):
            await next_events(watch, 6)
        again = store.watch("/w/")
        assert len((await store.children("/w/")).items) == 6
        await store.put("/w/z", b"")
        assert (await next_events(again, 1))[0].key == "/w/z"

    with_store(etcd, scenario)


def test_a_session_survives_an_outage_within_its_time(etcd: EtcdServer) -> None:
    async def scenario(store: EtcdMetadataStore) -> None:
        session = await store.session(30_000)
        version = await session.put_ephemeral("/e", b"")
        etcd.kill()
        await in_thread(etcd.start)
        found = await until_answered(store, "/e")
        assert found is not None
        assert found.version == version
        assert session.is_heard
        assert await session.put_ephemeral("/e", b"again", version) > version
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(session.expired(), 0.1)

    with_store(etcd, scenario)


@pytest.mark.full
def test_a_session_is_unheard_after_its_time_and_expired_only_when_etcd_says_so(etcd: EtcdServer) -> None:
    async def scenario(store: EtcdMetadataStore) -> None:
        session = await store.session(4_000)
        await session.put_ephemeral("/e", b"")
        assert session.is_heard
        etcd.pause()
        await asyncio.wait_for(session.unheard(), WAIT_S)
        expired = asyncio.ensure_future(session.expired())
        await asyncio.sleep(1.0)
        assert not expired.done()
        etcd.resume()
        await asyncio.wait_for(expired, WAIT_S)
        assert await until_answered(store, "/e") is None
        with pytest.raises(MetadataError, match="has ended"):
            await session.put_ephemeral("/e", b"")

    with_store(etcd, scenario, request_timeout_s=REQUEST_S)


def test_a_session_whose_lease_was_revoked_learns_it_with_its_next_sign_of_life(etcd: EtcdServer) -> None:
    async def scenario(store: EtcdMetadataStore) -> None:
        session = await store.session(9_000)
        await session.put_ephemeral("/e", b"")
        etcd.etcdctl("lease", "revoke", f"{session.lease:x}")
        started = time.monotonic()
        await asyncio.wait_for(session.expired(), WAIT_S)
        assert time.monotonic() - started < session.ttl_s

    with_store(etcd, scenario)


def test_a_member_that_is_away_is_passed_over(etcd: EtcdServer, tmp_path: Path) -> None:
    """The first endpoint answers nothing at the start; later the one in use goes away."""

    async def scenario(store: EtcdMetadataStore) -> None:
        assert await store.put("/a", b"") > 0

    away = EtcdServer(tmp_path / "away")
    with_store(etcd, scenario, before=(away.endpoint,))


def test_a_listing_is_of_one_revision_though_its_pages_are_read_between_writes(etcd: EtcdServer) -> None:
    async def scenario(store: EtcdMetadataStore) -> None:
        for start in range(0, 300, 100):
            await store.commit([Put(f"/p/{number:04d}", b"") for number in range(start, start + 100)])

        async def grow() -> None:
            for number in range(100):
                await store.commit([Put(f"/p/{number:04d}", b"+"), Put(f"/p/{299 - number:04d}", b"+")])

        growing = asyncio.ensure_future(grow())
        while not growing.done():
            listing = await store.children("/p/")
            assert len(listing.items) == 300
            changed = [item for item in listing.items if item.value == b"+"]
            assert len(changed) % 2 == 0 or len(changed) == 300
            assert all(item.version <= listing.revision for item in listing.items)
        await growing

    with_store(etcd, scenario)
