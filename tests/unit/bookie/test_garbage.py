"""A bookie lets go of what metadata lacks or gave to others, after a while, and of nothing else."""

from __future__ import annotations

import asyncio
import errno
from dataclasses import replace

import pytest
from magnetar.bookie.core_config import BookieCoreConfig
from magnetar.bookie.garbage import is_moved_away
from magnetar.common.metadata.store import Versioned
from magnetar.common.metadata.values import LedgerMetadata
from magnetar.ledger.bookie_protocol.bookie_pb2 import FENCED, NO_SUCH_ENTRY, OK, DeleteHintRequest
from magnetar.ledger.garbage_collector import PAUSED, SMALL_NUMBER
from magnetar.ledger.ledger_store import LedgerRef
from magnetar.ledger.segment_log.segment import Segment

from tests.simulation.power_loss import KEYS, SMALL_SEGMENTS
from tests.unit.bookie.core_harness import A, B, Bench, on_a_bookie, wire

CONFIG = BookieCoreConfig(moved_grace_s=100)
LOG = replace(SMALL_SEGMENTS, gc_grace_s=10, sort_after_s=0, compaction_live_ratio=1.0)
CLOSED = LedgerMetadata.CLOSED
ENTRY = bytes(4000)


async def filled(bench: Bench, ref: LedgerRef, entries: int = 12) -> None:
    """So many entries that they are in sealed segments."""
    for first in range(entries):
        assert (await bench.appended(ref, first, [ENTRY])).code == OK


async def in_sealed_segments(bench: Bench) -> None:
    """Everything there is."""
    await bench.restart("close")


def held(bench: Bench, ref: LedgerRef) -> bool:
    return any(ref in segment.lines for segment in bench.core.log.segments)


async def collect_over(bench: Bench, seconds: float) -> None:
    for _ in range(3):
        await bench.core.garbage.collect()
        await asyncio.sleep(seconds / 2)
    await bench.core.garbage.collect()


def test_a_deleted_ledger_goes_after_the_grace_period_and_not_before() -> None:
    async def act(bench: Bench) -> None:
        await bench.put_metadata(A, CLOSED)
        await bench.put_metadata(B, CLOSED)
        await filled(bench, A)
        await filled(bench, B)
        await in_sealed_segments(bench)
        await bench.metadata.delete(KEYS.ledger(A.id))
        await collect_over(bench, 4)
        assert held(bench, A)
        await collect_over(bench, 20)
        assert not held(bench, A)
        assert (await bench.read(A, 0, 0))[1].code == NO_SUCH_ENTRY
        assert len((await bench.read(B, 0, 11))[0]) == 12

    on_a_bookie(act, log_config=LOG, config=CONFIG)


def test_a_writer_of_a_deleted_ledger_is_fenced() -> None:
    async def act(bench: Bench) -> None:
        await bench.put_metadata(B)
        await filled(bench, A)
        await in_sealed_segments(bench)
        for pause in (11, 0):
            await bench.core.garbage.collect()
            await asyncio.sleep(pause)
            if bench.core.garbage.is_gone(A):
                break
        assert bench.core.garbage.is_gone(A)
        assert (await bench.appended(A, 12, [b"late"])).code == FENCED

    on_a_bookie(act, log_config=replace(LOG, compaction_live_ratio=0.0), config=CONFIG)


def test_nothing_goes_over_metadata_that_is_not_what_the_bookie_began_with() -> None:
    """It came back empty and was begun anew: a few missing ledgers are no alarm to the guard that counts."""

    async def act(bench: Bench) -> None:
        for ref in (A, B):
            await bench.put_metadata(ref, CLOSED)
            await filled(bench, ref)
        await in_sealed_segments(bench)
        await bench.core.garbage.collect()
        for ref in (A, B):
            await bench.metadata.delete(KEYS.ledger(ref.id))
        await bench.put_metadata(LedgerRef(9, 9))
        bench.name_instance(b"another instance")
        bench.core.garbage.hint()
        await collect_over(bench, 20)
        assert held(bench, A)
        assert held(bench, B)
        assert PAUSED._value.get() == 1
        bench.name_instance(bench.instance_id)
        await collect_over(bench, 20)
        assert not held(bench, A)
        assert PAUSED._value.get() == 0

    on_a_bookie(act, log_config=LOG, config=CONFIG)


def test_a_closed_ledger_that_others_keep_goes_after_its_own_grace_period() -> None:
    async def act(bench: Bench) -> None:
        await bench.put_metadata(A, CLOSED, "other-1", "other-2")
        await bench.put_metadata(B, LedgerMetadata.OPEN, "other-1", "other-2")
        await filled(bench, A)
        await filled(bench, B)
        await in_sealed_segments(bench)
        await collect_over(bench, 50)
        assert held(bench, A)
        await collect_over(bench, 120)
        assert not held(bench, A)
        assert held(bench, B), "an open ledger may name this bookie any moment"

    on_a_bookie(act, log_config=LOG, config=CONFIG)


def test_copies_that_arrive_begin_the_grace_period_anew() -> None:
    async def act(bench: Bench) -> None:
        await bench.put_metadata(A, CLOSED, "other-1")
        await filled(bench, A)
        await in_sealed_segments(bench)
        for first in range(12, 32):
            await bench.core.garbage.collect()
            await asyncio.sleep(30)
            assert (await bench.appended(A, first, [ENTRY], recovery=True)).code == OK
        assert len((await bench.read(A, 0, 31))[0]) == 32

    on_a_bookie(act, log_config=LOG, config=CONFIG)


def test_copies_that_arrive_while_metadata_is_asked_once_more_keep_the_ledger() -> None:
    async def act(bench: Bench) -> None:
        await bench.put_metadata(A, CLOSED, "other-1")
        await filled(bench, A)
        await in_sealed_segments(bench)
        await bench.core.garbage.collect()
        await asyncio.sleep(101)
        get = bench.metadata.get

        async def get_while_a_copy_arrives(key: str) -> Versioned | None:
            found = await get(key)
            if key == KEYS.ledger(A.id):
                assert (await bench.appended(A, 12, [ENTRY], recovery=True)).code == OK
            return found

        bench.metadata.get = get_while_a_copy_arrives  # type: ignore[method-assign]
        await bench.core.garbage.collect()
        assert len((await bench.read(A, 0, 12))[0]) == 13

    on_a_bookie(act, log_config=LOG, config=CONFIG)


def test_a_segment_stays_while_an_unsealed_one_before_it_needs_its_first_group(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """That group alone says where the unsealed one ends: without it, damage would pass for a torn end."""
    seal = Segment.seal

    def seal_fails_once(self: Segment, footer_offset: int) -> None:
        monkeypatch.setattr(Segment, "seal", seal)
        raise OSError(errno.EIO, "as the test wants it")

    async def act(bench: Bench) -> None:
        log = bench.core.log
        monkeypatch.setattr(Segment, "seal", seal_fails_once)
        assert (await bench.appended(A, 0, [ENTRY])).code == OK
        await filled(bench, B, 40)
        await log._chain._settle()
        unsealed, following, *_ = log.finished_segments()
        assert not unsealed.sealed
        assert following.sealed
        await log.space._remove_dead({B})
        assert following.path in bench.disk.paths()

    on_a_bookie(act, log_config=LOG, config=CONFIG)


def test_a_ledger_that_comes_back_after_its_end_is_taken_in_full_and_kept() -> None:
    """Auto-recovery moves it away and back; bytes that are dead must not pass for copies that are here."""

    async def act(bench: Bench) -> None:
        await bench.put_metadata(A, CLOSED, "other-1")
        await bench.put_metadata(B, CLOSED)
        await filled(bench, A)
        await filled(bench, B, 2)
        await in_sealed_segments(bench)
        config = bench.core.log.config
        bench.core.log.space._config = replace(config, compaction_bytes_per_s=4096)
        await bench.core.garbage.collect()
        await asyncio.sleep(101)
        collecting = asyncio.ensure_future(bench.core.garbage.collect())
        await asyncio.sleep(0.5)
        for first in range(12):
            assert (await bench.appended(A, first, [ENTRY], recovery=True)).code == OK
        await bench.put_metadata(A, CLOSED)
        await collecting
        await collect_over(bench, 300)
        assert len((await bench.read(A, 0, 11))[0]) == 12
        await bench.restart("close")
        assert len((await bench.read(A, 0, 11))[0]) == 12

    for seed in range(5):
        on_a_bookie(act, seed, log_config=LOG, config=CONFIG)


def test_a_ledger_that_metadata_still_has_when_asked_again_is_kept() -> None:
    async def act(bench: Bench) -> None:
        await bench.put_metadata(A, CLOSED)
        await bench.put_metadata(B, CLOSED)
        await filled(bench, A)
        await in_sealed_segments(bench)
        children = bench.metadata.children

        async def without_a(prefix: str) -> object:
            listing = await children(prefix)
            return replace(listing, items=[each for each in listing.items if each.key != KEYS.ledger(A.id)])

        bench.metadata.children = without_a  # type: ignore[method-assign,assignment]
        await collect_over(bench, 40)
        assert held(bench, A)
        assert len((await bench.read(A, 0, 11))[0]) == 12

    on_a_bookie(act, log_config=LOG, config=CONFIG)


def test_a_hint_is_no_reason_to_delete_but_to_look() -> None:
    async def act(bench: Bench) -> None:
        await bench.put_metadata(A, CLOSED)
        await bench.put_metadata(B, CLOSED)
        await filled(bench, A)
        await filled(bench, B)
        await in_sealed_segments(bench)
        await bench.metadata.delete(KEYS.ledger(A.id))
        await bench.core.delete_hint(DeleteHintRequest(ledgers=[wire(A), wire(B)]))
        await asyncio.sleep(30)
        assert not held(bench, A)
        assert held(bench, B)

    on_a_bookie(act, log_config=LOG, config=CONFIG)


def test_deletions_that_a_bookie_was_told_of_are_not_taken_for_lost_metadata() -> None:
    """A topic with most of a bookie's ledgers goes: the bookie must not wait for an operator."""
    deleted = [LedgerRef(100 + number, number) for number in range(3 * SMALL_NUMBER)]

    async def act(bench: Bench) -> None:
        for ref in (A, *deleted):
            await bench.put_metadata(ref, CLOSED)
            await filled(bench, ref, entries=1)
        await in_sealed_segments(bench)
        for ref in deleted:
            await bench.metadata.delete(KEYS.ledger(ref.id))
        await collect_over(bench, 30)
        assert all(held(bench, ref) for ref in deleted), "so many that nobody told of are suspicious"
        told = [wire(ref) for ref in (A, *deleted)]
        await bench.core.delete_hint(DeleteHintRequest(ledgers=told))
        await collect_over(bench, 30)
        assert not any(held(bench, ref) for ref in deleted)
        assert held(bench, A), "a hint is no reason to delete"

    on_a_bookie(act, log_config=LOG, config=CONFIG)


def test_only_a_closed_ledger_without_a_fragment_here_has_moved_away() -> None:
    ledger = LedgerMetadata(state=CLOSED)
    assert not is_moved_away("here", ledger)
    ledger.fragments.add(first_entry_id=0, bookie_ids=["there"])
    assert is_moved_away("here", ledger)
    ledger.state = LedgerMetadata.IN_RECOVERY
    assert not is_moved_away("here", ledger)
    ledger.state = CLOSED
    ledger.fragments.add(first_entry_id=5, bookie_ids=["here", "there"])
    assert not is_moved_away("here", ledger)
