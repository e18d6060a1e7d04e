"""Ack commands in transactions: read into one request, answered with the transaction's ids."""

from __future__ import annotations

import asyncio
from array import array
from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

import pytest
from magnetar.broker.handlers.acks import handle_ack, handle_transactional_acks
from magnetar.broker.handlers.client import Client, OpenConsumer
from magnetar.broker.transaction_config import TransactionConfig
from magnetar.common.errors import (
    DataCorruption,
    LogFailed,
    MagnetarError,
    TransactionConflict,
    TransactionNotAllowed,
)
from magnetar.common.naming.position import Position
from magnetar.common.naming.txn_id import TxnId
from magnetar.common.wire import pulsar_pb2 as pb
from magnetar.common.wire.events import TransactionalAcks
from magnetar.ledger.managed_ledger.pending_acks import PendingAck
from pyroaring import BitMap

from tests.unit.broker.handlers.bare_services import bare_services
from tests.unit.broker.topics.world import ListeningPeer

IDS = {"txnid_most_bits": 3, "txnid_least_bits": 7}


class Topic:
    """Every batch has ten messages; entries from 100 on cannot be read."""

    async def messages_of(self, position: Position) -> int:
        if position.entry_id >= 100:
            raise DataCorruption(f"the entry at {position} does not match its checksum")
        return 10


class Subscription:
    """Writes down what is acknowledged in transactions, and answers at once."""

    name = "s"

    def __init__(self) -> None:
        self.acked: list[tuple[TxnId, PendingAck]] = []
        self.error: MagnetarError | None = None
        self.refusal: MagnetarError | None = None

    def ack_in_transaction(
        self, txn: TxnId, acked: PendingAck, consumer: object, done: Callable[[MagnetarError | None], None]
    ) -> None:
        if self.refusal is not None:
            raise self.refusal
        self.acked.append((txn, acked))
        done(self.error)


class Consumer:
    consumer_id = 1

    def noted_ack(self) -> None:
        """For statistics."""


class World:
    """A client with consumer 1, at a broker with transactions."""

    def __init__(self, *, enabled: bool = True) -> None:
        self.subscription, self.peer = Subscription(), ListeningPeer()
        services = bare_services(None)
        services.config = replace(services.config, transactions=TransactionConfig(enabled=enabled))
        self.client = Client(services, cast(Any, self.peer))
        opened = OpenConsumer(cast(Any, Topic()), cast(Any, self.subscription), cast(Any, Consumer()))
        self.client.consumers[1] = opened

    def ack(self, *ids: pb.MessageIdData, cumulative: bool = False, **fields: Any) -> None:
        kind = pb.CommandAck.Cumulative if cumulative else pb.CommandAck.Individual
        command = pb.CommandAck(consumer_id=1, ack_type=kind, message_id=ids, **{**IDS, **fields})
        rest = handle_ack(self.client, command)
        if rest is not None:
            asyncio.run(rest)

    def ack_together(self, *entry_ids: int, first_request: int = 4) -> bool:
        """Several commands of one entry each; returns whether they were processed together."""
        requests = list(range(first_request, first_request + len(entry_ids)))
        acks = TransactionalAcks(TxnId(3, 7), 1, {1: array("I", entry_ids)}, requests, [b""] * len(requests))
        return handle_transactional_acks(self.client, acks)

    @property
    def only(self) -> PendingAck:
        ((txn, acked),) = self.subscription.acked
        assert txn == TxnId(3, 7)
        return acked


def entry(entry_id: int, **fields: Any) -> pb.MessageIdData:
    return pb.MessageIdData(ledgerId=1, entryId=entry_id, **fields)


def test_entries_and_parts_of_batches_are_one_request() -> None:
    world = World()
    parts = entry(5, ack_set=[0b1110], batch_size=4), entry(5, ack_set=[0b1011], batch_size=4)
    world.ack(entry(1), entry(2), *parts, entry(9, ack_set=[0], batch_size=1), request_id=4)
    assert world.only.individual == {1: BitMap([1, 2, 9])}
    assert world.only.batches == {Position(1, 5): (0b0101, 4)}
    assert world.only.cumulative is None
    answer = world.peer.commands[0].ackResponse
    assert (answer.consumer_id, answer.request_id) == (1, 4)
    assert (answer.txnid_most_bits, answer.txnid_least_bits) == (3, 7)
    assert not answer.HasField("error")


def test_the_first_transaction_of_the_first_coordinator_is_one() -> None:
    world = World()
    world.ack(entry(1), txnid_most_bits=0, txnid_least_bits=0)
    assert world.subscription.acked[0][0] == TxnId(0, 0)


def test_the_size_of_a_batch_is_read_where_the_client_does_not_say_it() -> None:
    world = World()
    world.ack(entry(5, ack_set=[0b1111111110]))
    assert world.only.batches == {Position(1, 5): (1, 10)}


def test_a_batch_that_cannot_be_read_fails_all_of_the_request() -> None:
    world = World()
    with pytest.raises(DataCorruption):
        world.ack(entry(1), entry(100, ack_set=[1]))
    assert world.subscription.acked == []


def test_a_cumulative_one_covers_everything_up_to_its_id() -> None:
    world = World()
    world.ack(entry(4), cumulative=True)
    assert world.only == PendingAck(cumulative=Position(1, 4))


def test_a_cumulative_one_may_end_in_the_middle_of_a_batch() -> None:
    world = World()
    world.ack(entry(4, ack_set=[0b1100], batch_size=4), cumulative=True)
    assert world.only == PendingAck(batches={Position(1, 4): (0b0011, 4)}, cumulative=Position(1, 3))


def test_a_cumulative_one_needs_exactly_one_id() -> None:
    world = World()
    for ids in ([], [entry(1), entry(2)]):
        with pytest.raises(TransactionNotAllowed):
            world.ack(*ids, cumulative=True)


def test_an_entry_id_beyond_all_ledgers_is_refused() -> None:
    world = World()
    with pytest.raises(TransactionNotAllowed):
        world.ack(entry(1), entry(2**40))
    assert world.subscription.acked == []


def test_a_failed_write_is_the_answer() -> None:
    world = World()
    world.subscription.error = LogFailed("the disk is full")
    world.ack(entry(1), request_id=4)
    answer = world.peer.commands[0].ackResponse
    assert (answer.error, answer.message) == (pb.PersistenceError, "the disk is full")
    assert (answer.txnid_most_bits, answer.txnid_least_bits) == (3, 7)


def test_without_a_request_id_there_is_no_answer() -> None:
    world = World()
    world.ack(entry(1))
    assert world.peer.commands == []


def test_a_conflict_is_for_the_connection_to_answer() -> None:
    world = World()
    world.subscription.refusal = TransactionConflict("taken")
    with pytest.raises(TransactionConflict):
        world.ack(entry(1), request_id=4)
    assert world.peer.commands == []


def test_with_transactions_off_it_is_refused() -> None:
    world = World(enabled=False)
    with pytest.raises(TransactionNotAllowed):
        world.ack(entry(1))
    assert world.subscription.acked == []


def test_commands_that_arrive_together_are_one_request_with_an_answer_each() -> None:
    world = World()
    assert world.ack_together(1, 5, 5, 300)
    assert world.only.individual == {1: BitMap([1, 5, 300])}
    answers = [each.ackResponse for each in world.peer.commands]
    assert [each.request_id for each in answers] == [4, 5, 6, 7]
    assert all(
        (each.consumer_id, each.txnid_most_bits, each.txnid_least_bits) == (1, 3, 7) for each in answers
    )
    assert not any(each.HasField("error") for each in answers)


def test_a_failed_write_answers_each_of_the_commands() -> None:
    world = World()
    world.subscription.error = LogFailed("the disk is full")
    assert world.ack_together(1, 2)
    answers = [each.ackResponse for each in world.peer.commands]
    assert [(each.request_id, each.error) for each in answers] == [
        (4, pb.PersistenceError),
        (5, pb.PersistenceError),
    ]


def test_commands_of_which_one_is_refused_are_left_to_be_processed_one_by_one() -> None:
    world = World()
    world.subscription.refusal = TransactionConflict("taken")
    assert not world.ack_together(1, 2)
    assert world.peer.commands == []
    assert not World(enabled=False).ack_together(1)


def test_commands_of_a_consumer_that_is_not_open_are_refused_for_now() -> None:
    """Also where Apache Pulsar is silent: the Java and Go clients would wait for their timeout."""
    world = World()
    world.client.consumers.clear()
    assert world.ack_together(1, 2)
    world.ack(entry(1), request_id=6)
    answers = [each.ackResponse for each in world.peer.commands]
    assert [(each.request_id, each.error) for each in answers] == [
        (request_id, pb.ServiceNotReady) for request_id in (4, 5, 6)
    ]
    assert all(
        (each.consumer_id, each.txnid_most_bits, each.txnid_least_bits) == (1, 3, 7) for each in answers
    )


def test_without_a_request_id_commands_of_a_consumer_that_is_not_open_are_ignored() -> None:
    world = World()
    world.client.consumers.clear()
    world.ack(entry(1))
    acks = TransactionalAcks(TxnId(3, 7), 1, {1: array("I", [1])}, [], [b""])
    assert handle_transactional_acks(world.client, acks)
    assert world.peer.commands == []
