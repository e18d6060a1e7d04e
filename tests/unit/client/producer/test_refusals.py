"""A producer that is refused, fenced, held back or closed."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

import pytest
from magnetar.client.errors import (
    ClientError,
    Closed,
    ConnectionLost,
    OperationTimeout,
    ProducerBusy,
    ProducerFenced,
    QuotaExceeded,
    TopicTerminated,
)
from magnetar.client.messages import MessageId
from magnetar.client.producer.options import AccessMode, Batching
from magnetar.common.wire.batch import batch_messages, payload_of
from magnetar.common.wire.pulsar_pb2 import ProducerAccessMode, ServerError

from tests.unit.client.model_broker import Topic, error_frame, frame
from tests.unit.client.scene import TOPIC, Scene, staged

EVERY = Batching(max_messages=1_000, max_delay_s=0.05)


def shape(topic: Topic) -> list[list[bytes]]:
    """The payloads of each entry."""
    found = []
    for entry in topic.entries:
        payload = bytes(payload_of(entry.body))
        if entry.is_batch:
            found.append([bytes(each) for _, each in batch_messages(payload, entry.messages)])
        else:
            found.append([payload])
    return found


def slow(scene: Scene, delay_s: float = 0.5) -> None:
    scene.network.faults.delay_min_s = scene.network.faults.delay_max_s = delay_s


# --- refusals ---


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (ServerError.TopicTerminatedError, TopicTerminated),
        (ServerError.ProducerFenced, ProducerFenced),
    ],
)
def test_an_end_for_good_fails_everything(code: ServerError.ValueType, kind: type[ClientError]) -> None:
    async def scenario(scene: Scene) -> None:
        producer = await scene.client.create_producer(TOPIC, batching=None)
        scene.broker.answers["send"] = lambda command, _: frame(
            "send_error",
            producer_id=command.producer_id,
            sequence_id=command.sequence_id,
            error=code,
            message="no",
        )
        found = await asyncio.gather(producer.send(b"a"), producer.send(b"b"), return_exceptions=True)
        assert [type(each) for each in found] == [kind, kind]
        with pytest.raises(kind):
            await producer.send(b"c")

    staged(scenario)


def test_a_message_that_is_refused_fails_alone() -> None:
    async def scenario(scene: Scene) -> None:
        producer = await scene.client.create_producer(TOPIC, batching=None)

        def refuse_second(command: Any, session: Any) -> bytes | None:
            if command.sequence_id != 1:
                return None
            return frame(
                "send_error",
                producer_id=command.producer_id,
                sequence_id=1,
                error=ServerError.NotAllowedError,
                message="no",
            )

        scene.broker.answers["send"] = refuse_second
        found = await asyncio.gather(
            *(producer.send(b"%d" % number) for number in range(3)), return_exceptions=True
        )
        assert [isinstance(each, ClientError) for each in found] == [False, True, False]
        assert shape(scene.topic) == [[b"0"], [b"2"]]

    staged(scenario)


def test_an_entry_that_could_not_be_stored_is_sent_again() -> None:
    async def scenario(scene: Scene) -> None:
        producer = await scene.client.create_producer(TOPIC, batching=None)
        refused: list[int] = []

        def refuse_once(command: Any, session: Any) -> bytes | None:
            if refused:
                return None
            refused.append(command.sequence_id)
            session.producers.clear()
            scene.topic.producers.clear()
            return frame(
                "send_error",
                producer_id=command.producer_id,
                sequence_id=command.sequence_id,
                error=ServerError.PersistenceError,
                message="no",
            )

        scene.broker.answers["send"] = refuse_once
        await asyncio.gather(*(producer.send(b"%d" % number) for number in range(3)))
        assert shape(scene.topic) == [[b"0"], [b"1"], [b"2"]]

    staged(scenario)


def test_an_entry_that_cannot_be_stored_for_long_is_sent_again_with_growing_pauses() -> None:
    async def scenario(scene: Scene) -> None:
        producer = await scene.client.create_producer(TOPIC, batching=None, send_timeout_s=0)
        refused_at: list[float] = []

        def refuse(command: Any, session: Any) -> bytes:
            refused_at.append(scene.now)
            return frame(
                "send_error",
                producer_id=command.producer_id,
                sequence_id=command.sequence_id,
                error=ServerError.PersistenceError,
                message="no",
            )

        scene.broker.answers["send"] = refuse
        sending = asyncio.ensure_future(producer.send(b"a"))
        await asyncio.sleep(100)
        pauses = [after - before for before, after in itertools.pairwise(refused_at)]
        assert pauses[0] < 1
        assert 3 < pauses[-1] < 6, "a pause has a limit"
        assert 20 < len(refused_at) < 40
        del scene.broker.answers["send"]
        await sending
        scene.broker.answers["send"] = refuse
        count, begun = len(refused_at), scene.now
        sending = asyncio.ensure_future(producer.send(b"b"))
        await asyncio.sleep(1)
        assert len(refused_at) > count + 1, "after a success the pauses are short again"
        assert refused_at[count] - begun < 1
        del scene.broker.answers["send"]
        await sending
        assert shape(scene.topic) == [[b"a"], [b"b"]]

    staged(scenario)


def test_errors_that_may_pass_are_tried_again_and_others_are_raised() -> None:
    async def scenario(scene: Scene) -> None:
        codes = [ServerError.ServiceNotReady, ServerError.MetadataError, ServerError.TopicTerminatedError]
        scene.broker.answers["producer"] = lambda command, _: error_frame(command.request_id, codes.pop(0))
        with pytest.raises(TopicTerminated, match="takes no more messages"):
            await scene.client.create_producer(TOPIC)
        assert codes == []

    staged(scenario)


def test_a_connection_that_ends_while_a_producer_opens_is_not_the_end() -> None:
    async def scenario(scene: Scene) -> None:
        def lose(command: Any, session: Any) -> bytes:
            scene.broker.answers.clear()
            session.wire.reset()
            return b""

        scene.broker.answers["producer"] = lose
        producer = await scene.client.create_producer(TOPIC)
        await producer.send(b"a")

    staged(scenario)


def test_a_quota_holds_a_producer_back_and_fails_what_is_unconfirmed_if_the_broker_says_so() -> None:
    async def scenario(scene: Scene) -> None:
        producer = await scene.client.create_producer(TOPIC, batching=None)
        scene.broker.answers["send"] = lambda command, session: b""
        sending = asyncio.ensure_future(producer.send(b"a"))
        await asyncio.sleep(1)
        codes = [
            ServerError.ProducerBlockedQuotaExceededError,
            ServerError.ProducerBlockedQuotaExceededException,
        ]

        def refuse(command: Any, session: Any) -> bytes | None:
            return error_frame(command.request_id, codes.pop(0), "the quota") if codes else None

        scene.broker.answers["producer"] = refuse
        del scene.broker.answers["send"]
        scene.broker.kill()
        scene.broker.start()
        with pytest.raises(QuotaExceeded, match="consumers have to catch up"):
            await sending
        await producer.send(b"b")
        assert shape(scene.topic) == [[b"b"]]

    staged(scenario)


# --- exclusive access ---


@pytest.mark.parametrize("mode", ["exclusive", "exclusive_with_fencing", "wait_for_exclusive"])
def test_an_exclusive_producer_keeps_its_epoch(mode: AccessMode) -> None:
    async def scenario(scene: Scene) -> None:
        producer = await scene.client.create_producer(TOPIC, access_mode=mode)
        with pytest.raises(ProducerBusy, match="another producer holds the topic"):
            await scene.client.create_producer(TOPIC)
        scene.broker.kill()
        scene.broker.start()
        await producer.send(b"a")
        opened = [each for each in scene.broker.of("producer") if each.producer_id == 1]
        assert [each.HasField("topic_epoch") for each in opened] == [False, True]
        assert opened[-1].producer_access_mode != ProducerAccessMode.Shared

    staged(scenario)


def test_a_producer_that_is_fenced_never_sends_again() -> None:
    async def scenario(scene: Scene) -> None:
        first = await scene.client.create_producer(TOPIC, access_mode="exclusive")
        second = await scene.client.create_producer(TOPIC, access_mode="exclusive_with_fencing")
        await second.send(b"a")
        with pytest.raises(ProducerFenced):
            await first.send(b"b")
        assert shape(scene.topic) == [[b"a"]]

    staged(scenario)


def test_a_producer_waits_for_exclusive_access_as_long_as_it_takes() -> None:
    async def scenario(scene: Scene) -> None:
        first = await scene.client.create_producer(TOPIC, access_mode="exclusive")
        waiting = asyncio.ensure_future(scene.client.create_producer(TOPIC, access_mode="wait_for_exclusive"))
        await asyncio.sleep(3_600)
        assert not waiting.done()
        await first.close()
        second = await waiting
        await second.send(b"a")

    staged(scenario)


def test_a_canceled_wait_for_exclusive_access_gives_up_its_place() -> None:
    async def scenario(scene: Scene) -> None:
        first = await scene.client.create_producer(TOPIC, access_mode="exclusive")
        waiting = asyncio.ensure_future(scene.client.create_producer(TOPIC, access_mode="wait_for_exclusive"))
        await asyncio.sleep(10)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        await asyncio.sleep(1)
        assert scene.topic.waiting == []
        await first.close()
        await scene.client.create_producer(TOPIC, access_mode="exclusive")

    staged(scenario)


# --- closing ---


def test_close_waits_for_what_is_unconfirmed_or_fails_it() -> None:
    async def scenario(scene: Scene) -> None:
        slow(scene)
        flushed = await scene.client.create_producer(TOPIC, batching=EVERY)
        found: list[ClientError | None] = []
        flushed.send_nowait(b"a", lambda error, _: found.append(error))
        await flushed.close()
        assert found == [None]

        failed = await scene.client.create_producer(TOPIC, batching=EVERY)
        failed.send_nowait(b"b", lambda error, _: found.append(error))
        await asyncio.sleep(0.01)
        failed.send_nowait(b"c", lambda error, _: found.append(error))
        await failed.close(flush=False)
        assert [type(each) for each in found[1:]] == [Closed, Closed]
        with pytest.raises(Closed):
            await failed.send(b"d")
        assert scene.client.parts.memory.used_bytes == 0

    staged(scenario)


def test_what_a_callback_sends_while_the_producer_closes_is_failed_too() -> None:
    async def scenario(scene: Scene) -> None:
        producer = await scene.client.create_producer(TOPIC, batching=None)
        scene.broker.answers["send"] = lambda command, session: b""
        refused: list[bool] = []

        def again(error: ClientError | None, _: MessageId | None) -> None:
            try:
                producer.send_nowait(b"again")
            except Closed:
                refused.append(True)

        producer.send_nowait(b"a", again)
        await producer.close(flush=False)
        assert refused == [True]
        assert scene.client.parts.memory.used_bytes == 0

    staged(scenario)


def test_a_producer_in_a_block_is_flushed_at_its_end_and_not_after_an_error() -> None:
    async def scenario(scene: Scene) -> None:
        found: list[ClientError | None] = []
        async with await scene.client.create_producer(TOPIC) as producer:
            producer.send_nowait(b"a", lambda error, _: found.append(error))
        assert found == [None]

        async def failing() -> None:
            async with await scene.client.create_producer(TOPIC) as producer:
                producer.send_nowait(b"b", lambda error, _: found.append(error))
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            await failing()
        assert isinstance(found[1], Closed)

    staged(scenario)


def test_closing_while_the_broker_is_gone_ends() -> None:
    async def scenario(scene: Scene) -> None:
        producer = await scene.client.create_producer(TOPIC)
        scene.broker.kill()
        await asyncio.sleep(10)
        await producer.close()
        with pytest.raises(Closed):
            await producer.send(b"a")

    staged(scenario)


def test_reconnecting_ends_after_its_time() -> None:
    async def scenario(scene: Scene) -> None:
        producer = await scene.client.create_producer(TOPIC, send_timeout_s=0)
        scene.broker.kill()
        began = scene.now
        with pytest.raises(ConnectionLost, match="cannot connect to broker:6650"):
            await producer.send(b"a")
        assert 60 < scene.now - began < 200

    staged(scenario, reconnect_timeout_s=60)


def test_opening_takes_no_longer_than_the_operation_timeout() -> None:
    async def scenario(scene: Scene) -> None:
        scene.broker.answers["producer"] = lambda command, session: b""
        with pytest.raises(OperationTimeout, match="did not answer producer within 7 s"):
            await scene.client.create_producer(TOPIC)
        await asyncio.sleep(1)
        assert [each.producer_id for each in scene.broker.of("close_producer")] == [1]

    staged(scenario, operation_timeout_s=7)
