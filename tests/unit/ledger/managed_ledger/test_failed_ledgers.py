"""Ledgers that fail or lose their end while the next one is in use: nothing is lost, nothing overtakes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from magnetar.common.errors import LedgerClosed, NotEnoughBookies, StorageError
from magnetar.common.naming.position import EARLIEST, Position
from magnetar.ledger.managed_ledger import EntryCache, ManagedLedgerContext
from magnetar.ledger.managed_ledger.cursor import Cursor
from magnetar.ledger.managed_ledger.trimming import Retention

from tests.simulation.power_loss import KEYS, Process
from tests.unit.ledger.managed_ledger.harness import (
    ROLL_AT_10,
    Topic,
    head_of,
    keys_of,
    load_again,
    simulated,
    until,
)
from tests.unit.ledger.managed_ledger.scripted_ledgers import ScriptedLedger, ScriptedLedgers

# Ledger 1 had 12 entries, ledger 2 has 3: where 1 ends after a crash, what of it is damaged, what is left.
ENDS: list[tuple[int, set[int], list[int]]] = [
    (11, set(), list(range(15))),
    (7, set(), list(range(8))),
    (-1, set(), []),
    (11, {11}, [*range(11), 12, 13, 14]),
]

Scenario = Callable[[Process, ScriptedLedgers, Topic], Awaitable[None]]


def scripted(scenario: Scenario) -> None:
    """Run a scenario on a fresh topic over ledgers that do what the scenario says."""

    async def main(process: Process) -> None:
        ledgers = ScriptedLedgers(process.metadata)
        ctx = ManagedLedgerContext(
            ledgers, process.metadata, KEYS, process.clock, ROLL_AT_10, EntryCache(1 << 20)
        )
        await scenario(process, ledgers, await load_again(ctx, create=True))

    simulated(main)


async def two_open_ledgers(ledgers: ScriptedLedgers, topic: Topic) -> None:
    """Entries 0 to 11 are in ledger 1, nothing of it confirmed; ledger 2 is open and empty."""
    topic.publish(1)
    await until(lambda: 1 in ledgers.ledgers and ledgers.ledgers[1].runs)
    for _ in range(11):
        topic.publish(1)
    await until(lambda: 2 in ledgers.ledgers and topic.ledger._maintenance is None)
    assert ledgers.ledgers[1].appended == 11


def numbers(topic: Topic) -> list[int]:
    return [int(data) for _, data in topic.listener.confirmed]


def test_confirmations_of_the_next_ledger_wait_for_the_one_before() -> None:
    async def scenario(process: Process, ledgers: ScriptedLedgers, topic: Topic) -> None:
        await two_open_ledgers(ledgers, topic)
        for _ in range(3):
            topic.publish(1)
        ledgers.ledgers[2].confirm()
        ledgers.ledgers[1].confirm(10)
        assert numbers(topic) == list(range(11))
        assert topic.ledger.last_confirmed == Position(1, 10)
        assert topic.ledger.next_position(Position(1, 10)) is None
        assert len(head_of(process.world).open_ledgers) == 2
        ledgers.ledgers[1].confirm(11)
        assert numbers(topic) == list(range(15))
        await until(lambda: [ref.id for ref in head_of(process.world).open_ledgers] == [2])

    scripted(scenario)


def test_runs_in_the_next_ledger_do_not_overtake_those_that_a_failed_one_loses() -> None:
    async def scenario(process: Process, ledgers: ScriptedLedgers, topic: Topic) -> None:
        await two_open_ledgers(ledgers, topic)
        for _ in range(3):
            topic.publish(1)
        failed, given_up = ledgers.ledgers[1], ledgers.ledgers[2]
        given_up.confirm()
        failed.confirm(4)
        failed.fail()
        topic.publish(1)
        await until(lambda: 3 in ledgers.ledgers and ledgers.ledgers[3].appended == 10)
        assert failed.end == 4
        assert 2 not in ledgers.ledgers
        assert not keys_of(process.world, "intents")
        ledgers.ledgers[3].confirm()
        assert numbers(topic) == list(range(16))
        assert [position.ledger_id for position, _ in topic.listener.confirmed] == [1] * 5 + [3] * 11
        assert topic.listener.contexts == list(range(1, 17))

    scripted(scenario)


def test_new_runs_do_not_overtake_those_that_a_failed_ledger_loses() -> None:
    async def scenario(process: Process, ledgers: ScriptedLedgers, topic: Topic) -> None:
        await two_open_ledgers(ledgers, topic)
        failed, following = ledgers.ledgers[1], ledgers.ledgers[2]
        failed.confirm(4)
        ledgers.open_gate.clear()
        failed.fail()
        await asyncio.sleep(0.01)
        topic.publish(1)
        assert not following.runs, "the lost ones come first"
        ledgers.open_gate.set()
        await until(lambda: following.appended == 7)
        following.confirm()
        assert numbers(topic) == list(range(13))

    scripted(scenario)


def test_entries_of_a_failed_ledger_precede_new_entries_in_the_next() -> None:
    """Else the next ledger would hold the new first, and would have to be given up as well."""

    async def scenario(process: Process, ledgers: ScriptedLedgers, topic: Topic) -> None:
        create = ledgers.create

        async def create_while_the_first_fails(*args: Any, **options: Any) -> ScriptedLedger:
            made = await create(*args, **options)
            if made.ref.id == 2:
                ledgers.ledgers[1].fail()
                topic.publish(1)
            return made

        ledgers.create = create_while_the_first_fails  # type: ignore[method-assign]
        topic.publish(1)
        await until(lambda: 1 in ledgers.ledgers and ledgers.ledgers[1].runs)
        for _ in range(10):
            topic.publish(1)
        await until(lambda: 2 in ledgers.ledgers and ledgers.ledgers[2].appended == 11)
        ledgers.ledgers[2].confirm()
        assert numbers(topic) == list(range(12))
        assert ledgers.made == 2

    scripted(scenario)


@pytest.mark.parametrize(("first_ends", "damaged", "expected"), ENDS)
def test_after_a_crash_the_next_ledger_counts_only_if_it_follows(
    first_ends: int, damaged: set[int], expected: list[int]
) -> None:
    async def scenario(process: Process, ledgers: ScriptedLedgers, topic: Topic) -> None:
        await two_open_ledgers(ledgers, topic)
        for _ in range(3):
            topic.publish(1)
        ledgers.ledgers[1].end = first_ends
        ledgers.ledgers[1].unreadable = damaged
        again = await load_again(topic.ctx)
        found: list[int] = []
        at = again.ledger.next_position(EARLIEST)
        while at is not None:
            result = await again.ledger.read(at, 100, 10_000)
            found += [int(data) for run in result.runs for data in run.entries]
            assert {position.entry_id for position in result.unreadable} <= damaged
            at = again.ledger.next_position(Position(result.next.ledger_id, result.next.entry_id - 1))
        assert found == expected
        assert again.ledger.next_index == (expected[-1] + 1 if expected else 0)
        assert not head_of(process.world).open_ledgers
        assert not keys_of(process.world, "intents")

    scripted(scenario)


@pytest.mark.parametrize(("first_ends", "expected"), [(-1, [12, 13, 14]), (7, list(range(8)))])
def test_over_restored_metadata_a_ledger_counts_although_the_one_before_was_deleted_since(
    first_ends: int, expected: list[int]
) -> None:
    """The copy was taken while both were open; later on everybody had read the first one."""

    async def scenario(process: Process, ledgers: ScriptedLedgers, topic: Topic) -> None:
        await two_open_ledgers(ledgers, topic)
        for _ in range(3):
            topic.publish(1)
        ledgers.ledgers[1].end = first_ends
        topic.ctx.restored.holds = True
        again = await load_again(topic.ctx)
        assert [int(data) for _, data in await again.read_all()] == expected
        assert again.ledger.next_index == expected[-1] + 1

    scripted(scenario)


async def cursor_and_full_ledger(ledgers: ScriptedLedgers, topic: Topic) -> Cursor:
    """A cursor, confirmed in ledger 1; entries 0 to 10, confirmed in ledger 2, which is closed."""
    creating = asyncio.ensure_future(topic.ledger.create_cursor("sub", EARLIEST, {}))
    await until(lambda: 1 in ledgers.ledgers and ledgers.ledgers[1].runs)
    ledgers.ledgers[1].confirm()
    cursor = await creating
    topic.publish(1)
    await until(lambda: 2 in ledgers.ledgers and ledgers.ledgers[2].runs)
    for _ in range(10):
        topic.publish(1)
    ledgers.ledgers[2].confirm()
    await until(lambda: ledgers.ledgers[2].end == 10)
    return cursor


def test_a_flush_makes_durable_what_it_took_and_not_what_was_acknowledged_since() -> None:
    async def scenario(process: Process, ledgers: ScriptedLedgers, topic: Topic) -> None:
        cursor = await cursor_and_full_ledger(ledgers, topic)
        told: list[StorageError | None] = []
        cursor.ack_cumulative(Position(2, 4))
        topic.ledger.flush_cursors(told.append)
        await asyncio.sleep(0.1)
        cursor.ack_cumulative(Position(2, 10))
        ledgers.ledgers[1].confirm()
        await until(lambda: told == [None])
        topic.ledger.trim()
        await asyncio.sleep(0.1)
        assert 2 in ledgers.ledgers
        assert cursor.durable_mark == Position(2, 4)

    scripted(scenario)


def test_a_ledger_stays_until_the_deletion_of_its_last_cursor_is_confirmed() -> None:
    async def scenario(process: Process, ledgers: ScriptedLedgers, topic: Topic) -> None:
        await cursor_and_full_ledger(ledgers, topic)
        deleting = asyncio.ensure_future(topic.ledger.delete_cursor("sub"))
        await asyncio.sleep(0.1)
        topic.ledger.trim()
        await asyncio.sleep(0.1)
        assert not deleting.done()
        assert 2 in ledgers.ledgers, "after a crash the cursor may be back"
        ledgers.ledgers[1].confirm()
        await deleting
        await until(lambda: 2 not in ledgers.ledgers)

    scripted(scenario)


def test_a_ledger_stays_after_a_seek_back_to_it_until_its_end_is_on_disk_again() -> None:
    async def scenario(process: Process, ledgers: ScriptedLedgers, topic: Topic) -> None:
        topic.ledger.retain(Retention(-1, -1))
        cursor = await cursor_and_full_ledger(ledgers, topic)
        cursor.ack_cumulative(Position(2, 10))
        topic.ledger.flush_cursors(None)
        await asyncio.sleep(0.1)
        ledgers.ledgers[1].confirm()
        seeking = asyncio.ensure_future(topic.ledger.reset_cursor(cursor, EARLIEST))
        await asyncio.sleep(0.1)
        cursor.ack_cumulative(Position(2, 10))
        topic.ledger.retain(Retention(0, 0))
        topic.ledger.trim()
        await asyncio.sleep(0.1)
        assert not seeking.done()
        assert 2 in ledgers.ledgers, "after a crash the cursor may stand before it"
        ledgers.ledgers[1].confirm()
        await seeking

    scripted(scenario)


def test_updates_of_a_failed_cursor_ledger_are_confirmed_by_the_next() -> None:
    async def scenario(process: Process, ledgers: ScriptedLedgers, topic: Topic) -> None:
        creating = asyncio.ensure_future(topic.ledger.create_cursor("sub", EARLIEST, {}))
        await until(lambda: 1 in ledgers.ledgers and ledgers.ledgers[1].runs)
        assert not creating.done(), "its record is not confirmed"
        ledgers.ledgers[1].confirm()
        cursor = await creating
        topic.publish(9)
        await until(lambda: 2 in ledgers.ledgers and ledgers.ledgers[2].runs)
        ledgers.ledgers[2].confirm()
        told: list[StorageError | None] = []
        cursor.ack(2, 4)
        topic.ledger.flush_cursors(told.append)
        ledgers.ledgers[1].fail()
        topic.ledger.flush_cursors(told.append)
        await until(lambda: 3 in ledgers.ledgers and ledgers.ledgers[3].runs)
        await asyncio.sleep(0.1)
        assert not told
        cursor.ack(2, 6)
        assert head_of(process.world).cursor_ledger.id == 1
        ledgers.ledgers[3].confirm()
        await until(lambda: len(told) == 2)
        assert told == [None, None]
        assert head_of(process.world).cursor_ledger.id == 3
        await until(lambda: 1 not in ledgers.ledgers)
        topic.ledger.flush_cursors(told.append)
        await asyncio.sleep(0.1)
        assert len(told) == 2
        ledgers.ledgers[3].confirm()
        again = await load_again(topic.ctx)
        assert [again.ledger.cursors["sub"].is_acked(2, entry) for entry in (3, 4, 5, 6)] == [
            False,
            True,
            False,
            True,
        ]

    scripted(scenario)


def test_late_ack_of_an_abandoned_cursor_ledger_does_not_confirm_the_next() -> None:
    async def scenario(process: Process, ledgers: ScriptedLedgers, topic: Topic) -> None:
        creating = asyncio.ensure_future(topic.ledger.create_cursor("sub", EARLIEST, {}))
        await until(lambda: 1 in ledgers.ledgers and ledgers.ledgers[1].runs)
        abandoned = ledgers.ledgers[1]
        abandoned.fail()
        await until(lambda: 2 in ledgers.ledgers and ledgers.ledgers[2].runs)
        ledgers.ledgers[2].confirm()
        cursor = await creating
        topic.publish(1)
        await until(lambda: 3 in ledgers.ledgers and ledgers.ledgers[3].runs)
        ledgers.ledgers[3].confirm()
        told: list[StorageError | None] = []
        cursor.ack(3, 0)
        topic.ledger.flush_cursors(told.append)
        await asyncio.sleep(0.1)
        abandoned.confirm(ledgers.ledgers[2].appended)
        await asyncio.sleep(0.1)
        assert not told, "the acknowledgement is on no disk"
        ledgers.ledgers[2].confirm()
        await until(lambda: told == [None])

    scripted(scenario)


def test_waiters_of_a_failed_close_are_notified() -> None:
    async def scenario(process: Process, ledgers: ScriptedLedgers, topic: Topic) -> None:
        creating = asyncio.create_task(topic.ledger.create_cursor("s", EARLIEST, {}))
        await until(lambda: 1 in ledgers.ledgers and ledgers.ledgers[1].runs)  # and never confirmed
        raising = asyncio.create_task(topic.ledger.raise_topic_epoch())
        told: list[StorageError | None] = []
        topic.ledger.flush_cursors(told.append)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(topic.ledger.close(), 10)
        await asyncio.wait((creating, raising), timeout=1)
        assert isinstance(creating.exception(), LedgerClosed)
        assert isinstance(raising.exception(), LedgerClosed)
        assert isinstance(told[0], LedgerClosed)

    scripted(scenario)


def test_publishes_waiting_for_room_are_written_during_close() -> None:
    async def scenario(process: Process, ledgers: ScriptedLedgers, topic: Topic) -> None:
        topic.publish(1)
        await until(lambda: 1 in ledgers.ledgers and ledgers.ledgers[1].runs)
        ledger = ledgers.ledgers[1]
        ledger.confirm()
        ledger.room = 0  # others have taken all there is
        topic.publish(1)
        closing = asyncio.create_task(topic.ledger.close())
        await asyncio.sleep(0.1)
        ledger.room = 1_000
        await until(lambda: len(ledger.runs) == 2, 1)
        ledger.confirm()
        await asyncio.wait_for(closing, 1)
        assert numbers(topic) == [0, 1]

    scripted(scenario)


def test_publishes_waiting_for_refusing_storage_fail_during_close() -> None:
    async def scenario(process: Process, ledgers: ScriptedLedgers, topic: Topic) -> None:
        ledgers.refusal = NotEnoughBookies("as the test wants it")
        topic.publish(3)
        await asyncio.sleep(0.01)
        await asyncio.wait_for(topic.ledger.close(), 5)
        assert topic.listener.refused == [b"0", b"1", b"2"]

    scripted(scenario)


def test_a_topic_whose_next_ledger_cannot_be_made_is_closed_without_it() -> None:
    async def scenario(process: Process, ledgers: ScriptedLedgers, topic: Topic) -> None:
        topic.publish(1)
        await until(lambda: 1 in ledgers.ledgers and ledgers.ledgers[1].runs)
        ledgers.refusal = NotEnoughBookies("as the test wants it")
        for _ in range(11):
            topic.publish(1)
        ledgers.ledgers[1].confirm()
        await asyncio.sleep(1)
        await asyncio.wait_for(topic.ledger.close(), 6)
        assert numbers(topic) == list(range(12))
        assert not head_of(process.world).open_ledgers

    scripted(scenario)


async def full_without_a_next_ledger(ledgers: ScriptedLedgers, topic: Topic) -> None:
    """Ledger 1 is wholly confirmed and full, ledger 2 is full as well, and no other can be made."""
    await two_open_ledgers(ledgers, topic)
    ledgers.refusal = NotEnoughBookies("as the test wants it")
    for _ in range(11):
        topic.publish(1)
    ledgers.ledgers[1].confirm()


def test_while_the_next_ledger_cannot_be_made_an_exclusive_producer_gets_its_epoch() -> None:
    async def scenario(process: Process, ledgers: ScriptedLedgers, topic: Topic) -> None:
        await full_without_a_next_ledger(ledgers, topic)
        await asyncio.sleep(30)  # the longest pause between two tries
        epoch = await asyncio.wait_for(topic.ledger.raise_topic_epoch(), 6)
        assert head_of(process.world).topic_epoch == topic.ledger.topic_epoch == epoch > 0
        assert list(ledgers.ledgers) == [2]

    scripted(scenario)


def test_trimming_continues_while_the_next_ledger_cannot_be_created() -> None:
    async def scenario(process: Process, ledgers: ScriptedLedgers, topic: Topic) -> None:
        await full_without_a_next_ledger(ledgers, topic)
        await until(lambda: 1 not in ledgers.ledgers, 6)
        assert [ref.id for ref in head_of(process.world).open_ledgers] == [2]
        assert not keys_of(process.world, "intents")

    scripted(scenario)


def test_while_the_next_ledger_cannot_be_made_a_topic_can_be_terminated() -> None:
    async def scenario(process: Process, ledgers: ScriptedLedgers, topic: Topic) -> None:
        await full_without_a_next_ledger(ledgers, topic)
        ledgers.ledgers[2].confirm()
        topic.ledger.seal()
        assert await asyncio.wait_for(topic.ledger.terminate(), 6) == Position(2, 10)
        again = await load_again(topic.ctx)
        assert again.ledger.terminated
        assert again.ledger.last_confirmed == Position(2, 10)

    scripted(scenario)


def test_the_next_ledger_is_made_once_it_can_be_whatever_else_there_is_to_do() -> None:
    async def scenario(process: Process, ledgers: ScriptedLedgers, topic: Topic) -> None:
        changes: list[asyncio.Task[None]] = []

        def change(properties: dict[str, str]) -> dict[str, str]:
            if 3 not in ledgers.ledgers:
                another()  # while this one is being written
            return properties

        def another() -> None:
            changes.append(asyncio.create_task(topic.ledger.change_properties(change)))

        await full_without_a_next_ledger(ledgers, topic)
        another()
        await asyncio.sleep(1)
        assert len(changes) > 100
        ledgers.refusal = None
        await until(lambda: 3 in ledgers.ledgers, 6)
        await asyncio.gather(*changes)

    scripted(scenario)
