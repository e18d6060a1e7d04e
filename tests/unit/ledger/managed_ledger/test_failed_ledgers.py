"""Ledgers that fail or lose their end while the next one is in use: nothing is lost, nothing overtakes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from magnetar.common.errors import StorageError
from magnetar.common.naming.position import EARLIEST, Position
from magnetar.ledger.managed_ledger import EntryCache, ManagedLedgerContext

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
from tests.unit.ledger.managed_ledger.scripted_ledgers import ScriptedLedgers

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


def test_what_a_failed_cursor_ledger_lost_is_confirmed_only_with_the_next_one() -> None:
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
