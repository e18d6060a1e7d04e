"""Mistakes of transaction coordinators are planted in turn; their suites must notice within these seeds.

The style is that of test_mutations: a mutation patches one function for one test.
"""

from __future__ import annotations

from typing import Any

import pytest
from magnetar.broker.transactions.coordinator import Coordinator
from magnetar.broker.transactions.outcome_delivery import OutcomeDelivery
from magnetar.common.naming.txn_id import Action
from magnetar.ledger.managed_ledger.new_record_ledger import NewRecordLedger, snapshot_runs
from magnetar.ledger.transaction_log import takeover
from magnetar.ledger.transaction_log.coordinator_state import CoordinatorState, Reason, Transaction
from magnetar.ledger.transaction_log.log_loader import LogLoader
from magnetar.ledger.transaction_log.transaction_log import TransactionLog

from tests.simulation.coordinator_workload import CoordinatorWorkload
from tests.simulation.mutants import Mutation, Patch, Suite, assert_noticed, noticed
from tests.simulation.power_loss import cut_everywhere
from tests.unit.ledger.transaction_log import test_transaction_log

# --- the suites ---


def power_loss(seed: int) -> None:
    cut_everywhere(CoordinatorWorkload(seed), seed, every=8)


def lost_answers(seed: int) -> None:
    cut_everywhere(CoordinatorWorkload(seed, unknown_outcomes=True), seed, every=8)


def low_watermark(_seed: int) -> None:
    test_transaction_log.test_the_low_watermark_waits_for_the_end_to_be_durable()


def rolls(_seed: int) -> None:
    test_transaction_log.test_changes_during_a_roll_are_in_the_next_ledger_once()
    test_transaction_log.test_changes_at_the_last_step_of_a_roll_wait_for_the_next_ledger()


# --- decisions ---


def topics_are_told_before_the_decision_is_durable(patch: Patch) -> None:
    def decide(self: Coordinator, number: int, action: Action, reason: Reason) -> None:
        self.log.decide(number, action, reason, lambda error: None)
        self._deadlines.drop_one()
        self._delivery.deliver(self._state.transactions[number])

    patch.setattr(Coordinator, "_decide", decide)


def the_end_comes_with_the_first_confirmation(patch: Patch) -> None:
    confirm = OutcomeDelivery._confirm

    def mutant(self: OutcomeDelivery, end: Any) -> None:
        if end.number in self._left:
            self._left[end.number] = 1
            confirm(self, end)

    patch.setattr(OutcomeDelivery, "_confirm", mutant)


def deadlines_hold_after_the_decision(patch: Patch) -> None:
    def open_one(self: CoordinatorState, number: int) -> Transaction:
        return self.transactions[number]

    patch.setattr(Coordinator, "_is_open", lambda self, number: number in self._state.transactions)
    patch.setattr(CoordinatorState, "_open", open_one)


# --- the low watermark and numbers ---


def the_low_watermark_is_one_too_high(patch: Patch) -> None:
    low = CoordinatorState.low_watermark.fget  # type: ignore[attr-defined]
    patch.setattr(CoordinatorState, "low_watermark", property(lambda self: low(self) + 1))


def the_low_watermark_passes_ends_that_are_not_durable(patch: Patch) -> None:
    end, forget = CoordinatorState.end, CoordinatorState.forget

    def mutant(self: CoordinatorState, number: int, ended_ms: int) -> None:
        end(self, number, ended_ms)
        forget(self, number)

    patch.setattr(CoordinatorState, "end", mutant)
    patch.setattr(CoordinatorState, "forget", lambda self, number: None)


def a_new_owner_goes_on_with_the_number_after_the_last_one(patch: Patch) -> None:
    claim = takeover._claim

    async def mutant(*arguments: Any) -> Any:
        head, _ = await claim(*arguments)
        return head, 0

    patch.setattr(takeover, "_claim", mutant)


# --- the log ---


def changes_during_a_roll_are_not_copied(patch: Patch) -> None:
    async def catch_up(self: TransactionLog, new: NewRecordLedger) -> None:
        self._copy = []

    patch.setattr(TransactionLog, "_catch_up", catch_up)


def changes_of_the_last_step_go_to_the_old_ledger(patch: Patch) -> None:
    def turn_over(self: TransactionLog) -> None:
        self._scheduled = False
        self._flush()

    patch.setattr(TransactionLog, "_turn_over", turn_over)


def a_failed_ledger_confirms_what_was_in_flight(patch: Patch) -> None:
    def give_up(self: TransactionLog) -> None:
        for group in (*self._sent, *self._unsent):
            self._confirm(group)
        self._sent.clear()
        self._unsent.clear()

    patch.setattr(TransactionLog, "_give_up_groups", give_up)


def a_ledger_is_named_before_its_snapshot_is_confirmed(patch: Patch) -> None:
    async def append(self: NewRecordLedger, entries: list[bytes]) -> int:
        assert self.writer is not None
        for run in snapshot_runs(entries, 1):
            self.writer.append(run)
        return 0

    patch.setattr(NewRecordLedger, "append", append)


def half_a_snapshot_is_believed(patch: Patch) -> None:
    finish = LogLoader.finish

    def mutant(self: LogLoader) -> CoordinatorState:
        self._is_whole = True
        return finish(self)

    a_ledger_is_named_before_its_snapshot_is_confirmed(patch)
    patch.setattr(LogLoader, "finish", mutant)


MUTATIONS = [
    noticed(topics_are_told_before_the_decision_is_durable, power_loss, 2),
    noticed(the_end_comes_with_the_first_confirmation, power_loss, 1),
    noticed(deadlines_hold_after_the_decision, power_loss, 2),
    noticed(the_low_watermark_is_one_too_high, power_loss, 1),
    noticed(the_low_watermark_passes_ends_that_are_not_durable, low_watermark, 1),
    noticed(a_new_owner_goes_on_with_the_number_after_the_last_one, lost_answers, 2),
    noticed(changes_during_a_roll_are_not_copied, rolls, 1),
    noticed(changes_of_the_last_step_go_to_the_old_ledger, rolls, 1),
    noticed(a_failed_ledger_confirms_what_was_in_flight, power_loss, 3),
    noticed(a_ledger_is_named_before_its_snapshot_is_confirmed, power_loss, 3),
    noticed(half_a_snapshot_is_believed, power_loss, 3),
]


@pytest.mark.nightly
@pytest.mark.parametrize(("mutation", "suite", "seeds"), MUTATIONS)
def test_the_suite_catches(mutation: Mutation, suite: Suite, seeds: range, monkeypatch: Patch) -> None:
    assert_noticed(mutation, suite, seeds, monkeypatch)
