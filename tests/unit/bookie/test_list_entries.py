"""Which entries a bookie says it has."""

from __future__ import annotations

import pytest
from magnetar.bookie import bookie_core
from magnetar.bookie.ledger_storage import BadRequest
from magnetar.ledger.bookie_protocol.bookie_pb2 import (
    NO_SUCH_ENTRY,
    OK,
    WRONG_KEY,
    EntryRanges,
    ListEntriesRequest,
)
from magnetar.ledger.ledger_store import LedgerRef

from tests.unit.bookie.core_harness import A, B, Bench, on_a_bookie, wire


async def listed(bench: Bench, ref: LedgerRef, first: int, last: int) -> EntryRanges:
    request = ListEntriesRequest(ledger=wire(ref), first_entry_id=first, last_entry_id=last)
    return await bench.core.list_entries(request)


async def ranges(bench: Bench, first: int, last: int) -> list[tuple[int, int]]:
    answer = await listed(bench, A, first, last)
    assert (answer.code, answer.until) == (OK, last)
    return list(zip(answer.firsts, answer.lasts, strict=True))


def test_ranges_are_told_whatever_runs_and_segments_the_entries_are_in() -> None:
    async def act(bench: Bench) -> None:
        for first, count in ((0, 3), (3, 1), (4, 1), (7, 2), (9, 4), (20, 1), (22, 5)):
            await bench.appended(A, first, [b"x" * 2000] * count)
            await bench.appended(B, first, [b"y" * 3000] * count)
        expected = [(0, 4), (7, 12), (20, 20), (22, 26)]
        assert await ranges(bench, 0, 99) == expected
        await bench.appended(A, 5, [b"late"], recovery=True)
        expected = [(0, 5), (7, 12), (20, 20), (22, 26)]
        assert await ranges(bench, 0, 99) == expected
        assert await ranges(bench, 1, 24) == [(1, 5), (7, 12), (20, 20), (22, 24)]
        assert await ranges(bench, 13, 19) == []
        assert await ranges(bench, 8, 8) == [(8, 8)]
        for outage in ("kill", "close"):
            await bench.restart(outage)
            assert await ranges(bench, 0, 99) == expected
            assert await ranges(bench, 24, 99) == [(24, 26)]
        for segment in bench.core.log.finished_segments():
            await bench.core.log.space._rewrite([segment], set())
        assert await ranges(bench, 0, 99) == expected

    on_a_bookie(act)


def test_entries_in_flight_to_disk_are_listed() -> None:
    async def act(bench: Bench) -> None:
        bench.append(A, 0, [b"x", b"y"])
        assert await ranges(bench, 0, 9) == [(0, 1)]

    on_a_bookie(act)


def test_a_record_whose_header_is_damaged_is_not_here() -> None:
    async def act(bench: Bench) -> None:
        await bench.appended(A, 0, [b"x"] * 2)
        await bench.appended(A, 4, [b"x"] * 2)
        segment = bench.core.log.segments[-1]
        offset = segment.indexes[A].offset(0)
        bench.disk.overwrite(segment.path, b"\x55" * 8, offset + 32)
        assert await ranges(bench, 0, 9) == [(4, 5)]

    on_a_bookie(act)


def test_answers_end_where_there_are_too_many_ranges(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bookie_core, "RANGES_MAX", 2)

    async def act(bench: Bench) -> None:
        for first in (0, 2, 4, 6):
            await bench.appended(A, first, [b"x"])
        answer = await listed(bench, A, 0, 9)
        assert (list(answer.firsts), list(answer.lasts), answer.until) == ([0, 2], [0, 2], 2)
        answer = await listed(bench, A, 3, 9)
        assert (list(answer.firsts), list(answer.lasts), answer.until) == ([4, 6], [4, 6], 9)

    on_a_bookie(act)


def test_ledgers_that_are_not_here_and_ranges_that_are_none() -> None:
    async def act(bench: Bench) -> None:
        assert (await listed(bench, A, 0, 9)).code == NO_SUCH_ENTRY
        await bench.appended(A, 0, [b"x"])
        assert (await listed(bench, LedgerRef(A.id, A.key + 1), 0, 9)).code == WRONG_KEY
        with pytest.raises(BadRequest, match="no range"):
            await listed(bench, A, 5, 4)

    on_a_bookie(act)


def test_a_fenced_bookie_says_which_entries_it_saw_come_without_a_hole() -> None:
    async def act(bench: Bench) -> None:
        def row() -> tuple[int, int]:
            return state.row_first_entry_id, state.row_end

        await bench.appended(A, 0, [b"x"] * 3)
        await bench.appended(A, 3, [b"x"])
        state = await bench.fence(A)
        assert row() == (0, 4)
        await bench.appended(A, 6, [b"x"] * 2, recovery=True)
        await bench.appended(A, 4, [b"x"], recovery=True)
        state = await bench.fence(A)
        assert row() == (6, 8)
        await bench.restart()
        state = await bench.fence(A)
        assert row() == (0, 0), "it was not there when they came"
        await bench.appended(A, 8, [b"x"], recovery=True)
        state = await bench.fence(A)
        assert row() == (8, 9)

    on_a_bookie(act)
