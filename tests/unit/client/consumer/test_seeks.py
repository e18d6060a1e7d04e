"""A consumer or reader that is moved to another place of its topic."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from magnetar.client.errors import ClientError
from magnetar.client.messages import MessageId
from magnetar.common.wire.pulsar_pb2 import ServerError

from tests.unit.client.consumer.test_topic_consumer import payloads, taken
from tests.unit.client.model_broker import BrokerSession, frame
from tests.unit.client.scene import TOPIC, Scene, staged, until


@pytest.mark.parametrize("inclusive", [False, True])
def test_a_consumer_goes_on_from_where_it_is_moved_to(inclusive: bool) -> None:
    async def scenario(scene: Scene) -> None:
        consumer = await scene.client.subscribe(TOPIC, "s", start_inclusive=inclusive)
        ids = scene.store(b"a", b"b", b"c")
        await taken(consumer, 2)
        await consumer.seek(ids[1])
        rest = [b"b", b"c"] if inclusive else [b"c"]
        assert payloads(await taken(consumer, len(rest))) == rest
        await consumer.seek(MessageId.EARLIEST)
        assert payloads(await taken(consumer, 3)) == [b"a", b"b", b"c"]
        await consumer.seek(MessageId.LATEST)
        scene.store(b"d")
        assert payloads(await taken(consumer, 1)) == [b"d"]
        await consumer.seek(1_000)
        assert payloads(await taken(consumer, 4)) == [b"a", b"b", b"c", b"d"]
        await consumer.acknowledge_cumulative(ids[0])
        await asyncio.sleep(1)
        assert scene.subscription().unacked()[0] == (1, 1)

    staged(scenario)


def test_acknowledgements_from_before_a_seek_are_not_sent_after_it() -> None:
    async def scenario(scene: Scene) -> None:
        consumer = await scene.client.subscribe(TOPIC, "s", ack_group_s=60)
        scene.store(b"a", b"b")
        for message in await taken(consumer, 2):
            consumer.acknowledge_nowait(message)
        await consumer.seek(MessageId.EARLIEST)
        assert payloads(await taken(consumer, 2)) == [b"a", b"b"]
        await consumer.close()
        assert scene.broker.of("ack") == []

    staged(scenario)


def test_acknowledgements_do_not_overtake_a_seek_that_is_on_its_way() -> None:
    async def scenario(scene: Scene) -> None:
        consumer = await scene.client.subscribe(TOPIC, "s", ack_group_s=0.1)
        scene.store(b"a", b"b")
        messages = await taken(consumer, 2)
        scene.network.faults.delay_min_s = scene.network.faults.delay_max_s = 1.0
        for message in messages:
            consumer.acknowledge_nowait(message)
        await consumer.seek(MessageId.EARLIEST)
        assert payloads(await taken(consumer, 2)) == [b"a", b"b"]
        assert scene.broker.of("ack") == []

    staged(scenario)


def answer_seek_late(scene: Scene) -> list[bytes]:
    """Has the broker move the subscription to its begin and close its consumers; what it would answer is kept
    in the list.
    """
    kept: list[bytes] = []

    def seek(command: Any, session: BrokerSession) -> bytes:
        subscription = scene.subscription()
        subscription.begin = (0, 0)
        subscription.acked.clear()
        session.close_consumer(command.consumer_id)
        kept.append(frame("success", request_id=command.request_id))
        return b""

    scene.broker.answers["seek"] = seek
    return kept


def test_a_consumer_that_is_open_again_before_a_seek_is_answered_loses_no_delivery() -> None:
    async def scenario(scene: Scene) -> None:
        kept = answer_seek_late(scene)
        consumer = await scene.client.subscribe(TOPIC, "s", ack_group_s=60)
        scene.store(b"a", b"b")
        await taken(consumer, 2)
        seeking = asyncio.ensure_future(consumer.seek(MessageId.EARLIEST))
        first = await consumer.receive()
        assert first.data == b"a"
        await consumer.acknowledge(first)
        await until(lambda: consumer.has_queued)
        (session,) = scene.broker.sessions
        session.send(kept.pop())
        await seeking
        async with asyncio.timeout(10):
            assert (await consumer.receive()).data == b"b"
        await consumer.close()
        assert scene.subscription().unacked() == [(1, 1)], "the acknowledgement after the seek counts"

    staged(scenario)


def test_acknowledgements_of_earlier_deliveries_are_not_sent_by_a_consumer_that_opens_during_a_seek() -> None:
    async def scenario(scene: Scene) -> None:
        kept = answer_seek_late(scene)
        consumer = await scene.client.subscribe(TOPIC, "s", ack_group_s=60)
        scene.store(b"a", b"b")
        messages = await taken(consumer, 2)
        seeking = asyncio.ensure_future(consumer.seek(MessageId.EARLIEST))
        for _ in range(5):
            await asyncio.sleep(0)  # The seek is written, and on its way.
        await consumer.acknowledge(messages)
        assert not scene.broker.of("seek")
        assert payloads(await taken(consumer, 2)) == [b"a", b"b"]
        (session,) = scene.broker.sessions
        session.send(kept.pop())
        await seeking
        await consumer.close()
        assert scene.subscription().unacked() == [(1, 0), (1, 1)]

    staged(scenario)


def test_a_seek_that_is_refused_leaves_the_reader_where_it_is() -> None:
    async def scenario(scene: Scene) -> None:
        ids = scene.store(b"a", b"b", b"c")
        reader = await scene.client.create_reader(TOPIC, MessageId.EARLIEST)
        assert (await reader.read()).data == b"a"
        scene.broker.answers["seek"] = lambda command, _: frame(
            "error", request_id=command.request_id, error=ServerError.NotAllowedError, message="no"
        )
        with pytest.raises(ClientError, match="NotAllowedError"):
            await reader.seek(ids[2])
        scene.broker.kill()
        scene.broker.start()
        assert (await reader.read()).data == b"b"

    staged(scenario)
