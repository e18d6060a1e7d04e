"""Entries for jobs: those that were asked for, whole and in order, or a word why not."""

from __future__ import annotations

import asyncio

import pytest
from magnetar.broker.offload import entry_reads
from magnetar.broker.topics.persistent_topic import PersistentTopic
from magnetar.common.errors import (
    MagnetarError,
    NoSuchEntry,
    NoSuchLedger,
    NotAllowed,
    NotSupportedYet,
    ServiceNotReady,
    TopicNotFound,
)
from magnetar.common.metadata.values import TopicLedger, decode, encode
from magnetar.common.naming.topic_name import TopicName
from magnetar.common.naming.txn_id import Action, TxnId
from magnetar.common.offload.offload_pb2 import DescribeRequest, Ledger, ReadRequest
from magnetar.common.offload.offload_refusals import OnlyCopy
from magnetar.ledger.ledger_store import LedgerReader, LedgerRef, LedgerStore, Run
from magnetar.ledger.managed_ledger import offload_state

from tests.simulation.power_loss import KEYS
from tests.unit.broker.offload.world import A, Elsewhere, Jobs, entries_of, read, with_jobs
from tests.unit.ledger.managed_ledger.harness import until

NAME = TopicName.parse("orders")


async def described(jobs: Jobs) -> list[Ledger]:
    return list((await jobs.work.describe(DescribeRequest(topic="orders"))).ledgers)


@pytest.mark.parametrize("part_bytes", [1, 60, 1 << 20])
def test_ranges_of_closed_and_open_ledgers_come_whole(
    part_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(entry_reads, "PART_BYTES_MAX", part_bytes)

    async def scenario(jobs: Jobs) -> None:
        await jobs.publish("orders", 20, 15)
        for lot, (ledger, count) in enumerate(zip(await described(jobs), (20, 15), strict=True)):
            for first, last in ((0, count - 1), (0, 0), (count - 1, count - 1), (3, 11)):
                expected = entries_of("orders", lot, range(first, last + 1))
                assert await read(jobs.work, ledger, first, last) == expected

    with_jobs(scenario)


def test_an_open_ledger_is_read_on_when_it_is_closed_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entry_reads, "PART_BYTES_MAX", 1)

    async def scenario(jobs: Jobs) -> None:
        await jobs.publish("orders", 10)
        (ledger,) = await described(jobs)
        topic = await jobs.load("orders")
        request = ReadRequest(
            topic="orders", ledger_id=ledger.ledger_id, ledger_key=ledger.ledger_key, last_entry_id=9
        )
        parts = jobs.work.read(request)
        got = [await anext(parts)]
        topic.ledger.roll()
        await jobs.publish("orders", 1)
        got += [part async for part in parts]
        assert len(got) == 10
        again = await read(jobs.work, ledger, 0, 9)
        assert again == entries_of("orders", 0, range(10))
        assert b"".join(got).count(b"orders/0/") == 10

    with_jobs(scenario)


def test_missing_entry_is_reported_as_missing() -> None:
    async def scenario(jobs: Jobs) -> None:
        await jobs.publish("orders", 5, 5)
        closed, written = await described(jobs)
        for ledger in (closed, written):
            with pytest.raises(NoSuchEntry):
                await read(jobs.work, ledger, 0, 5)
            for first, last in ((-1, 0), (3, 2)):
                with pytest.raises(NotAllowed, match="invalid entry range"):
                    await read(jobs.work, ledger, first, last)
            other = Ledger()
            other.CopyFrom(ledger)
            other.ledger_key ^= 1
            with pytest.raises(NoSuchLedger):
                await read(jobs.work, other, 0, 1)
        other.ledger_id = 9_999
        with pytest.raises(NoSuchLedger):
            await read(jobs.work, other, 0, 1)
        other.topic = "persistent://public/default/nobody"
        with pytest.raises(TopicNotFound):
            await read(jobs.work, other, 0, 1)
        other.topic = "non-persistent://public/default/orders"
        with pytest.raises(NotAllowed, match="no ledgers"):
            await read(jobs.work, other, 0, 1)

    with_jobs(scenario)


def test_messages_in_transactions_go_only_to_callers_that_know_of_aborted_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(PersistentTopic, "on_confirmed", lambda *_: None)

    async def scenario(jobs: Jobs) -> None:
        topic = await jobs.load("orders")
        transactions = topic.ledger.use_transactions()
        for txn in (None, TxnId(0, 0), None):
            topic.ledger.append(Run([b"0"], txn=txn), None)
        await until(lambda: topic.ledger.last_confirmed.entry_id == 2)
        (ledger,) = await described(jobs)
        with pytest.raises(NoSuchEntry, match="can be read up to"):
            await read(jobs.work, ledger, 0, 1)
        ended: asyncio.Future[MagnetarError | None] = asyncio.get_running_loop().create_future()
        transactions.end(TxnId(0, 0), Action.ABORT, -1, ended.set_result)
        assert await ended is None
        with pytest.raises(NotSupportedYet, match="messages in transactions"):
            await read(jobs.work, ledger, 0, 2)
        assert len(await read(jobs.work, ledger, 2, 2)) == 1
        assert await read(jobs.work, ledger, 0, 2, transactions=True) == [b"0"] * 3

    with_jobs(scenario)


READ_S = 0.004


class Counting:
    """A store that takes its time, and knows how many read at once."""

    def __init__(self, store: LedgerStore) -> None:
        self._store = store
        self.now = self.most = 0

    async def open(self, ref: LedgerRef) -> CountingReader:
        return CountingReader(self, await self._store.open(ref))


class CountingReader:
    def __init__(self, counting: Counting, reader: LedgerReader) -> None:
        self._counting, self._reader = counting, reader

    async def read(self, first: int, last: int, max_bytes: int) -> list[Run]:
        counting = self._counting
        counting.now += 1
        counting.most = max(counting.most, counting.now)
        await asyncio.sleep(READ_S)
        counting.now -= 1
        return await self._reader.read(first, last, max_bytes)


def test_many_readers_take_turns_and_one_that_takes_nothing_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entry_reads, "PART_BYTES_MAX", 1)

    async def scenario(jobs: Jobs) -> None:
        (ledger,) = await jobs.closed("orders", 10)
        counting = Counting(jobs.work._reads._store)
        jobs.work._reads._store = counting  # type: ignore[assignment]
        request = ReadRequest(
            topic="orders", ledger_id=ledger.ledger_id, ledger_key=ledger.ledger_key, last_entry_id=9
        )
        stalled = [jobs.work.read(request) for _ in range(entry_reads.READING_MAX + 1)]
        for parts in stalled:
            await anext(parts)
        found = await asyncio.gather(*(read(jobs.work, ledger, 0, 9) for _ in range(20)))
        assert found == [entries_of("orders", 0, range(10))] * 20
        assert counting.most == entry_reads.READING_MAX
        time = asyncio.get_running_loop().time
        since = time()
        await read(jobs.work, ledger, 0, 9)
        assert time() - since >= 10 * 2 * READ_S, "behind each part the loop is left to clients as long"
        for parts in stalled:
            await parts.aclose()

    with_jobs(scenario)


def test_only_the_owner_reads_the_open_ledger_and_any_broker_closed_ones() -> None:
    async def scenario(jobs: Jobs) -> None:
        await jobs.publish("orders", 5, 5)
        closed, written = await described(jobs)
        elsewhere = jobs.working_for(Elsewhere())
        assert await read(elsewhere, closed, 0, 4) == entries_of("orders", 0, range(5))
        with pytest.raises(ServiceNotReady, match="ask its owner at other:6750"):
            await read(elsewhere, written, 0, 4)

    with_jobs(scenario)


def test_a_ledger_that_has_left_bookies_is_read_from_its_objects() -> None:
    async def scenario(jobs: Jobs) -> None:
        (ledger,) = await jobs.closed("orders", 5)
        await jobs.complete(await jobs.begin(ledger))
        assert len(await read(jobs.work, ledger, 0, 4)) == 5, "as long as bookies have it"
        metadata = jobs.made.process.metadata
        key = KEYS.topic_ledger(ledger.creation_id, ledger.ledger_id)
        found = await metadata.get(key)
        assert found is not None
        left = offload_state.leave(decode(TopicLedger, found.value), attempt=A, now_ms=1)
        await metadata.put(key, encode(left))
        with pytest.raises(OnlyCopy, match=f"ledger={ledger.ledger_id}/attempt={A.hex()}"):
            await read(jobs.work, ledger, 0, 4)

    with_jobs(scenario)


def test_a_ledger_that_is_trimmed_is_no_more() -> None:
    async def scenario(jobs: Jobs) -> None:
        await jobs.publish("orders", 5, 5)
        closed, _ = await described(jobs)
        await jobs.made.registry.delete(NAME, force=True)
        await jobs.publish("orders", 1)
        with pytest.raises(NoSuchLedger):
            await read(jobs.work, closed, 0, 4)

    with_jobs(scenario)
