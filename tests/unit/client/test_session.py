"""Reconnection of producers and consumers: how long it goes on, and what ends it."""

from __future__ import annotations

import asyncio

import pytest
from magnetar.client.errors import (
    ConnectionLost,
    ConsumerBusy,
    NotAuthorized,
    OwnerUnreachable,
    ProducerBusy,
    TopicNotFound,
)
from magnetar.client.messages import MessageId
from magnetar.client.session import BUSY_S_MAX
from magnetar.common.wire.pulsar_pb2 import ServerError

from tests.unit.client.model_broker import Broker, error_frame, frame
from tests.unit.client.scene import TOPIC, Scene, staged, until


def refuse(scene: Scene, field: str, code: ServerError.ValueType) -> None:
    scene.broker.answers[field] = lambda command, _: error_frame(command.request_id, code)


def restart(scene: Scene) -> None:
    scene.broker.kill()
    scene.broker.start()


def test_a_holder_that_is_the_former_connection_is_waited_for() -> None:
    async def scenario(scene: Scene) -> None:
        consumer = await scene.client.subscribe(TOPIC, "s")
        producer = await scene.client.create_producer(TOPIC, name="p")
        refuse(scene, "subscribe", ServerError.ConsumerBusy)
        refuse(scene, "producer", ServerError.ProducerBusy)
        restart(scene)
        await asyncio.sleep(20)
        scene.broker.answers.clear()
        await until(lambda: consumer.is_connected and producer.is_connected)
        await producer.send(b"a")
        assert (await consumer.receive()).data == b"a"

    staged(scenario)


def test_a_holder_that_stays_is_an_error_in_the_end() -> None:
    async def scenario(scene: Scene) -> None:
        consumer = await scene.client.subscribe(TOPIC, "s")
        producer = await scene.client.create_producer(TOPIC, send_timeout_s=0)
        refuse(scene, "subscribe", ServerError.ConsumerBusy)
        refuse(scene, "producer", ServerError.ProducerBusy)
        restart(scene)
        began = scene.now
        with pytest.raises(ConsumerBusy):
            await consumer.receive()
        assert BUSY_S_MAX < scene.now - began < 3 * BUSY_S_MAX
        with pytest.raises(ProducerBusy):
            await producer.send(b"a")
        with pytest.raises(ConsumerBusy):
            await consumer.receive()

    staged(scenario)


@pytest.mark.parametrize(
    ("code", "kind"),
    [(ServerError.TopicNotFound, TopicNotFound), (ServerError.AuthorizationError, NotAuthorized)],
)
def test_a_refusal_for_good_ends_both_at_once(
    code: ServerError.ValueType, kind: type[Exception], caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(scene: Scene) -> None:
        consumer = await scene.client.subscribe(TOPIC, "s")
        producer = await scene.client.create_producer(TOPIC)
        waiting = asyncio.ensure_future(consumer.receive())
        refuse(scene, "subscribe", code)
        refuse(scene, "producer", code)
        restart(scene)
        with pytest.raises(kind):
            await waiting
        with pytest.raises(kind):
            await producer.send(b"a")
        assert scene.now < 5

    staged(scenario)
    assert "the consumer ended" in caplog.text
    assert "the producer ended" in caplog.text


@pytest.mark.parametrize("what", ["seek", "last_message_ids", "acknowledge with receipt"])
def test_calls_while_there_is_no_connection_wait_for_one_or_say_so(what: str) -> None:
    async def scenario(scene: Scene) -> None:
        consumer = await scene.client.subscribe(TOPIC, "s", ack_receipts=True)
        scene.store(b"a")
        message = await consumer.receive()
        scene.broker.kill()
        scene.network.loop.call_later(5, scene.broker.start)
        await until(lambda: not consumer.is_connected)
        if what == "seek":
            await consumer.seek(MessageId.EARLIEST)
            assert (await consumer.receive()).data == b"a"
        elif what == "last_message_ids":
            assert await consumer.last_message_ids() == {TOPIC: MessageId(1, 0)}
        else:
            with pytest.raises(OwnerUnreachable, match="connecting again"):
                await consumer.acknowledge(message)

    staged(scenario)


def test_a_migrated_topic_is_followed_to_its_cluster() -> None:
    async def scenario(scene: Scene) -> None:
        other = Broker(scene.cluster, scene.network, "two")
        consumer = await scene.client.subscribe(TOPIC, "s")
        producer = await scene.client.create_producer(TOPIC)
        (session,) = scene.broker.sessions
        for kind, numbers in ((0, list(session.producers)), (1, list(session.consumers))):
            for number in numbers:
                (session._drop_producer if kind == 0 else session._drop_consumer)(number)
                session.send(
                    frame("topicMigrated", resource_id=number, resource_type=kind, brokerServiceUrl=other.url)
                )
        await producer.send(b"a")
        assert (await consumer.receive()).data == b"a"
        assert [len(other.of(field)) for field in ("producer", "subscribe")] == [1, 1]

    staged(scenario)


def test_reconnections_are_spread_and_grow_apart() -> None:
    async def scenario(scene: Scene) -> None:
        producer = await scene.client.create_producer(TOPIC, send_timeout_s=0)
        scene.network.dialed.clear()
        scene.broker.kill()
        await asyncio.sleep(600)
        # 0.1 s, doubled up to a minute: some ten attempts in the first minute, then one each minute.
        assert 14 < len(scene.network.dialed) < 28
        scene.broker.start()
        await until(lambda: producer.is_connected)

    staged(scenario)


def test_a_consumer_that_is_closed_while_it_reconnects_is_gone() -> None:
    async def scenario(scene: Scene) -> None:
        consumer = await scene.client.subscribe(TOPIC, "s")
        scene.broker.answers["subscribe"] = lambda command, session: b""
        restart(scene)
        await until(lambda: len(scene.broker.of("subscribe")) == 2)
        await consumer.close()
        await asyncio.sleep(1)
        assert len(scene.broker.of("close_consumer")) == 1
        scene.broker.answers.clear()
        restart(scene)
        await asyncio.sleep(60)
        assert len(scene.broker.of("subscribe")) == 2

    staged(scenario)


def test_the_client_closes_all_that_is_open() -> None:
    async def scenario(scene: Scene) -> None:
        await scene.client.create_producer(TOPIC)
        await scene.client.subscribe(TOPIC, "s")
        await scene.client.create_reader(TOPIC)
        await scene.client.close()
        await asyncio.sleep(1)
        assert scene.broker.sessions == []
        assert len(scene.broker.of("close_producer")) == 1
        assert len(scene.broker.of("close_consumer")) == 2
        with pytest.raises(ConnectionLost, match="the client is closed"):
            await scene.client.create_producer(TOPIC)

    staged(scenario)
