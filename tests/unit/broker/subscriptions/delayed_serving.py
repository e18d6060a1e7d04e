"""A subscription of a topic with delayed entries, served in virtual time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, cast

from magnetar.broker.subscriptions.subscription import Subscription
from magnetar.broker.subscriptions.types.subscription_type import SubType
from magnetar.common.naming.position import Position
from magnetar.common.wire import pulsar_pb2 as pb
from magnetar.ledger.managed_ledger.cursor import Cursor
from magnetar.ledger.managed_ledger.delayed_index import DelayedIndex
from magnetar.ledger.managed_ledger.topic_delays import TopicDelays
from magnetar.sim.loop import SimClock

from tests.unit.broker.subscriptions.serving import Client, Serving, StoredTopic

INDIVIDUAL = [SubType.Shared, SubType.Key_Shared]
TICK_MS = 1_000


class Context:
    """What of a managed ledger's context the index asks for while nothing is written."""

    def __init__(self, clock: SimClock) -> None:
        self.clock = clock


class DelayedTopic(StoredTopic):
    """Entries with a time of their own, in ms since the test began; 0: none."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.times: list[int] = []
        self.reads: list[Position] = []
        self.start_ms = 0

    def append_at(self, after_ms: int) -> None:
        self.times.append(after_ms and self.start_ms + after_ms)
        self.append(key="k")

    def entry(self, number: int) -> bytes:
        metadata = pb.MessageMetadata(
            producer_name="p", sequence_id=152, publish_time=0, partition_key=str(number)
        )
        if number < len(self.times) and self.times[number]:
            metadata.deliver_at_time = self.times[number]
        encoded = metadata.SerializeToString()
        return b"\x0e\x01\x00\x00\x00\x00" + len(encoded).to_bytes(4, "big") + encoded + b"%d" % number

    def delayed_entries(self) -> TopicDelays:
        if self.delays is None:
            self.delays = TopicDelays(
                cast(Any, Context(self.clock)), self.name, DelayedIndex(), lambda: None, lambda: None
            )
        return self.delays

    async def read(self, start: Position, entries_max: int, bytes_max: int) -> Any:
        self.reads.append(start)
        return await super().read(start, entries_max, bytes_max)


class DelayedServing(Serving):
    """A subscription of a topic with delayed entries; `times` tell when each entry came to a client."""

    topic_type = DelayedTopic

    def __init__(self, sub_type: SubType.ValueType = SubType.Shared, **options: Any) -> None:
        super().__init__(sub_type, **options)
        assert isinstance(self.topic, DelayedTopic)
        self.delayed_topic = self.topic
        self.clock = self.delayed_topic.clock = SimClock(self.loop)
        self.delayed_topic.start_ms = self.clock.wall_ms()
        self.subscription.delay_delivery(TICK_MS)
        self.came_ms: dict[int, int] = {}

    def publish_at(self, *times: int) -> None:
        def confirmed() -> None:
            for each in times:
                self.delayed_topic.append_at(each)
            self.subscription.wake()

        self.do(confirmed, 0)

    def until(self, after_ms: int) -> None:
        """Let time pass until so long after the test began."""
        self.do(wait_s=(self.delayed_topic.start_ms + after_ms - self.clock.wall_ms()) / 1000)

    def watch(self, client: Client) -> None:
        def came(_: Client, message: Any) -> None:
            self.came_ms[message.number] = self.clock.wall_ms() - self.delayed_topic.start_ms

        client.on_message = came

    def another(self, name: str) -> Subscription:
        """A further subscription of the topic, from its begin."""
        subscription = Subscription(
            cast(Any, self.topic),
            Cursor(name, self.topic.spans, Position(5, -1), durable=False),
            self.config,
            self.budget,
            self.subscription._topic_stats,
            self._spawn,
        )
        self.do(lambda: subscription.delay_delivery(TICK_MS))
        return subscription

    def join_other(self, subscription: Subscription, permits: int) -> Client:
        consumer = self.consumer(subscription.name)
        self.do(lambda: subscription.add_consumer(consumer, self.sub_type))
        self.do(lambda: subscription.add_permits(consumer, permits))
        assert isinstance(consumer.peer, Client)
        return consumer.peer


@contextmanager
def servings() -> Iterator[Callable[..., DelayedServing]]:
    """Makes them, and closes them at the end."""
    made: list[DelayedServing] = []

    def make(*args: Any, **options: Any) -> DelayedServing:
        made.append(DelayedServing(*args, **options))
        return made[-1]

    yield make
    for serving in made:
        if serving.topic.delays is not None:
            serving.do(serving.topic.delays.stop)
        serving.close()
