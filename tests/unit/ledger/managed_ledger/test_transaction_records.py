"""Records of transactions: when topics write them, what a load makes of them, and writes that fail."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest
from magnetar.common.errors import (
    EntryUnreadable,
    LogFailed,
    LogFull,
    TransactionConflict,
    TransactionNotAllowed,
)
from magnetar.common.naming.position import EARLIEST, Position
from magnetar.common.naming.txn_id import Action, TxnId
from magnetar.ledger.ledger_store import LedgerRef, Run
from magnetar.ledger.managed_ledger import managed_ledger, topic_transactions
from magnetar.ledger.managed_ledger.bitmaps import last_hole
from magnetar.ledger.managed_ledger.ledger_list import LedgerSpan, LedgerSpans
from magnetar.ledger.managed_ledger.pending_acks import PendingAck
from magnetar.ledger.managed_ledger.transaction_scan import scan_transactions
from magnetar.ledger.managed_ledger.transaction_state import TransactionState
from pyroaring import BitMap

from tests.simulation.power_loss import Process
from tests.unit.ledger.managed_ledger.harness import Topic, load, load_again, simulated, until
from tests.unit.ledger.managed_ledger.test_topic_transactions import (
    A,
    B,
    C,
    ack,
    end,
    entries,
    loaded_again,
    publish,
    readable,
    transactions_of,
)


def mark_of(topic: Topic) -> Position:
    return transactions_of(topic).record.durable_mark


def test_a_deleted_subscription_takes_no_acknowledgements_so_that_the_topic_loads_again() -> None:
    async def scenario(process: Process) -> None:
        topic = await load(process)
        positions = await topic.publish_confirmed(1, runs=2)
        cursor = await topic.ledger.create_cursor("sub", EARLIEST, {})
        await ack(topic, A, "sub", entries(positions[0]))
        deleted = asyncio.create_task(topic.ledger.delete_cursor("sub"))
        await asyncio.sleep(0)
        with pytest.raises(TransactionNotAllowed, match="no durable subscription"):
            transactions_of(topic).ack(A, cursor, entries(positions[1]), lambda _: None)
        await deleted
        assert transactions_of(topic).pending(cursor) is None
        reader = topic.ledger.open_non_durable_cursor("reader", EARLIEST)
        with pytest.raises(TransactionNotAllowed):
            transactions_of(topic).ack(A, reader, entries(positions[1]), lambda _: None)
        topic = await loaded_again(process, topic)
        await end(topic, A, Action.COMMIT)
        assert not topic.ledger.cursors

    simulated(scenario)


def test_a_reset_frees_what_is_pending_at_or_below_it() -> None:
    async def scenario(process: Process) -> None:
        topic = await load(process)
        positions = await topic.publish_confirmed(1, runs=4)
        cursor = await topic.ledger.create_cursor("sub", EARLIEST, {})
        await ack(topic, A, "sub", entries(positions[1], positions[3]))
        await topic.ledger.reset_cursor(cursor, positions[1])
        pending = transactions_of(topic).pending(cursor)
        assert pending is not None
        assert [pending.holds(each) for each in positions] == [False, False, False, True]
        await topic.ledger.reset_cursor(cursor, positions[3])
        assert transactions_of(topic).pending(cursor) is None

    simulated(scenario)


def test_a_batch_that_a_commit_completes_is_acknowledged_after_a_kill() -> None:
    async def scenario(process: Process) -> None:
        topic = await load(process)
        topic.publish(1, counts=[2])
        await topic.publish_confirmed(1)
        position = topic.listener.confirmed[0][0]
        cursor = await topic.ledger.create_cursor("sub", EARLIEST, {})
        cursor.ack_batch(*position, 0b01, 2)
        await topic.flushed()
        await ack(topic, A, "sub", PendingAck(batches={position: (0b10, 2)}))
        await end(topic, A, Action.COMMIT)
        assert cursor.mark_delete == position
        topic = await loaded_again(process, topic)
        assert topic.ledger.cursors["sub"].mark_delete == position

    simulated(scenario)


def test_a_clean_close_leaves_nothing_to_scan() -> None:
    async def scenario(process: Process) -> None:
        topic = await load(process)
        await topic.ledger.create_cursor("sub", EARLIEST, {})
        publish(topic, A, 3)
        publish(topic, None, 2)
        await topic.published_all()
        await end(topic, A, Action.ABORT)
        await topic.ledger.close()
        again = await load_again(topic.ctx)
        assert mark_of(again) == topic.ledger.last_confirmed
        assert await readable(again) == [b"3", b"4"]

    simulated(scenario)


def test_plain_messages_move_the_position_to_scan_from_so_that_a_load_stays_short(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(topic_transactions, "SCANNED_BYTES_MAX", 1_000)

    async def scenario(process: Process) -> None:
        topic = await load(process)
        await topic.ledger.create_cursor("sub", EARLIEST, {})
        publish(topic, A)
        await topic.published_all()
        await end(topic, A, Action.COMMIT)
        await asyncio.sleep(10)
        before = mark_of(topic)
        for _ in range(3):
            topic.publish(1, size=400)
        await topic.published_all()
        await until(lambda: mark_of(topic) > before, 2)
        publish(topic, B)
        blocked = topic.ledger.last_confirmed
        for _ in range(6):
            topic.publish(1, size=400)
        await topic.published_all()
        await asyncio.sleep(3)
        assert mark_of(topic) == blocked, "not beyond the open transaction"

    simulated(scenario)


def test_an_end_alone_leaves_no_scan_of_the_whole_topic() -> None:
    async def scenario(process: Process) -> None:
        topic = await load(process)
        await topic.ledger.create_cursor("sub", EARLIEST, {})
        await topic.publish_confirmed(5)
        last = topic.ledger.last_confirmed
        await end(topic, C, Action.ABORT)
        topic = await loaded_again(process, topic)
        assert mark_of(topic) >= last
        with pytest.raises(TransactionNotAllowed):
            publish(topic, C)

    simulated(scenario)


def test_nothing_happens_to_runs_that_were_held_once_the_topic_is_lost() -> None:
    async def scenario(process: Process) -> None:
        topic = await load(process)
        await topic.publish_confirmed()
        publish(topic, A)
        publish(topic, None)
        topic.ledger.lose(LogFailed("gone"))
        await asyncio.sleep(30)
        assert [type(error) for error in topic.listener.lost] == [LogFailed]
        assert topic.listener.refused == []
        assert [run.entries for run, _ in topic.ledger.give_up()] == [[b"1"], [b"2"]]
        with pytest.raises(LogFailed):
            await end(topic, A, Action.ABORT)

    simulated(scenario)


def test_a_topic_that_is_lost_before_its_first_transaction_refuses_it_and_leaves_nothing_behind() -> None:
    async def scenario(process: Process) -> None:
        topic = await load(process)
        await topic.publish_confirmed()
        topic.ledger.lose(LogFailed("gone"))
        with pytest.raises(LogFailed):
            await end(topic, A, Action.ABORT)
        with pytest.raises(LogFailed):
            publish(topic, B)
        await asyncio.sleep(5)
        assert topic.listener.refused == []
        timers = [each for each in cast(Any, asyncio.get_running_loop())._scheduled if not each.cancelled()]
        assert not [each for each in timers if "magnetar.ledger" in each._callback.__module__]

    simulated(scenario)


def test_an_acknowledgement_that_got_an_error_stays_pending_and_may_be_repeated() -> None:
    async def scenario(process: Process) -> None:
        topic = await load(process)
        positions = await topic.publish_confirmed()
        cursor = await topic.ledger.create_cursor("sub", EARLIEST, {})
        loop = asyncio.get_running_loop()
        with pytest.MonkeyPatch.context() as patch:
            refuse = lambda _, done: loop.call_soon(done, LogFull("full"))  # noqa: E731
            patch.setattr(managed_ledger._TransactionalTopic, "flush", refuse)
            with pytest.raises(LogFull):
                await ack(topic, A, "sub", entries(*positions))
        with pytest.raises(TransactionConflict):
            await ack(topic, B, "sub", entries(*positions))
        await ack(topic, A, "sub", entries(*positions))
        await end(topic, A, Action.COMMIT)
        assert cursor.is_acked(*positions[0])

    simulated(scenario)


def test_ends_and_acknowledgements_that_wait_fail_with_the_topic() -> None:
    async def scenario(process: Process) -> None:
        topic = await load(process)
        positions = await topic.publish_confirmed()
        await topic.ledger.create_cursor("sub", EARLIEST, {})
        waiting = [
            asyncio.create_task(end(topic, A, Action.COMMIT)),
            asyncio.create_task(ack(topic, B, "sub", entries(*positions))),
        ]
        await asyncio.sleep(0)
        topic.ledger.lose(LogFailed("gone"))
        results = await asyncio.gather(*waiting, return_exceptions=True)
        assert [type(each) for each in results] == [LogFailed, LogFailed]

    simulated(scenario)


def test_first_runs_in_transactions_are_refused_when_the_cursor_ledger_cannot_be_written() -> None:
    async def scenario(process: Process) -> None:
        topic = await load(process)
        await topic.publish_confirmed()
        process.metadata.faults.unreachable = True
        publish(topic, A)
        publish(topic, None)
        await until(lambda: len(topic.listener.refused) == 2, 20)
        assert not transactions_of(topic).open
        process.metadata.faults.unreachable = False
        await asyncio.sleep(10)
        publish(topic, A)
        await until(lambda: len(topic.listener.confirmed) == 2)
        assert await readable(topic) == [b"0"]

    simulated(scenario)


def test_numbers_up_to_the_low_watermark_are_over_and_later_ones_are_not() -> None:
    async def scenario(process: Process) -> None:
        topic = await load(process)
        await end(topic, TxnId(3, 9), Action.COMMIT, low_watermark=5)
        for number in (0, 5, 9):
            with pytest.raises(TransactionNotAllowed, match=f"3,{number}"):
                publish(topic, TxnId(3, number))
        topic.published = 0
        for txn in (TxnId(3, 6), TxnId(3, 10), TxnId(4, 0)):
            publish(topic, txn)
        topic = await loaded_again(process, topic)
        assert dict(transactions_of(topic).low_watermarks) == {3: 5}
        assert dict(transactions_of(topic).ended) == {}

    simulated(scenario)


class _Damaged:
    """Reads of entries of which the second one is damaged."""

    topic = "topic"

    def __init__(self, *, only_copy: bool) -> None:
        self.only_copy = only_copy

    async def read(self, span: LedgerSpan, first: int, last: int, max_bytes: int) -> list[Run]:
        if first == 1:
            raise EntryUnreadable("damaged")
        return [Run([b""], ledger_id=3, first_entry_id=first, flags=4, txn=A)]

    def is_only_copy(self, span: LedgerSpan) -> bool:
        return self.only_copy


@pytest.mark.parametrize("only_copy", [True, False])
def test_a_load_passes_damaged_entries_only_if_no_other_copy_may_bring_them_back(only_copy: bool) -> None:
    spans = LedgerSpans()
    spans.add(LedgerSpan(LedgerRef(3, 1), entries=3))
    state = TransactionState()
    scan = scan_transactions(cast(Any, _Damaged(only_copy=only_copy)), spans, state)
    if only_copy:
        asyncio.run(scan)
        assert state.open[A].entries == {3: BitMap([0, 2])}
    else:
        with pytest.raises(EntryUnreadable):
            asyncio.run(scan)


def test_the_last_number_outside_of_a_bitmap() -> None:
    for numbers in ([], [0], [5], [0, 1, 2], [3, 4, 5], range(100), [*range(7), *range(8, 90)]):
        bitmap = BitMap(numbers)
        for last in range(-1, 101):
            expected = next((each for each in range(last, -1, -1) if each not in bitmap), -1)
            assert last_hole(bitmap, last) == expected
