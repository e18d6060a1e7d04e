"""Topics with transactions over simulated storage: what is delivered, shown, kept and found again."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, cast

import pytest
from magnetar.broker.admin.objects.backlogs import nth_unacked
from magnetar.broker.admin.routes.subscriptions.backlog_analysis import analyze
from magnetar.broker.config import BacklogScanConfig, BrokerConfig
from magnetar.broker.subscriptions.consumers.consumer import ConsumerOptions
from magnetar.broker.topics.persistent_topic import PersistentTopic
from magnetar.broker.topics.publish.producer import Producer
from magnetar.broker.topics.subscribe.subscribe_request import SubscribeRequest
from magnetar.broker.topics.upkeep.message_expiry import expire_old
from magnetar.broker.transaction_config import TransactionConfig
from magnetar.common.errors import MagnetarError
from magnetar.common.naming.position import Position
from magnetar.common.naming.txn_id import Action, TxnId
from magnetar.common.wire import pulsar_pb2 as pb
from magnetar.common.wire.events import SendRun
from magnetar.common.wire.varint import encode_varint

from tests.unit.broker.topics.world import ListeningPeer, Topics, in_a_broker, producer_of, subscribed
from tests.unit.common.wire import frames
from tests.unit.ledger.compacted.compacted_topic import settings
from tests.unit.ledger.managed_ledger.harness import until

ON = BrokerConfig(transactions=TransactionConfig(enabled=True))
A, B, C = TxnId(0, 0), TxnId(0, 1), TxnId(1, 0)
COMMIT, ABORT = Action.COMMIT, Action.ABORT


def with_transactions(scenario: Callable[[Topics], Awaitable[None]], config: BrokerConfig = ON) -> None:
    in_a_broker(scenario, config)


async def load(made: Topics, name: str = "orders") -> PersistentTopic:
    return cast(PersistentTopic, await made.load(name))


async def reload(made: Topics, topic: PersistentTopic) -> PersistentTopic:
    await topic.close()
    made.registry._forget(topic)
    return await load(made)


def run_of(*ids: int, messages: int = 1, **metadata: Any) -> SendRun:
    """Sends with these sequence ids; each is a batch if it has several messages."""
    if messages > 1:
        metadata["num_messages_in_batch"] = messages
    entries = [frames.entry(b"%d" % each, frames.metadata(each, **metadata)) for each in ids]
    counts = None if messages == 1 else [messages] * len(ids)
    varints = [encode_varint(each) for each in ids]
    return SendRun(1, entries, varints, None, counts, False, False, sum(map(len, entries)))


class Client:
    """A producer that publishes in transactions, and what it was answered."""

    def __init__(self, topic: PersistentTopic, producer: Producer, peer: ListeningPeer) -> None:
        self.topic = topic
        self.producer = producer
        self.peer = peer

    @property
    def receipts(self) -> list[tuple[int, int]]:
        """(sequence id, entry id); entry id -1: a duplicate."""
        found = [each.send_receipt for each in self.peer.commands if each.HasField("send_receipt")]
        return [(each.sequence_id, _signed(each.message_id.entryId)) for each in found]

    @property
    def errors(self) -> list[tuple[int, str]]:
        found = [each.send_error for each in self.peer.commands if each.HasField("send_error")]
        return [(each.sequence_id, pb.ServerError.Name(each.error)) for each in found]

    def send(self, txn: TxnId | None, *ids: int, **options: Any) -> None:
        if txn is None:
            self.topic.publishing.publish(self.producer, run_of(*ids, **options))
        else:
            self.topic.publishing.publish_in(txn, self.producer, run_of(*ids, **options))

    async def refused(self) -> None:
        """Waits for a SendError."""
        await until(lambda: self.errors)

    async def publish(self, txn: TxnId | None, *ids: int, **options: Any) -> None:
        """Sends, and waits for the receipts."""
        wanted = len(self.receipts) + len(ids)
        self.send(txn, *ids, **options)
        await until(lambda: len(self.receipts) == wanted)


def _signed(entry_id: int) -> int:
    return entry_id if entry_id < 2**63 else entry_id - 2**64


async def client_of(topic: PersistentTopic, name: str = "p") -> Client:
    peer = ListeningPeer()
    return Client(topic, await producer_of(topic, peer, name), peer)


async def end(topic: PersistentTopic, txn: TxnId, action: Action, low_watermark: int = -1) -> None:
    ended: asyncio.Future[MagnetarError | None] = asyncio.get_running_loop().create_future()
    topic.ledger.use_transactions().end(txn, action, low_watermark, ended.set_result)
    error = await ended
    if error is not None:
        raise error


class Reading:
    """A consumer with many permits, and the entry ids that it got."""

    def __init__(self, subscription: Any, consumer: Any, peer: ListeningPeer) -> None:
        self.subscription = subscription
        self.consumer = consumer
        self.peer = peer

    @property
    def entry_ids(self) -> list[int]:
        return [each.message.message_id.entryId for each in self.peer.commands if each.HasField("message")]

    async def quiet(self) -> list[int]:
        """The entry ids that came so far, once nothing comes any more."""
        await asyncio.sleep(1.0)
        return self.entry_ids


async def reading(topic: PersistentTopic, permits: int = 1_000, **options: Any) -> Reading:
    peer = ListeningPeer()
    subscription, consumer = await subscribed(topic, peer, **options)
    subscription.add_permits(consumer, permits)
    return Reading(subscription, consumer, peer)


def last(topic: PersistentTopic, entry_id: int) -> Position:
    return Position(topic.ledger.last_confirmed.ledger_id, entry_id)


def test_messages_come_once_their_transaction_and_those_before_it_are_committed() -> None:
    async def scenario(made: Topics) -> None:
        topic = await load(made)
        client, got = await client_of(topic), await reading(topic)
        await client.publish(None, 0)
        await client.publish(A, 1, 2)
        await client.publish(B, 3)
        await client.publish(None, 4)
        assert await got.quiet() == [0]
        assert await topic.last_message_id() == (last(topic, 0), -1)
        assert got.subscription.backlog() == 5
        await end(topic, B, COMMIT)
        assert await got.quiet() == [0]
        await end(topic, A, ABORT)
        assert await got.quiet() == [0, 3, 4]
        assert await topic.last_message_id() == (last(topic, 4), -1)
        got.subscription.ack_many(topic.ledger.last_confirmed.ledger_id, [0, 3, 4], got.consumer)
        assert got.subscription.backlog() == 0
        assert client.errors == []

    with_transactions(scenario)


def test_a_load_finds_open_and_aborted_messages_again() -> None:
    async def scenario(made: Topics) -> None:
        topic = await load(made)
        await reading(topic)
        client = await client_of(topic)
        for txn, number in ((A, 0), (None, 1), (A, 2), (B, 3), (None, 4)):
            await client.publish(txn, number)
        await end(topic, A, ABORT)
        topic = await reload(made, topic)
        got = await reading(topic)
        assert await got.quiet() == [1]
        assert topic.ledger.transactions is not None
        assert list(topic.ledger.transactions.open) == [B]
        topic = await reload(made, topic)
        await end(topic, B, COMMIT)
        got = await reading(topic)
        assert await got.quiet() == [1, 3, 4]

    with_transactions(scenario)


def test_a_topic_with_open_transactions_keeps_its_limit_where_transactions_are_off() -> None:
    async def scenario(made: Topics) -> None:
        topic = await load(made)
        topic.ledger.use_transactions()
        client, got = await client_of(topic), await reading(topic)
        client.send(A, 0)
        await until(lambda: client.errors)
        assert client.errors == [(0, "NotAllowedError")]
        assert topic.producers.get("p") is None
        path = topic.publishing
        path._transactional = None
        path._transactions_enabled = True
        client = await client_of(topic)
        await client.publish(A, 0)
        await client.publish(None, 1)
        topic = await reload(made, topic)
        got = await reading(topic)
        assert await got.quiet() == []
        client = await client_of(topic)
        client.send(A, 2)
        await until(lambda: client.errors)
        await end(topic, A, COMMIT)
        assert await got.quiet() == [0, 1]

    with_transactions(scenario, BrokerConfig())


@pytest.mark.parametrize("action", [COMMIT, ABORT])
def test_a_late_message_of_a_transaction_is_refused_also_after_a_load(action: Action) -> None:
    async def scenario(made: Topics) -> None:
        topic = await load(made)
        client = await client_of(topic)
        await client.publish(A, 0)
        await end(topic, A, action)
        for name in ("q", "r"):
            client = await client_of(topic, name)
            client.send(A, 1)
            await client.refused()
            assert client.errors == [(1, "NotAllowedError")]
            topic = await reload(made, topic)
        await end(topic, C, COMMIT, low_watermark=7)
        client = await client_of(topic)
        client.send(TxnId(1, 7), 1)
        await until(lambda: client.errors)
        assert client.errors == [(1, "NotAllowedError")]

    with_transactions(scenario)


def test_the_last_message_is_neither_aborted_nor_behind_an_open_transaction() -> None:
    async def scenario(made: Topics) -> None:
        topic = await load(made)
        client = await client_of(topic)
        await client.publish(A, 0)
        await end(topic, A, ABORT)
        position, index = await topic.last_message_id()
        assert (position.entry_id, index) == (-1, -1)
        await client.publish(B, 1, messages=3)
        await end(topic, B, COMMIT)
        await client.publish(C, 2)
        await client.publish(None, 3)
        assert await topic.last_message_id() == (last(topic, 1), 2)
        await end(topic, C, ABORT)
        assert await topic.last_message_id() == (last(topic, 3), -1)

    with_transactions(scenario)


def test_delayed_messages_enter_the_index_once_they_are_committed() -> None:
    async def scenario(made: Topics) -> None:
        topic = await load(made)
        client, got = await client_of(topic), await reading(topic)
        later = made.process.clock.wall_ms() + 20_000
        await client.publish(A, 0, deliver_at_time=later)
        await client.publish(B, 1, deliver_at_time=later)
        assert await got.quiet() == []
        assert got.subscription.delayed == 0
        await end(topic, A, ABORT)
        await end(topic, B, COMMIT)
        assert await got.quiet() == []
        assert got.subscription.delayed == 1
        await asyncio.sleep(30)
        assert got.entry_ids == [1]

    with_transactions(scenario)


def test_expiry_stops_at_an_open_transaction_and_passes_aborted_ones() -> None:
    async def scenario(made: Topics) -> None:
        topic = await load(made)
        client, got = await client_of(topic), await reading(topic, permits=0)
        await client.publish(None, 0)
        await client.publish(A, 1)
        await client.publish(B, 2)
        await client.publish(None, 3)
        await end(topic, A, ABORT)
        await asyncio.sleep(100)
        now_ms = made.process.clock.wall_ms()
        assert await topic.backlog.oldest_age_s(now_ms) >= 100
        await expire_old(topic, 10, now_ms)
        assert got.subscription.cursor.mark_delete == last(topic, 1)
        assert await topic.backlog.oldest_age_s(now_ms) >= 100, "entries of open transactions count"
        await expire_old(topic, 10, now_ms)
        assert got.subscription.backlog() == 2
        await end(topic, B, COMMIT)
        await expire_old(topic, 10, now_ms)
        assert got.subscription.backlog() == 0

    with_transactions(scenario)


def test_a_backlog_quota_counts_open_transactions_and_does_not_evict_them() -> None:
    async def scenario(made: Topics) -> None:
        topic = await load(made)
        client, got = await client_of(topic), await reading(topic, permits=0)
        await client.publish(None, 0, 1)
        await client.publish(A, 2, 3)
        await client.publish(None, 4)
        assert topic.backlog.byte_length == topic.storage_bytes
        assert topic.backlog.skip_to(last(topic, 4)) == 2
        assert got.subscription.cursor.mark_delete == last(topic, 1)

    with_transactions(scenario)


def test_counting_in_a_backlog_leaves_aborted_and_open_messages_out_unless_they_are_asked_for() -> None:
    async def scenario(made: Topics) -> None:
        topic = await load(made)
        client, got = await client_of(topic), await reading(topic, permits=0)
        for number, txn in enumerate((None, A, None, B, None)):
            await client.publish(txn, number)
        await end(topic, A, ABORT)
        ledger, subscription = topic.ledger, got.subscription
        shown = [await nth_unacked(ledger, subscription, number) for number in range(1, 5)]
        assert shown == [last(topic, 0), last(topic, 2), None, None]
        stored = [await nth_unacked(ledger, subscription, n, uncommitted=True) for n in range(1, 6)]
        assert stored == [last(topic, number) for number in range(5)]
        found = await analyze(
            ledger,
            subscription.cursor,
            Position(-1, -1),
            BacklogScanConfig(),
            asyncio.get_running_loop().time,
        )
        assert (found["entries"], found["aborted"]) == (2, False)
        assert found["lastMessageId"] == f"{last(topic, 2).ledger_id}:2"

    with_transactions(scenario)


def test_compacted_reading_and_the_last_message_stop_where_other_reading_does() -> None:
    async def scenario(made: Topics) -> None:
        topic = await load(made)
        client = await client_of(topic)
        topic.ledger.compaction.hold(True)
        await client.publish(None, 0, partition_key="k")
        await client.publish(A, 1, partition_key="k")
        await client.publish(None, 2, partition_key="other")
        await client.publish(B, 3, partition_key="other")
        await client.publish(None, 4, partition_key="k")
        await end(topic, A, ABORT)
        await topic.ledger.compaction.run(topic.ledger.read_limit(), settings())
        assert topic.ledger.compaction.horizon == last(topic, 2)
        peer = ListeningPeer()
        options = ConsumerOptions(1, "c", 0, {}, None, read_compacted=True)
        request = SubscribeRequest(
            "compacted", pb.CommandSubscribe.Exclusive, True, True, None, 0, {}, options, peer, False
        )
        got = Reading(*await topic.subscriptions.subscribe(request), peer)
        got.subscription.add_permits(got.consumer, 100)
        assert await got.quiet() == [0, 2]
        assert await topic.last_message_id(compacted=True) == (last(topic, 2), -1)
        await end(topic, B, ABORT)
        assert await got.quiet() == [0, 2, 4]
        assert await topic.last_message_id(compacted=True) == (last(topic, 4), -1)
        await client.publish(C, 5, partition_key="k")
        await end(topic, C, ABORT)
        await topic.ledger.compaction.run(topic.ledger.read_limit(), settings())
        assert await topic.last_message_id(compacted=True) == (last(topic, 4), -1)
        await client.publish(TxnId(1, 1), 6, partition_key="k")
        await end(topic, TxnId(1, 1), ABORT)
        assert await topic.last_message_id(compacted=True) == (last(topic, 4), -1)

    with_transactions(scenario)


def test_a_terminated_topic_ends_with_the_transactions_that_were_open() -> None:
    async def scenario(made: Topics) -> None:
        topic = await load(made)
        client, got = await client_of(topic), await reading(topic)
        await client.publish(None, 0)
        await client.publish(A, 1)
        await client.publish(B, 2)
        await topic.terminate()
        ledger_id = topic.ledger.last_confirmed.ledger_id
        assert await got.quiet() == [0]
        got.subscription.ack_many(ledger_id, [0], got.consumer)
        await asyncio.sleep(1)
        assert "REACHED_END_OF_TOPIC" not in got.peer.types
        await end(topic, A, COMMIT)
        assert await got.quiet() == [0, 1]
        got.subscription.ack_many(ledger_id, [1], got.consumer)
        await asyncio.sleep(1)
        assert "REACHED_END_OF_TOPIC" not in got.peer.types
        await end(topic, B, ABORT)
        await until(lambda: "REACHED_END_OF_TOPIC" in got.peer.types)
        topic = await reload(made, topic)
        assert (await topic.last_message_id())[0].entry_id == 1

    with_transactions(scenario)


def test_a_topic_is_deleted_with_its_open_transactions() -> None:
    async def scenario(made: Topics) -> None:
        topic = await load(made)
        client = await client_of(topic)
        await client.publish(A, 0)
        await made.registry.delete(topic.name, force=True)
        topic = await load(made)
        assert topic.ledger.transactions is None
        client = await client_of(topic)
        await client.publish(None, 0)
        got = await reading(topic)
        assert await got.quiet() == [0]

    with_transactions(scenario)


DEDUPLICATING = replace(ON, deduplication=replace(ON.deduplication, enabled=True))


@pytest.mark.parametrize("loads", [0, 1, 2])
@pytest.mark.parametrize("action", [COMMIT, ABORT])
def test_sequence_ids_of_a_transaction_are_persisted_by_its_commit_alone(action: Action, loads: int) -> None:
    async def scenario(made: Topics) -> None:
        topic = await load(made)
        client = await client_of(topic)
        await client.publish(None, 0)
        await client.publish(A, 1, 2)
        for _ in range(loads):
            topic = await reload(made, topic)
            client = await client_of(topic)
            assert topic.publishing.last_sequence_id("p") == 2
            await client.publish(A, 2)
            assert client.receipts == [(2, -1)]
        before = len(client.receipts)
        client.send(B, 1)
        await asyncio.sleep(1)
        assert len(client.receipts) == before, "it waits for the other transaction"
        await end(topic, A, action)
        await until(lambda: len(client.receipts) > before)
        number, entry_id = client.receipts[-1]
        assert (number, entry_id >= 0) == (1, action is ABORT)
        await end(topic, B, COMMIT)
        topic = await reload(made, topic)
        client = await client_of(topic)
        assert topic.publishing.last_sequence_id("p") == (2 if action is COMMIT else 1)
        await client.publish(None, 1, 2, 3)
        assert [entry_id >= 0 for _, entry_id in client.receipts] == [False, action is ABORT, True]

    with_transactions(scenario, DEDUPLICATING)


def test_the_snapshot_of_deduplication_stays_before_an_open_transaction() -> None:
    async def scenario(made: Topics) -> None:
        topic = await load(made)
        client = await client_of(topic)
        await client.publish(None, 0)
        await client.publish(A, 1)
        await client.publish(None, 2)
        topic = await reload(made, topic)
        stored = topic.ledger._cursor_ledger.deduplication
        assert stored is not None
        assert stored.durable_mark <= last(topic, 0)
        await end(topic, A, COMMIT)
        client = await client_of(topic)
        await client.publish(None, 3)
        topic = await reload(made, topic)
        stored = topic.ledger._cursor_ledger.deduplication
        assert stored is not None
        assert stored.durable_mark == topic.ledger.last_confirmed

    with_transactions(scenario, DEDUPLICATING)
