"""Logs of two workers: what is in the log of the other is read, recovered and deleted over a socket."""

from __future__ import annotations

import asyncio
import random
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from magnetar.common.errors import LedgerFenced, NoSuchLedger
from magnetar.common.metadata.instance import ensure_instance_id
from magnetar.common.metadata.keys import Keys
from magnetar.common.metadata.sqlite_store import SqliteMetadataStore
from magnetar.common.metadata.store import MetadataStore, Op
from magnetar.common.runtime.blocking import ThreadPool
from magnetar.common.runtime.clock import SystemClock
from magnetar.ledger.bookie_protocol.grpc_clients import GrpcBookieClients
from magnetar.ledger.ledger_store import (
    ClosedLedger,
    LedgerListener,
    LedgerReader,
    LedgerRef,
    LedgerWriter,
    Obstacle,
    Run,
)
from magnetar.ledger.local_store import LocalLedgerStore
from magnetar.ledger.log_server import LogServer
from magnetar.ledger.segment_log.config import SegmentLogConfig
from magnetar.ledger.several_logs import LogNotServed, SeveralLogs
from magnetar.standalone.local_log import LogContext, further_logs, log_name, open_log

from tests.etcd_server import grpc_stays, grpc_streams_end
from tests.unit.ledger.ledger_store_contract import PROMISES, Heard, Promise, confirmed, entries

CLUSTER = "standalone"


@dataclass(slots=True)
class Two:
    """Two workers' stores over one metadata store, with the log and the server of the second."""

    first: SeveralLogs
    second: SeveralLogs
    log: LocalLedgerStore
    server: LogServer
    context: LogContext


@asynccontextmanager
async def workers(directory: Path) -> AsyncIterator[Two]:
    async with AsyncExitStack() as opened:
        metadata = await SqliteMetadataStore.open(directory / "metadata.sqlite")
        opened.push_async_callback(metadata.close)
        pool = ThreadPool(2, "test-log")
        opened.callback(pool.close)
        clock, rng, keys = SystemClock(), random.Random(1), Keys(CLUSTER)
        context = LogContext(
            directory,
            metadata,
            directory / "metadata.sqlite",
            CLUSTER,
            await ensure_instance_id(metadata, keys, clock, rng),
            pool,
            clock,
            rng,
            SegmentLogConfig(),
        )
        sockets = Path(opened.enter_context(tempfile.TemporaryDirectory()))
        clients = GrpcBookieClients(lambda name: f"unix:{sockets / name}")
        opened.push_async_callback(clients.close)
        stores, logs, servers = [], [], []
        for worker in (0, 1):
            name = log_name(worker)
            logs.append(await open_log(opened, context, name))
            servers.append(LogServer(logs[-1]))
            await servers[-1].start(sockets / name)
            opened.push_async_callback(servers[-1].close)
            stores.append(SeveralLogs(name, {name: logs[-1]}, clients, metadata, keys, clock, rng))
            opened.push_async_callback(stores[-1].close)
        yield Two(stores[0], stores[1], logs[1], servers[1], context)


def run(directory: Path, act: Callable[[Two], Awaitable[None]]) -> None:
    async def main() -> None:
        try:
            async with workers(directory) as two:
                await act(two)
        finally:
            await grpc_streams_end()

    with grpc_stays():
        asyncio.run(main())


async def written(store: SeveralLogs, count: int) -> LedgerWriter:
    writer = await store.create(Heard().listener(), properties={})
    for number in range(count):
        writer.append(Run([b"%d" % number]))
    await confirmed(writer, count - 1)
    return writer


def test_a_ledger_of_the_other_log_is_recovered_and_read(tmp_path: Path) -> None:
    async def act(two: Two) -> None:
        writer = await written(two.second, 5)
        reader = await two.first.open(writer.ref)
        assert await entries(reader, 0, 4) == [b"%d" % n for n in range(5)]
        reader, closed = await two.first.recover(writer.ref)
        assert closed.last_entry_id == 4
        assert closed.byte_length == 5
        assert reader.last_confirmed == 4
        assert await entries(reader, 1, 3) == [b"1", b"2", b"3"]
        with pytest.raises(LedgerFenced):
            writer.append(Run([b"late"]))
        again, same = await two.second.recover(writer.ref)
        assert same == closed
        assert await entries(again, 0, 4) == [b"%d" % n for n in range(5)]

    run(tmp_path, act)


def test_a_ledger_without_entries_ends_before_the_first(tmp_path: Path) -> None:
    async def act(two: Two) -> None:
        writer = await written(two.second, 0)
        _, closed = await two.first.recover(writer.ref)
        assert (closed.last_entry_id, closed.byte_length) == (-1, 0)

    run(tmp_path, act)


def test_the_log_that_has_a_ledger_hears_of_its_deletion(tmp_path: Path) -> None:
    async def act(two: Two) -> None:
        ref = (await written(two.second, 3)).ref
        await two.first.delete(ref)
        async with asyncio.timeout(20):
            while ref not in two.log.garbage._ordered:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        with pytest.raises(NoSuchLedger):
            await two.second.open(ref)

    run(tmp_path, act)


def test_a_log_that_is_not_served_is_an_error_that_passes(tmp_path: Path) -> None:
    async def act(two: Two) -> None:
        ref = (await written(two.second, 3)).ref
        await two.server.close()
        with pytest.raises(LogNotServed, match="worker does not answer") as refused:
            await two.first.recover(ref)
        assert refused.value.retriable
        assert (await two.second.recover(ref))[1].last_entry_id == 2

    run(tmp_path, act)


def test_one_process_serves_all_logs_and_names_one_that_is_missing(tmp_path: Path) -> None:
    async def act(two: Two) -> None:
        ref = (await written(two.second, 3)).ref
        context = two.context
        parts = (context.metadata, context.keys, context.clock, context.rng)
        own = two.first._here["ledgers"]
        alone = SeveralLogs("ledgers", {"ledgers": own, "ledgers-1": two.log}, None, *parts)
        reader, closed = await alone.recover(ref)
        assert closed.last_entry_id == 2
        assert await entries(reader, 0, 2) == [b"0", b"1", b"2"]
        without = SeveralLogs("ledgers", {"ledgers": own}, None, *parts)
        with pytest.raises(LogNotServed, match="in ledgers-1/, which the data directory lacks"):
            await without.open(ref)
        assert further_logs(tmp_path) == [1]

    run(tmp_path, act)


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """A store whose ledgers are all in the log of another worker."""

    two: Two

    async def create(self, listener: LedgerListener, **options: Any) -> LedgerWriter:
        return await self.two.second.create(listener, **options)

    async def open(self, ref: LedgerRef) -> LedgerReader:
        return await self.two.first.open(ref)

    async def recover(
        self, ref: LedgerRef, with_ops: Callable[[ClosedLedger], Sequence[Op]] | None = None
    ) -> tuple[LedgerReader, ClosedLedger]:
        return await self.two.first.recover(ref, with_ops)

    async def delete(self, ref: LedgerRef, with_ops: Sequence[Op] = ()) -> None:
        await self.two.first.delete(ref, with_ops)

    async def disk_usage(self, copies: int) -> float | None:
        return await self.two.first.disk_usage(copies)

    def obstacle(self, ack_quorum: int) -> Obstacle | None:
        return self.two.first.obstacle(ack_quorum)


@dataclass(frozen=True, slots=True)
class ElsewhereFixture:
    """A `ledger_store_contract.Fixture` whose process does not die."""

    store: Elsewhere
    metadata: MetadataStore

    async def kill_and_restart(self) -> None:
        raise AssertionError("promises about a death are left out")


OF_ONE_PROCESS = {
    "a_reader_follows_the_writer",  # elsewhere it asks when it is read beyond what it knows
    "a_deleted_ledger_is_gone_and_deleting_again_is_no_error",  # elsewhere its writer is fenced before
}
PROMISES_ELSEWHERE = [
    each
    for each in PROMISES
    if "kill_and_restart" not in each.__code__.co_names and each.__name__ not in OF_ONE_PROCESS
]


@pytest.mark.parametrize("promise", PROMISES_ELSEWHERE, ids=lambda promise: promise.__name__)
def test_the_contract_for_ledgers_in_the_log_of_another_worker(promise: Promise, tmp_path: Path) -> None:
    async def act(two: Two) -> None:
        await promise(ElsewhereFixture(Elsewhere(two), two.context.metadata))

    run(tmp_path, act)
