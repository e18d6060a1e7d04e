"""Orders of confirmations in which transactions could go wrong: the test decides what is confirmed when."""

from __future__ import annotations

import asyncio

from magnetar.common.errors import LogFailed, MagnetarError
from magnetar.common.naming.position import EARLIEST, Position
from magnetar.common.naming.txn_id import Action
from magnetar.ledger.ledger_store import Run
from magnetar.ledger.managed_ledger.cursor_records import decode_entry

from tests.simulation.power_loss import Process
from tests.unit.ledger.managed_ledger.harness import Topic, until
from tests.unit.ledger.managed_ledger.scripted_ledgers import ScriptedLedger, ScriptedLedgers
from tests.unit.ledger.managed_ledger.test_failed_ledgers import scripted
from tests.unit.ledger.managed_ledger.test_topic_transactions import A, B, publish, transactions_of


def records_of(ledger: ScriptedLedger) -> list[str]:
    """Kinds of the changes and records in a cursor ledger."""
    found: list[str] = []
    for run in ledger.runs:
        for data in run.entries:
            entry = decode_entry(data)
            kind = entry.WhichOneof("record") or ""
            if kind == "changes":
                found += [change.WhichOneof("change") or "" for change in entry.changes.changes]
            else:
                found.append(kind)
    return found


async def with_both_ledgers(ledgers: ScriptedLedgers, topic: Topic) -> tuple[ScriptedLedger, ScriptedLedger]:
    """Returns (ledger of entries with one confirmed entry, cursor ledger with everything confirmed)."""
    topic.publish(1)
    await until(lambda: 1 in ledgers.ledgers and ledgers.ledgers[1].runs)
    ledgers.ledgers[1].confirm()
    created = asyncio.create_task(topic.ledger.create_cursor("sub", EARLIEST, {}))
    await until(lambda: 2 in ledgers.ledgers and ledgers.ledgers[2].runs)
    ledgers.ledgers[2].confirm()
    await created
    return ledgers.ledgers[1], ledgers.ledgers[2]


async def introduced(topic: Topic, cursors: ScriptedLedger) -> None:
    """Has the topic say that it has transactions."""
    transactions_of(topic)
    assert records_of(cursors)[-1] == "transaction_chunk"
    cursors.confirm()


def test_the_first_run_waits_until_the_topic_says_that_it_has_transactions_and_later_runs_behind_it() -> None:
    async def scenario(process: Process, ledgers: ScriptedLedgers, topic: Topic) -> None:
        entries, cursors = await with_both_ledgers(ledgers, topic)
        publish(topic, A)
        publish(topic, None)
        await asyncio.sleep(1)
        assert entries.appended == 0
        cursors.confirm()
        assert entries.appended == 2
        assert [run.txn for run in entries.runs] == [None, A, None]
        publish(topic, B)
        assert entries.appended == 3

    scripted(scenario)


def test_an_outcome_is_not_written_before_the_runs_of_its_transaction_are_confirmed() -> None:
    async def scenario(process: Process, ledgers: ScriptedLedgers, topic: Topic) -> None:
        entries, cursors = await with_both_ledgers(ledgers, topic)
        await introduced(topic, cursors)
        publish(topic, A)
        publish(topic, A)
        done: list[MagnetarError | None] = []
        transactions_of(topic).end(A, Action.ABORT, -1, done.append)
        entries.confirm(1)
        await asyncio.sleep(1)
        assert "transaction_outcome" not in records_of(cursors)
        entries.confirm(2)
        assert records_of(cursors)[-1] == "transaction_outcome"
        assert A in transactions_of(topic).open
        assert not done
        cursors.confirm()
        assert done == [None]
        assert [transactions_of(topic).is_aborted(1, entry_id) for entry_id in range(3)] == [
            False,
            True,
            True,
        ]
        assert transactions_of(topic).last_readable() == Position(1, 0)

    scripted(scenario)


def test_an_end_goes_on_when_the_runs_of_its_transaction_were_refused() -> None:
    async def scenario(process: Process, ledgers: ScriptedLedgers, topic: Topic) -> None:
        entries, cursors = await with_both_ledgers(ledgers, topic)
        await introduced(topic, cursors)
        publish(topic, A)
        done: list[MagnetarError | None] = []
        transactions_of(topic).end(A, Action.COMMIT, -1, done.append)
        ledgers.refusal = LogFailed("as the test wants it")
        entries.fail()
        await until(lambda: bool(topic.listener.refused))
        await until(lambda: records_of(cursors)[-1] == "transaction_outcome")
        cursors.confirm()
        assert done == [None]
        assert not transactions_of(topic).open

    scripted(scenario)


def test_runs_written_again_to_the_next_ledger_belong_to_their_transaction_there() -> None:
    async def scenario(process: Process, ledgers: ScriptedLedgers, topic: Topic) -> None:
        entries, cursors = await with_both_ledgers(ledgers, topic)
        await introduced(topic, cursors)
        publish(topic, A)
        publish(topic, None)
        entries.fail()
        await until(lambda: 3 in ledgers.ledgers and ledgers.ledgers[3].appended == 1)
        assert [run.txn for run in ledgers.ledgers[3].runs] == [A, None]
        ledgers.ledgers[3].confirm()
        opened = transactions_of(topic).open[A]
        assert (opened.first_position, opened.runs_in_flight) == (Position(3, 0), 0)
        assert topic.ledger.read_limit() < Position(3, 0)
        assert topic.ledger.next_position(Position(1, 0)) is None

    scripted(scenario)


def test_at_the_moment_of_its_confirmation_a_run_is_behind_the_limit() -> None:
    async def scenario(process: Process, ledgers: ScriptedLedgers, topic: Topic) -> None:
        entries, cursors = await with_both_ledgers(ledgers, topic)
        await introduced(topic, cursors)
        limits: list[Position] = []
        on_confirmed = topic.listener.on_confirmed

        def confirmed(publishes: list[tuple[Run, object]]) -> None:
            on_confirmed(publishes)
            limits.append(topic.ledger.read_limit())

        topic.listener.on_confirmed = confirmed  # type: ignore[method-assign]
        publish(topic, None)
        publish(topic, A)
        publish(topic, None)
        entries.confirm(1)
        entries.confirm(2)
        entries.confirm(3)
        assert limits == [Position(1, 1)] * 3

    scripted(scenario)
