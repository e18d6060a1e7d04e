"""The guards of offloaded ledgers are removed in turn; the suites must notice within the stated seeds."""

from __future__ import annotations

from typing import Any

import pytest
from magnetar.common.metadata.store import Check, Delete, Op
from magnetar.common.metadata.values import TopicLedger
from magnetar.ledger.cold.cold_reader import ColdLedger, ColdLedgerReader, Verified
from magnetar.ledger.ledger_store import Run
from magnetar.ledger.managed_ledger import bookie_release, intents, offload_progress, offload_state, trimming
from magnetar.ledger.managed_ledger.context import ManagedLedgerContext
from magnetar.ledger.managed_ledger.ledger_list import LedgerSpan
from magnetar.ledger.managed_ledger.offload_state import leave as leave_step
from magnetar.ledger.managed_ledger.span_reads import SpanReads

from tests.simulation.cold_objects import SimColdStore, decode_part
from tests.simulation.cold_workload import ColdWorkload
from tests.simulation.mutants import Mutation, Patch, Suite, assert_noticed, noticed
from tests.simulation.power_loss import cut_everywhere
from tests.unit.ledger.managed_ledger import test_bookie_release, test_cold_reading

# --- the suites ---


def power_loss(seed: int) -> None:
    cut_everywhere(ColdWorkload(seed), seed, every=5)


def former_owner(_seed: int) -> None:
    test_bookie_release.test_a_former_owner_lets_nothing_go()


def other_attempt(_seed: int) -> None:
    test_bookie_release.test_objects_of_another_attempt_than_was_verified_do_not_let_a_ledger_go()


def crash_behind_the_transaction(_seed: int) -> None:
    test_bookie_release.test_a_crash_behind_the_transaction_leaves_an_intent_that_the_next_one_finishes()


def recorded_deletions(_seed: int) -> None:
    test_bookie_release.test_trimming_records_the_objects_of_whole_of_running_and_of_left_ledgers()
    test_bookie_release.test_deleting_a_topic_records_its_objects_however_a_job_changes_its_ledgers_meanwhile()


def damage(_seed: int) -> None:
    test_cold_reading.test_damage_is_not_taken_for_a_loss_while_objects_or_metadata_are_away()
    test_cold_reading.test_objects_that_are_the_only_copy_are_waited_for()


def answers(_seed: int) -> None:
    test_cold_reading.test_an_answer_that_would_lose_or_double_an_entry_is_damage([Run([])])


def old_news(_seed: int) -> None:
    test_cold_reading.test_an_older_look_at_metadata_does_not_undo_what_is_known()


# --- the mutations ---


def any_owner_lets_go(patch: Patch) -> None:
    class NoCheck(Check):
        def __new__(cls, key: str, expected_version: int) -> Any:
            return Delete("/nothing", -1)

    patch.setattr(bookie_release, "Check", NoCheck)


def nothing_is_verified(patch: Patch) -> None:
    async def believe(self: SimColdStore, ledger: ColdLedger) -> Verified:
        runs: list[Run] = []
        for path in sorted(self.objects):
            if path.startswith(f"{ledger.path}/part"):
                try:
                    runs += decode_part(ledger.ref.id, self.objects[path])
                except (SyntaxError, ValueError):
                    continue
        return Verified(ledger, 0, 1 + (runs[-1].first_index if runs else 0), 1)

    patch.setattr(SimColdStore, "verify", believe)


def whatever_was_verified_counts(patch: Patch) -> None:
    patch.setattr(bookie_release, "_is_of", lambda value, ledger: True)

    def leave(value: TopicLedger, *, attempt: bytes, now_ms: int) -> TopicLedger:
        return leave_step(value, attempt=value.offload.attempt, now_ms=now_ms)

    patch.setattr(offload_state, "leave", leave)


def ledgers_leave_without_an_intent(patch: Patch) -> None:
    def none(ctx: ManagedLedgerContext, *_: object) -> Op:
        return Delete("/nothing", -1)

    patch.setattr(bookie_release, "delete_ledger_intent", none)


def ledgers_are_deleted_before_they_left(patch: Patch) -> None:
    left = bookie_release.leave

    async def leave(ctx: Any, head: Any, creation_id: int, span: LedgerSpan, verified: Verified) -> bool:
        await ctx.ledgers.delete(span.ref)
        return await left(ctx, head, creation_id, span, verified)

    patch.setattr(bookie_release, "leave", leave)


def objects_are_not_recorded(patch: Patch) -> None:
    patch.setattr(trimming, "delete_objects_intents", lambda ctx, ledger: [])


def objects_of_deleted_topics_are_not_recorded(patch: Patch) -> None:
    patch.setattr(intents, "delete_objects_intents", lambda ctx, ledger: [])


def metadata_is_not_asked_before_an_entry_is_lost(patch: Patch) -> None:
    async def nothing_new(self: SpanReads, span: LedgerSpan, known: Any) -> bool:
        return False

    patch.setattr(SpanReads, "_something_new", nothing_new)


def objects_are_an_only_copy_to_be_skipped(patch: Patch) -> None:
    patch.setattr(SpanReads, "is_only_copy", lambda self, span: True)


def answers_of_objects_are_believed(patch: Patch) -> None:
    patch.setattr(ColdLedgerReader, "_check", lambda self, runs, first, last: None)


def old_news_counts(patch: Patch) -> None:
    note = offload_progress.note

    def always(span: LedgerSpan, value: TopicLedger, version: int) -> bool:
        if span.offload is not None:
            span.offload.version = -1
        return note(span, value, version)

    patch.setattr(offload_progress, "note", always)
    patch.setattr(
        offload_progress, "_take", lambda span, item: always(span, _decoded(item.value), item.version)
    )


def _decoded(data: bytes) -> TopicLedger:
    return TopicLedger.FromString(data)


MUTATIONS = [
    noticed(any_owner_lets_go, former_owner, 1),
    noticed(nothing_is_verified, power_loss, 4),
    noticed(whatever_was_verified_counts, other_attempt, 1),
    noticed(ledgers_leave_without_an_intent, crash_behind_the_transaction, 1),
    noticed(ledgers_are_deleted_before_they_left, power_loss, 4),
    noticed(objects_are_not_recorded, recorded_deletions, 1),
    noticed(objects_of_deleted_topics_are_not_recorded, recorded_deletions, 1),
    noticed(metadata_is_not_asked_before_an_entry_is_lost, damage, 1),
    noticed(objects_are_an_only_copy_to_be_skipped, damage, 1),
    noticed(answers_of_objects_are_believed, answers, 1),
    noticed(old_news_counts, old_news, 1),
]


@pytest.mark.nightly
@pytest.mark.parametrize(("mutation", "suite", "seeds"), MUTATIONS)
def test_the_suite_catches(mutation: Mutation, suite: Suite, seeds: range, monkeypatch: Patch) -> None:
    assert_noticed(mutation, suite, seeds, monkeypatch)
