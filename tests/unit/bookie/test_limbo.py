"""Doubt: what may be lost is unknown, durably, until somebody who knows clears it."""

from __future__ import annotations

import asyncio
import random

import pytest
from magnetar.bookie import bookie_core
from magnetar.bookie.doubt_note import DOUBT
from magnetar.common.errors import MetadataError
from magnetar.common.metadata.values import LedgerMetadata
from magnetar.ledger.bookie_protocol.bookie_pb2 import (
    ENTRY_UNKNOWN,
    FENCED,
    LOG_FAILED,
    NO_SUCH_ENTRY,
    OK,
)
from magnetar.ledger.ledger_store import LedgerRef
from magnetar.ledger.segment_log.codec_v1 import GROUP_HEADER_SIZE
from magnetar.ledger.segment_log.log import SegmentLog

from tests.unit.bookie.core_harness import A, B, Bench, on_a_bookie

C = LedgerRef(3, 0xC)


async def tear_the_last_group(bench: Bench) -> None:
    """Damage what the newest segment ends with, and start again after a kill."""
    await bench.core.log._chain._settle()  # no zeros are being written behind the group
    segment = bench.core.log.segments[-1]
    group_start = segment.durable_end - 4096
    bench.disk.overwrite(segment.path, b"\xff" * 400, group_start + 20)
    await bench.restart("kill")


def test_a_damaged_last_group_puts_ledgers_that_are_not_closed_in_limbo() -> None:
    async def act(bench: Bench) -> None:
        await bench.put_metadata(A)
        await bench.put_metadata(B, LedgerMetadata.CLOSED, last_entry_id=0)
        await bench.put_metadata(C, LedgerMetadata.OPEN, "somebody-else")
        await bench.appended(B, 0, [b"closed"])
        await bench.appended(A, 0, [b"early"])
        await bench.appended(A, 1, [b"late"])
        await tear_the_last_group(bench)
        assert (await bench.state(A)).limbo
        assert not (await bench.state(B)).limbo
        entries, part = await bench.read(A, 0, 1)
        assert (entries, part.code, part.stopped_at) == ([b"early"], ENTRY_UNKNOWN, 1)
        assert (await bench.read(B, 1, 1))[1].code == NO_SUCH_ENTRY
        assert (await bench.read(C, 0, 0))[1].code == NO_SUCH_ENTRY

    on_a_bookie(act)


@pytest.mark.parametrize("group", [2, 1])
def test_a_group_that_the_disk_cannot_read_puts_ledgers_that_are_not_closed_in_limbo(group: int) -> None:
    """The last one, and one that is known to be durable and says no more what was in it."""

    async def act(bench: Bench) -> None:
        await bench.put_metadata(A)
        for number in range(3):
            await bench.appended(A, number, [b"entry %d" % number])
        await bench.core.log._chain._settle()
        bench.disk.spoil(bench.core.log.segments[-1].path, 4096 * (1 + group))
        await bench.restart("kill")
        assert (await bench.state(A)).limbo
        entries, part = await bench.read(A, 0, 2)
        assert entries == [b"entry %d" % number for number in range(group)]
        assert (part.code, part.stopped_at) == (ENTRY_UNKNOWN, group)
        assert (await bench.appended(A, 3, [b"an old writer's"])).code == LOG_FAILED

    on_a_bookie(act)


def test_a_durable_group_whose_directory_and_records_are_damaged_is_a_doubt_too() -> None:
    """What it held was acknowledged, and nothing left of it says so."""

    async def act(bench: Bench) -> None:
        await bench.put_metadata(A)
        await bench.put_metadata(B)
        await bench.appended(A, 0, [b"a"])
        await bench.appended(B, 0, [b"b"])
        await bench.core.log._chain._settle()
        segment = bench.core.log.segments[-1]
        record = segment.indexes[A].offset(0)
        directory = record // 4096 * 4096 + GROUP_HEADER_SIZE
        assert directory < record
        bench.disk.overwrite(segment.path, b"\xff" * (record + 8 - directory), directory)
        await bench.restart("kill")
        assert (await bench.read(A, 0, 0))[1].code == ENTRY_UNKNOWN
        assert (await bench.state(A)).limbo

    on_a_bookie(act)


def test_a_ledger_whose_every_record_was_lost_is_in_limbo_too() -> None:
    async def act(bench: Bench) -> None:
        await bench.put_metadata(A)
        await bench.put_metadata(B)
        await bench.appended(B, 0, [b"b"])
        await bench.appended(A, 0, [b"the only one"])
        await tear_the_last_group(bench)
        assert (await bench.read(A, 0, 0))[1].code == ENTRY_UNKNOWN
        assert (await bench.appended(A, 0, [b"an old writer's"])).code == LOG_FAILED

    on_a_bookie(act)


def test_clearing_limbo_is_durable_and_leaves_the_ledger_fenced() -> None:
    async def act(bench: Bench) -> None:
        await bench.put_metadata(A)
        await bench.appended(A, 0, [b"early"])
        await bench.appended(A, 1, [b"late"])
        await tear_the_last_group(bench)
        assert (await bench.appended(A, 1, [b"late"], recovery=True)).code == OK
        state = await bench.clear_limbo(A)
        assert (state.code, state.limbo, state.fenced) == (OK, False, True)
        await bench.restart("crash")
        assert not (await bench.state(A)).limbo
        entries, part = await bench.read(A, 0, 2)
        assert (entries, part.code) == ([b"early", b"late"], NO_SUCH_ENTRY)
        assert (await bench.appended(A, 2, [b"more"])).code == FENCED

    on_a_bookie(act)


def test_limbo_again_after_it_was_cleared_holds_whatever_compaction_does() -> None:
    async def act(bench: Bench) -> None:
        log = bench.core.log
        await bench.appended(A, 0, [b"x"])
        for outage in ("close", "close", "close"):
            await log.set_limbo(A)
            await bench.restart(outage)
            log = bench.core.log
            assert (await bench.state(A)).limbo
            await log.clear_limbo(A)
            await bench.restart(outage)
            log = bench.core.log
            assert not (await bench.state(A)).limbo
        await log.set_limbo(A)
        await bench.restart("close")
        log = bench.core.log
        finished = log.finished_segments()
        assert len(finished) > 5
        # The one before the last holds a cleared mark; rewritten, it is the newest segment.
        for segment in finished[:-1]:
            await log.space._rewrite([segment], set())
        assert (await bench.state(A)).limbo
        await bench.restart("kill")
        assert (await bench.state(A)).limbo

    on_a_bookie(act)


def test_a_doubt_that_was_cleared_does_not_come_back_by_compaction() -> None:
    """The mark and what clears it are in two segments, and only the later one is rewritten."""

    async def act(bench: Bench) -> None:
        await bench.core.log.set_limbo(A)
        await bench.restart("close")
        await bench.core.log.clear_limbo(A)
        await bench.restart("close")
        log = bench.core.log
        await log.space._rewrite(log.finished_segments()[-1:], set())
        await bench.restart("kill")
        assert not (await bench.state(A)).limbo

    on_a_bookie(act)


def test_doubt_survives_a_start_that_could_not_make_the_marks(monkeypatch: pytest.MonkeyPatch) -> None:
    async def act(bench: Bench) -> None:
        await bench.put_metadata(A)
        await bench.appended(A, 0, [b"early"])
        await bench.appended(A, 1, [b"late"])

        async def unreachable(*_args: object) -> None:
            raise MetadataError("metadata is unreachable")

        with monkeypatch.context() as patch:
            patch.setattr(bookie_core, "mark_doubtful", unreachable)
            with pytest.raises(MetadataError):
                await tear_the_last_group(bench)
        assert DOUBT in bench.disk.listdir("")
        await bench.open()
        assert (await bench.state(A)).limbo
        assert DOUBT not in bench.disk.listdir("")

    on_a_bookie(act)


def test_the_note_of_a_doubt_stays_until_its_marks_are_durable(monkeypatch: pytest.MonkeyPatch) -> None:
    async def act(bench: Bench) -> None:
        await bench.put_metadata(A)
        await bench.appended(A, 0, [b"early"])
        await bench.appended(A, 1, [b"late"])
        durable: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        with monkeypatch.context() as patch:
            patch.setattr(SegmentLog, "set_limbo", lambda *_args, **_named: durable)
            restarted = asyncio.ensure_future(tear_the_last_group(bench))
            await asyncio.sleep(1)
            assert DOUBT in bench.disk.listdir("")
            assert not restarted.done()
            durable.set_result(None)
            await restarted
        assert DOUBT not in bench.disk.listdir("")

    on_a_bookie(act)


def test_no_power_loss_puts_an_acknowledged_entry_out_of_reach_silently() -> None:
    """An acknowledged entry is there whatever the power takes; what was torn is not denied."""

    async def act(bench: Bench) -> None:
        rng = random.Random(bench.loop.rng.getrandbits(64))
        await bench.put_metadata(A)
        acked = 0
        for first in range(0, 60, 3):
            bench.append(A, first, [b"%d" % first] * 3)
            if rng.random() < 0.5:
                assert (await bench.appended(B, first, [b"b"])).code == OK
                acked = first + 3
        await bench.restart("crash", rng)
        entries, part = await bench.read(A, 0, 59)
        assert len(entries) >= acked
        if part.code == NO_SUCH_ENTRY:
            assert not (await bench.state(A)).limbo

    for seed in range(30):
        on_a_bookie(act, seed)
