"""A producer against a broker: batches, order, resending, limits, timeouts, and ends."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Callable
from typing import Any

import pytest
from magnetar.client.errors import (
    ClientError,
    MemoryLimitReached,
    MessageTooLarge,
    QueueFull,
    SendTimeout,
    TopicTerminated,
)
from magnetar.client.messages import MessageId
from magnetar.client.producer.options import Batching
from magnetar.client.routing import CustomRouting, SinglePartition
from magnetar.common.wire.batch import batch_messages, parse_metadata, payload_of
from magnetar.common.wire.pulsar_pb2 import ServerError

from tests.unit.client.model_broker import Broker, Cluster, Topic, error_frame, frame
from tests.unit.client.scene import TOPIC, Scene, staged, until

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


# --- batches ---


def test_a_lone_message_leaves_at_once_and_others_wait_for_it_together() -> None:
    async def scenario(scene: Scene) -> None:
        producer = await scene.client.create_producer(TOPIC, batching=Batching(max_delay_s=10))
        slow(scene)
        producer.send_nowait(b"a")
        await asyncio.sleep(0.1)
        for payload in (b"b", b"c", b"d"):
            producer.send_nowait(payload)
            await asyncio.sleep(0.1)
        began = scene.now
        await producer.flush()
        # The receipt of the first one sends the others, long before the delay is over.
        assert scene.now - began < 2.5
        assert shape(scene.topic) == [[b"a"], [b"b", b"c", b"d"]]

    staged(scenario)


def test_a_batch_leaves_when_it_has_so_many_messages_or_bytes_or_is_so_old() -> None:
    async def scenario(scene: Scene) -> None:
        batching = Batching(max_messages=3, max_bytes=100, max_delay_s=2)
        producer = await scene.client.create_producer(TOPIC, batching=batching)
        slow(scene, 20)
        producer.send_nowait(b"first")
        await asyncio.sleep(0.1)
        for _ in range(4):
            producer.send_nowait(b"x")
        for _ in range(3):
            producer.send_nowait(b"y" * 40)
        began = scene.now
        await until(lambda: producer._topics[0].between_batches)
        assert 1.9 < scene.now - began < 2.1
        await producer.flush()
        assert shape(scene.topic) == [[b"first"], [b"x"] * 3, [b"x", b"y" * 40], [b"y" * 40] * 2]

    staged(scenario)


def test_a_batch_is_not_larger_than_the_broker_takes_properties_included() -> None:
    async def scenario(scene: Scene) -> None:
        producer = await scene.client.create_producer(TOPIC, batching=EVERY)
        for _ in range(30):
            producer.send_nowait(b"x" * 100, properties={"p": "v" * 100})
        await producer.flush()
        sizes = [len(payload_of(entry.body)) for entry in scene.topic.entries]
        assert max(sizes) <= 1_000
        assert len(sizes) < 30

    staged(scenario, Cluster(message_bytes_max=1_000))


def test_batches_by_key_have_one_key_each_and_lose_nothing_where_duplicates_are_dropped() -> None:
    async def scenario(scene: Scene) -> None:
        producer = await scene.client.create_producer(
            TOPIC, batching=Batching(by_key=True, max_messages=4, max_delay_s=0.05)
        )
        sent = [("a", b"0"), ("b", b"1"), ("a", b"2"), (None, b"3"), ("b", b"4"), ("a", b"5")] * 5
        ids = await asyncio.gather(*(producer.send(payload, key=key) for key, payload in sent))
        assert len(set(ids)) == len(sent)
        for key in ("a", "b", None):
            found = []
            for entry, payloads in zip(scene.topic.entries, shape(scene.topic), strict=True):
                metadata = parse_metadata(entry.body)
                if (metadata.partition_key if metadata.HasField("partition_key") else None) == key:
                    found += payloads
            assert found == [payload for each, payload in sent if each == key]
        assert producer.last_sequence_id == len(sent) - 1
        sequences = [parse_metadata(entry.body).sequence_id for entry in scene.topic.entries]
        assert sequences == sorted(sequences)

    staged(scenario, Cluster(deduplication=True))


def test_messages_that_cannot_share_an_entry_keep_their_order() -> None:
    async def scenario(scene: Scene) -> None:
        producer = await scene.client.create_producer(TOPIC, batching=EVERY)
        producer.send_nowait(b"a")
        producer.send_nowait(b"b", replicate_to=["other"])
        producer.send_nowait(b"c", replicate_to=["other"])
        producer.send_nowait(b"d")
        producer.send_nowait(b"e", deliver_at_ms=1_000)
        producer.send_nowait(b"f")
        await producer.flush()
        assert shape(scene.topic) == [[b"a"], [b"b", b"c"], [b"d"], [b"e"], [b"f"]]
        assert [list(parse_metadata(entry.body).replicate_to) for entry in scene.topic.entries] == [
            [],
            ["other"],
            [],
            [],
            [],
        ]

    staged(scenario)


def test_ids_tell_the_place_in_the_batch() -> None:
    async def scenario(scene: Scene) -> None:
        producer = await scene.client.create_producer(TOPIC, batching=EVERY)
        ids = await asyncio.gather(*(producer.send(b"x") for _ in range(3)))
        assert [(each.position, each.batch_index, each.batch_size) for each in ids] == [
            ((1, 0), index, 3) for index in range(3)
        ]
        alone = await producer.send(b"x")
        assert (alone.position, alone.batch_index, alone.batch_size) == ((1, 1), -1, 0)

    staged(scenario)


def test_a_message_that_cannot_be_encoded_leaves_no_trace() -> None:
    async def scenario(scene: Scene) -> None:
        for batching in (EVERY, None):
            producer = await scene.client.create_producer(TOPIC, batching=batching, max_pending_messages=2)
            for _ in range(5):
                with pytest.raises((TypeError, ValueError)):
                    producer.send_nowait(b"x", properties={"a": 1})  # type: ignore[dict-item]
                with pytest.raises((TypeError, ValueError)):
                    producer.send_nowait(b"x", event_time_ms=-1)
            async with asyncio.timeout(10):
                await producer.flush()
                await producer.send(b"y")
        assert shape(scene.topic) == [[b"y"], [b"y"]]
        assert scene.client.parts.memory.used_bytes == 0

    staged(scenario)


# --- order, loss of the connection ---


@pytest.mark.parametrize("deduplication", [False, True])
def test_what_is_unconfirmed_is_sent_again_in_order(deduplication: bool) -> None:
    async def scenario(scene: Scene) -> None:
        producer = await scene.client.create_producer(TOPIC, batching=None)
        # What the first connection carried is lost.
        scene.broker.answers["send"] = lambda command, session: b""
        sending = asyncio.gather(*(producer.send(b"%d" % number) for number in range(5)))
        await asyncio.sleep(1)
        scene.broker.answers.clear()
        scene.broker.kill()
        scene.broker.start()
        ids = await sending
        assert shape(scene.topic)[-5:] == [[b"%d" % number] for number in range(5)]
        assert ids == sorted(ids)
        (_, again) = scene.broker.of("producer")
        assert (again.producer_name, again.epoch, again.user_provided_producer_name) == (
            "made-up-1",
            1,
            False,
        )

    staged(scenario, Cluster(deduplication=deduplication))


def test_a_duplicate_has_an_id_that_names_no_entry() -> None:
    async def scenario(scene: Scene) -> None:
        producer = await scene.client.create_producer(TOPIC, name="p")
        assert (await producer.send(b"a", sequence_id=5)).position == (1, 0)
        duplicate = await producer.send(b"a", sequence_id=5)
        assert duplicate.position == (-1, -1)
        assert (await producer.send(b"b")).position == (1, 1)
        assert producer.last_sequence_id == 6
        await producer.close()
        again = await scene.client.create_producer(TOPIC, name="p")
        assert again.last_sequence_id == 6
        assert (await again.send(b"c")).position == (1, 2)
        assert parse_metadata(scene.topic.entries[-1].body).sequence_id == 7

    staged(scenario, Cluster(deduplication=True))


def test_sequence_ids_begin_where_they_are_told_to() -> None:
    async def scenario(scene: Scene) -> None:
        producer = await scene.client.create_producer(TOPIC, initial_sequence_id=100, batching=EVERY)
        await asyncio.gather(producer.send(b"a"), producer.send(b"b", sequence_id=200))
        assert producer.last_sequence_id == 200
        await producer.send(b"c")
        assert producer.last_sequence_id == 201
        assert [parse_metadata(entry.body).sequence_id for entry in scene.topic.entries] == [100, 201]

    staged(scenario)


def test_a_lost_receipt_makes_the_producer_send_again() -> None:
    async def scenario(scene: Scene) -> None:
        producer = await scene.client.create_producer(TOPIC, name="p", batching=None)
        lost: list[int] = []

        def lose_first(command: Any, session: Any) -> bytes | None:
            if not lost:
                lost.append(command.sequence_id)
                return b""
            return None

        scene.broker.answers["send"] = lose_first
        ids = await asyncio.gather(*(producer.send(b"%d" % number) for number in range(3)))
        # The broker never stored the first one; the receipt of the second one shows it.
        assert len({each.position for each in ids}) == 3
        assert len(scene.broker.of("producer")) == 2

    staged(scenario)


@pytest.mark.parametrize("tells", [False, True])
def test_a_producer_follows_its_topic_to_another_broker(tells: bool) -> None:
    async def scenario(scene: Scene) -> None:
        other = Broker(scene.cluster, scene.network, "two")
        producer = await scene.client.create_producer(TOPIC, batching=None)
        await producer.send(b"a")
        (session,) = scene.broker.sessions
        asked = len(scene.broker.of("lookupTopic"))
        scene.cluster.owners[TOPIC] = "two"
        session.close_producer(1, other.url if tells else None)
        await asyncio.gather(*(producer.send(b"%d" % number) for number in range(3)))
        assert shape(scene.topic) == [[b"a"], [b"0"], [b"1"], [b"2"]]
        assert len(scene.broker.of("lookupTopic")) == asked + (not tells)
        assert len(other.of("producer")) == 1

    staged(scenario)


def test_a_named_broker_that_is_gone_is_looked_up_instead() -> None:
    async def scenario(scene: Scene) -> None:
        producer = await scene.client.create_producer(TOPIC)
        (session,) = scene.broker.sessions
        session.close_producer(1, "pulsar://gone:6650")
        await producer.send(b"a")
        assert ("gone", 6650, None) in scene.network.dialed

    staged(scenario)


def test_a_producer_closed_right_behind_the_answer_that_opened_it_comes_back() -> None:
    async def scenario(scene: Scene) -> None:
        def open_and_close(command: Any, session: Any) -> bytes:
            scene.broker.answers.clear()
            session.on_producer(command)
            session.close_producer(command.producer_id)
            return b""

        scene.broker.answers["producer"] = open_and_close
        producer = await scene.client.create_producer(TOPIC)
        await producer.send(b"a")
        assert len(scene.broker.of("producer")) == 2

    staged(scenario)


# --- chunks ---


def test_a_large_message_is_cut_into_chunks_and_its_id_names_the_first() -> None:
    async def scenario(scene: Scene) -> None:
        producer = await scene.client.create_producer(TOPIC, chunking=True, chunk_bytes_max=500)
        small, large = await asyncio.gather(producer.send(b"s"), producer.send(b"x" * 1_700, key="k"))
        assert small.position == (1, 0)
        assert (large.position, large.first_chunk) == ((1, 4), MessageId(1, 1))
        chunks = [parse_metadata(entry.body) for entry in scene.topic.entries[1:]]
        assert [(each.chunk_id, each.num_chunks_from_msg) for each in chunks] == [(n, 4) for n in range(4)]
        assert len({each.uuid for each in chunks}) == 1
        assert {each.total_chunk_msg_size for each in chunks} == {1_700}
        assert {each.partition_key for each in chunks} == {"k"}
        assert b"".join(itertools.chain(*shape(scene.topic)[1:])) == b"x" * 1_700
        commands = scene.broker.of("send")
        assert [command.is_chunk for command in commands] == [False] + [True] * 4

    staged(scenario)


def test_without_chunking_a_large_message_is_refused_unless_compression_suffices() -> None:
    async def scenario(scene: Scene) -> None:
        plain = await scene.client.create_producer(TOPIC)
        packed = await scene.client.create_producer(TOPIC, compression="zlib")
        with pytest.raises(MessageTooLarge, match=r"1001 bytes, .* takes at most 1000"):
            await plain.send(b"x" * 1_001)
        with pytest.raises(MessageTooLarge):
            await packed.send(random.Random(0).randbytes(20_000))
        await packed.send(b"x" * 20_000)
        for producer in (plain, packed):
            await producer.flush()
        assert scene.client.parts.memory.used_bytes == 0

    staged(scenario, Cluster(message_bytes_max=1_000))


# --- limits and timeouts ---


def test_an_unconfirmed_message_fails_in_time_and_a_late_receipt_changes_nothing() -> None:
    async def scenario(scene: Scene) -> None:
        producer = await scene.client.create_producer(TOPIC, send_timeout_s=5, batching=None)
        held: list[Callable[[], None]] = []

        def hold(command: Any, session: Any) -> bytes:
            held.append(
                lambda: session.send(
                    frame(
                        "send_receipt",
                        producer_id=command.producer_id,
                        sequence_id=command.sequence_id,
                        message_id={"ledgerId": 9, "entryId": 9},
                    )
                )
            )
            return b""

        scene.broker.answers["send"] = hold
        first = asyncio.ensure_future(producer.send(b"a"))
        await asyncio.sleep(3)
        second = asyncio.ensure_future(producer.send(b"b"))
        with pytest.raises(SendTimeout, match="may be stored or not"):
            await first
        assert 4.9 < scene.now < 5.2
        assert not second.done()
        for answer in held:
            answer()
        assert (await second).position == (9, 9)
        assert scene.client.parts.memory.used_bytes == 0

    staged(scenario)


def test_a_message_times_out_without_a_connection_too() -> None:
    async def scenario(scene: Scene) -> None:
        producer = await scene.client.create_producer(TOPIC, send_timeout_s=5)
        scene.broker.kill()
        await asyncio.sleep(1)
        with pytest.raises(SendTimeout):
            await producer.send(b"a")
        scene.broker.start()
        await until(lambda: producer.is_connected)
        assert (await producer.send(b"b")).entry_id == 0

    staged(scenario)


def test_a_full_queue_makes_calls_wait_or_fail() -> None:
    async def scenario(scene: Scene) -> None:
        slow(scene)
        waits = await scene.client.create_producer(TOPIC, max_pending_messages=2)
        fails = await scene.client.create_producer(TOPIC, max_pending_messages=2, waits_for_room=False)
        for producer in (waits, fails):
            producer.send_nowait(b"a")
            producer.send_nowait(b"b")
            with pytest.raises(QueueFull, match="2 messages are unconfirmed"):
                producer.send_nowait(b"c")
        with pytest.raises(QueueFull):
            await fails.send(b"c")
        assert (await waits.send(b"c")).entry_id >= 0

    staged(scenario)


def test_memory_of_all_producers_is_bounded_together() -> None:
    async def scenario(scene: Scene) -> None:
        slow(scene)
        first = await scene.client.create_producer(TOPIC)
        second = await scene.client.create_producer(TOPIC)
        first.send_nowait(b"x" * 1_500)
        with pytest.raises(MemoryLimitReached, match="1500 bytes, the client may use 1000"):
            second.send_nowait(b"x")
        began = scene.now
        await second.send(b"x")
        assert scene.now - began > 0.9
        assert scene.client.parts.memory.used_bytes == 0

    staged(scenario, memory_limit_bytes=1_000)


def test_calls_that_give_up_waiting_for_room_leave_nothing_behind() -> None:
    async def scenario(scene: Scene) -> None:
        producer = await scene.client.create_producer(TOPIC, max_pending_messages=1, send_timeout_s=0)
        scene.broker.answers["send"] = lambda command, session: b""
        producer.send_nowait(b"x" * 10)
        for _ in range(20):
            for call in (producer.send(b"y"), producer.flush()):
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(1):
                        await call
        (topic,) = producer._topics
        assert (len(topic._room_waiters), len(topic._idle_callbacks)) == (0, 0)
        assert len(scene.client.parts.memory._waiting) <= 1
        await producer.close(flush=False)

    staged(scenario, memory_limit_bytes=5)


def test_a_canceled_send_is_stored_or_not_and_the_next_ones_go_on() -> None:
    async def scenario(scene: Scene) -> None:
        slow(scene)
        producer = await scene.client.create_producer(TOPIC, batching=None)
        sending = [asyncio.ensure_future(producer.send(b"%d" % number)) for number in range(3)]
        await asyncio.sleep(0.1)
        sending[1].cancel()
        await asyncio.gather(*sending, return_exceptions=True)
        assert [each.cancelled() for each in sending] == [False, True, False]
        assert shape(scene.topic) == [[b"0"], [b"1"], [b"2"]]
        assert scene.client.parts.memory.used_bytes == 0

    staged(scenario)


def test_a_full_send_buffer_makes_calls_wait() -> None:
    async def scenario(scene: Scene) -> None:
        producer = await scene.client.create_producer(TOPIC)
        (wire,) = scene.network.wires
        wire.protocol.pause_writing()
        sending = asyncio.ensure_future(producer.send(b"a"))
        await asyncio.sleep(1)
        assert not sending.done()
        wire.protocol.resume_writing()
        await sending

    staged(scenario)


# --- partitions ---


def test_messages_go_to_partitions_by_key_by_turns_or_as_told() -> None:
    async def scenario(scene: Scene) -> None:
        scene.cluster.partitions[TOPIC] = 3
        by_turns = await scene.client.create_producer(TOPIC, batching=None)
        assert by_turns.partitions == 3
        assert sorted([(await by_turns.send(b"x")).partition for _ in range(6)]) == [0, 0, 1, 1, 2, 2]
        assert {(await by_turns.send(b"x", key="hello")).partition for _ in range(3)} == {99_162_322 % 3}
        single = await scene.client.create_producer(TOPIC, routing=SinglePartition(1))
        assert {(await single.send(b"x")).partition for _ in range(3)} == {1}
        told = await scene.client.create_producer(TOPIC, routing=CustomRouting(lambda key, count: count - 1))
        assert (await told.send(b"x", key="k")).partition == 2
        wrong = await scene.client.create_producer(TOPIC, routing=CustomRouting(lambda key, count: count))
        with pytest.raises(ClientError, match="routing chose partition 3 of 3"):
            await wrong.send(b"x")

    staged(scenario)


def test_a_batch_goes_to_one_partition_and_the_next_one_to_another() -> None:
    async def scenario(scene: Scene) -> None:
        scene.cluster.partitions[TOPIC] = 2
        producer = await scene.client.create_producer(TOPIC, batching=EVERY)
        rounds = [await asyncio.gather(*(producer.send(b"x") for _ in range(3))) for _ in range(2)]
        assert [len({each.partition for each in ids}) for ids in rounds] == [1, 1]
        assert rounds[0][0].partition != rounds[1][0].partition

    staged(scenario)


def test_partitions_that_are_added_are_used_and_one_that_fails_fails_the_opening() -> None:
    async def scenario(scene: Scene) -> None:
        scene.cluster.partitions[TOPIC] = 1
        producer = await scene.client.create_producer(TOPIC, batching=None)
        scene.cluster.partitions[TOPIC] = 3
        await asyncio.sleep(61)
        assert producer.partitions == 3
        assert {(await producer.send(b"x")).partition for _ in range(3)} == {0, 1, 2}
        scene.broker.answers["producer"] = lambda command, _: (
            error_frame(command.request_id, ServerError.TopicTerminatedError)
            if command.topic.endswith("-1")
            else None
        )
        with pytest.raises(TopicTerminated):
            await scene.client.create_producer(TOPIC)
        await asyncio.sleep(1)
        opened = {each.producer_id for each in scene.broker.of("producer")}
        open_now = {number for session in scene.broker.sessions for number in session.producers}
        assert len(opened) == 6
        assert len(open_now) == 3

    staged(scenario)
