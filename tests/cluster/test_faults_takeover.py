"""A writer that dies or stands still, and another process that takes its ledger over: what the first one was
told is there, and it is told nothing more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from tests.cluster.ledger_client import LedgerClient
from tests.cluster.processes import Cluster
from tests.cluster.test_faults_bookies import QUICK, WHOLE_SECONDS_MAX
from tests.cluster.writer_process import WriterProcess
from tests.integration.harness import eventually


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """One for all tests here: each has ledgers of its own, and leaves every bookie running."""
    directory: Path = tmp_path_factory.mktemp("takeover")
    with Cluster.running(directory, bookies=3, bookie_settings=QUICK) as cluster:
        yield cluster


def with_client(cluster: Cluster, scenario: Callable[[LedgerClient], Awaitable[None]]) -> None:
    async def main() -> None:
        async with asyncio.timeout(120), LedgerClient.connected(cluster.etcd.url) as client:
            await scenario(client)

    asyncio.run(main())


@pytest.mark.parametrize("round_", [1, *(pytest.param(n, marks=pytest.mark.full) for n in (0, *range(2, 8)))])
def test_next_owner_has_every_entry_acknowledged_to_a_killed_writer(cluster: Cluster, round_: int) -> None:
    """In every other round a bookie dies together with the writer, and recovery runs without it."""

    async def scenario(client: LedgerClient) -> None:
        bookie = cluster.bookies[round_ % 3]
        with WriterProcess.writing(cluster.etcd.url) as writer:
            await asyncio.to_thread(writer.confirms, 200 + 37 * round_)
            if round_ % 2:
                bookie.kill()
            await asyncio.to_thread(writer.kill)
        _, closed = await client.store.recover(writer.ref)
        assert closed.last_entry_id >= writer.confirmed
        assert await client.read_all(writer.ref) == closed.last_entry_id
        if round_ % 2:
            await asyncio.to_thread(bookie.start)
        await client.until_whole([writer.ref], WHOLE_SECONDS_MAX)
        print(f"\nkilled at {writer.confirmed}, closed at {closed.last_entry_id}")

    with_client(cluster, scenario)


@pytest.mark.full
def test_a_writer_that_stood_still_while_it_was_replaced_is_fenced_and_told_nothing_more(
    cluster: Cluster,
) -> None:
    async def scenario(client: LedgerClient) -> None:
        with WriterProcess.writing(cluster.etcd.url) as writer:
            await asyncio.to_thread(writer.confirms, 200)
            writer.pause()
            _, closed = await client.store.recover(writer.ref)
            writer.resume()
            await asyncio.to_thread(eventually, lambda: writer.failure != "", "the zombie is told")
            await asyncio.to_thread(eventually, lambda: writer.refused > 50, "the zombie goes on trying")
            writer.kill()
        assert writer.failure == "LedgerFenced"
        assert writer.confirmed <= closed.last_entry_id
        assert await client.read_all(writer.ref) == closed.last_entry_id
        await client.until_whole([writer.ref], WHOLE_SECONDS_MAX)

    with_client(cluster, scenario)


def test_a_writer_at_work_is_fenced_by_who_takes_over(cluster: Cluster) -> None:
    async def scenario(client: LedgerClient) -> None:
        with WriterProcess.writing(cluster.etcd.url) as writer:
            await asyncio.to_thread(writer.confirms, 200)
            _, closed = await client.store.recover(writer.ref)
            await asyncio.to_thread(eventually, lambda: writer.failure != "", "the former writer is told")
            writer.kill()
        assert writer.failure == "LedgerFenced"
        assert writer.confirmed <= closed.last_entry_id
        assert await client.read_all(writer.ref) == closed.last_entry_id

    with_client(cluster, scenario)
