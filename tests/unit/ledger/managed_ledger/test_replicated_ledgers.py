"""Where ledgers on bookies differ from those in this process: copies, too few bookies, other owners."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace

import pytest
from magnetar.common.errors import Backpressure, EntryUnreadable, LedgerFenced, NotEnoughBookies, StorageError
from magnetar.common.naming.position import EARLIEST, Position
from magnetar.ledger.ledger_store import Run
from magnetar.ledger.managed_ledger import EntryCache, ManagedLedgerContext
from magnetar.ledger.managed_ledger.context import Persistence

from tests.simulation.power_loss import KEYS, Process
from tests.unit.ledger.managed_ledger.harness import (
    ROLL_AT_10,
    Topic,
    load,
    load_again,
    simulated,
    until,
)
from tests.unit.ledger.managed_ledger.scripted_ledgers import ScriptedLedgers

REPLICATED = replace(ROLL_AT_10, ensemble_size=3, write_quorum=3, ack_quorum=2)
NOBODY = NotEnoughBookies("a ledger needs 3 bookies and 1 are up")


def scripted(scenario: Callable[[ScriptedLedgers, Topic], Awaitable[None]]) -> None:
    """Run a scenario on a fresh topic over three copies of everything."""

    async def main(process: Process) -> None:
        ledgers = ScriptedLedgers(process.metadata)
        ctx = ManagedLedgerContext(ledgers, process.metadata, KEYS, process.clock, REPLICATED, EntryCache(0))
        await scenario(ledgers, await load_again(ctx, create=True))

    simulated(main)


def test_reading_waits_at_an_entry_that_no_replica_can_give_and_does_not_skip_it() -> None:
    async def scenario(ledgers: ScriptedLedgers, topic: Topic) -> None:
        topic.publish(1)
        await until(lambda: 1 in ledgers.ledgers)
        for _ in range(4):
            topic.publish(1)
        ledgers.ledgers[1].confirm()
        await until(lambda: len(topic.listener.confirmed) == 5)
        ledgers.ledgers[1].unreadable = {3}

        found = await topic.ledger.read(Position(1, 0), 100, 10_000)
        assert [data for run in found.runs for data in run.entries] == [b"0", b"1", b"2"]
        assert found.next == Position(1, 3)
        assert not found.unreadable
        with pytest.raises(EntryUnreadable):
            await topic.ledger.read(found.next, 100, 10_000)

        ledgers.ledgers[1].unreadable = set()
        found = await topic.ledger.read(found.next, 100, 10_000)
        assert [data for run in found.runs for data in run.entries] == [b"3", b"4"]

    scripted(scenario)


@pytest.mark.parametrize("copies", [1, 2])
def test_unreadable_entry_expires_only_with_a_later_one_or_as_lost(
    copies: int,
) -> None:
    async def scenario(ledgers: ScriptedLedgers, topic: Topic) -> None:
        times: list[int] = []
        for number in range(6):
            times.append(topic.publish(1).publish_time_ms)
            await until(lambda: 1 in ledgers.ledgers)
            ledgers.ledgers[1].copies = copies
            ledgers.ledgers[1].confirm()
            await until(lambda count=number + 1: len(topic.listener.confirmed) == count)
            await asyncio.sleep(1)
        (span,) = topic.ledger.spans.spans
        for known in (True, False):
            for damaged in range(1 << 6):
                readable = [n for n in range(6) if not damaged & 1 << n]
                ledgers.ledgers[1].unreadable = set(range(6)) - set(readable)
                for wanted in (*times, times[-1] + 1):
                    span.max_publish_time_ms = times[-1] if known else 0
                    found = await topic.ledger.find_before_publish_time(wanted)
                    young = next((n for n in readable if times[n] >= wanted), 6)
                    old = max((n + 1 for n in readable if times[n] < wanted), default=0)
                    if known and times[-1] < wanted:
                        old = 6
                    assert found == Position(1, (young if copies == 1 else old) - 1)

    scripted(scenario)


def test_subscribe_with_too_few_bookies_is_refused() -> None:
    async def scenario(ledgers: ScriptedLedgers, topic: Topic) -> None:
        ledgers.refusal = NOBODY
        with pytest.raises(NotEnoughBookies):
            async with asyncio.timeout(3):
                await topic.ledger.create_cursor("sub", EARLIEST, {})
        assert not topic.ledger.cursors

        ledgers.refusal = None
        creating = asyncio.ensure_future(topic.ledger.create_cursor("sub", EARLIEST, {}))
        await until(lambda: bool(ledgers.ledgers) and bool(ledgers.ledgers[1].runs))
        ledgers.ledgers[1].confirm()
        assert await creating is topic.ledger.cursors["sub"]

    scripted(scenario)


def test_publish_with_too_few_bookies_is_held_then_refused() -> None:
    async def scenario(ledgers: ScriptedLedgers, topic: Topic) -> None:
        ledgers.refusal = NOBODY
        topic.publish(2)
        await asyncio.sleep(1)
        assert not topic.listener.refused
        await until(lambda: bool(topic.listener.refused), 5)
        assert topic.listener.refused == [b"0", b"1"]

        ledgers.refusal = None
        loop = asyncio.get_running_loop()
        end = loop.time() + 10
        while not ledgers.ledgers:
            assert loop.time() < end, "publishing does not resume"
            with suppress(StorageError):
                topic.publish(1)
            await asyncio.sleep(0.1)
        await until(lambda: bool(ledgers.ledgers[1].runs))
        ledgers.ledgers[1].confirm()
        await until(lambda: bool(topic.listener.confirmed))
        assert not topic.listener.lost

    scripted(scenario)


def test_publishes_to_slow_bookies_wait_bounded_and_in_order() -> None:
    async def scenario(ledgers: ScriptedLedgers, topic: Topic) -> None:
        topic.publish(1)
        await until(lambda: 1 in ledgers.ledgers and bool(ledgers.ledgers[1].runs))
        ledgers.ledgers[1].confirm()
        ledgers.ledgers[1].room = 2
        for _ in range(5):
            topic.publish(1)
        await asyncio.sleep(5)
        assert ledgers.ledgers[1].appended == 2
        assert not topic.listener.refused
        for _ in range(3):
            ledgers.ledgers[1].confirm()
        await until(lambda: len(topic.listener.confirmed) == 6)
        assert [data for _, data in topic.listener.confirmed] == [b"%d" % n for n in range(6)]

        half = topic.ctx.config.queued_bytes_max // 2 + 1
        for _ in range(2 + 1):  # two in the ledger, one that waits
            topic.ledger.append(Run([bytes(half)]), None)
        with pytest.raises(Backpressure):
            topic.ledger.append(Run([bytes(half)]), None)

    scripted(scenario)


def test_an_owner_proves_itself_by_an_append_to_its_cursor_ledger() -> None:
    async def scenario(process: Process) -> None:
        topic = await load(process)
        told: list[StorageError | None] = []
        assert not topic.ledger.prove_ownership(told.append), "there is no cursor ledger yet"
        await topic.ledger.create_cursor("sub", EARLIEST, {})
        for count in range(1, 4):
            assert topic.ledger.prove_ownership(told.append)
            assert len(told) < count, "never from inside"
            await until(lambda count=count: len(told) == count)
        assert told == [None] * 3
        again = await load_again(topic.ctx)
        assert list(again.ledger.cursors) == ["sub"]

    simulated(scenario)


def test_a_proof_goes_with_what_is_flushed_anyway() -> None:
    async def scenario(process: Process) -> None:
        topic = await load(process)
        cursor = await topic.ledger.create_cursor("sub", EARLIEST, {})
        [position] = await topic.publish_confirmed(1)
        cursor.ack(*position)
        told: list[str] = []
        topic.ledger.flush_cursors(lambda error: told.append(f"flushed {error}"))
        assert topic.ledger.prove_ownership(lambda error: told.append(f"proven {error}"))
        await until(lambda: len(told) == 2)
        assert sorted(told) == ["flushed None", "proven None"]

    simulated(scenario)


def test_a_former_owner_cannot_prove_itself() -> None:
    async def scenario(process: Process) -> None:
        topic = await load(process)
        await topic.ledger.create_cursor("sub", EARLIEST, {})
        await load_again(topic.ctx)
        told: list[StorageError | None] = []
        assert topic.ledger.prove_ownership(told.append)
        await until(lambda: bool(told))
        assert isinstance(told[0], LedgerFenced)
        assert topic.ledger.prove_ownership(told.append), "it was fenced, and knows it"
        await until(lambda: len(told) == 2)
        assert isinstance(told[1], LedgerFenced)

    simulated(scenario)


def test_a_proof_that_is_pending_when_the_topic_is_lost_is_answered() -> None:
    async def scenario(ledgers: ScriptedLedgers, topic: Topic) -> None:
        creating = asyncio.ensure_future(topic.ledger.create_cursor("sub", EARLIEST, {}))
        await until(lambda: bool(ledgers.ledgers) and bool(ledgers.ledgers[1].runs))
        ledgers.ledgers[1].confirm()
        await creating
        told: list[StorageError | None] = []
        assert topic.ledger.prove_ownership(told.append)
        topic.ledger.lose(NOBODY)
        await until(lambda: bool(told))
        assert told == [NOBODY]

    scripted(scenario)


def test_new_ledgers_are_made_as_a_policy_says_and_a_single_copy_is_known_by_its_ledger() -> None:
    async def scenario(ledgers: ScriptedLedgers, topic: Topic) -> None:
        async def made(count: int, done: Callable[[], bool] = lambda: True) -> None:
            def confirmed() -> bool:
                for ledger in ledgers.ledgers.values():
                    if ledger.end is None and ledger.appended > ledger.last_confirmed:
                        ledger.confirm()
                full = [ledger for ledger in ledgers.ledgers.values() if ledger.appended >= 9]
                rolled = ledgers.made == count and all(ledger.end is not None for ledger in full)
                return done() and rolled and len(topic.listener.confirmed) == topic.published

            await until(confirmed)

        async def filled(count: int) -> None:
            topic.publish(10)
            await made(count)

        topic.ledger.persist_as(Persistence(2, 1, 1))
        creating = asyncio.ensure_future(topic.ledger.create_cursor("sub", EARLIEST, {}))
        await made(1, creating.done)
        await filled(3)
        topic.ledger.persist_as(Persistence(5, 4, 3))
        await filled(4)
        topic.ledger.persist_as(None)
        await filled(5)
        quorums = [each.quorums for each in ledgers.ledgers.values()]
        assert quorums == [(2, 1, 1), (2, 1, 1), (2, 1, 1), (5, 4, 3), (3, 3, 2)]

        ledgers.ledgers[2].unreadable = {9}
        found = await topic.ledger.read(Position(2, 9), 1, 10_000)
        assert found.unreadable == [Position(2, 9)], "that was the only copy"
        ledgers.ledgers[4].unreadable = {9}
        with pytest.raises(EntryUnreadable):
            await topic.ledger.read(Position(4, 9), 1, 10_000)

    scripted(scenario)


def test_a_mark_delete_rate_only_makes_flushes_rarer_and_never_rarer_than_a_minute() -> None:
    async def scenario(ledgers: ScriptedLedgers, topic: Topic) -> None:
        configured = topic.ctx.config.cursor_flush_interval_s
        intervals = {0.0: configured, 0.1: 10.0, 1e-9: 60.0, 1_000.0: configured}
        for rate, interval_s in intervals.items():
            ctx = topic.ctx.persisting_as(Persistence(1, 1, 1, rate))
            assert ctx.config.cursor_flush_interval_s == interval_s
            assert ctx is topic.ctx.persisting_as(Persistence(1, 1, 1, rate))
        assert topic.ctx.persisting_as(None) is topic.ctx

    scripted(scenario)
