"""Transactions of a topic: the limit of reads, aborted entries, acknowledgements, also after a kill."""

from __future__ import annotations

import asyncio

import pytest
from magnetar.common.errors import (
    InvalidTxnStatus,
    MagnetarError,
    TransactionConflict,
    TransactionNotAllowed,
)
from magnetar.common.naming.position import EARLIEST, Position
from magnetar.common.naming.txn_id import Action, TxnId
from magnetar.ledger.ledger_store import Run
from magnetar.ledger.managed_ledger.pending_acks import PendingAck
from magnetar.ledger.managed_ledger.topic_transactions import TopicTransactions
from pyroaring import BitMap

from tests.simulation.power_loss import Process
from tests.unit.ledger.managed_ledger.harness import Topic, ledger_ids, load, simulated, until

A, B, C = TxnId(0, 0), TxnId(0, 1), TxnId(7, 0)


def transactions_of(topic: Topic) -> TopicTransactions:
    return topic.ledger.use_transactions()


def publish(topic: Topic, txn: TxnId | None, count: int = 1) -> Run:
    if txn is not None:
        topic.ledger.use_transactions()
    entries = [b"%d" % (topic.published + number) for number in range(count)]
    topic.published += count
    run = Run(entries, txn=txn)
    topic.ledger.append(run, topic.published)
    return run


async def end(topic: Topic, txn: TxnId, action: Action, low_watermark: int = -1) -> None:
    done: asyncio.Future[MagnetarError | None] = asyncio.get_running_loop().create_future()
    transactions_of(topic).end(txn, action, low_watermark, done.set_result)
    if (error := await done) is not None:
        raise error


async def ack(topic: Topic, txn: TxnId, name: str, pending: PendingAck) -> None:
    done: asyncio.Future[MagnetarError | None] = asyncio.get_running_loop().create_future()
    transactions_of(topic).ack(txn, topic.ledger.cursors[name], pending, done.set_result)
    if (error := await done) is not None:
        raise error


async def readable(topic: Topic) -> list[bytes]:
    """Returns the entries that a consumer of everything gets."""
    transactions = topic.ledger.transactions
    return [
        data
        for position, data in await topic.read_all()
        if transactions is None or not transactions.is_aborted(*position)
    ]


async def loaded_again(process: Process, topic: Topic) -> Topic:
    process.world.kill()
    again = await load(process, create=False)
    again.published = topic.published
    return again


def entries(*positions: Position) -> PendingAck:
    individual: dict[int, BitMap] = {}
    for ledger_id, entry_id in positions:
        individual.setdefault(ledger_id, BitMap()).add(entry_id)
    return PendingAck(individual=individual)


def test_nothing_after_the_first_entry_of_an_open_transaction_is_readable() -> None:
    async def scenario(process: Process) -> None:
        topic = await load(process)
        publish(topic, None, 2)
        publish(topic, A)
        publish(topic, None)
        publish(topic, B)
        publish(topic, A)
        await topic.published_all()
        assert await readable(topic) == [b"0", b"1"]
        await end(topic, B, Action.COMMIT)
        assert await readable(topic) == [b"0", b"1"]
        await end(topic, A, Action.ABORT)
        assert await readable(topic) == [b"0", b"1", b"3", b"4"]
        assert transactions_of(topic).last_readable() == topic.listener.confirmed[4][0]

    simulated(scenario)


@pytest.mark.parametrize("ended", [False, True])
def test_what_is_open_and_aborted_is_known_after_a_kill(ended: bool) -> None:
    async def scenario(process: Process) -> None:
        topic = await load(process)
        await topic.ledger.create_cursor("keeps everything", EARLIEST, {})
        for txn in (A, None, B, C, None, A):
            publish(topic, txn, 4)
        await topic.published_all()
        await end(topic, B, Action.ABORT, low_watermark=-1)
        if ended:
            await end(topic, A, Action.COMMIT)
            await end(topic, C, Action.COMMIT, low_watermark=5)
        topic = await loaded_again(process, topic)
        for _ in range(2):
            if ended:
                expected = [*range(8), *range(12, 24)]
                assert await readable(topic) == [b"%d" % number for number in expected]
                assert not transactions_of(topic).open
            else:
                assert await readable(topic) == []
                assert set(transactions_of(topic).open) == {A, C}
            await asyncio.sleep(6)  # progress is written
            topic.ledger._cursor_ledger._want_roll()  # and after a snapshot
            await asyncio.sleep(1)
            topic = await loaded_again(process, topic)
        if not ended:
            await end(topic, A, Action.ABORT)
            await end(topic, C, Action.COMMIT)
            expected = [*range(4, 8), *range(12, 20)]
            assert await readable(topic) == [b"%d" % number for number in expected]

    simulated(scenario)


def test_an_end_waits_for_its_own_runs_and_refuses_later_ones() -> None:
    async def scenario(process: Process) -> None:
        topic = await load(process)
        publish(topic, A, 3)
        ended = asyncio.create_task(end(topic, A, Action.COMMIT))
        await asyncio.sleep(0)
        with pytest.raises(TransactionNotAllowed, match="has ended"):
            publish(topic, A)
        topic.published -= 1
        await ended
        assert await readable(topic) == [b"0", b"1", b"2"]
        await end(topic, A, Action.COMMIT)
        with pytest.raises(InvalidTxnStatus):
            await end(topic, A, Action.ABORT)
        topic = await loaded_again(process, topic)
        await end(topic, A, Action.COMMIT)
        with pytest.raises(TransactionNotAllowed):
            publish(topic, A)
        await end(topic, B, Action.ABORT, low_watermark=0)
        with pytest.raises(TransactionNotAllowed):
            publish(topic, B)

    simulated(scenario)


def test_acknowledgements_take_effect_with_a_commit_and_not_before() -> None:
    async def scenario(process: Process) -> None:
        topic = await load(process)
        positions = await topic.publish_confirmed(1, runs=6)
        for name in ("one", "two"):
            await topic.ledger.create_cursor(name, EARLIEST, {})
        await ack(topic, A, "one", entries(*positions[:2]))
        await ack(topic, A, "one", entries(positions[0]))  # again
        await ack(topic, A, "two", PendingAck(cumulative=positions[3]))
        await ack(topic, B, "one", entries(positions[4]))
        with pytest.raises(TransactionConflict):
            await ack(topic, B, "one", entries(positions[1], positions[5]))
        with pytest.raises(TransactionConflict):
            await ack(topic, B, "two", PendingAck(cumulative=positions[5]))
        topic = await loaded_again(process, topic)
        one, two = topic.ledger.cursors["one"], topic.ledger.cursors["two"]
        assert one.backlog() == two.backlog() == 6
        pending = transactions_of(topic).pending(one)
        assert pending is not None
        assert set(pending.transactions) == {A, B}
        await end(topic, A, Action.COMMIT)
        await end(topic, B, Action.ABORT)
        assert (one.backlog(), two.backlog()) == (4, 2)
        assert transactions_of(topic).pending(one) is None
        topic = await loaded_again(process, topic)
        one, two = topic.ledger.cursors["one"], topic.ledger.cursors["two"]
        assert (one.backlog(), two.backlog()) == (4, 2)
        with pytest.raises(TransactionConflict):
            await ack(topic, C, "one", entries(positions[0]))

    simulated(scenario)


def test_a_reset_drops_what_is_pending_below_it_also_after_a_kill() -> None:
    async def scenario(process: Process) -> None:
        topic = await load(process)
        positions = await topic.publish_confirmed(1, runs=6)
        cursor = await topic.ledger.create_cursor("one", EARLIEST, {})
        await ack(topic, A, "one", entries(positions[1], positions[4]))
        await topic.ledger.reset_cursor(cursor, positions[2])
        await topic.ledger.reset_cursor(cursor, EARLIEST)
        topic = await loaded_again(process, topic)
        await end(topic, A, Action.COMMIT)
        cursor = topic.ledger.cursors["one"]
        assert not cursor.is_acked(*positions[1])
        assert cursor.is_acked(*positions[4])

    simulated(scenario)


def test_trimming_waits_for_open_transactions_and_goes_on_after_their_end() -> None:
    async def scenario(process: Process) -> None:
        topic = await load(process)
        publish(topic, A)
        await topic.published_all()
        for _ in range(4):
            await topic.publish_confirmed(10)
            await asyncio.sleep(0.1)
        topic.ledger.trim()
        await asyncio.sleep(10)
        assert len(ledger_ids(topic)) >= 3
        await end(topic, A, Action.COMMIT)
        topic.ledger.trim()
        await until(lambda: len(ledger_ids(topic)) <= 1)

    simulated(scenario)


def test_a_topic_without_transactions_has_no_state() -> None:
    async def scenario(process: Process) -> None:
        topic = await load(process)
        await topic.publish_confirmed(3)
        await topic.ledger.create_cursor("one", EARLIEST, {})
        topic = await loaded_again(process, topic)
        assert topic.ledger.transactions is None

    simulated(scenario)
