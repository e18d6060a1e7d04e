"""The suite is worth what it catches: each sync, checksum and guard of the log is removed in turn.

A mutation patches one function for one test. The named suite must fail within the stated number of seeds; a
mutation that survives means that the guard is not tested, or not needed.
"""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
import random
from collections.abc import Callable
from typing import Any

import pytest
from magnetar.common.metadata.store import ANY_VERSION
from magnetar.ledger.ledger_catalog import LedgerCatalog
from magnetar.ledger.ledger_store import ClosedLedger
from magnetar.ledger.segment_log import (
    codec_v1,
    file_codec_v1,
    kept_records,
    log,
    reader,
    recovery,
    scan,
    segment,
    segment_chain,
)
from magnetar.ledger.segment_log.codec_v1 import BLOCK, Durable
from magnetar.ledger.segment_log.group_commit import GroupCommit
from magnetar.ledger.segment_log.segment_chain import SegmentChain
from magnetar.sim.disk import SimDisk, SimFile

from tests.simulation.corruption import flip_and_check, plant_stale_blocks, remains_of
from tests.simulation.ledger_workload import LedgerWorkload
from tests.simulation.mutants import Mutation, Patch, Suite, assert_noticed, noticed
from tests.simulation.power_loss import cut_everywhere
from tests.simulation.test_power_loss import workload_with_sync_errors
from tests.unit.ledger.ledger_store_contract import PROMISES
from tests.unit.ledger.segment_log.test_log import (
    a_clean_stop_leaves_nothing_to_repair,
    a_sealed_segment_ends_where_it_was_durable,
    a_segment_holds_so_many_entries,
    an_earlier_group_further_on_is_not_believed,
)
from tests.unit.ledger.test_local_store import (
    fence_refuses_at_once,
    run_promise,
    what_a_recovery_saw_outlives_a_power_loss,
)

# --- the suites ---


def power_loss(seed: int) -> None:
    cut_everywhere(LedgerWorkload(seed), seed)


def power_loss_with_sync_errors(seed: int) -> None:
    cut_everywhere(workload_with_sync_errors(seed), seed)


def corruption(seed: int) -> None:
    remains = remains_of(LedgerWorkload(seed, clean_end=seed % 2 == 0), seed)
    for flip in range(150):
        flip_and_check(remains, seed * 150 + flip)


def stale_blocks(seed: int) -> None:
    plant_stale_blocks(remains_of(LedgerWorkload(seed, clean_end=False), seed), seed)


def contract(seed: int) -> None:
    for promise in PROMISES:
        run_promise(promise, seed)


# --- the mutations: syncs ---


def no_data_sync(patch: Patch) -> None:
    submit = GroupCommit._submit

    def mutant(self: GroupCommit, *args: Any, busy: bool) -> None:
        self._config = dataclasses.replace(self._config, sync_data=False)
        submit(self, *args, busy=busy)

    patch.setattr(GroupCommit, "_submit", mutant)


def no_directory_sync(patch: Patch) -> None:
    patch.setattr(SimDisk, "sync_dir", lambda self, path: self.operation("no sync"))


def fence_answered_before_it_is_durable(patch: Patch) -> None:
    mark = log.SegmentLog._mark

    async def mutant(self: log.SegmentLog, *args: Any) -> None:
        task = asyncio.ensure_future(mark(self, *args))
        task.add_done_callback(lambda task: task.exception())
        await asyncio.sleep(0)

    patch.setattr(log.SegmentLog, "_mark", mutant)


def no_cookie_sync(patch: Patch) -> None:
    sync = SimFile.fdatasync
    patch.setattr(SimFile, "fdatasync", lambda self: None if "cookie" in self._path else sync(self))


def no_sync_of_the_rewritten_tail(patch: Patch) -> None:
    rewrite = kept_records.write_group
    sync = SimFile.fdatasync

    def mutant(*args: Any) -> Durable:
        with pytest.MonkeyPatch.context() as inner:
            inner.setattr(SimFile, "fdatasync", lambda self: None)
            result = rewrite(*args)
        assert SimFile.fdatasync is sync
        return result

    patch.setattr(recovery, "write_group", mutant)


# --- checksums ---


def no_group_header_checksum(patch: Patch) -> None:
    _ignore_crc(patch, codec_v1.decode_group_header, scan)


def no_directory_checksum(patch: Patch) -> None:
    _ignore_crc(patch, codec_v1.decode_directory, scan)


def no_record_header_checksum(patch: Patch) -> None:
    _ignore_crc(patch, codec_v1.decode_record_header, scan, reader)


def no_body_checksum(patch: Patch) -> None:
    patch.setattr(reader, "body_intact", lambda body, crc: True)


def no_body_checksum_in_recovery(patch: Patch) -> None:
    patch.setattr(recovery, "body_intact", lambda body, crc: True)


def no_footer_directory_checksum(patch: Patch) -> None:
    _ignore_crc(patch, file_codec_v1.decode_footer_directory, segment)


def no_footer_arrays_checksum(patch: Patch) -> None:
    _ignore_crc(patch, file_codec_v1.decode_footer_arrays, segment)


def no_trailer_checksum(patch: Patch) -> None:
    _ignore_crc(patch, file_codec_v1.decode_trailer, segment, recovery)


def no_segment_header_checksum(patch: Patch) -> None:
    _ignore_crc(patch, file_codec_v1.decode_segment_header, recovery)


class _AnyCrc(int):
    """Equal to every other number: a comparison of checksums that always succeeds."""

    def __eq__(self, other: object) -> bool:
        return True

    def __ne__(self, other: object) -> bool:
        return False

    __hash__ = int.__hash__


def _ignore_crc(patch: Patch, decode: Callable[..., Any], *users: Any) -> None:
    def mutant(*args: Any) -> Any:
        module = codec_v1 if decode.__module__ == codec_v1.__name__ else file_codec_v1
        with pytest.MonkeyPatch.context() as inner:
            inner.setattr(module, "crc32c", lambda data, crc=0: _AnyCrc(0))
            return decode(*args)

    for user in users:
        patch.setattr(user, decode.__name__, mutant)


# --- guards ---


def tail_believed_from_the_page_cache(patch: Patch) -> None:
    find = recovery._find_durable_ends

    def mutant(tails: list[Any], sealed: list[Any]) -> None:
        find(tails, sealed)
        for tail in tails:
            tail.durable_end = tail.segment.end = tail.segment.durable_end = tail.scan.content_end

    patch.setattr(recovery, "_find_durable_ends", mutant)


def old_segments_retired_before_the_tail_is_rewritten(patch: Patch) -> None:
    judge = recovery._judge_tail
    retire = recovery._retire
    retired: dict[int, bool] = {}

    def early(tail: Any, *args: Any) -> Any:
        kept = judge(tail, *args)
        retired[id(tail)] = retire(tail)
        return kept

    patch.setattr(recovery, "_judge_tail", early)
    patch.setattr(recovery, "_retire", lambda tail: retired[id(tail)])


def gaps_kept_in_a_torn_group(patch: Patch) -> None:
    class Everything(dict[Any, int]):
        def get(self, key: Any, default: Any = None) -> Any:
            return 1 << 40

    patch.setattr(recovery, "_Known", lambda: _known_everything(Everything()))


def _known_everything(entries: Any) -> Any:
    known = _KNOWN()
    known.last_entry = entries
    return known


_KNOWN = recovery._Known


def no_salt(patch: Patch) -> None:
    original = segment.new_header

    def mutant(rng: random.Random, sequence: int, created_ms: int) -> Any:
        return dataclasses.replace(original(rng, sequence, created_ms), salt=0, uuid=bytes(16))

    for module in (recovery, segment_chain):
        patch.setattr(module, "new_header", mutant)


def a_group_claims_itself_durable(patch: Patch) -> None:
    encode = codec_v1.encode_group

    def mutant(records: Any, uuid: bytes, salt: int, sequence: int, durable: Durable) -> Any:
        length = codec_v1.align(codec_v1.encoded_group_length(records), BLOCK)
        end = durable.end + length
        return encode(records, uuid, salt, sequence, Durable(sequence, durable.segment_sequence, end))

    patch.setattr("magnetar.ledger.segment_log.group_commit.encode_group", mutant)


def nothing_is_known_durable(patch: Patch) -> None:
    patch.setattr(recovery, "_note_durable", lambda ends, group: None)


def two_groups_in_flight(patch: Patch) -> None:
    submit, done = GroupCommit._submit, GroupCommit._done

    def mutant(self: GroupCommit, *args: Any, busy: bool) -> None:
        group, self._in_flight = self._in_flight, None

        def finished(error: OSError | None) -> None:
            self._in_flight = group
            done(self, error)

        self._done = finished  # type: ignore[method-assign]
        submit(self, *args, busy=busy)

    patch.setattr(GroupCommit, "_submit", mutant)


def writing_goes_on_in_a_failed_segment(patch: Patch) -> None:
    patch.setattr(SegmentChain, "abandon_active", lambda self: None)


def later_records_of_a_lost_ledger_are_written(patch: Patch) -> None:
    lost = GroupCommit._lost

    def mutant(self: GroupCommit, group: Any, error: OSError) -> None:
        collecting, self._collecting = self._collecting, []
        lost(self, group, error)
        self._collecting = collecting

    patch.setattr(GroupCommit, "_lost", mutant)


def a_failed_group_is_acknowledged(patch: Patch) -> None:
    patch.setattr(GroupCommit, "_lost", lambda self, group, error: self._committed(group))


def appends_go_on_after_a_fence(patch: Patch) -> None:
    append = log.SegmentLog.append

    def mutant(self: log.SegmentLog, ledger: Any, run: Any, lac: int) -> None:
        fenced, ledger.fenced = ledger.fenced, False
        append(self, ledger, run, lac)
        ledger.fenced = fenced

    patch.setattr(log.SegmentLog, "append", mutant)


def a_ledger_is_closed_without_compare_and_set(patch: Patch) -> None:
    commit = LedgerCatalog.commit_closed

    async def mutant(self: Any, value: Any, version: int, closed: ClosedLedger, with_ops: Any) -> None:
        await commit(self, value, ANY_VERSION, closed, with_ops)

    patch.setattr(LedgerCatalog, "commit_closed", mutant)


def records_after_damage_are_not_looked_for(patch: Patch) -> None:
    patch.setattr(recovery, "salvage_records", lambda *args: iter(()))


def a_failed_segment_is_sealed_at_the_writers_end(patch: Patch) -> None:
    seal = segment.Segment.seal
    patch.setattr(segment.Segment, "seal", lambda self, end: seal(self, max(end, self.end)))


def the_seal_is_not_synced(patch: Patch) -> None:
    seal = segment.Segment.seal

    def mutant(self: segment.Segment, end: int) -> None:
        with pytest.MonkeyPatch.context() as inner:
            inner.setattr(SimFile, "fdatasync", lambda self: None)
            seal(self, end)

    patch.setattr(segment.Segment, "seal", mutant)


def segments_take_any_number_of_entries(patch: Patch) -> None:
    over = SegmentChain._is_over

    def mutant(self: SegmentChain, active: segment.Segment, length: int) -> bool:
        active.entries = 0
        return over(self, active, length)

    patch.setattr(SegmentChain, "_is_over", mutant)


def the_last_add_confirmed_runs_ahead(patch: Patch) -> None:
    append = log.SegmentLog.append
    patch.setattr(
        log.SegmentLog, "append", lambda self, ledger, run, lac: append(self, ledger, run, run.last_entry_id)
    )


def any_group_sequence_is_believed_on_resync(patch: Patch) -> None:
    decode = codec_v1.decode_group_header
    numbers = itertools.count(1)

    def mutant(*args: Any) -> Any:
        header = decode(*args)
        return None if header is None else dataclasses.replace(header, sequence=next(numbers))

    patch.setattr(scan, "decode_group_header", mutant)


MUTATIONS = [
    noticed(no_data_sync, power_loss, 1),
    noticed(no_directory_sync, power_loss, 1),
    noticed(fence_answered_before_it_is_durable, power_loss, 3),
    noticed(no_cookie_sync, power_loss, 3),
    noticed(no_sync_of_the_rewritten_tail, power_loss, 3),
    noticed(no_group_header_checksum, corruption, 4),
    noticed(no_directory_checksum, corruption, 8, first=5),
    noticed(no_record_header_checksum, corruption, 4),
    noticed(no_body_checksum, corruption, 4),
    noticed(no_body_checksum_in_recovery, power_loss, 3),
    noticed(no_footer_directory_checksum, corruption, 4),
    noticed(no_footer_arrays_checksum, corruption, 4),
    noticed(no_trailer_checksum, corruption, 4),
    noticed(no_segment_header_checksum, corruption, 4),
    noticed(tail_believed_from_the_page_cache, power_loss, 3),
    noticed(old_segments_retired_before_the_tail_is_rewritten, power_loss, 4),
    noticed(gaps_kept_in_a_torn_group, power_loss, 4),
    noticed(no_salt, stale_blocks, 20),
    noticed(a_group_claims_itself_durable, power_loss, 3),
    noticed(nothing_is_known_durable, corruption, 4),
    noticed(two_groups_in_flight, power_loss, 3),
    noticed(writing_goes_on_in_a_failed_segment, what_a_recovery_saw_outlives_a_power_loss, 5),
    noticed(later_records_of_a_lost_ledger_are_written, power_loss_with_sync_errors, 6, first=3),
    noticed(a_failed_group_is_acknowledged, power_loss_with_sync_errors, 3),
    noticed(appends_go_on_after_a_fence, fence_refuses_at_once, 1),
    noticed(a_ledger_is_closed_without_compare_and_set, contract, 1),
    noticed(records_after_damage_are_not_looked_for, corruption, 4),
    noticed(a_failed_segment_is_sealed_at_the_writers_end, a_sealed_segment_ends_where_it_was_durable, 1),
    noticed(the_seal_is_not_synced, a_clean_stop_leaves_nothing_to_repair, 3),
    noticed(segments_take_any_number_of_entries, a_segment_holds_so_many_entries, 1),
    noticed(the_last_add_confirmed_runs_ahead, power_loss, 3),
    noticed(any_group_sequence_is_believed_on_resync, an_earlier_group_further_on_is_not_believed, 1),
]


@pytest.mark.nightly
@pytest.mark.parametrize(("mutation", "suite", "seeds"), MUTATIONS)
def test_the_suite_catches(mutation: Mutation, suite: Suite, seeds: range, monkeypatch: Patch) -> None:
    assert_noticed(mutation, suite, seeds, monkeypatch)
