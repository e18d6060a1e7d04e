"""Acknowledgements in transactions, while topics stay and while they move."""

from __future__ import annotations

import pytest
from magnetar.client.errors import Overloaded, TransactionConflict
from magnetar.common.wire.pulsar_pb2 import CommandAck, ServerError

from tests.unit.client.consumer.test_topic_consumer import taken
from tests.unit.client.model_broker import BrokerSession, frame
from tests.unit.client.scene import TOPIC, Scene, staged, until


def add_coordinator(scene: Scene) -> None:
    """Has the broker answer what clients ask of a coordinator of transactions."""
    answers = scene.broker.answers
    answers["tcClientConnectRequest"] = lambda command, _: frame(
        "tcClientConnectResponse", request_id=command.request_id
    )
    answers["newTxn"] = lambda command, _: frame(
        "newTxnResponse", request_id=command.request_id, txnid_least_bits=1, txnid_most_bits=0
    )
    answers["addSubscriptionToTxn"] = lambda command, _: frame(
        "addSubscriptionToTxnResponse", request_id=command.request_id
    )
    answers["endTxn"] = lambda command, _: frame("endTxnResponse", request_id=command.request_id)
    scene.cluster.partitions["persistent://pulsar/system/transaction_coordinator_assign"] = 1


def refused_ack(command: CommandAck, error: ServerError.ValueType, message: str) -> bytes:
    return frame(
        "ackResponse",
        consumer_id=command.consumer_id,
        request_id=command.request_id,
        error=error,
        message=message,
    )


def test_a_conflict_of_transactions_is_raised_as_it_is() -> None:
    async def scenario(scene: Scene) -> None:
        add_coordinator(scene)
        scene.broker.answers["ack"] = lambda command, _: refused_ack(
            command, ServerError.TransactionConflict, "acknowledged"
        )
        consumer = await scene.client.subscribe(TOPIC, "s")
        scene.store(b"a", b"b")
        messages = await taken(consumer, 2)
        transaction = await scene.client.transaction()
        with pytest.raises(TransactionConflict):
            await consumer.acknowledge(messages, transaction=transaction)
        with pytest.raises(TransactionConflict):
            await transaction.commit()
        (command,) = scene.broker.of("addSubscriptionToTxn")
        assert [each.subscription for each in command.subscription] == ["s"]
        assert {ack.ack_type for ack in scene.broker.of("ack")} == {CommandAck.Individual}

    staged(scenario)


def test_an_acknowledgement_in_a_transaction_that_meets_a_move_of_the_topic_is_sent_to_the_new_owner() -> (
    None
):
    async def scenario(scene: Scene) -> None:
        def unload(command: CommandAck, session: BrokerSession) -> bytes:
            del scene.broker.answers["ack"]
            session.close_consumer(command.consumer_id)
            return refused_ack(command, ServerError.ServiceNotReady, "consumer 1 is not open")

        add_coordinator(scene)
        consumer = await scene.client.subscribe(TOPIC, "s")
        scene.store(b"a")
        (message,) = await taken(consumer, 1)
        transaction = await scene.client.transaction()
        scene.broker.answers["ack"] = unload
        await consumer.acknowledge(message, transaction=transaction)
        await transaction.commit()
        first, second = scene.broker.of("ack")
        first.request_id = second.request_id
        assert first == second
        assert len(scene.broker.of("subscribe")) == 2

    staged(scenario)


def test_an_acknowledgement_in_a_transaction_waits_while_the_consumer_is_connecting() -> None:
    async def scenario(scene: Scene) -> None:
        add_coordinator(scene)
        consumer = await scene.client.subscribe(TOPIC, "s")
        scene.store(b"a")
        (message,) = await taken(consumer, 1)
        transaction = await scene.client.transaction()
        scene.network.faults.delay_min_s = scene.network.faults.delay_max_s = 1.0
        (session,) = scene.broker.sessions
        session.close_consumer(next(iter(session.consumers)))
        await until(lambda: not consumer.is_connected)
        await consumer.acknowledge(message, transaction=transaction)
        await transaction.commit()
        assert scene.subscription().unacked() == []

    staged(scenario)


def test_an_acknowledgement_in_a_transaction_fails_if_the_topic_stays_away_for_the_operation_timeout() -> (
    None
):
    async def scenario(scene: Scene) -> None:
        add_coordinator(scene)
        scene.broker.answers["ack"] = lambda command, _: refused_ack(
            command, ServerError.ServiceNotReady, "consumer 1 is not open"
        )
        consumer = await scene.client.subscribe(TOPIC, "s")
        scene.store(b"a")
        (message,) = await taken(consumer, 1)
        transaction = await scene.client.transaction()
        begun = scene.now
        with pytest.raises(Overloaded, match="is not open"):
            await consumer.acknowledge(message, transaction=transaction)
        assert 20 < scene.now - begun <= 30
        assert len(scene.broker.of("ack")) < 100, "it pauses in between"

    staged(scenario, operation_timeout_s=30)
