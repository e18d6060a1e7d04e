"""Acknowledgements, redelivery, seeks and starts of a consumer, as a broker sees them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from magnetar.client.client import Client
from magnetar.client.consumer.consumer import Consumer
from magnetar.client.consumer.dead_letters import DeadLetterPolicy
from magnetar.client.consumer.options import SubscriptionType
from magnetar.client.consumer.redelivery import RedeliveryDelay
from magnetar.client.errors import (
    ClientError,
    ConnectionLost,
    ConsumerBusy,
    OperationTimeout,
)
from magnetar.client.messages import Message, MessageId
from magnetar.common.wire.batch import parse_metadata, payload_of
from magnetar.common.wire.pulsar_pb2 import CommandSubscribe, ServerError

from tests.unit.client.model_broker import Broker, Cluster, frame
from tests.unit.client.scene import TOPIC, Scene, entry_of, staged, until


async def taken(consumer: Consumer[bytes], count: int) -> list[Message]:
    async with asyncio.timeout(300):
        return [await consumer.receive() for _ in range(count)]


def payloads(messages: list[Message]) -> list[bytes]:
    return [message.data for message in messages]


def acks(scene: Scene) -> list[list[tuple[int, int]]]:
    return [[(each.ledgerId, each.entryId) for each in ack.message_id] for ack in scene.broker.of("ack")]


# --- acknowledgements ---


def test_acknowledgements_go_out_in_groups() -> None:
    async def scenario(scene: Scene) -> None:
        consumer = await scene.client.subscribe(TOPIC, "s", type="shared", ack_group_s=0.1, ack_group_max=3)
        scene.store(*[b"x"] * 5)
        messages = await taken(consumer, 5)
        for message in messages[:3]:
            consumer.acknowledge_nowait(message)
        await asyncio.sleep(0.05)
        assert acks(scene) == [[(1, 0), (1, 1), (1, 2)]]
        await consumer.acknowledge(messages[3])
        await asyncio.sleep(0.05)
        await consumer.acknowledge(messages[4].id)
        await asyncio.sleep(0.2)
        assert acks(scene)[1:] == [[(1, 3), (1, 4)]]
        assert scene.subscription().unacked() == []
        assert not any(ack.HasField("request_id") for ack in scene.broker.of("ack"))

    staged(scenario)


def test_pending_acknowledgements_are_stored_before_close_returns() -> None:
    async def scenario(scene: Scene) -> None:
        consumer = await scene.client.subscribe(TOPIC, "s", ack_group_s=60)
        scene.store(b"a", b"b")
        for message in await taken(consumer, 2):
            consumer.acknowledge_nowait(message)
        await consumer.close()
        assert scene.subscription().unacked() == []
        (ack,) = scene.broker.of("ack")
        assert ack.HasField("request_id")

    staged(scenario)


def test_what_was_acknowledged_while_there_was_no_connection_does_not_come_again() -> None:
    async def scenario(scene: Scene) -> None:
        consumer = await scene.client.subscribe(TOPIC, "s")
        scene.store(b"a", b"b", b"c")
        messages = await taken(consumer, 2)
        scene.broker.kill()
        await until(lambda: not consumer.is_connected)
        for message in messages:
            consumer.acknowledge_nowait(message)
        scene.broker.start()
        assert payloads(await taken(consumer, 1)) == [b"c"]
        await asyncio.sleep(1)
        assert consumer.receive_nowait() is None
        assert scene.subscription().unacked() == [(1, 2)]

    staged(scenario)


def test_with_receipts_an_acknowledgement_is_stored_when_it_returns() -> None:
    async def scenario(scene: Scene) -> None:
        network = scene.network
        network.faults.delay_min_s = network.faults.delay_max_s = 0.5
        consumer = await scene.client.subscribe(TOPIC, "s", type="shared", ack_receipts=True)
        scene.store(b"a", b"b")
        first, second = await taken(consumer, 2)

        async def acknowledge(message: Message) -> None:
            await consumer.acknowledge(message)
            assert message.id.position not in scene.subscription().unacked()

        # The second one while the first one is on its way.
        storing = asyncio.ensure_future(acknowledge(first))
        await asyncio.sleep(0.2)
        await asyncio.gather(storing, acknowledge(second))
        assert all(ack.HasField("request_id") for ack in scene.broker.of("ack"))

    staged(scenario)


@pytest.mark.parametrize(("group_s", "group_max"), [(0.0, 1_000), (0.1, 2)])
def test_a_full_group_waits_for_its_receipts_too(group_s: float, group_max: int) -> None:
    async def scenario(scene: Scene) -> None:
        scene.network.faults.delay_min_s = scene.network.faults.delay_max_s = 0.5
        consumer = await scene.client.subscribe(
            TOPIC, "s", type="shared", ack_receipts=True, ack_group_s=group_s, ack_group_max=group_max
        )
        scene.store(*[b"x"] * 4)
        await consumer.acknowledge(await taken(consumer, 4))
        assert scene.subscription().unacked() == []

    staged(scenario)


def test_acknowledgements_of_one_turn_share_a_receipt() -> None:
    async def scenario(scene: Scene) -> None:
        consumer = await scene.client.subscribe(TOPIC, "s", type="shared", ack_receipts=True)
        scene.store(*[b"x"] * 4)
        messages = await taken(consumer, 4)
        await asyncio.gather(*(consumer.acknowledge(message) for message in messages))
        assert acks(scene) == [[(1, 0), (1, 1), (1, 2), (1, 3)]]

    staged(scenario)


def test_a_refused_acknowledgement_is_raised_and_so_is_a_lost_connection() -> None:
    async def scenario(scene: Scene) -> None:
        consumer = await scene.client.subscribe(TOPIC, "s", type="shared", ack_receipts=True)
        scene.store(b"a", b"b", b"c")
        first, second, third = await taken(consumer, 3)
        scene.broker.answers["ack"] = lambda command, _: frame(
            "ackResponse",
            consumer_id=command.consumer_id,
            request_id=command.request_id,
            error=ServerError.NotAllowedError,
            message="no",
        )
        with pytest.raises(ClientError, match=r"no .*NotAllowedError"):
            await consumer.acknowledge(first)

        def lose(command: Any, session: Any) -> bytes:
            scene.broker.kill()
            return b""

        scene.broker.answers["ack"] = lose
        with pytest.raises(ConnectionLost):
            await consumer.acknowledge(second)
        with pytest.raises(ConnectionLost, match="connecting again"):
            await consumer.acknowledge(third)
        scene.broker.answers.clear()
        scene.broker.start()
        # What could not be sent is sent as soon as there is a connection again.
        await until(lambda: third.id.position not in scene.subscription().unacked())

    staged(scenario)


def test_part_of_a_batch_is_acknowledged_by_index_or_with_the_rest() -> None:
    async def scenario(scene: Scene) -> None:
        whole = await scene.client.subscribe(TOPIC, "whole", type="shared")
        by_index = await scene.client.subscribe(TOPIC, "by index", type="shared", batch_index_ack=True)
        scene.store_batch(b"a", b"b", b"c")
        for consumer in (whole, by_index):
            first, _, third = await taken(consumer, 3)
            await consumer.acknowledge([first, third])
        await asyncio.sleep(1)
        assert scene.subscription("whole").acked == {}
        assert scene.subscription("by index").acked == {(1, 0): 0b101}
        scene.broker.kill()
        scene.broker.start()
        assert payloads(await taken(by_index, 1)) == [b"b"]
        assert payloads(await taken(whole, 3)) == [b"a", b"b", b"c"]

    staged(scenario)


def test_chunks_that_were_sent_twice_leave_nothing_in_the_backlog() -> None:
    async def scenario(scene: Scene) -> None:
        def stored(number: int) -> None:
            chunk = {"uuid": "u", "chunk_id": number, "num_chunks_from_msg": 3, "total_chunk_msg_size": 3}
            scene.topic.store(entry_of(b"%d" % number, **chunk), 1)

        consumer = await scene.client.subscribe(TOPIC, "s", type="shared")
        for number in (0, 1, 0, 1, 1, 2):
            stored(number)
        (message,) = await taken(consumer, 1)
        assert message.data == b"012"
        await consumer.acknowledge(message)
        await until(lambda: not scene.subscription().unacked())

    staged(scenario)


def test_ids_acknowledge_what_they_name() -> None:
    async def scenario(scene: Scene) -> None:
        consumer = await scene.client.subscribe(TOPIC, "s", type="shared")
        scene.store_batch(b"a", b"b")
        first, second = await taken(consumer, 2)
        await consumer.acknowledge(MessageId.from_bytes(first.id.to_bytes()))
        await asyncio.sleep(1)
        assert acks(scene) == []
        await consumer.acknowledge(MessageId.from_bytes(second.id.to_bytes()))
        await asyncio.sleep(1)
        assert acks(scene) == [[(1, 0)]]

    staged(scenario)


def test_a_cumulative_acknowledgement_covers_what_came_before_and_shared_ones_refuse_it() -> None:
    async def scenario(scene: Scene) -> None:
        consumer = await scene.client.subscribe(TOPIC, "s")
        shared = await scene.client.subscribe(TOPIC, "shared", type="key_shared")
        scene.store(b"a", b"b", b"c")
        messages = await taken(consumer, 3)
        await consumer.acknowledge_cumulative(messages[1])
        await asyncio.sleep(1)
        assert scene.subscription().unacked() == [(1, 2)]
        with pytest.raises(ClientError, match="acknowledge each message"):
            await shared.acknowledge_cumulative((await taken(shared, 1))[0])

    staged(scenario)


# --- redelivery ---


def test_a_negative_acknowledgement_brings_a_message_again_after_its_delay() -> None:
    async def scenario(scene: Scene) -> None:
        consumer = await scene.client.subscribe(
            TOPIC, "s", type="shared", negative_ack_delay=RedeliveryDelay(1, 8, 2)
        )
        scene.store(b"a", b"b")
        first, second = await taken(consumer, 2)
        await consumer.acknowledge(second)
        times = []
        for count in range(5):
            assert first.redelivery_count == count
            consumer.negative_acknowledge(first)
            began = scene.now
            (first,) = await taken(consumer, 1)
            times.append(round(scene.now - began))
        assert times == [1, 2, 4, 8, 8]

    staged(scenario)


def test_a_negative_acknowledgement_is_void_once_the_message_is_acknowledged() -> None:
    async def scenario(scene: Scene) -> None:
        consumer = await scene.client.subscribe(
            TOPIC, "s", type="shared", negative_ack_delay=RedeliveryDelay(1, 1)
        )
        scene.store(b"a")
        (message,) = await taken(consumer, 1)
        consumer.negative_acknowledge(message)
        await consumer.acknowledge(message)
        await asyncio.sleep(5)
        assert scene.broker.of("redeliverUnacknowledgedMessages") == []

    staged(scenario)


@pytest.mark.parametrize("timed_out", [False, True])
def test_a_message_of_a_batch_comes_again_although_another_one_is_acknowledged(timed_out: bool) -> None:
    async def scenario(scene: Scene) -> None:
        consumer = await scene.client.subscribe(
            TOPIC,
            "s",
            type="shared",
            negative_ack_delay=RedeliveryDelay(1, 1),
            ack_timeout_s=2 if timed_out else 0,
        )
        scene.store_batch(b"a", b"b")
        first, second = await taken(consumer, 2)
        if not timed_out:
            consumer.negative_acknowledge(first)
        await consumer.acknowledge(second)
        assert payloads(await taken(consumer, 2)) == [b"a", b"b"]

    staged(scenario)


def test_with_one_active_consumer_everything_unacknowledged_comes_again_in_order() -> None:
    async def scenario(scene: Scene) -> None:
        consumer = await scene.client.subscribe(TOPIC, "s", negative_ack_delay=RedeliveryDelay(1, 1))
        scene.store(b"a", b"b", b"c", b"d")
        first, second, _ = await taken(consumer, 3)
        await consumer.acknowledge(first)
        consumer.negative_acknowledge(second)
        assert payloads(await taken(consumer, 1)) == [b"d"]
        assert payloads(await taken(consumer, 3)) == [b"b", b"c", b"d"]
        (command,) = scene.broker.of("redeliverUnacknowledgedMessages")
        assert (list(command.message_ids), command.consumer_epoch) == ([], 1)

    staged(scenario)


def test_a_shared_subscription_asks_for_the_entries_by_name() -> None:
    async def scenario(scene: Scene) -> None:
        consumer = await scene.client.subscribe(
            TOPIC, "s", type="shared", negative_ack_delay=RedeliveryDelay(1, 1)
        )
        scene.store(b"a", b"b")
        consumer.negative_acknowledge((await taken(consumer, 2))[1])
        assert payloads(await taken(consumer, 1)) == [b"b"]
        (command,) = scene.broker.of("redeliverUnacknowledgedMessages")
        assert [(each.ledgerId, each.entryId) for each in command.message_ids] == [(1, 1)]
        assert not command.HasField("consumer_epoch")

    staged(scenario)


def test_a_message_that_is_not_acknowledged_in_time_comes_again() -> None:
    async def scenario(scene: Scene) -> None:
        consumer = await scene.client.subscribe(TOPIC, "s", type="shared", ack_timeout_s=10)
        scene.store(b"a", b"b")
        (_, second), began = await taken(consumer, 2), scene.now
        await consumer.acknowledge(second)
        assert payloads(await taken(consumer, 1)) == [b"a"]
        assert 10 <= scene.now - began <= 11.1

    staged(scenario)


def test_after_a_new_connection_nothing_is_asked_for_twice() -> None:
    async def scenario(scene: Scene) -> None:
        consumer = await scene.client.subscribe(
            TOPIC, "s", type="shared", ack_timeout_s=5, negative_ack_delay=RedeliveryDelay(5, 5)
        )
        scene.store(b"a", b"b")
        messages = await taken(consumer, 2)
        consumer.negative_acknowledge(messages[0])
        scene.broker.kill()
        scene.broker.start()
        for message in await taken(consumer, 2):
            consumer.acknowledge_nowait(message)
        await asyncio.sleep(30)
        assert scene.broker.of("redeliverUnacknowledgedMessages") == []

    staged(scenario)


def test_the_epoch_goes_on_after_a_new_connection() -> None:
    async def scenario(scene: Scene) -> None:
        consumer = await scene.client.subscribe(TOPIC, "s")
        consumer.redeliver_unacknowledged()
        consumer.redeliver_unacknowledged()
        scene.broker.kill()
        scene.broker.start()
        await until(lambda: len(scene.broker.of("subscribe")) == 2)
        assert [command.consumer_epoch for command in scene.broker.of("subscribe")] == [0, 2]

    staged(scenario)


def test_deliveries_of_a_former_epoch_are_dropped() -> None:
    async def scenario(scene: Scene) -> None:
        consumer = await scene.client.subscribe(TOPIC, "s")
        scene.network.faults.delay_min_s = scene.network.faults.delay_max_s = 0.5
        scene.store(b"a", b"b")
        consumer.redeliver_unacknowledged()
        assert payloads(await taken(consumer, 2)) == [b"a", b"b"]
        await asyncio.sleep(5)
        assert consumer.receive_nowait() is None

    staged(scenario)


# --- dead letters ---


def test_after_its_last_delivery_a_message_moves_to_the_dead_letter_topic() -> None:
    async def scenario(scene: Scene) -> None:
        consumer = await scene.client.subscribe(
            TOPIC,
            "s",
            type="shared",
            negative_ack_delay=RedeliveryDelay(1, 1),
            dead_letter=DeadLetterPolicy(redeliveries_max=2, initial_subscription="kept"),
        )
        producer = await scene.client.create_producer(TOPIC)
        at = await producer.send(b"a", key="k", properties={"p": "1"}, event_time_ms=7, ordering_key=b"o")
        for _ in range(3):
            (message,) = await taken(consumer, 1)
            consumer.negative_acknowledge(message)
        await until(lambda: not scene.subscription().unacked())
        dead = scene.cluster.topics[f"{TOPIC}-s-DLQ"]
        (entry,) = dead.entries
        metadata = parse_metadata(entry.body)
        assert bytes(payload_of(entry.body)) == b"a"
        assert (metadata.partition_key, metadata.event_time, metadata.ordering_key) == ("k", 7, b"o")
        assert {each.key: each.value for each in metadata.properties} == {
            "p": "1",
            "REAL_TOPIC": TOPIC,
            "REAL_SUBSCRIPTION": "s",
            "ORIGIN_MESSAGE_ID": str(at),
            "ORIGIN_MESSAGE_IDY_TIME": str(at),
        }
        assert list(dead.subscriptions) == ["kept"]

    staged(scenario)


def test_a_chunked_message_moves_as_a_whole() -> None:
    async def scenario(scene: Scene) -> None:
        consumer = await scene.client.subscribe(
            TOPIC,
            "s",
            type="shared",
            negative_ack_delay=RedeliveryDelay(1, 1),
            dead_letter=DeadLetterPolicy(redeliveries_max=1),
        )
        producer = await scene.client.create_producer(TOPIC, chunking=True)
        await producer.send(b"x" * 5_000)
        for _ in range(2):
            (message,) = await taken(consumer, 1)
            assert len(message.data) == 5_000
            consumer.negative_acknowledge(message)
        await until(lambda: not scene.subscription().unacked())
        await asyncio.sleep(5)
        asked = scene.broker.of("redeliverUnacknowledgedMessages")
        assert [len(command.message_ids) for command in asked] == [3]
        assert len(scene.cluster.topics[f"{TOPIC}-s-DLQ"].entries) == 3

    staged(scenario, Cluster(message_bytes_max=3_000))


def test_a_message_to_consume_later_comes_from_the_retry_topic_and_dies_at_last() -> None:
    async def scenario(scene: Scene) -> None:
        consumer = await scene.client.subscribe(
            TOPIC, "s", type="shared", retry_letters=True, dead_letter=DeadLetterPolicy(redeliveries_max=2)
        )
        scene.store(b"a")
        seen = []
        for _ in range(3):
            (message,) = await taken(consumer, 1)
            seen.append((message.topic, message.properties.get("RECONSUMETIMES")))
            await consumer.reconsume_later(message, 1.0)
        retry = f"{TOPIC}-s-RETRY"
        assert seen == [(TOPIC, None), (retry, "1"), (retry, "2")]
        assert len(scene.cluster.topics[f"{TOPIC}-s-DLQ"].entries) == 1
        await asyncio.sleep(1)
        assert scene.subscription().unacked() == []
        plain = await scene.client.subscribe(TOPIC, "plain")
        with pytest.raises(ClientError, match="retry_letters=True"):
            await plain.reconsume_later(message, 1.0)

    staged(scenario)


# --- place in the topic ---


# --- opening ---


def test_what_is_asked_for_when_subscribing() -> None:
    async def scenario(scene: Scene) -> None:
        await scene.client.subscribe(
            TOPIC,
            "s",
            type="key_shared",
            name="n",
            initial_position="earliest",
            priority_level=3,
            properties={"a": "1"},
            subscription_properties={"b": "2"},
            read_compacted=True,
            replicate_subscription=True,
        )
        (command,) = scene.broker.of("subscribe")
        assert command.subType == CommandSubscribe.Key_Shared
        assert (command.consumer_name, command.priority_level, command.durable) == ("n", 3, True)
        assert command.initialPosition == CommandSubscribe.Earliest
        assert [(each.key, each.value) for each in command.metadata] == [("a", "1")]
        assert [(each.key, each.value) for each in command.subscription_properties] == [("b", "2")]
        assert command.read_compacted
        assert command.replicate_subscription_state
        assert not command.HasField("start_message_id")

    staged(scenario)


def test_a_subscription_in_use_is_refused_and_free_after_a_canceled_attempt() -> None:
    async def scenario(scene: Scene) -> None:
        answers = scene.broker.answers

        def silent(command: Any, session: Any) -> bytes:
            answers.clear()
            session.on_subscribe(command)
            return b""

        scene.network.faults.delay_min_s = scene.network.faults.delay_max_s = 0.5
        opening = asyncio.ensure_future(scene.client.subscribe(TOPIC, "s"))
        answers["subscribe"] = silent
        await until(lambda: scene.broker.of("subscribe"))
        opening.cancel()
        await asyncio.gather(opening, return_exceptions=True)
        consumer = await scene.client.subscribe(TOPIC, "s")
        with pytest.raises(ConsumerBusy, match="use another subscription name"):
            await scene.client.subscribe(TOPIC, "s")
        await consumer.close()

    staged(scenario)


def test_an_answer_that_does_not_come_is_a_timeout() -> None:
    async def scenario(scene: Scene) -> None:
        scene.broker.answers["subscribe"] = lambda command, session: b""
        with pytest.raises(OperationTimeout, match=r"did not answer subscribe within 5 s"):
            await scene.client.subscribe(TOPIC, "s")

    staged(scenario, operation_timeout_s=5.0)


def test_failover_and_the_end_of_a_topic_are_told() -> None:
    async def scenario(scene: Scene) -> None:
        told: list[Any] = []
        consumer = await scene.client.subscribe(
            TOPIC,
            "s",
            type="failover",
            on_active_change=lambda topic, active: told.append((topic, active)),
            on_end_of_topic=told.append,
        )
        (session,) = scene.broker.sessions
        (number,) = session.consumers
        session.send(frame("active_consumer_change", consumer_id=number, is_active=True))
        session.send(frame("reachedEndOfTopic", consumer_id=number))
        await until(lambda: consumer.has_reached_end)
        assert told == [(TOPIC, True), TOPIC]

    staged(scenario)


@pytest.mark.parametrize("kind", ["exclusive", "failover", "shared"])
def test_a_consumer_follows_its_topic_to_another_broker(kind: SubscriptionType) -> None:
    async def scenario(scene: Scene) -> None:
        other = Broker(scene.cluster, scene.network, "two")
        consumer = await scene.client.subscribe(TOPIC, "s", type=kind)
        scene.store(b"a")
        await taken(consumer, 1)
        (session,) = scene.broker.sessions
        asked = len(scene.broker.of("lookupTopic"))
        session.close_consumer(next(iter(session.consumers)), other.url)
        scene.store(b"b")
        assert payloads(await taken(consumer, 2)) == [b"a", b"b"]
        assert len(scene.broker.of("lookupTopic")) == asked, "the broker named the new owner"
        assert len(other.of("subscribe")) == 1

    staged(scenario)


def test_two_clients_share_a_subscription() -> None:
    async def scenario(scene: Scene) -> None:
        async with Client(scene.broker.url) as second:
            consumers = [await each.subscribe(TOPIC, "s", type="shared") for each in (scene.client, second)]
            await asyncio.sleep(1)
            scene.store(*[b"%d" % number for number in range(6)])
            found = [await taken(consumer, 3) for consumer in consumers]
            assert sorted(payloads(found[0] + found[1])) == [b"%d" % number for number in range(6)]
            await consumers[0].close()
            again = await taken(consumers[1], 3)
            assert sorted(payloads(again)) == sorted(payloads(found[0]))
            assert {message.redelivery_count for message in again} == {1}

    staged(scenario)
