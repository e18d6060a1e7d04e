"""Chunked messages of several producers on Shared: all chunks of one go to one consumer, in order.

Consumers come, go, give messages back and fill their sockets at random, also while entries are being read.
"""

from __future__ import annotations

from collections.abc import Callable

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule
from magnetar.broker.subscriptions.config import DispatchConfig
from magnetar.broker.subscriptions.consumers.consumer import Consumer
from magnetar.broker.subscriptions.types.subscription_type import SubType
from magnetar.common.wire import pulsar_pb2 as pb
from magnetar.ledger.ledger_store import RUN_CHUNK

from tests.unit.broker.subscriptions.serving import READ_S, Client, Message, Serving, StoredTopic, client_of

QUIET_S = 0.5


class InterleavedTopic(StoredTopic):
    """Each entry is a chunk: (message, which of its chunks, how many it has); None: an ordinary message."""

    chunks: list[tuple[int, int, int] | None]

    def entry(self, number: int) -> bytes:
        metadata = pb.MessageMetadata(producer_name="p", sequence_id=number, publish_time=0)
        chunk = self.chunks[number]
        if chunk is not None:
            metadata.uuid, metadata.chunk_id, metadata.num_chunks_from_msg = str(chunk[0]), chunk[1], chunk[2]
        encoded = metadata.SerializeToString()
        return b"\x0e\x01\x00\x00\x00\x00" + len(encoded).to_bytes(4, "big") + encoded + b"%d" % number


class ChunkServing(Serving):
    topic_type = InterleavedTopic


class ChunkMachine(RuleBasedStateMachine):
    """The reference knows who holds which entry, and what is acknowledged."""

    @initialize(cached_from=st.sampled_from([0, 7, 1_000]), consumer_max=st.sampled_from([0, 5]))
    def start(self, cached_from: int, consumer_max: int) -> None:
        self.serving = ChunkServing(
            SubType.Shared,
            config=DispatchConfig(read_entries_max=5, round_robin_entries_max=3),
            cached_from=cached_from,
            consumer_unacked_max=consumer_max,
        )
        assert isinstance(self.serving.topic, InterleavedTopic)
        self.chunks = self.serving.topic.chunks = []
        self.consumers: list[Consumer] = []
        self.held: dict[int, Client] = {}
        self.acked: set[int] = set()
        self.messages = 0
        self.wait_s = QUIET_S

    def do(self, change: Callable[[], object]) -> None:
        self.serving.do(change, self.wait_s)

    def of_message(self, message: int) -> list[int]:
        return [number for number, each in enumerate(self.chunks) if each is not None and each[0] == message]

    def on_message(self, client: Client, message: Message) -> None:
        number = message.number
        assert number not in self.acked
        assert number not in self.held
        self.held[number] = client
        chunk = self.chunks[number]
        if chunk is not None:
            for other in self.of_message(chunk[0]):
                if other < number and other not in self.acked:
                    assert self.held.get(other) is client, f"{other} comes before {number}, to the same one"

    @rule(sizes=st.lists(st.integers(1, 4), min_size=1, max_size=4), order=st.randoms(use_true_random=False))
    def publish(self, sizes: list[int], order: object) -> None:
        """Of several producers at once: each one's chunks in order, those of others between them."""
        left = {}
        for size in sizes:
            left[self.messages] = [(self.messages, index, size) for index in range(size)]
            self.messages += 1
        new = []
        while left:
            message = order.choice(sorted(left))  # type: ignore[attr-defined]
            new.append(left[message].pop(0))
            if not left[message]:
                del left[message]

        def confirmed() -> None:
            for chunk in new:
                ordinary = chunk[2] == 1
                self.chunks.append(None if ordinary else chunk)
                self.serving.topic.append(flags=0 if ordinary else RUN_CHUNK)
            self.serving.subscription.wake()

        self.do(confirmed)

    @precondition(lambda self: len(self.consumers) < 4)
    @rule(permits=st.sampled_from([0, 1, 3, 50]))
    def join(self, permits: int) -> None:
        consumer = self.serving.consumer("c")
        client_of(consumer).on_message = self.on_message
        self.consumers.append(consumer)

        def connect() -> None:
            self.serving.subscription.add_consumer(consumer, SubType.Shared)
            self.serving.subscription.add_permits(consumer, permits)

        self.do(connect)

    @precondition(lambda self: self.consumers)
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        self.disconnect(data.draw(st.sampled_from(self.consumers)))

    def disconnect(self, consumer: Consumer) -> None:
        self.consumers.remove(consumer)

        def leave() -> None:
            self.held = {
                number: each for number, each in self.held.items() if each is not client_of(consumer)
            }
            self.serving.subscription.remove_consumer(consumer)

        self.do(leave)

    @precondition(lambda self: self.consumers)
    @rule(data=st.data(), permits=st.integers(1, 5))
    def flow(self, data: st.DataObject, permits: int) -> None:
        consumer = data.draw(st.sampled_from(self.consumers))
        self.do(lambda: self.serving.subscription.add_permits(consumer, permits))

    def whole(self) -> list[list[int]]:
        """Messages of which somebody has everything."""
        found = [[number] for number in self.held if self.chunks[number] is None]
        for message in range(self.messages):
            numbers = self.of_message(message)
            if numbers and all(number in self.held for number in numbers):
                found.append(numbers)
        return found

    @precondition(lambda self: self.whole())
    @rule(data=st.data())
    def ack(self, data: st.DataObject) -> None:
        numbers = data.draw(st.sampled_from(self.whole()))

        def ack() -> None:
            for number in numbers:
                consumer = next(each for each in self.consumers if client_of(each) is self.held[number])
                del self.held[number]
                self.acked.add(number)
                self.serving.subscription.ack(*self.serving.topic.position_of(number), consumer)

        self.do(ack)

    @precondition(lambda self: self.whole())
    @rule(data=st.data(), split=st.booleans())
    def nack(self, data: st.DataObject, split: bool) -> None:
        """Some messages, latest first; each at once, or (`split`) by its chunks while the last is read."""
        messages = data.draw(st.lists(st.sampled_from(self.whole()), max_size=3, unique_by=tuple))
        for numbers in sorted(messages, reverse=True):
            consumer = next(each for each in self.consumers if client_of(each) is self.held[numbers[0]])
            if not split:
                self.give_back(consumer, numbers)
                continue
            self.cache_forgets(len(self.chunks))
            for number in reversed(numbers):
                self.give_back(consumer, [number])
        self.do(lambda: None)

    def give_back(self, consumer: Consumer, numbers: list[int]) -> None:
        def ask() -> None:
            for number in numbers:
                del self.held[number]
            positions = [self.serving.topic.position_of(number) for number in numbers]
            self.serving.subscription.redeliver(consumer, positions, None)

        self.serving.do(ask, 0)

    @precondition(lambda self: self.consumers)
    @rule(data=st.data())
    def give_everything_back(self, data: st.DataObject) -> None:
        consumer = data.draw(st.sampled_from(self.consumers))

        def give_back() -> None:
            self.held = {
                number: each for number, each in self.held.items() if each is not client_of(consumer)
            }
            self.serving.subscription.redeliver(consumer, None, None)

        self.do(give_back)

    @precondition(lambda self: self.consumers)
    @rule(data=st.data())
    def socket_fills_or_drains(self, data: st.DataObject) -> None:
        client = client_of(data.draw(st.sampled_from(self.consumers)))
        client.writable = not client.writable
        self.do(self.serving.subscription.wake)

    @rule(entries=st.integers(0, 100))
    def cache_forgets(self, entries: int) -> None:
        """What it has forgotten never comes back to it."""
        topic = self.serving.topic
        topic.cached_from = max(entries, topic.cached_from)

    @rule(wait_s=st.sampled_from([0.0, READ_S / 2, READ_S * 1.5, QUIET_S]))
    def what_follows_happens_after(self, wait_s: float) -> None:
        self.wait_s = wait_s

    def teardown(self) -> None:
        if not hasattr(self, "serving"):
            return
        self.wait_s = QUIET_S
        try:
            self.do(lambda: None)
            for consumer in list(self.consumers):
                self.disconnect(consumer)
            self.serving.consumer_unacked_max = 0
            self.join(10_000)
            assert sorted(self.held) == sorted(set(range(len(self.chunks))) - self.acked)
            assert self.serving.budget.reads == 0
        finally:
            self.serving.close()


TestChunks = ChunkMachine.TestCase
TestChunks.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)
