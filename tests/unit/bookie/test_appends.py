"""Entries that come with gaps, damaged, too large, too many: what a bookie makes of them."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from crc32c import crc32c
from magnetar.bookie.core_config import BookieCoreConfig
from magnetar.common.errors import DataCorruption
from magnetar.ledger.bookie_protocol.bookie_pb2 import (
    BACKPRESSURE,
    BAD_RECORD,
    ENTRY_UNREADABLE,
    FENCED,
    LOG_FAILED,
    NO_SUCH_ENTRY,
    OK,
    READ_ONLY,
)

from tests.simulation.power_loss import SMALL_SEGMENTS
from tests.unit.bookie.core_harness import A, B, Bench, append_of, on_a_bookie


def test_striped_entries_are_read_where_they_are_and_denied_where_they_are_not() -> None:
    async def act(bench: Bench) -> None:
        for entry in range(0, 300, 3):
            bench.append(A, entry, [b"%d" % entry])
            bench.append(A, entry + 1, [b"%d" % (entry + 1)])
        for outage in ("none", "crash", "close"):
            if outage == "none":
                await bench.fence(A)
            else:
                await bench.restart(outage)
            for entry in range(0, 300, 3):
                entries, part = await bench.read(A, entry, entry + 2)
                assert entries == [b"%d" % entry, b"%d" % (entry + 1)]
                assert (part.code, part.stopped_at) == (NO_SUCH_ENTRY, entry + 2)

    on_a_bookie(act)


def test_a_damaged_entry_is_unreadable_until_it_is_written_again() -> None:
    async def act(bench: Bench) -> None:
        entries = [b"%d" % entry * 50 for entry in range(10)]
        await bench.appended(A, 0, entries)
        await bench.appended(A, 10, [b"later"])
        segment = bench.core.log.segments[0]
        at = bench.disk.content(segment.path).index(entries[3])
        bench.disk.overwrite(segment.path, b"?", at)
        assert (await bench.read(A, 3, 3))[1].code == ENTRY_UNREADABLE
        for again in range(10):
            assert (await bench.appended(A, again, [entries[again]], recovery=True)).code == OK
        assert (await bench.read(A, 0, 10))[0] == [*entries, b"later"]
        for outage in ("kill", "close"):
            await bench.restart(outage)
            assert (await bench.read(A, 0, 10))[0] == [*entries, b"later"]
        log = bench.core.log
        await log.space._rewrite(log.finished_segments(), set())
        assert (await bench.read(A, 0, 10))[0] == [*entries, b"later"]

    on_a_bookie(act)


def test_a_repair_of_one_entry_leaves_its_neighbors_in_the_damaged_record_readable() -> None:
    async def act(bench: Bench) -> None:
        entries = [with_checksum(b"%d" % entry * 50) for entry in range(10)]
        await bench.appended(A, 0, entries)
        await bench.appended(A, 10, [b"later"])
        segment = bench.core.log.segments[0]
        bench.disk.overwrite(segment.path, b"?", bench.disk.content(segment.path).index(entries[3]) + 20)
        assert (await bench.read(A, 3, 3))[1].code == ENTRY_UNREADABLE
        assert (await bench.appended(A, 3, [entries[3]], recovery=True)).code == OK
        for outage in ("none", "kill", "close"):
            if outage != "none":
                await bench.restart(outage)
            assert (await bench.read(A, 0, 10))[0] == [*entries, b"later"]
        log = bench.core.log
        await log.space._rewrite(log.finished_segments(), set())
        for restart in (False, True):
            if restart:
                await bench.restart("close")
            assert (await bench.read(A, 0, 10))[0] == [*entries, b"later"]

    on_a_bookie(act)


def test_compaction_keeps_a_damaged_record_beside_a_shorter_repair_of_its_first_entries() -> None:
    async def act(bench: Bench) -> None:
        entries = [with_checksum(b"%d" % entry * 50) for entry in range(10)]
        await bench.appended(A, 0, entries)
        await bench.restart("close")
        segment = bench.core.log.segments[0]
        bench.disk.overwrite(segment.path, b"?", bench.disk.content(segment.path).index(entries[0]) + 20)
        assert (await bench.appended(A, 0, entries[:2], recovery=True)).code == OK
        await bench.restart("close")
        assert (await bench.read(A, 0, 9))[0] == entries
        log = bench.core.log
        inputs = log.finished_segments()
        assert len(inputs) == 2
        await log.space._rewrite(inputs, set())
        assert len(log.finished_segments()) == 1
        assert (await bench.read(A, 0, 9))[0] == entries
        await bench.restart("close")
        assert (await bench.read(A, 0, 9))[0] == entries

    on_a_bookie(act)


def test_a_fence_under_way_outlives_a_refused_append_of_its_recovery() -> None:
    """The ledger holds nothing but the fence that is being written: refusing an append must not forget it."""

    async def act(bench: Bench) -> None:
        enough = bench.disk.capacity
        bench.disk.capacity = enough - bench.disk.free_bytes() + SMALL_SEGMENTS.reserve_bytes // 2
        await asyncio.sleep(1)
        await bench.appended(B, 0, [b"the log looks at its disk with this group"])
        fencing = asyncio.ensure_future(bench.fence(A))
        await asyncio.sleep(0)
        assert (await bench.appended(A, 0, [b"found elsewhere"], recovery=True)).code == READ_ONLY
        state = await fencing
        assert (state.code, state.fenced) == (OK, True)
        bench.disk.capacity = enough
        await asyncio.sleep(20)
        assert (await bench.appended(A, 0, [b"the old writer's"])).code == FENCED

    on_a_bookie(act)


def with_checksum(payload: bytes) -> bytes:
    """An entry as clients make them: magic, CRC32-C, what it covers."""
    return b"\x0e\x01" + crc32c(payload).to_bytes(4, "big") + payload


def test_a_damaged_body_is_refused_by_name_and_a_damaged_header_ends_the_stream() -> None:
    async def act(bench: Bench) -> None:
        append = append_of(A, 7, [b"entry"])
        append.record.body = b"ENTRY"
        bench.core.append(append, bench.results.append)
        [result] = bench.results
        assert (result.code, result.first_entry_id) == (BAD_RECORD, 7)
        append.record.header = bytes(84)
        with pytest.raises(DataCorruption):
            bench.core.append(append, bench.results.append)

    on_a_bookie(act)


def test_an_entry_over_the_limit_is_refused() -> None:
    async def act(bench: Bench) -> None:
        assert (await bench.appended(A, 0, [bytes(1024)])).code == OK
        assert (await bench.appended(A, 1, [b"x", bytes(1025)])).code == BAD_RECORD

    on_a_bookie(act, config=BookieCoreConfig(entry_bytes_max=1024))


def test_a_record_that_claims_its_own_entries_confirmed_is_refused() -> None:
    async def act(bench: Bench) -> None:
        assert (await bench.appended(A, 5, [b"x"], lac=5)).code == BAD_RECORD
        assert (await bench.appended(A, 5, [b"x"], lac=4)).code == OK
        assert (await bench.state(A)).lac == 4

    on_a_bookie(act)


def test_too_much_at_once_is_refused_and_what_was_taken_is_confirmed() -> None:
    async def act(bench: Bench) -> None:
        for entry in range(20):
            bench.append(A, entry, [bytes(100 << 10)])
        refused = len([each for each in bench.results if each.code == BACKPRESSURE])
        await bench.fence(A)
        taken = sum(each.entry_count for each in bench.results if each.code == OK)
        assert refused > 0
        assert taken + refused == 20

    on_a_bookie(
        act, log_config=replace(SMALL_SEGMENTS, pending_bytes_max=1 << 20, segment_size_bytes=4 << 20)
    )


def test_after_a_failed_sync_a_ledger_takes_no_more_from_its_writer_but_from_a_recovery() -> None:
    async def act(bench: Bench) -> None:
        await bench.appended(A, 0, [b"one"])
        bench.disk.faults.sync_errors = {bench.disk.operations + 2}
        assert (await bench.appended(A, 1, [b"two"])).code == LOG_FAILED
        assert (await bench.appended(A, 2, [b"three"])).code == LOG_FAILED
        assert (await bench.read(A, 1, 1))[1].code == NO_SUCH_ENTRY
        assert (await bench.appended(A, 1, [b"two"], recovery=True)).code == OK
        assert (await bench.read(A, 0, 1))[0] == [b"one", b"two"]

    on_a_bookie(act)


def test_read_only_refuses_writers_not_recoveries_and_ends_by_itself() -> None:
    async def act(bench: Bench) -> None:
        told: list[bool] = []
        bench.core.on_mode_change(lambda: told.append(bench.core.read_only))
        disk, mode = bench.disk, bench.core.mode
        await bench.appended(A, 0, [b"one"])
        used = disk.total_bytes() - disk.free_bytes()
        for share, expected in ((0.94, False), (0.96, True), (0.92, True), (0.89, False), (0.94, False)):
            disk.capacity = int(used / share)
            mode.check()
            assert bench.core.read_only is expected, share
        assert told == [True, False]
        bench.core.set_read_only(True)
        assert (await bench.appended(A, 1, [b"two"])).code == READ_ONLY
        assert (await bench.read(A, 0, 0))[0] == [b"one"]
        disk.capacity = 1 << 40
        assert (await bench.appended(A, 1, [b"two"], recovery=True)).code == OK
        bench.core.set_read_only(False)
        assert (await bench.appended(A, 2, [b"three"])).code == OK

    on_a_bookie(act, log_config=replace(SMALL_SEGMENTS, segment_size_bytes=1 << 16))
