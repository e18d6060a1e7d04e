"""The two stores under measurement, opened as the services open them, and the bookies as processes."""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from magnetar.common.metadata.keys import Keys
from magnetar.common.metadata.open_store import open_metadata_store
from magnetar.common.runtime.blocking import ThreadPool
from magnetar.common.runtime.clock import SystemClock
from magnetar.common.runtime.posix_disk import PosixDisk
from magnetar.ledger.bookie_protocol.grpc_clients import GrpcBookieClients
from magnetar.ledger.bookie_protocol.registry import BookieRegistry
from magnetar.ledger.local_store import LocalLedgerStore, open_local_store
from magnetar.ledger.quorum.quorum_store import QuorumLedgerStore
from magnetar.ledger.segment_log.config import SegmentLogConfig
from magnetar.ledger.segment_log.kernel_syncer import system_syncer

from tests.cluster.processes import CLUSTER_NAME

THREADS = 4
"""The value that a bookie and the standalone use."""

BOOKIE_SETTINGS = {
    "journalSyncData": "true",
    "magnetarSegmentSizeBytes": str(SegmentLogConfig().segment_size_bytes),
    "magnetarLogFreeSpaceHeadroomBytes": "0",
    "diskUsageThreshold": "1",
    "diskUsageLwmThreshold": "1",
}
"""A bookie's defaults, but for a disk that may be nearly full."""


@asynccontextmanager
async def local_store(directory: Path, config: SegmentLogConfig) -> AsyncIterator[LocalLedgerStore]:
    """The segment log in this process, with SQLite for what exists, as in standalone. The directory
    has to exist."""
    async with AsyncExitStack() as opened:
        metadata = await open_metadata_store(f"sqlite:{directory / 'metadata.sqlite'}")
        opened.push_async_callback(metadata.close)
        pool = ThreadPool(THREADS, "log")
        opened.callback(pool.close)
        store = await open_local_store(
            PosixDisk(directory),
            metadata,
            Keys("bench"),
            instance_id=bytes(16),
            pool=pool,
            syncer=system_syncer(asyncio.get_running_loop(), str(directory)),
            clock=SystemClock(),
            rng=random.Random(os.getpid()),
            config=config,
        )
        opened.push_async_callback(store.close)
        yield store


@asynccontextmanager
async def quorum_store(etcd_url: str) -> AsyncIterator[QuorumLedgerStore]:
    """The quorum client over gRPC and etcd, as in `magnetar broker`."""
    async with AsyncExitStack() as opened:
        metadata = await open_metadata_store(etcd_url)
        opened.push_async_callback(metadata.close)
        keys = Keys(CLUSTER_NAME)
        registry = BookieRegistry(metadata, keys)
        opened.push_async_callback(registry.close)
        await registry.start()
        clients = GrpcBookieClients(registry.address, registry.directory)
        opened.push_async_callback(clients.close)
        store = QuorumLedgerStore(clients, registry, metadata, keys, SystemClock(), random.Random())
        opened.push_async_callback(store.close)
        yield store
