"""Shared over a topic in memory: all chunks of one message go to one consumer, in order."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pytest
from magnetar.broker.subscriptions import subscription
from magnetar.broker.subscriptions.types.subscription_type import SubType
from magnetar.common.wire import pulsar_pb2 as pb
from magnetar.ledger.ledger_store import RUN_CHUNK

from tests.unit.broker.subscriptions.serving import READ_S, Serving, StoredTopic, client_of

CHUNKS = 4


class ChunkedTopic(StoredTopic):
    """Entries are the chunks of messages of CHUNKS each, one message after the other."""

    def entry(self, number: int) -> bytes:
        metadata = pb.MessageMetadata(
            producer_name="p",
            sequence_id=number // CHUNKS,
            publish_time=0,
            uuid=f"p-{number // CHUNKS}",
            chunk_id=number % CHUNKS,
            num_chunks_from_msg=CHUNKS,
        ).SerializeToString()
        return b"\x0e\x01\x00\x00\x00\x00" + len(metadata).to_bytes(4, "big") + metadata + b"%d" % number


class ChunkServing(Serving):
    topic_type = ChunkedTopic

    def publish_chunks(self, count: int) -> None:
        self.publish(count, flags=RUN_CHUNK)


@pytest.fixture
def serve() -> Iterator[Callable[..., ChunkServing]]:
    made: list[ChunkServing] = []

    def make(**options: Any) -> ChunkServing:
        made.append(ChunkServing(SubType.Shared, **options))
        return made[-1]

    yield make
    for serving in made:
        serving.close()


Serve = Callable[..., ChunkServing]


def test_chunks_of_one_message_go_to_one_consumer(serve: Serve) -> None:
    serving = serve()
    one, other = serving.join("a", permits=100), serving.join("b", permits=100)
    serving.publish_chunks(3 * CHUNKS)
    came = [client_of(each).take() for each in (one, other)]
    assert sorted(came[0] + came[1]) == list(range(3 * CHUNKS))
    for numbers in came:
        assert numbers == [
            n for n in range(3 * CHUNKS) if n // CHUNKS in {each // CHUNKS for each in numbers}
        ]


def test_chunks_follow_the_first_one_when_a_second_consumer_comes_between_them(serve: Serve) -> None:
    serving = serve()
    one = serving.join("a", permits=100)
    serving.publish_chunks(2)
    other = serving.join("b", permits=100)
    serving.publish_chunks(2)
    assert (client_of(one).take(), client_of(other).take()) == ([0, 1, 2, 3], [])


def test_a_chunk_that_waited_for_its_consumer_is_not_overtaken(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subscription, "TURN_BYTES_MAX", 1)
    serving = serve()
    first = serving.join("first", permits=CHUNKS)
    serving.publish_chunks(CHUNKS)
    one, other = serving.join("one", permits=1), serving.join("other")
    soon, permits = serving.loop.call_soon, serving.subscription.add_permits

    def came(_: object, message: Any) -> None:
        # The next turn reads all the rest for the other one, but its first chunk has to wait for this one,
        # which can take it right after.
        if message.number == 0:
            soon(permits, other, 100)
            soon(soon, permits, one, 100)

    client_of(one).on_message = came
    serving.leave(first)
    assert (client_of(one).take(), client_of(other).take()) == ([0, 1, 2, 3], [])


def test_a_chunk_that_waited_for_its_consumer_is_not_overtaken_by_a_read(serve: Serve) -> None:
    serving = serve()
    first = serving.join("first", permits=CHUNKS)
    serving.publish_chunks(CHUNKS)
    one, other = serving.join("one", permits=1), serving.join("other")
    serving.topic.cached_from = CHUNKS
    permits = serving.subscription.add_permits

    def came(_: object, message: Any) -> None:
        if message.number == 0:
            serving.loop.call_soon(permits, other, 1)
            # In the middle of the read of the chunk behind the one that waits.
            serving.loop.call_later(1.5 * READ_S, permits, one, 100)

    client_of(one).on_message = came
    serving.leave(first)
    assert (client_of(one).take(), client_of(other).take()) == ([0, 1, 2, 3], [])


def test_a_message_whose_consumer_leaves_in_the_middle_of_a_redelivery_begins_anew(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subscription, "TURN_BYTES_MAX", 1)
    serving = serve()
    first = serving.join("first", permits=CHUNKS)
    serving.publish_chunks(CHUNKS)
    one, other = serving.join("one", permits=100), serving.join("other")

    def came(_: object, message: Any) -> None:
        if message.number == 1:
            serving.loop.call_soon(serving.subscription.remove_consumer, one)
            serving.loop.call_soon(serving.subscription.add_permits, other, 100)

    client_of(one).on_message = came
    serving.leave(first)
    assert (client_of(one).take(), client_of(other).take()) == ([0, 1], [0, 1, 2, 3])


def test_chunks_given_back_one_after_the_other_are_delivered_in_order_to_one_consumer(serve: Serve) -> None:
    serving = serve()
    first = serving.join("first", permits=CHUNKS)
    serving.publish_chunks(CHUNKS)
    one, other = serving.join("one", permits=100), serving.join("other", permits=100)
    serving.topic.cached_from = CHUNKS
    serving.quiet_s = READ_S / 2
    serving.redeliver(first, [2, 3])
    serving.quiet_s = 0.1
    serving.redeliver(first, [0, 1])
    came = [client_of(each).take() for each in (one, other)]
    assert sorted(came) == [[], [0, 1, 2, 3]]


@pytest.mark.parametrize("new", [0, 4])
def test_what_is_acknowledged_while_it_waits_to_be_delivered_again_takes_nothing_along(new: int) -> None:
    with closing(Serving(SubType.Shared)) as serving:
        # With delays all that is read passes a gate, many entries at a time.
        serving.subscription.delay_delivery(1_000)
        leaver = serving.join("leaver", permits=4)
        serving.publish(4)
        stayer = serving.join("stayer", permits=1)
        serving.publish(1 + new)  # read and waiting behind the one that there is a permit for
        assert client_of(stayer).take() == [4]
        serving.topic.cached_from, serving.topic.run_entries = 4, 1
        serving.leave(leaver)
        serving.flow(stayer, 1)
        assert client_of(stayer).take() == [0]
        serving.ack(stayer, 1, 2, 3)
        serving.flow(stayer, 100)
        serving.publish(1)
        assert client_of(stayer).take() == list(range(5, 6 + new))
