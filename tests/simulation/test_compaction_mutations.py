"""Mistakes of compaction are planted in turn; its suites must notice within the stated number of seeds.

The style is that of test_mutations: a mutation patches one function for one test.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from magnetar.common.metadata.store import Delete, Op, Put
from magnetar.common.naming.position import Position
from magnetar.ledger.compacted import live_entries, merge_plan, page, segment_builder
from magnetar.ledger.compacted import view as view_module
from magnetar.ledger.compacted.chunk_groups import ChunkGroups
from magnetar.ledger.compacted.latest_keys import LatestKeys
from magnetar.ledger.compacted.tail_scan import Survivors, TailScan
from magnetar.ledger.ledger_store import ClosedLedger
from magnetar.ledger.managed_ledger import compaction_run, topic_compaction
from magnetar.ledger.managed_ledger.compaction_run import CompactionRun
from magnetar.ledger.managed_ledger.page_ledger import PageLedger
from magnetar.ledger.managed_ledger.topic_compaction import TopicCompaction
from magnetar.ledger.managed_ledger.topic_head import TopicHeadKey
from pyroaring import BitMap

from tests.simulation.compaction_workload import CompactionWorkload
from tests.simulation.mutants import Mutation, Patch, Suite, assert_noticed, noticed
from tests.simulation.power_loss import cut_everywhere
from tests.unit.ledger.compacted import test_compaction, test_topic_compaction

# --- the suites ---


def histories(seed: int) -> None:
    test_compaction.test_many_runs_give_what_the_model_gives(seed)


def power_loss(seed: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(page, "PAGE_BYTES_MAX", 1_000)
        patch.setattr(compaction_run, "DEAD_SET_BYTES_MAX", 18)
        patch.setattr(compaction_run, "READ_ENTRIES", 10)
        patch.setattr(merge_plan, "SMALL_BYTES", 2_000)
        cut_everywhere(CompactionWorkload(seed), seed, every=3)


def lost_naming(_seed: int) -> None:
    test_topic_compaction.test_a_lost_answer_to_the_naming_leaves_either_view(False)


def unknown_naming(_seed: int) -> None:
    test_topic_compaction.test_a_naming_whose_outcome_stays_unknown_deletes_no_ledger_in_use()


def holds(_seed: int) -> None:
    test_topic_compaction.test_trimming_stops_at_the_horizon_and_the_view_outlives_what_was_trimmed()


def aborted(_seed: int) -> None:
    test_compaction.test_markers_and_aborted_transactions_are_left_out()


def owners(_seed: int) -> None:
    test_topic_compaction.test_a_former_owner_names_no_view_and_its_ledgers_are_cleaned_up()


def intents(_seed: int) -> None:
    test_topic_compaction.test_a_ledger_that_was_cleaned_up_in_the_making_fails_the_run()
    test_topic_compaction.test_a_long_run_keeps_its_ledgers_from_being_cleaned_up()


# --- order of the steps ---


def a_view_names_a_ledger_before_it_is_closed(patch: Patch) -> None:
    async def close(self: PageLedger) -> None:
        while self._unconfirmed:
            await self._progress()
        self.closed = ClosedLedger(self.ref, self.pages - 1, 0)

    patch.setattr(PageLedger, "close", close)


def a_view_is_served_before_it_is_named(patch: Patch) -> None:
    commit, write = TopicHeadKey.commit, TopicCompaction._commit
    changes: dict[int, tuple[TopicCompaction, Any]] = {}

    async def serving(self: TopicHeadKey, head: Any, ops: Sequence[Op] = ()) -> None:
        if (change := changes.pop(id(self), None)) is not None:
            change[0]._view = change[1]
        await commit(self, head, ops)

    async def mutant(self: TopicCompaction, change: Any) -> None:
        changes[id(self._head)] = self, change.view
        await write(self, change)

    patch.setattr(TopicHeadKey, "commit", serving)
    patch.setattr(TopicCompaction, "_commit", mutant)


def ledgers_are_deleted_before_the_view_that_replaces_them_is_named(patch: Patch) -> None:
    name = TopicCompaction._name

    async def mutant(self: TopicCompaction, view: Any, ledgers: Sequence[PageLedger]) -> None:
        if self._view is not None:
            for ref in topic_compaction._replaced(self._view, view):
                await self._topic.context().ledgers.delete(ref)
        await name(self, view, ledgers)

    patch.setattr(TopicCompaction, "_name", mutant)


def replaced_ledgers_have_no_intents(patch: Patch) -> None:
    def nothing(ctx: Any, ref: Any) -> Op:
        return Put(f"{ctx.keys.root}elsewhere/{ref.id}", b"")

    patch.setattr(topic_compaction, "delete_ledger_intent", nothing)


def new_ledgers_keep_their_intents(patch: Patch) -> None:
    def adoption(self: PageLedger) -> Op:
        return Delete(f"{self._ctx.keys.root}elsewhere/{self.ref.id}")

    patch.setattr(PageLedger, "adoption", adoption)


def a_view_is_named_whatever_became_of_its_ledgers(patch: Patch) -> None:
    patch.setattr(PageLedger, "adoption", lambda self: Delete(self._intent_key))


def intents_of_long_runs_grow_old(patch: Patch) -> None:
    async def keep(self: PageLedger) -> None: ...

    patch.setattr(PageLedger, "keep", keep)


def ledgers_are_abandoned_without_a_look_at_their_intents(patch: Patch) -> None:
    """After an answer that was lost, ledgers go that metadata names."""

    async def abandon(self: PageLedger) -> None:
        await self._ctx.ledgers.delete(self.ref)

    patch.setattr(PageLedger, "abandon", abandon)


# --- the hold and the horizon ---


def the_hold_is_ignored(patch: Patch) -> None:
    patch.setattr(TopicCompaction, "holds_back", lambda self, slowest: slowest)


def the_horizon_is_where_reading_was_to_end(patch: Patch) -> None:
    scan = CompactionRun._scan

    async def mutant(self: CompactionRun, view: Any, limit: Position) -> Any:
        tail = await scan(self, view, limit)
        tail.horizon = limit
        return tail

    patch.setattr(CompactionRun, "_scan", mutant)


# --- what survives ---


def tombstones_are_kept(patch: Patch) -> None:
    add = LatestKeys.add
    patch.setattr(LatestKeys, "add", lambda self, key, ordinal, deletes: add(self, key, ordinal, False))


def what_a_tombstone_deletes_is_kept(patch: Patch) -> None:
    add = LatestKeys.add

    def mutant(self: LatestKeys, key: bytes, ordinal: int, deletes: bool) -> None:
        if not deletes:
            add(self, key, ordinal, deletes)

    patch.setattr(LatestKeys, "add", mutant)


def the_dead_of_one_segment_are_those_of_another(patch: Patch) -> None:
    dead_sets = CompactionRun._dead_sets

    async def mutant(self: CompactionRun, view: Any, scan: Any, survivors: Any) -> list[BitMap]:
        dead = await dead_sets(self, view, scan, survivors)
        return [*dead[1:], *dead[:1]]

    patch.setattr(CompactionRun, "_dead_sets", mutant)


def bits_of_batches_are_shifted(patch: Patch) -> None:
    live = live_entries.live_numbers

    def mutant(*arguments: Any) -> Iterator[tuple[int, int, list[int]]]:
        for number, ordinal, died in live(*arguments):
            yield number, ordinal, [index + 1 for index in died]

    for module in (view_module, compaction_run):
        patch.setattr(module, "live_numbers", mutant)


def chunk_groups_are_split(patch: Patch) -> None:
    add = ChunkGroups.add

    def mutant(self: ChunkGroups, *arguments: Any) -> bool:
        complete = add(self, *arguments)
        if complete:
            group = self.complete[arguments[-1]]
            group.fresh = group.fresh[-1:]
        return complete

    patch.setattr(ChunkGroups, "add", mutant)


def pending_chunks_die_with_their_key(patch: Patch) -> None:
    finish = TailScan.finish

    def mutant(self: TailScan) -> Iterator[Survivors | None]:
        for found in finish(self):
            if found is not None:
                found.exempt = []
            yield found

    patch.setattr(TailScan, "finish", mutant)


def abandoned_chunks_stay(patch: Patch) -> None:
    def abandon(self: ChunkGroups, group: Any) -> None:
        del self.pending[group.group_hash]

    patch.setattr(ChunkGroups, "_abandon", abandon)


def the_last_id_has_no_batch_index(patch: Patch) -> None:
    def last_batch_index(*_: Any) -> int:
        return -1

    for module in (segment_builder, view_module):
        patch.setattr(module, "last_batch_index", last_batch_index)


def aborted_transactions_are_included(patch: Patch) -> None:
    begin = TailScan.__init__

    def mutant(self: TailScan, *arguments: Any, is_aborted: Any, **more: Any) -> None:
        begin(self, *arguments, **more)

    patch.setattr(TailScan, "__init__", mutant)


MUTATIONS = [
    noticed(a_view_names_a_ledger_before_it_is_closed, power_loss, 1),
    noticed(a_view_is_served_before_it_is_named, lost_naming, 1),
    noticed(ledgers_are_deleted_before_the_view_that_replaces_them_is_named, power_loss, 2),
    noticed(replaced_ledgers_have_no_intents, power_loss, 2),
    noticed(new_ledgers_keep_their_intents, power_loss, 2),
    noticed(a_view_is_named_whatever_became_of_its_ledgers, intents, 1),
    noticed(intents_of_long_runs_grow_old, intents, 1),
    noticed(ledgers_are_abandoned_without_a_look_at_their_intents, unknown_naming, 1),
    noticed(the_hold_is_ignored, holds, 1),
    noticed(the_horizon_is_where_reading_was_to_end, histories, 8),
    noticed(tombstones_are_kept, histories, 3),
    noticed(what_a_tombstone_deletes_is_kept, histories, 3),
    noticed(the_dead_of_one_segment_are_those_of_another, histories, 8),
    noticed(bits_of_batches_are_shifted, histories, 3),
    noticed(chunk_groups_are_split, histories, 30),
    noticed(pending_chunks_die_with_their_key, histories, 8),
    noticed(abandoned_chunks_stay, histories, 40),
    noticed(the_last_id_has_no_batch_index, histories, 3),
    noticed(aborted_transactions_are_included, aborted, 1),
]


@pytest.mark.nightly
@pytest.mark.parametrize(("mutation", "suite", "seeds"), MUTATIONS)
def test_the_suite_catches(mutation: Mutation, suite: Suite, seeds: range, monkeypatch: Patch) -> None:
    assert_noticed(mutation, suite, seeds, monkeypatch)
