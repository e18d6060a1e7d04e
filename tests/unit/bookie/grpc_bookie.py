"""A bookie behind gRPC on loopback, in this process: a real core on a real directory."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import grpc
from magnetar.bookie.bookie_core import BookieCore, open_bookie_core
from magnetar.bookie.core_config import BookieCoreConfig
from magnetar.bookie.grpc_server import BookieGrpcServer
from magnetar.bookie.metrics import BookieStats
from magnetar.common.metadata.keys import Keys
from magnetar.common.metadata.sqlite_store import SqliteMetadataStore
from magnetar.common.rpc.callers import CallerCheck
from magnetar.common.runtime.blocking import ThreadPool
from magnetar.common.runtime.clock import SystemClock
from magnetar.common.runtime.posix_disk import PosixDisk
from magnetar.common.security.services.credentials import ServiceCredentials
from magnetar.ledger.bookie_protocol.bookie_pb2 import Code
from magnetar.ledger.bookie_protocol.grpc_client import ClientOptions, GrpcBookieClient
from magnetar.ledger.bookie_protocol.grpc_clients import GrpcBookieClients
from magnetar.ledger.bookie_protocol.records import encode_append
from magnetar.ledger.ledger_store import LedgerRef, Run
from magnetar.ledger.segment_log.config import SegmentLogConfig
from magnetar.ledger.segment_log.syncer import ThreadSyncer

from tests.etcd_server import grpc_streams_end

LEDGER = LedgerRef(7, 2**63 + 5)
UNCONFIRMED_MAX = 1 << 20
CALLS_MAX = 4
LOG = SegmentLogConfig(segment_size_bytes=16 << 20, free_space_headroom_bytes=0)


@dataclass(slots=True)
class Bookie:
    core: BookieCore
    server: BookieGrpcServer
    clients: GrpcBookieClients
    client: GrpcBookieClient
    port: int


@asynccontextmanager
async def running(
    directory: Path,
    options: ClientOptions | None = None,
    *,
    credentials: grpc.ServerCredentials | None = None,
    callers: CallerCheck | None = None,
    tls: ServiceCredentials | None = None,
) -> AsyncIterator[Bookie]:
    async with AsyncExitStack() as opened:
        opened.push_async_callback(grpc_streams_end)
        metadata = await SqliteMetadataStore.open(directory / "metadata.sqlite")
        opened.push_async_callback(metadata.close)
        pool = ThreadPool(2, "read")
        opened.callback(pool.close)
        root = directory / "bookie"
        root.mkdir(exist_ok=True)
        core = await open_bookie_core(
            PosixDisk(root),
            metadata,
            Keys("test"),
            bookie_id="b1",
            instance_id=b"i" * 16,
            pool=pool,
            syncer=ThreadSyncer(asyncio.get_running_loop()),
            clock=SystemClock(),
            rng=random.Random(1),
            log_config=LOG,
            config=BookieCoreConfig(disk_usage_threshold=1.0, disk_usage_low_water_mark=1.0),
        )
        opened.push_async_callback(core.close)
        server = BookieGrpcServer(
            core,
            BookieStats(),
            message_bytes_max=6 << 20,
            unconfirmed_bytes_max=UNCONFIRMED_MAX,
            calls_max=CALLS_MAX,
            credentials=credentials,
            callers=callers,
        )
        port = await server.start("127.0.0.1", 0)
        opened.push_async_callback(server.close, 1.0)
        await server.set_serving(serving=True, writable=True)
        clients = GrpcBookieClients(lambda _: f"127.0.0.1:{port}", tls=tls, options=options)
        opened.push_async_callback(clients.close)
        yield Bookie(core, server, clients, clients.client("b1"), port)


def with_bookie(
    directory: Path, scenario: Callable[[Bookie], Awaitable[None]], options: ClientOptions | None = None
) -> None:
    async def main() -> None:
        async with asyncio.timeout(60), running(directory, options) as bookie:
            await scenario(bookie)

    asyncio.run(main())


async def append(
    client: GrpcBookieClient,
    first: int,
    entries: list[bytes],
    *,
    ref: LedgerRef = LEDGER,
    recovery: bool = False,
) -> tuple[Code.ValueType, str]:
    done: asyncio.Future[tuple[Code.ValueType, str]] = asyncio.get_running_loop().create_future()
    run = Run(entries, first_entry_id=first)
    client.append(
        encode_append(run, ref, first - 1, recovery=recovery),
        lambda code, reason: done.set_result((code, reason)),
    )
    return await done
