"""Permits: how many messages a consumer asks for, with and without a receiver queue."""

from __future__ import annotations

import asyncio

import pytest
from magnetar.client.errors import Closed, NotAuthorized, OperationTimeout
from magnetar.client.messages import MessageId
from magnetar.common.wire.pulsar_pb2 import ServerError

from tests.unit.client.model_broker import Broker, Cluster, error_frame
from tests.unit.client.scene import TOPIC, Scene, entry_of, staged, until


def granted(scene: Scene) -> list[int]:
    return [flow.messagePermits for flow in scene.broker.of("flow")]


def test_a_receiver_queue_is_filled_again_when_half_of_it_is_taken() -> None:
    async def scenario(scene: Scene) -> None:
        consumer = await scene.client.subscribe(TOPIC, "s", queue_size=10)
        scene.store(*[b"%d" % number for number in range(20)])
        for number in range(4):
            assert (await consumer.receive()).data == b"%d" % number
        await asyncio.sleep(1)
        assert granted(scene) == [10]
        await consumer.receive()
        await asyncio.sleep(1)
        assert granted(scene) == [10, 5]

    staged(scenario)


@pytest.mark.parametrize(("queue_size", "total", "expected"), [(1_000, 50_000, 1_000), (1_000, 1_500, 500)])
def test_the_queues_of_many_topics_are_bounded_together(queue_size: int, total: int, expected: int) -> None:
    async def scenario(scene: Scene) -> None:
        scene.cluster.partitions[TOPIC] = 3
        await scene.client.subscribe(TOPIC, "s", queue_size=queue_size, queue_size_total=total)
        await asyncio.sleep(1)
        assert granted(scene) == [expected] * 3

    staged(scenario)


def test_without_a_receiver_queue_each_call_asks_for_one_message() -> None:
    async def scenario(scene: Scene) -> None:
        consumer = await scene.client.subscribe(TOPIC, "s", queue_size=0)
        scene.store(b"a", b"b", b"c")
        await asyncio.sleep(1)
        assert granted(scene) == []
        assert [(await consumer.receive()).data for _ in range(2)] == [b"a", b"b"]
        assert granted(scene) == [1, 1]

    staged(scenario)


def test_calls_that_wait_at_the_same_time_without_a_queue_all_get_a_message() -> None:
    async def scenario(scene: Scene) -> None:
        consumer = await scene.client.subscribe(TOPIC, "s", queue_size=0)
        waiting = [asyncio.ensure_future(consumer.receive()) for _ in range(3)]
        await asyncio.sleep(1)
        scene.store(b"a", b"b", b"c", b"d")
        async with asyncio.timeout(10):
            found = [message.data for message in await asyncio.gather(*waiting)]
        assert found == [b"a", b"b", b"c"]
        assert sum(granted(scene)) == 3

    staged(scenario)


def test_a_call_that_waits_without_a_queue_asks_again_on_a_new_connection() -> None:
    async def scenario(scene: Scene) -> None:
        consumer = await scene.client.subscribe(TOPIC, "s", queue_size=0)
        waiting = asyncio.ensure_future(consumer.receive())
        await asyncio.sleep(1)
        scene.broker.kill()
        scene.broker.start()
        await until(lambda: consumer.is_connected)
        scene.store(b"a")
        async with asyncio.timeout(10):
            assert (await waiting).data == b"a"

    staged(scenario)


def test_a_batch_without_a_queue_is_paid_for_before_the_next_one_comes() -> None:
    async def scenario(scene: Scene) -> None:
        consumer = await scene.client.subscribe(TOPIC, "s", queue_size=0)
        scene.store_batch(b"a", b"b", b"c")
        scene.store(b"d")
        async with asyncio.timeout(10):
            assert [(await consumer.receive()).data for _ in range(4)] == [b"a", b"b", b"c", b"d"]
        assert granted(scene) == [1, 3]

    staged(scenario)


def test_a_call_that_ended_without_a_message_does_not_ask_twice() -> None:
    async def scenario(scene: Scene) -> None:
        consumer = await scene.client.subscribe(TOPIC, "s", queue_size=0)
        for _ in range(5):
            with pytest.raises(OperationTimeout, match=r"no message .* arrived within 0.5 s"):
                await consumer.receive(0.5)
        assert granted(scene) == [1]
        scene.store(b"a", b"b")
        assert (await consumer.receive()).data == b"a"

    staged(scenario)


def test_a_topic_that_is_added_is_asked_for_the_call_that_waits() -> None:
    async def scenario(scene: Scene) -> None:
        scene.cluster.partitions[TOPIC] = 1
        consumer = await scene.client.subscribe(TOPIC, "s", queue_size=0)
        waiting = asyncio.ensure_future(consumer.receive())
        await asyncio.sleep(1)
        scene.cluster.partitions[TOPIC] = 2
        await asyncio.sleep(61)
        scene.cluster.topics[f"{TOPIC}-partition-1"].store(entry_of(b"a"), 1)
        async with asyncio.timeout(10):
            assert (await waiting).data == b"a"

    staged(scenario)


@pytest.mark.parametrize("queue_size", [1, 10])
def test_a_paused_consumer_asks_for_nothing_until_it_goes_on(queue_size: int) -> None:
    async def scenario(scene: Scene) -> None:
        consumer = await scene.client.subscribe(TOPIC, "s", queue_size=queue_size)
        consumer.pause()
        before = granted(scene)
        scene.broker.kill()
        scene.broker.start()
        await until(lambda: consumer.is_connected)
        waiting = asyncio.ensure_future(consumer.receive())
        scene.store(b"a")
        await asyncio.sleep(1)
        assert granted(scene) == before
        consumer.resume()
        async with asyncio.timeout(10):
            assert (await waiting).data == b"a"

    staged(scenario)


def test_a_call_after_one_that_gave_up_gets_the_next_message() -> None:
    async def scenario(scene: Scene) -> None:
        consumer = await scene.client.subscribe(TOPIC, "s")
        with pytest.raises(OperationTimeout):
            await consumer.receive(1)
        waiting = asyncio.ensure_future(consumer.receive())
        await asyncio.sleep(1)
        scene.store(b"a")
        async with asyncio.timeout(10):
            assert (await waiting).data == b"a"

    staged(scenario)


def test_a_message_for_a_call_that_is_canceled_goes_to_another_one() -> None:
    async def scenario(scene: Scene) -> None:
        consumer = await scene.client.subscribe(TOPIC, "s")
        first, second = (asyncio.ensure_future(consumer.receive()) for _ in range(2))
        await asyncio.sleep(1)
        scene.store(b"a")
        # The first call is woken, and canceled before it runs.
        await until(lambda: consumer.has_queued or first.done())
        first.cancel()
        async with asyncio.timeout(10):
            done, _ = await asyncio.wait({first, second}, return_when=asyncio.FIRST_COMPLETED)
            if second not in done and not first.cancelled():
                assert first.result().data == b"a"
                second.cancel()
            else:
                assert (await second).data == b"a"
        await asyncio.gather(first, second, return_exceptions=True)

    staged(scenario)


def test_what_came_from_before_a_redelivery_is_paid_for_by_its_messages() -> None:
    async def scenario(scene: Scene) -> None:
        consumer = await scene.client.subscribe(TOPIC, "s", queue_size=10)
        for _ in range(20):
            # Each batch is on its way when everything is asked for again.
            at = scene.store_batch(*[b"x"] * 5)
            consumer.redeliver_unacknowledged()
            async with asyncio.timeout(10):
                for _ in range(5):
                    message = await consumer.receive()
            await consumer.acknowledge_cumulative(message)
            assert message.id.position == at
            await asyncio.sleep(1)

    staged(scenario)


def test_after_close_a_call_that_waits_and_later_ones_say_so() -> None:
    async def scenario(scene: Scene) -> None:
        consumer = await scene.client.subscribe(TOPIC, "s")
        waiting = [asyncio.ensure_future(consumer.receive()) for _ in range(2)]
        await asyncio.sleep(1)
        await consumer.close()
        for each in waiting:
            with pytest.raises(Closed, match="the subscription 's' is closed"):
                await each
        with pytest.raises(Closed):
            await consumer.receive()

    staged(scenario)


def test_an_acknowledgement_after_close_is_refused_since_nothing_would_send_it() -> None:
    async def scenario(scene: Scene) -> None:
        consumer = await scene.client.subscribe(TOPIC, "s")
        scene.store(b"a")
        message = await consumer.receive()
        await consumer.close()
        with pytest.raises(Closed, match="the subscription 's' is closed"):
            consumer.acknowledge_nowait(message)
        with pytest.raises(Closed):
            await consumer.acknowledge(message.id)
        with pytest.raises(Closed):
            await consumer.acknowledge_cumulative(message)

    staged(scenario)


def test_an_acknowledgement_after_the_consumer_failed_raises_its_error() -> None:
    async def scenario(scene: Scene) -> None:
        consumer = await scene.client.subscribe(TOPIC, "s")
        scene.store(b"a")
        message = await consumer.receive()
        scene.broker.answers["subscribe"] = lambda command, _: error_frame(
            command.request_id, ServerError.AuthorizationError
        )
        (session,) = scene.broker.sessions
        session.close_consumer(next(iter(session.consumers)))
        await until(lambda: not consumer.is_usable)
        with pytest.raises(NotAuthorized):
            await consumer.acknowledge(message)

    staged(scenario)


def test_messages_that_were_not_taken_are_gone_after_close() -> None:
    async def scenario(scene: Scene) -> None:
        consumer = await scene.client.subscribe(TOPIC, "s")
        scene.store(b"a")
        await until(lambda: consumer.has_queued)
        await consumer.close()
        with pytest.raises(Closed):
            await consumer.receive()
        assert [message async for message in consumer] == []

    staged(scenario)


def test_messages_of_two_brokers_come_as_one_stream() -> None:
    async def scenario(scene: Scene) -> None:
        Broker(scene.cluster, scene.network, "two")
        names = [f"{TOPIC}-partition-{number}" for number in range(2)]
        scene.cluster.partitions[TOPIC] = 2
        scene.cluster.owners[names[1]] = "two"
        consumer = await scene.client.subscribe(TOPIC, "s")
        producer = await scene.client.create_producer(TOPIC, batching=None)
        ids = [await producer.send(b"%d" % number) for number in range(4)]
        assert sorted(each.partition for each in ids) == [0, 0, 1, 1]
        found = [await consumer.receive() for _ in range(4)]
        assert {message.id for message in found} == set(ids)
        assert {message.topic for message in found} == set(names)
        last = await consumer.last_message_ids()
        assert {name: at.entry_id for name, at in last.items()} == dict.fromkeys(names, 1)
        await consumer.seek(MessageId.EARLIEST)
        await until(lambda: consumer.is_connected)
        assert {(await consumer.receive()).id for _ in range(4)} == set(ids)

    staged(scenario, Cluster())
