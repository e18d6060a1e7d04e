"""Entries that may be here already: compared beside a writer that goes on, and written once."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest
from magnetar.bookie.comparisons import BATCH_BYTES_MAX, CONFLICTS
from magnetar.ledger.bookie_protocol.bookie_pb2 import (
    BAD_RECORD,
    FENCED,
    LOG_FAILED,
    NO_SUCH_ENTRY,
    OK,
    AppendResult,
)

from tests.simulation.power_loss import SMALL_SEGMENTS
from tests.unit.bookie.core_harness import A, B, Bench, append_of, on_a_bookie


def before_looks(bench: Bench, patch: pytest.MonkeyPatch, act: Callable[[], Awaitable[None]]) -> None:
    """Have `act` done once, when a comparison looks at what is here for the first time."""
    log = bench.core.log
    read_records = log.read_records
    done = False

    async def looked(*args: Any) -> Any:
        nonlocal done
        if not done:
            done = True
            await act()
        return await read_records(*args)

    patch.setattr(log, "read_records", looked)


def test_entries_in_any_order_and_again_in_other_runs_are_stored_once() -> None:
    async def act(bench: Bench) -> None:
        rng = bench.loop.rng
        wanted: dict[int, bytes] = {}
        for _ in range(60):
            first, count = rng.randrange(100), rng.randrange(1, 12)
            entries = [b"entry %d" % entry for entry in range(first, first + count)]
            wanted.update(zip(range(first, first + count), entries, strict=True))
            bench.append(A, first, entries, recovery=True)
            if rng.random() < 0.1:
                await bench.restart(rng.choice(("close", "kill", "crash")), random.Random(1))
                wanted = {}
                entry = 0
                while entry < 120:
                    found, _ = await bench.read(A, entry, 119)
                    wanted.update(zip(range(entry, entry + len(found)), found, strict=True))
                    entry += len(found) + 1
        await bench.compared()
        for entry in range(120):
            found, part = await bench.read(A, entry, entry)
            assert found == ([wanted[entry]] if entry in wanted else [])
            assert part.code == (OK if entry in wanted else NO_SUCH_ENTRY)
        assert all(result.code == OK for result in bench.results)
        assert (await bench.state(A)).byte_length == sum(map(len, wanted.values()))

    for seed in range(10):
        on_a_bookie(act, seed)


def test_an_entry_on_its_way_to_the_disk_is_waited_for_and_not_denied() -> None:
    async def act(bench: Bench) -> None:
        await bench.appended(A, 5, [b"five"])
        bench.append(A, 3, [b"three"], recovery=True)
        await bench.compared()
        assert not bench.results, "it is not durable yet"
        assert (await bench.read(A, 3, 3))[0] == [b"three"]

    on_a_bookie(act)


def test_an_entry_that_comes_again_with_other_bytes_is_refused_and_the_first_kept() -> None:
    async def act(bench: Bench) -> None:
        await bench.appended(A, 0, [b"zero", b"one", b"two"])
        before = CONFLICTS._value.get()
        result = await bench.appended(A, 1, [b"ONE"], recovery=True)
        assert (result.code, CONFLICTS._value.get()) == (BAD_RECORD, before + 1)
        assert (await bench.appended(A, 1, [b"one", b"two"], recovery=True)).code == OK
        assert (await bench.read(A, 0, 2))[0] == [b"zero", b"one", b"two"]

    on_a_bookie(act)


def test_copies_of_older_entries_neither_wait_for_a_writer_to_pause_nor_for_a_sync_each() -> None:
    """A bookie that came back is filled up in ledgers that are written on: 400 entries in a few groups."""

    async def act(bench: Bench) -> None:
        loop = asyncio.get_running_loop()
        copied, following, writing = 400, 1_000, True

        def write_on(_result: AppendResult | None = None) -> None:
            nonlocal following
            if writing:
                bench.core.append(append_of(A, following, [b"live"]), write_on)
                following += 1

        write_on()
        await asyncio.sleep(0)  # the group of the first is on its way
        assert bench.core.log.group_commit.in_flight == 1
        write_on()  # two take turns: something of the ledger is always on its way

        answers: list[AppendResult] = []
        done = loop.create_future()

        def answered(result: AppendResult) -> None:
            answers.append(result)
            if sum(answer.entry_count for answer in answers) == copied and not done.done():
                done.set_result(None)

        first_group = bench.core.log.group_commit._next_sequence
        for entry in range(copied):
            bench.core.append(append_of(A, entry, [b"%d" % entry], recovery=True), answered)
        try:
            async with asyncio.timeout(10):
                await done
        finally:
            writing = False
        groups = bench.core.log.group_commit._next_sequence - first_group
        assert {answer.code for answer in answers} == {OK}
        assert groups < copied / 10, f"{groups} groups for {copied} copies"
        entries, _ = await bench.read(A, 0, copied - 1)
        assert entries == [b"%d" % entry for entry in range(copied)]

    on_a_bookie(act)


def test_copies_that_were_sent_again_are_written_once() -> None:
    """As after a stream that broke before it heard of them: the first ones are still being compared."""

    async def act(bench: Bench) -> None:
        await bench.appended(A, 100, [b"live"])
        for _ in range(3):
            for entry in range(50):
                bench.append(A, entry, [b"%d" % entry], recovery=True)
        await bench.compared()
        await bench.fence(A)
        assert sum(result.entry_count for result in bench.results) == 150
        assert {result.code for result in bench.results} == {OK}
        state = await bench.state(A)
        assert state.byte_length == sum(len(b"%d" % entry) for entry in range(50)) + len(b"live")

    on_a_bookie(act)


def test_a_writer_that_comes_to_entries_which_are_being_copied_does_not_store_them_twice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def act(bench: Bench) -> None:
        await bench.appended(A, 0, [b"0", b"1", b"2"])

        async def write_on() -> None:
            bench.append(A, 3, [b"3"])
            bench.append(A, 4, [b"4", b"5"])

        before_looks(bench, monkeypatch, write_on)
        bench.append(A, 2, [b"2", b"3", b"4"], recovery=True)
        await bench.compared()
        await bench.fence(A)
        assert {result.code for result in bench.results} == {OK}
        entries, _ = await bench.read(A, 0, 5)
        assert entries == [b"%d" % entry for entry in range(6)]
        assert (await bench.state(A)).byte_length == 6

    on_a_bookie(act)


def test_resent_entry_is_refused_after_its_ledger_was_fenced(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def act(bench: Bench) -> None:
        await bench.appended(A, 5, [b"five"])

        async def fence() -> None:
            await bench.fence(A)

        before_looks(bench, monkeypatch, fence)
        assert (await bench.appended(A, 3, [b"three"])).code == FENCED
        assert (await bench.read(A, 3, 3))[1].code == NO_SUCH_ENTRY

    on_a_bookie(act)


def test_copies_are_not_taken_into_a_ledger_that_was_deleted_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A disk that answers late gives garbage collection the time."""

    async def act(bench: Bench) -> None:
        await bench.put_metadata(B)
        for first in range(12):
            await bench.appended(A, first, [bytes(4000)])
        await bench.restart("close")

        async def collect() -> None:
            for _ in range(3):
                await bench.core.garbage.collect()
                await asyncio.sleep(11)
            assert bench.core.garbage.is_gone(A)

        before_looks(bench, monkeypatch, collect)
        assert (await bench.appended(A, 3, [bytes(4000)], recovery=True)).code == FENCED
        assert bench.core.garbage.is_gone(A)
        assert bench.core.ledgers.find(A.id, A.key) is None

    config = replace(SMALL_SEGMENTS, gc_grace_s=10, sort_after_s=0, compaction_live_ratio=0.0)
    on_a_bookie(act, log_config=config)


def test_unexpected_comparison_failure_is_answered_and_delays_no_later_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def act(bench: Bench) -> None:
        await bench.appended(A, 5, [b"five"])

        async def fail() -> None:
            raise RuntimeError("a mistake")

        before_looks(bench, monkeypatch, fail)
        for entry in (3, 3, 4):
            bench.append(A, entry, [b"%d" % entry], recovery=True)
        await bench.compared()
        await bench.fence(A)
        assert [result.code for result in bench.results] == [LOG_FAILED, OK, OK]
        assert "a mistake" in bench.results[0].reason
        assert sum(result.entry_count for result in bench.results) == 3
        assert bench.core._appends.comparisons.byte_length == 0
        assert (await bench.read(A, 3, 5))[0] == [b"3", b"4", b"five"]

    on_a_bookie(act)


@pytest.mark.parametrize("size", [100, BATCH_BYTES_MAX // 4])
def test_batches_are_of_so_many_bytes_at_most_and_looked_for_once_where_nothing_is(
    monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    """A ledger may lie in many segments, each with an index of its own; and the loop serves others."""

    async def act(bench: Bench) -> None:
        log = bench.core.log
        looks = 0
        next_run_after = log.next_run_after

        async def counted(*args: Any) -> int | None:
            nonlocal looks
            looks += 1
            return await next_run_after(*args)

        monkeypatch.setattr(log, "next_run_after", counted)
        await bench.appended(A, 1000, [b"live"])
        for entry in range(100):
            bench.append(A, entry, [bytes(size)], recovery=True)
        await bench.compared()
        await bench.fence(A)
        assert sum(result.entry_count for result in bench.results if result.code == OK) == 100
        assert looks == -(-100 * size // BATCH_BYTES_MAX)

    roomy = replace(SMALL_SEGMENTS, segment_size_bytes=64 << 20, pending_bytes_max=64 << 20)
    on_a_bookie(act, log_config=roomy)
