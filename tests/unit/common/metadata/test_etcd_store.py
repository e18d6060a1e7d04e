"""What etcd adds to the contract: limits, pages, large answers, several members, leases in seconds."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest
from magnetar.common.errors import MetadataError, VersionMismatch, WatchLost
from magnetar.common.metadata.etcd_store import EtcdMetadataStore
from magnetar.common.metadata.store import ABSENT, TXN_OPS_MAX, VALUE_BYTES_MAX, Check, Put, WatchEvent
from structlog.testing import capture_logs

from tests.etcd_server import EtcdServer, grpc_stays, grpc_streams_end


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[EtcdServer]]:
    """Two clusters of one member each."""
    with (
        grpc_stays(),
        EtcdServer.running(tmp_path_factory.mktemp("one")) as one,
        EtcdServer.running(tmp_path_factory.mktemp("two")) as two,
    ):
        yield [one, two]


@pytest.fixture
def etcd(servers: list[EtcdServer]) -> EtcdServer:
    servers[0].clear()
    return servers[0]


def with_store(
    endpoints: list[str],
    scenario: Callable[[EtcdMetadataStore], Awaitable[None]],
    request_timeout_s: float = 5.0,
) -> None:
    async def main() -> None:
        try:
            store = await EtcdMetadataStore.open(
                endpoints, request_timeout_s=request_timeout_s, page_keys=100
            )
            try:
                await scenario(store)
            finally:
                await store.close()
        finally:
            await grpc_streams_end()

    asyncio.run(main())


def test_the_largest_transaction_is_taken_and_a_larger_one_refused_before_it_is_sent(
    etcd: EtcdServer,
) -> None:
    async def scenario(store: EtcdMetadataStore) -> None:
        puts = [Put(f"/{number}", b"", ABSENT) for number in range(TXN_OPS_MAX)]
        revision = await store.commit(puts)
        with pytest.raises(ValueError, match="at most 128"):
            await store.commit([*puts, Check("/guard", ABSENT)])
        with pytest.raises(VersionMismatch) as lost:
            await store.commit([Put(put.key, b"") for put in puts[1:]] + [Check("/0", revision + 1)])
        assert lost.value.actual == revision

    with_store([etcd.endpoint], scenario)


def test_the_first_guard_that_fails_is_the_one_that_is_named(etcd: EtcdServer) -> None:
    async def scenario(store: EtcdMetadataStore) -> None:
        a, b = await store.put("/a", b""), await store.put("/b", b"")
        with pytest.raises(VersionMismatch) as lost:
            await store.commit([Check("/a", a), Put("/c", b"", ABSENT), Check("/b", a), Check("/d", b)])
        assert (lost.value.key, lost.value.expected, lost.value.actual) == ("/b", a, b)

    with_store([etcd.endpoint], scenario)


def test_a_transaction_larger_than_etcd_takes_is_refused_before_it_is_sent(etcd: EtcdServer) -> None:
    async def scenario(store: EtcdMetadataStore) -> None:
        big = bytes(VALUE_BYTES_MAX)
        with pytest.raises(ValueError, match="bytes: etcd takes at most"):
            await store.commit([Put("/a", big), Put("/b", big)])
        assert (await store.children("/")).items == []
        assert await store.put("/a", big) > 0

    with_store([etcd.endpoint], scenario)


def test_reads_that_come_together_see_what_was_written_before_them(etcd: EtcdServer) -> None:
    async def scenario(store: EtcdMetadataStore) -> None:
        large = b"x" * (VALUE_BYTES_MAX - 1000)
        keys = [f"/together/{number}" for number in range(200)]
        for key in keys[::20]:
            await store.put(key, large)  # together more than an answer may have
        versions = {key: await store.put(key, key.encode()) for key in keys if key not in keys[::20]}
        found = await asyncio.gather(*(store.get(key) for key in [*keys, "/together/none"]))
        assert found.pop() is None
        for key, each in zip(keys, found, strict=True):
            assert each is not None
            assert each.value == (key.encode() if key in versions else large)
            assert each.version == versions.get(key, each.version)

    with_store([etcd.endpoint], scenario)


def test_a_listing_larger_than_one_answer_is_whole_and_so_is_a_watch(etcd: EtcdServer) -> None:
    """12 values of 1 MiB: more than a message holds."""

    async def scenario(store: EtcdMetadataStore) -> None:
        watch = store.watch("/big/")
        expected = []
        for number in range(12):
            key, value = f"/big/{number:02d}", bytes([number]) * VALUE_BYTES_MAX
            expected.append(WatchEvent(key, value, await store.put(key, value)))
        listing = await store.children("/big/")
        assert [(item.key, item.value, item.version) for item in listing.items] == [
            (event.key, event.value, event.version) for event in expected
        ]
        assert [await asyncio.wait_for(watch.__anext__(), 20) for _ in expected] == expected

    with_store([etcd.endpoint], scenario)


def test_changes_of_another_store_after_a_listing_reach_the_watch_started_before_it(
    etcd: EtcdServer,
) -> None:
    async def scenario(store: EtcdMetadataStore) -> None:
        other = await EtcdMetadataStore.open([etcd.endpoint])
        for round_ in range(20):
            watch = store.watch("/w/")
            listing = await store.children("/w/")
            version = await other.put("/w/a", b"%d" % round_)
            assert version == listing.revision + 1
            assert (await asyncio.wait_for(watch.__anext__(), 20)).version == version
            await watch.aclose()
        await other.close()

    with_store([etcd.endpoint], scenario)


@pytest.mark.full
def test_a_member_that_stops_answering_is_left_for_another(servers: list[EtcdServer]) -> None:
    """Here each is a cluster of its own, so that it shows who answered. Who is connected first is asked."""
    for server in servers:
        server.clear()

    async def scenario(store: EtcdMetadataStore) -> None:
        await store.put("/who", b"asked first")
        asked, other = servers if servers[0].etcdctl("get", "/who") else servers[::-1]
        asked.pause()
        try:
            assert await store.get("/who") is None
            assert await store.put("/who", b"the other") > 0
        finally:
            asked.resume()
        assert "the other" in other.etcdctl("get", "/who")
        found = await store.get("/who")
        assert found is not None
        assert found.value == b"the other"

    with_store([server.endpoint for server in servers], scenario, request_timeout_s=6.0)


def test_an_etcd_that_was_replaced_ends_the_watches_and_is_followed_anew(tmp_path: Path) -> None:
    async def scenario(store: EtcdMetadataStore) -> None:
        for number in range(20):
            await store.put("/a", str(number).encode())
        watch = store.watch("/a")
        assert await store.get("/a") is not None
        server.kill()
        shutil.rmtree(server.directory / "data")
        server.start()
        with capture_logs() as logged:
            assert await store.get("/a") is None
        assert [line["event"] for line in logged if line["log_level"] == "error"] == [
            "metadata is older than it was: etcd was restored or replaced"
        ]
        with pytest.raises(WatchLost, match="went back"):
            await anext(watch)
        again = store.watch("/a")
        revision = await store.put("/a", b"new")
        assert await anext(again) == WatchEvent("/a", b"new", revision)
        await again.aclose()

    with grpc_stays(), EtcdServer.running(tmp_path) as server:
        with_store([server.endpoint], scenario, request_timeout_s=30)


def test_a_session_time_is_in_whole_seconds_and_granted_by_etcd(etcd: EtcdServer) -> None:
    async def scenario(store: EtcdMetadataStore) -> None:
        assert (await store.session(2_001)).ttl_s == 3
        assert (await store.session(1)).ttl_s >= 1

    with_store([etcd.endpoint], scenario)


def test_a_store_that_finds_no_etcd_does_not_open_and_names_the_endpoints(etcd: EtcdServer) -> None:
    async def scenario(store: EtcdMetadataStore) -> None:
        raise AssertionError("opened")

    with pytest.raises(MetadataError, match=r"no connection to etcd at 127\.0\.0\.1:1 within 0\.5 s"):
        with_store(["127.0.0.1:1"], scenario, request_timeout_s=0.5)


def test_host_names_are_resolved(etcd: EtcdServer) -> None:
    async def scenario(store: EtcdMetadataStore) -> None:
        assert await store.put("/a", b"") > 0

    with_store([f"localhost:{etcd.client_port}"], scenario)
