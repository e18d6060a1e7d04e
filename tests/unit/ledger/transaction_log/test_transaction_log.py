"""The log of a coordinator: what is confirmed survives, in order, and a former owner confirms nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from magnetar.common.errors import (
    Backpressure,
    DataCorruption,
    LedgerClosed,
    LedgerFenced,
    OwnershipLost,
    StorageError,
)
from magnetar.common.metadata.values import Intent, LedgerMetadata, Restoration, decode, encode
from magnetar.common.naming.txn_id import Action
from magnetar.ledger.ledger_store import LedgerRef
from magnetar.ledger.managed_ledger import ManagedLedgerContext
from magnetar.ledger.transaction_log.coordinator_state import Reason
from magnetar.ledger.transaction_log.takeover import NUMBERS_PER_MS
from magnetar.ledger.transaction_log.transaction_log import KIND, LogLimits

from tests.simulation.power_loss import KEYS, Process
from tests.unit.ledger.managed_ledger.harness import keys_of, simulated, until
from tests.unit.ledger.managed_ledger.scripted_ledgers import ScriptedLedger, ScriptedLedgers
from tests.unit.ledger.transaction_log.harness import (
    ID,
    OWNER,
    Answers,
    answered,
    context,
    head_of,
    rolled,
    take,
)

AHEAD = LogLimits().numbers_ahead
SMALL = LogLimits(bytes_min=600, growth=2)


def local(scenario: Callable[[Process, ManagedLedgerContext], Awaitable[None]]) -> None:
    """Runs a scenario over the local store."""

    async def main(process: Process) -> None:
        store = await process.open_store()
        await scenario(process, context(process, store))
        await store.close()

    simulated(main)


def scripted(scenario: Callable[[Process, ScriptedLedgers, Answers], Awaitable[None]]) -> None:
    """Runs a scenario over ledgers that do what the scenario says."""

    async def main(process: Process) -> None:
        ledgers = ScriptedLedgers(process.metadata)
        await scenario(process, ledgers, await take(context(process, ledgers)))

    simulated(main)


async def first_ledger(ledgers: ScriptedLedgers, answers: Answers) -> ScriptedLedger:
    """Begins transaction 0, whose record is in the snapshot of ledger 1."""
    answers.log.begin(OWNER, 60_000, lambda error: None)
    await until(lambda: 1 in ledgers.ledgers and ledgers.ledgers[1].runs)
    ledgers.ledgers[1].confirm()
    await rolled(answers)
    return ledgers.ledgers[1]


# Takeover


def test_what_is_confirmed_is_there_after_a_takeover() -> None:
    async def scenario(process: Process, ctx: ManagedLedgerContext) -> None:
        log = await take(ctx)
        for expected in range(4):
            assert await log.begin() == expected
        await log.add(0, "a", "b", subscriptions=(("c", "s"),))
        await log.decide(1, Action.ABORT)
        await log.finish(2)
        await log.begin()  # confirmed after the end before it
        before = log.log.state
        assert before.low_watermark == -1
        after = (await take(ctx)).log.state
        assert after.unfinished() == before.unfinished()
        assert after.outcomes == before.outcomes
        assert [each.number for each in after.unfinished()] == [0, 1, 3, 4]
        assert after.transactions[0].topics == ("a", "b")
        assert after.transactions[1].action is Action.ABORT
        assert after.next_number == AHEAD

    local(scenario)


def test_a_number_is_not_given_again_even_if_the_tail_of_the_log_was_lost() -> None:
    async def scenario(process: Process, ctx: ManagedLedgerContext) -> None:
        given = []
        for _ in range(3):
            log = await take(ctx)
            given += [await log.begin(), await log.begin()]
        assert given == [0, 1, AHEAD, AHEAD + 1, 2 * AHEAD, 2 * AHEAD + 1]
        assert head_of(process.world).next_number_floor == 3 * AHEAD

    local(scenario)


def test_the_floor_of_numbers_rises_before_it_is_reached() -> None:
    async def scenario(process: Process, ctx: ManagedLedgerContext) -> None:
        log = await take(ctx, LogLimits(numbers_ahead=8))
        for _ in range(40):
            number = await log.begin()
            await rolled(log)
            assert number < head_of(process.world).next_number_floor

    local(scenario)


def test_no_number_is_given_at_the_floor_while_metadata_does_not_answer() -> None:
    async def scenario(process: Process, ctx: ManagedLedgerContext) -> None:
        log = await take(ctx, LogLimits(numbers_ahead=8))
        await log.begin()
        process.metadata.faults.unknown_probability = 1.0
        while log.log.state.next_number < 8:
            log.log.begin(OWNER, 1, lambda error: None)
        with pytest.raises(Backpressure, match="metadata does not answer"):
            log.log.begin(OWNER, 1, lambda error: None)
        assert log.log.state.next_number == 8
        process.metadata.faults.unknown_probability = 0.0
        await rolled(log)
        assert await log.begin() == 8

    local(scenario)


def test_after_a_restore_numbers_are_above_all_that_were_given_since_the_backup() -> None:
    async def scenario(process: Process, ctx: ManagedLedgerContext) -> None:
        log = await take(ctx)
        await log.begin()
        restored_ms = 1_700_000_000_000
        restoration = Restoration(state=Restoration.RECONCILED, restored_ms=restored_ms)
        await process.metadata.put(KEYS.restoration, encode(restoration))
        log = await take(ctx)
        assert [each.number for each in log.log.state.unfinished()] == [0]
        assert await log.begin() == restored_ms * NUMBERS_PER_MS
        await rolled(log)
        log = await take(ctx)
        assert await log.begin() == restored_ms * NUMBERS_PER_MS + AHEAD

    local(scenario)


def test_a_restored_head_whose_ledger_is_gone_begins_empty_and_others_refuse() -> None:
    async def scenario(process: Process, ctx: ManagedLedgerContext) -> None:
        log = await take(ctx)
        await log.begin()
        await log.log.close()
        head = head_of(process.world)
        await ctx.ledgers.delete(LedgerRef(head.log.id, head.log.key))
        with pytest.raises(DataCorruption, match="is gone"):
            await take(ctx)
        restoration = Restoration(state=Restoration.RECONCILED, restored_ms=5)
        await process.metadata.put(KEYS.restoration, encode(restoration))
        log = await take(ctx)
        assert log.log.state.unfinished() == []
        await log.begin()
        await rolled(log)
        head = head_of(process.world)
        await ctx.ledgers.delete(LedgerRef(head.log.id, head.log.key))
        with pytest.raises(DataCorruption, match="is gone"):
            await take(ctx)

    local(scenario)


def test_a_former_owner_confirms_nothing_and_is_told_once() -> None:
    async def scenario(process: Process, ctx: ManagedLedgerContext) -> None:
        former = await take(ctx)
        await former.begin()
        owner = await take(ctx)
        with pytest.raises(OwnershipLost):
            await former.decide(0)
        await until(lambda: former.lost)
        assert len(former.lost) == 1
        with pytest.raises(OwnershipLost):
            former.log.begin(OWNER, 1, lambda error: None)
        former.log.end(0)
        assert owner.log.state.transactions[0].action is None
        await owner.decide(0, Action.ABORT)
        again = await take(ctx)
        assert again.log.state.transactions[0].action is Action.ABORT

    local(scenario)


def test_a_former_owner_that_rolls_is_refused() -> None:
    async def scenario(process: Process, ctx: ManagedLedgerContext) -> None:
        former = await take(ctx)
        await former.begin()
        owner = await take(ctx)
        await owner.begin()
        named = head_of(process.world).log.id
        former.log.roll_soon()
        await until(lambda: former.lost)
        assert head_of(process.world).log.id == named

    local(scenario)


def test_an_idle_coordinator_has_no_ledger() -> None:
    async def scenario(process: Process, ctx: ManagedLedgerContext) -> None:
        log = await take(ctx)
        await log.log.close()
        assert keys_of(process.world, "ledgers") == []
        assert log.log.ref is None

    local(scenario)


# Rolling


def test_the_log_rolls_when_it_has_grown_and_keeps_one_ledger() -> None:
    async def scenario(process: Process, ctx: ManagedLedgerContext) -> None:
        log = await take(ctx, SMALL)
        for number in range(60):
            await log.begin()
            await log.add(number, f"topic-{number}")
            await log.finish(number)
        await rolled(log)
        assert 3 < log.log.figures.rolls < 40
        (key,) = keys_of(process.world, "ledgers")
        value = decode(LedgerMetadata, process.world.metadata.dump()[key])
        assert value.properties == {"coordinator": str(ID), "kind": KIND}
        assert value.ref.id == head_of(process.world).log.id
        assert keys_of(process.world, "intents") == []
        after = (await take(ctx)).log.state
        assert len(after.outcomes) == 60

    local(scenario)


def test_changes_during_a_roll_are_in_the_next_ledger_once() -> None:
    async def scenario(process: Process, ledgers: ScriptedLedgers, log: Answers) -> None:
        first = await first_ledger(ledgers, log)
        log.log.roll_soon()
        await until(lambda: 2 in ledgers.ledgers and ledgers.ledgers[2].runs)
        second = ledgers.ledgers[2]
        during, done = answered()
        log.log.add_topics(0, ["a"], done)
        await until(lambda: len(first.runs) == 2)
        first.confirm()
        await during  # confirmed by the old ledger, while the roll goes on
        late, done = answered()
        log.log.add_topics(0, ["b"], done)
        await until(lambda: len(first.runs) == 3)
        second.confirm()
        await until(lambda: len(second.runs) == 2)
        assert not late.done()
        second.confirm()
        await late  # the old ledger never confirmed it
        await rolled(log)
        assert head_of(process.world).log.id == 2
        taken = await take(context(process, ledgers))
        assert taken.log.state.transactions[0].topics == ("a", "b")

    scripted(scenario)


def test_changes_at_the_last_step_of_a_roll_wait_for_the_next_ledger() -> None:
    async def scenario(process: Process, ledgers: ScriptedLedgers, log: Answers) -> None:
        first = await first_ledger(ledgers, log)
        log.log.roll_soon()
        await until(lambda: 2 in ledgers.ledgers and ledgers.ledgers[2].runs)
        second = ledgers.ledgers[2]
        log.log.add_topics(0, ["a"], lambda error: None)
        await until(lambda: len(first.runs) == 2)
        second.confirm()
        await until(lambda: log.log._held)
        late, done = answered()
        log.log.add_topics(0, ["b"], done)
        await asyncio.sleep(0.01)
        assert len(first.runs) == 2
        second.confirm()
        await until(lambda: len(second.runs) == 3)
        assert not late.done()
        second.confirm()
        await late

    scripted(scenario)


def test_a_failed_ledger_is_replaced_and_what_was_in_flight_is_confirmed_by_the_next_one() -> None:
    async def scenario(process: Process, ledgers: ScriptedLedgers, log: Answers) -> None:
        first = await first_ledger(ledgers, log)
        answer, done = answered()
        log.log.decide(0, Action.COMMIT, Reason.REQUESTED, done)
        await until(lambda: len(first.runs) == 2)
        first.fail()
        waits, done = answered()
        log.log.begin(OWNER, 5, done)
        await until(lambda: 2 in ledgers.ledgers and ledgers.ledgers[2].runs)
        assert not answer.done()
        ledgers.ledgers[2].confirm()
        await answer
        await until(lambda: waits.done() or len(ledgers.ledgers[2].runs) == 2)
        ledgers.ledgers[2].confirm()
        await waits
        taken = await take(context(process, ledgers))
        assert taken.log.state.transactions[0].action is Action.COMMIT
        assert 1 in taken.log.state.transactions

    scripted(scenario)


def test_a_fence_without_another_owner_is_survived() -> None:
    async def scenario(process: Process, ledgers: ScriptedLedgers, log: Answers) -> None:
        first = await first_ledger(ledgers, log)
        first.listener.on_failed(LedgerFenced("as the test wants it"), 0)
        answer, done = answered()
        log.log.decide(0, Action.COMMIT, Reason.REQUESTED, done)
        await until(lambda: 2 in ledgers.ledgers and ledgers.ledgers[2].runs)
        ledgers.ledgers[2].confirm()
        await answer
        assert log.lost == []

    scripted(scenario)


def test_a_roll_that_cannot_be_made_is_retried_and_refuses_new_changes_meanwhile() -> None:
    async def scenario(process: Process, ledgers: ScriptedLedgers, log: Answers) -> None:
        first = await first_ledger(ledgers, log)
        ledgers.refusal = LedgerClosed("no room")
        first.fail()
        await until(lambda: log.log.obstacle)
        with pytest.raises(Backpressure, match="not written: no room"):
            log.log.begin(OWNER, 1, lambda error: None)
        answer, done = answered()
        log.log.decide(0, Action.COMMIT, Reason.REQUESTED, done)  # is not refused
        ledgers.refusal = None
        await until(lambda: 2 in ledgers.ledgers and ledgers.ledgers[2].runs)
        ledgers.ledgers[2].confirm()
        await answer
        await rolled(log)
        log.log.check_writable()

    scripted(scenario)


def test_a_ledger_that_takes_no_more_is_tried_again_in_order() -> None:
    async def scenario(process: Process, ledgers: ScriptedLedgers, log: Answers) -> None:
        first = await first_ledger(ledgers, log)
        first.room = 1
        answers = []
        for topic in "abc":
            answer, done = answered()
            log.log.add_topics(0, [topic], done)
            answers.append(answer)
            await asyncio.sleep(0.001)
            if topic == "b":
                with pytest.raises(Backpressure, match="not written"):
                    log.log.check_writable()
                log.log.obstacle = None
        for runs in (2, 3, 4):
            await until(lambda runs=runs: len(first.runs) == runs)
            first.confirm()
        for answer in answers:
            await answer
        taken = await take(context(process, ledgers))
        assert taken.log.state.transactions[0].topics == ("a", "b", "c")

    scripted(scenario)


def test_an_abandoned_roll_leaves_no_ledger_and_goes_on_with_the_old_one() -> None:
    async def scenario(process: Process, ledgers: ScriptedLedgers, log: Answers) -> None:
        first = await first_ledger(ledgers, log)
        log.log.roll_soon()
        await until(lambda: 2 in ledgers.ledgers and ledgers.ledgers[2].runs)
        ledgers.ledgers[2].fail()
        await until(lambda: 2 not in ledgers.ledgers)
        answer, done = answered()
        log.log.decide(0, Action.COMMIT, Reason.REQUESTED, done)
        await until(lambda: len(first.runs) == 2)
        first.confirm()
        await answer
        await until(lambda: 3 in ledgers.ledgers and ledgers.ledgers[3].runs)
        ledgers.ledgers[3].confirm()
        await rolled(log)
        assert head_of(process.world).log.id == 3
        taken = await take(context(process, ledgers))
        assert taken.log.state.transactions[0].action is Action.COMMIT

    scripted(scenario)


def test_a_new_ledger_has_an_intent_until_the_head_names_it() -> None:
    async def scenario(process: Process, ledgers: ScriptedLedgers, log: Answers) -> None:
        await first_ledger(ledgers, log)
        log.log.roll_soon()
        await until(lambda: 2 in ledgers.ledgers and ledgers.ledgers[2].runs)
        (intent,) = keys_of(process.world, "intents")
        assert decode(Intent, process.world.metadata.dump()[intent]).delete_ledger.ref.id == 2
        ledgers.ledgers[2].confirm()
        await rolled(log)
        assert keys_of(process.world, "intents") == []
        assert list(ledgers.ledgers) == [2]

    scripted(scenario)


# Group commit


def test_all_changes_of_a_turn_are_one_append_and_answered_in_order() -> None:
    async def scenario(process: Process, ledgers: ScriptedLedgers, log: Answers) -> None:
        first = await first_ledger(ledgers, log)
        told: list[int] = []

        def note(number: int) -> Callable[[StorageError | None], None]:
            return lambda error: told.append(number)

        for number in range(50):
            log.log.begin(OWNER, 5, note(number))
        await asyncio.sleep(0.001)
        for number in range(50, 60):
            log.log.begin(OWNER, 5, note(number))
        await asyncio.sleep(0.001)
        assert [len(run.entries) for run in first.runs[1:]] == [1, 1]
        assert told == []
        first.confirm(2)
        assert told == list(range(50))
        first.confirm(3)
        assert told == list(range(60))
        assert log.log.figures.appends == 2

    scripted(scenario)


def test_an_addition_of_what_is_known_is_answered_with_what_was_written_before() -> None:
    async def scenario(process: Process, ledgers: ScriptedLedgers, log: Answers) -> None:
        first = await first_ledger(ledgers, log)
        before, done = answered()
        log.log.add_topics(0, ["a"], done)
        await asyncio.sleep(0.001)
        again, done = answered()
        log.log.add_topics(0, ["a"], done)
        await asyncio.sleep(0.001)
        assert len(first.runs) == 2
        assert not again.done()
        first.confirm()
        await before
        await again
        at_once, done = answered()
        log.log.add_topics(0, ["a"], done)
        await at_once

    scripted(scenario)


def test_too_many_unconfirmed_changes_are_refused_but_decisions_are_not() -> None:
    async def scenario(process: Process) -> None:
        ledgers = ScriptedLedgers(process.metadata)
        log = await take(context(process, ledgers), LogLimits(unconfirmed_max=3))
        first = await first_ledger(ledgers, log)
        for _ in range(3):
            log.log.begin(OWNER, 5, lambda error: None)
        with pytest.raises(Backpressure, match="3 changes of coordinator 3 wait for storage"):
            log.log.begin(OWNER, 5, lambda error: None)
        with pytest.raises(Backpressure):
            log.log.add_topics(0, ["a"], lambda error: None)
        log.log.decide(0, Action.ABORT, Reason.TIMED_OUT, lambda error: None)
        await asyncio.sleep(0.001)
        first.confirm()
        assert log.log.unconfirmed == 0
        log.log.check_writable()

    simulated(scenario)


def test_the_low_watermark_waits_for_the_end_to_be_durable() -> None:
    async def scenario(process: Process, ledgers: ScriptedLedgers, log: Answers) -> None:
        first = await first_ledger(ledgers, log)
        log.log.decide(0, Action.COMMIT, Reason.REQUESTED, lambda error: None)
        log.log.end(0)
        await asyncio.sleep(0.001)
        assert log.log.state.low_watermark == -1
        first.confirm()
        assert log.log.state.low_watermark == 0

    scripted(scenario)


# Closing


def test_closing_waits_for_changes_in_flight_and_takes_no_more() -> None:
    async def scenario(process: Process, ledgers: ScriptedLedgers, log: Answers) -> None:
        first = await first_ledger(ledgers, log)
        answer, done = answered()
        log.log.decide(0, Action.COMMIT, Reason.REQUESTED, done)
        closing = asyncio.ensure_future(log.log.close())
        await asyncio.sleep(0.001)
        with pytest.raises(LedgerClosed):
            log.log.begin(OWNER, 1, lambda error: None)
        assert not closing.done()
        first.confirm()
        await closing
        await answer
        assert first.end == 2
        await log.log.close()
        assert log.lost == []

    scripted(scenario)


def test_a_close_that_is_cut_short_fails_the_waiting_callers() -> None:
    async def scenario(process: Process, ledgers: ScriptedLedgers, log: Answers) -> None:
        await first_ledger(ledgers, log)
        answer, done = answered()
        log.log.decide(0, Action.COMMIT, Reason.REQUESTED, done)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1):
                await log.log.close()
        with pytest.raises(LedgerClosed):
            await answer

    scripted(scenario)
