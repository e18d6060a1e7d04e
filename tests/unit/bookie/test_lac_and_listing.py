"""Waiting for a ledger's last add confirmed, and what a bookie says it holds."""

from __future__ import annotations

import asyncio

import pytest
from magnetar.bookie.core_config import BookieCoreConfig
from magnetar.bookie.ledger_storage import BadRequest
from magnetar.ledger.bookie_protocol.bookie_pb2 import (
    NO_SUCH_ENTRY,
    OK,
    DescribeRequest,
    LacUpdate,
    LedgerState,
    ListLedgersRequest,
    ReadLacRequest,
    ReadRequest,
)
from magnetar.ledger.ledger_store import LedgerRef

from tests.unit.bookie.core_harness import A, Bench, on_a_bookie, wire


async def lac(bench: Bench, above: int = -1, wait_ms: int = 0) -> LedgerState:
    return await bench.core.read_lac(ReadLacRequest(ledger=wire(A), above=above, wait_ms=wait_ms))


def test_a_reader_waits_until_the_lac_is_above_what_it_has() -> None:
    async def act(bench: Bench) -> None:
        await bench.appended(A, 0, [b"x"])
        waiting = asyncio.ensure_future(lac(bench, above=1, wait_ms=60_000))
        await bench.appended(A, 1, [b"x"], lac=0)
        await bench.appended(A, 2, [b"x"], lac=1)
        await asyncio.sleep(1)
        assert not waiting.done()
        await bench.appended(A, 3, [b"x"], lac=2)
        assert (await waiting).lac == 2

    on_a_bookie(act)


def test_waiting_ends_with_a_fence_or_with_the_time() -> None:
    async def act(bench: Bench) -> None:
        started = bench.loop.time()
        assert (await lac(bench, wait_ms=500)).code == NO_SUCH_ENTRY
        assert 0.499 < bench.loop.time() - started < 1
        await bench.appended(A, 0, [b"x"])
        waiting = asyncio.ensure_future(lac(bench, above=5, wait_ms=60_000))
        await asyncio.sleep(0.1)
        await bench.fence(A)
        assert (await waiting).fenced
        assert bench.loop.time() - started < 10

    on_a_bookie(act)


def test_a_hint_that_comes_late_does_not_lower_the_lac() -> None:
    async def act(bench: Bench) -> None:
        await bench.appended(A, 0, [b"x"])
        for heard in (7, 3):
            bench.core.write_lacs([LacUpdate(ledger=wire(A), lac=heard)])
        assert (await lac(bench)).lac == 7

    on_a_bookie(act)


def test_compaction_of_an_older_segment_does_not_set_the_lac_back() -> None:
    async def act(bench: Bench) -> None:
        for entry in range(3):
            await bench.appended(A, entry, [b"x"], lac=entry - 1)
            await bench.restart("close")
        log = bench.core.log
        await log.space._rewrite(log.finished_segments()[:1], set())
        await bench.restart("kill")
        assert (await lac(bench)).lac == 1

    on_a_bookie(act)


def test_no_reader_waits_beyond_the_bound() -> None:
    async def act(bench: Bench) -> None:
        first = asyncio.ensure_future(lac(bench, wait_ms=60_000))
        await asyncio.sleep(0)
        assert (await lac(bench, wait_ms=60_000)).code == NO_SUCH_ENTRY
        assert not first.done()
        await bench.appended(A, 1, [b"x"], lac=0)
        assert (await first).lac == 0

    on_a_bookie(act, config=BookieCoreConfig(lac_waiters_max=1))


def test_ledgers_are_listed_page_by_page_by_id() -> None:
    async def act(bench: Bench) -> None:
        for ledger_id in (9, 3, 7, 5, 1):
            await bench.appended(LedgerRef(ledger_id, ledger_id), 0, [b"x"])
        await bench.core.log.set_limbo(LedgerRef(7, 7))
        found: list[int] = []
        after, more = -1, True
        while more:
            page = await bench.core.list_ledgers(ListLedgersRequest(after_ledger_id=after, limit=2))
            found += [each.ledger.id for each in page.ledgers]
            after, more = found[-1], page.more
        assert found == [1, 3, 5, 7, 9]
        page = await bench.core.list_ledgers(ListLedgersRequest(after_ledger_id=-1, only_limbo=True))
        assert [each.ledger.id for each in page.ledgers] == [7]
        description = await bench.core.describe(DescribeRequest())
        assert (description.bookie_id, description.ledgers, description.read_only) == ("bookie-1", 5, False)

    on_a_bookie(act)


def test_a_long_answer_comes_in_parts_and_respects_its_limit() -> None:
    async def act(bench: Bench) -> None:
        entries = [bytes([entry]) * 300_000 for entry in range(10)]
        for first in range(0, 10, 2):
            assert (await bench.appended(A, first, entries[first : first + 2])).code == OK
        request = ReadRequest(ledger=wire(A), first_entry_id=1, last_entry_id=9, max_bytes=1 << 30)
        sizes = [sum(len(record.body) for record in part.records) async for part in bench.core.read(request)]
        assert sum(sizes) == 9 * 300_000
        assert max(sizes) <= 1 << 20
        assert (await bench.read(A, 1, 9, 700_000))[0] == entries[1:3]
        assert (await bench.read(A, 1, 9, 1))[0] == entries[1:2]

    on_a_bookie(act)


@pytest.mark.parametrize(("first", "last"), [(-1, 5), (5, 4)])
def test_a_range_that_is_none_is_refused(first: int, last: int) -> None:
    async def act(bench: Bench) -> None:
        with pytest.raises(BadRequest):
            await bench.read(A, first, last)

    on_a_bookie(act)
