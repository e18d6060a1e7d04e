"""How long a bookie takes to start over many segments, and what memory it needs with many ledgers."""

from __future__ import annotations

import asyncio
import random
import time
from pathlib import Path

from magnetar.common.metadata.keys import Keys
from magnetar.common.metadata.open_store import open_metadata_store
from magnetar.ledger.bookie_protocol.grpc_clients import GrpcBookieClients
from magnetar.ledger.bookie_protocol.registry import BookieRegistry

from bench.storage.procfs import anonymous_bytes
from bench.storage.stores import BOOKIE_SETTINGS
from bench.storage.synthetic import Shape, ref_of, write_segments
from tests.cluster.processes import CLUSTER_NAME, BookieProcess
from tests.etcd_server import EtcdServer

READS_AT_A_TIME = 64


def bookie_over(directory: Path, etcd: EtcdServer, shape: Shape, number: int) -> BookieProcess:
    """A bookie whose data directory is its own and holds made-up segments; not running."""
    bookie = BookieProcess(directory, number, etcd.url, {**BOOKIE_SETTINGS, "gcWaitTime": "100000000"})
    bookie.start()
    bookie.stop()
    write_segments(bookie.data_dir, shape)
    return bookie


def restart_seconds(bookie: BookieProcess, starts: int) -> list[float]:
    """From making the process to its health page's 200, page cache warm; it has ended when this returns."""
    seconds = []
    for _ in range(starts):
        began = time.perf_counter()
        bookie.start()
        seconds.append(time.perf_counter() - began)
        bookie.stop()
    return seconds


def memory_figures(bookie: BookieProcess, etcd: EtcdServer, shape: Shape, reads: int) -> dict[str, float]:
    """Anonymous memory after the start, and after so many reads of random ledgers, each from the index of a
    segment that is loaded for it (and kept as the cache's limit allows)."""
    bookie.start()
    started = anonymous_bytes(bookie.pid)
    loaded = asyncio.run(_load_indexes(etcd.url, bookie.bookie_id, shape, reads))
    read = anonymous_bytes(bookie.pid)
    bookie.stop()
    return {
        "ledgers": float(shape.ledgers),
        "after the start": started / 2**20,
        "after reads": read / 2**20,
        "reads": float(loaded),
    }


async def _load_indexes(etcd_url: str, bookie_id: str, shape: Shape, reads: int) -> int:
    metadata = await open_metadata_store(etcd_url)
    registry = BookieRegistry(metadata, Keys(CLUSTER_NAME))
    await registry.start()
    clients = GrpcBookieClients(registry.address, registry.directory)
    client, rng = clients.client(bookie_id), random.Random(2)
    turns = max(1, shape.lines // shape.ledgers)

    async def read_some(count: int) -> int:
        for _ in range(count):
            ref = ref_of(rng.randrange(shape.ledgers))
            entry_id = rng.randrange(turns * shape.runs_per_line)
            await client.read(ref, entry_id, entry_id, 1)
        return count

    try:
        each = reads // READS_AT_A_TIME
        return sum(await asyncio.gather(*(read_some(each) for _ in range(READS_AT_A_TIME))))
    finally:
        await clients.close()
        await registry.close()
        await metadata.close()
