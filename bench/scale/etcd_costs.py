"""CPU of a real etcd on this machine for the requests of the control plane, and bytes of its file.

CPU is that of the process, all of its threads together.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass
from typing import Final

from magnetar.common.cluster.bundle_owners import BundleOwners
from magnetar.common.metadata.etcd_store import EtcdMetadataStore
from magnetar.common.metadata.keys import Keys
from magnetar.common.metadata.store import MetadataStore, Put
from magnetar.common.metadata.values import BundleOwner, encode
from magnetar.common.naming.bundle_range import split_ring
from magnetar.common.naming.namespace_name import NamespaceName

from bench.scale.world import NAMESPACE_BUNDLES
from bench.target import Target
from tests.etcd_server import EtcdServer
from tests.integration.harness import temporary_directory

KEYS: Final = Keys("scale")
WRITERS: Final = 16
"""Processes that write at once."""

WATCHES: Final = 20
WRITES: Final = 2_000
WATCHED_WRITES: Final = 600
READS: Final = 2_000
LISTINGS: Final = 5
KEYS_AT_ONCE: Final = 100
"""Keys of one transaction, as at the end of a session."""


@dataclass(frozen=True, slots=True)
class EtcdCosts:
    """CPU in seconds, of etcd unless said otherwise."""

    write_s: float
    read_s: float
    key_s: float
    """One key of a listing."""
    event_s: float
    """One change in a transaction of its own, sent to one watch."""
    joined_event_s: float
    """One of many changes of a transaction, sent to one watch."""
    mirror_event_s: float
    """CPU of a broker: one change, received and applied."""
    mirror_joined_s: float
    """CPU of a broker: one of many changes of a transaction."""
    mirror_key_s: float
    """CPU of a broker: one key of a listing, received and applied."""
    db_bytes_a_key: float


@contextmanager
def _etcd() -> Iterator[tuple[EtcdServer, Target]]:
    directory = temporary_directory()
    try:
        with EtcdServer.running(directory / "etcd", fsync=False) as server:
            assert server._process is not None
            yield server, Target("", None, server._process.pid)
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def measure() -> EtcdCosts:
    """Takes all figures, in about a minute."""
    with _etcd() as (server, target):
        before = _db_bytes(server)
        write_s, _ = asyncio.run(_writes(server, WRITES, 0, target))
        db_bytes = (_db_bytes(server) - before) / WRITES
        read_s, key_s, mirror_key_s = asyncio.run(_reads(server, target))
        watched_s, alone_s = asyncio.run(_writes(server, WATCHED_WRITES, WATCHES, target))
        _, unwatched_s = asyncio.run(_writes(server, WATCHED_WRITES, 0, target))
        many = [asyncio.run(_joined(server, watches, target)) for watches in (0, WATCHES)]
    return EtcdCosts(
        write_s,
        read_s,
        key_s,
        (watched_s - write_s) / WATCHES,
        (many[1][0] - many[0][0]) / WATCHES,
        (alone_s - unwatched_s) / WATCHES,
        (many[1][1] - many[0][1]) / WATCHES,
        mirror_key_s,
        db_bytes,
    )


async def _writes(server: EtcdServer, count: int, watches: int, target: Target) -> tuple[float, float]:
    """Returns etcd's and this process's CPU for a write."""
    async with AsyncExitStack() as opened:
        stores = [await _store(opened, server) for _ in range(WRITERS)]
        mirrors = [BundleOwners(await _store(opened, server), KEYS) for _ in range(watches)]
        await asyncio.gather(*(mirror.start() for mirror in mirrors))
        cpu, ours = target.cpu_seconds(), time.process_time()
        await _shared(stores, count, _put)
        last = await stores[0].children(KEYS.bundle_owners_prefix)
        newest = max(item.version for item in last.items)
        await _until_known(mirrors, newest)
        etcd_s, ours_s = (target.cpu_seconds() - cpu) / count, (time.process_time() - ours) / count
        for mirror in mirrors:
            await mirror.close()
        return etcd_s, ours_s


async def _joined(server: EtcdServer, watches: int, target: Target) -> tuple[float, float]:
    """Returns etcd's and this process's CPU for one of many keys of a transaction."""
    async with AsyncExitStack() as opened:
        store = await _store(opened, server)
        mirrors = [BundleOwners(await _store(opened, server), KEYS) for _ in range(watches)]
        await asyncio.gather(*(mirror.start() for mirror in mirrors))
        cpu, ours, version = target.cpu_seconds(), time.process_time(), 0
        rounds = 4 * WATCHED_WRITES // KEYS_AT_ONCE
        for _ in range(rounds):
            version = await store.commit([Put(_key(number), _owner()) for number in range(KEYS_AT_ONCE)])
        await _until_known(mirrors, version)
        keys = rounds * KEYS_AT_ONCE
        found = (target.cpu_seconds() - cpu) / keys, (time.process_time() - ours) / keys
        for mirror in mirrors:
            await mirror.close()
        return found


async def _reads(server: EtcdServer, target: Target) -> tuple[float, float, float]:
    """Returns etcd's CPU for a read and for a key of a listing, and a mirror's for such a key."""
    async with AsyncExitStack() as opened:
        stores = [await _store(opened, server) for _ in range(WRITERS)]
        cpu = target.cpu_seconds()
        await _shared(stores, READS, lambda store, number: store.get(_key(number)))
        read_s = (target.cpu_seconds() - cpu) / READS
        cpu, ours, keys = target.cpu_seconds(), time.process_time(), 0
        for _ in range(LISTINGS):
            mirror = BundleOwners(stores[0], KEYS)
            await mirror.start()
            keys += len(mirror)
            await mirror.close()
        return read_s, (target.cpu_seconds() - cpu) / keys, (time.process_time() - ours) / keys


async def _until_known(mirrors: Sequence[BundleOwners], version: int) -> None:
    while any(max(owned.version for *_, owned in each.all()) < version for each in mirrors):  # noqa: ASYNC110
        await asyncio.sleep(0.05)


async def _shared(
    stores: Sequence[MetadataStore], count: int, call: Callable[[MetadataStore, int], Awaitable[object]]
) -> None:
    numbers = iter(range(count))

    async def work(store: MetadataStore) -> None:
        for number in numbers:
            await call(store, number)

    await asyncio.gather(*map(work, stores))


async def _put(store: MetadataStore, number: int) -> None:
    await store.put(_key(number), _owner())


def _owner() -> bytes:
    return encode(
        BundleOwner(broker_id="broker-100.brokers.messaging.svc:8080", run=1 << 62, since_ms=1 << 40)
    )


def _key(number: int) -> str:
    namespace = NamespaceName("tenant", f"namespace-{number // NAMESPACE_BUNDLES}")
    return KEYS.bundle_owner(namespace, split_ring(NAMESPACE_BUNDLES)[number % NAMESPACE_BUNDLES])


async def _store(opened: AsyncExitStack, server: EtcdServer) -> EtcdMetadataStore:
    store = await EtcdMetadataStore.open([server.endpoint])
    opened.push_async_callback(store.close)
    return store


def _db_bytes(server: EtcdServer) -> int:
    time.sleep(1)  # etcd commits to its file ten times a second
    status = json.loads(server.etcdctl("endpoint", "status", "--write-out", "json"))
    return int(status[0]["Status"]["dbSizeInUse"])
