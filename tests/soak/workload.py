"""Producers and consumers of one topic that come, go, misbehave and crash, as one seed says."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from magnetar.common.wire import pulsar_pb2 as pb

from tests.integration.raw.transcript import Frame, message_id, payload_frame
from tests.soak.history import ORDERED, Consumer, Failovers, Kind, Position, Subscription, Violation
from tests.soak.raw_client import Ended, Handlers, RawConnection, Refused

SUBSCRIPTION = "soak"
CONSUMERS_MAX = 4
IN_FLIGHT_MAX = 64
KEYS = 12


@dataclass(slots=True)
class World:
    """What the actors of all topics share."""

    rng: random.Random
    connections: list[RawConnection]
    counts: Counter[str] = field(default_factory=Counter)
    violations: list[str] = field(default_factory=list)

    def connection(self) -> RawConnection:
        """One that is open. Raises Ended when there is none."""
        there = [one for one in self.connections if one.open]
        if not there:
            raise Ended
        return self.rng.choice(there)

    def guard(self, call: Callable[..., None], *args: Any, **kwargs: Any) -> None:
        """Keep what the checker says; the run goes on, so that one report shows all of it."""
        try:
            call(*args, **kwargs)
        except Violation as violation:
            self.violations.append(str(violation))


class RawProducer:
    """Sends messages with keys, unbatched. What has no receipt when its connection ends may exist or not."""

    def __init__(self, world: World, topic: Topic, connection: RawConnection) -> None:
        self.open = True
        self._world = world
        self._topic = topic
        self._connection = connection
        self._id = connection.next_id()
        self._next = 0
        self._last: Position = (-1, -1)
        self._unanswered: dict[int, str] = {}

    @classmethod
    async def create(cls, world: World, topic: Topic) -> RawProducer:
        connection = world.connection()
        producer = cls(world, topic, connection)
        connection.producers[producer._id] = Handlers(producer._heard, producer._lost)
        await connection.ask("producer", topic=topic.name, producer_id=producer._id)
        return producer

    @property
    def idle(self) -> bool:
        return not self._unanswered

    def send(self, count: int) -> None:
        """At most `count` more, as far as the window allows."""
        frames = []
        for _ in range(min(count, IN_FLIGHT_MAX - len(self._unanswered))):
            key, number = f"key-{self._world.rng.randrange(KEYS)}", self._next
            metadata = pb.MessageMetadata(
                producer_name="soak",
                sequence_id=number,
                publish_time=int(time.time() * 1000),
                partition_key=key,
            )
            frames.append(payload_frame(self._id, number, b"soak", metadata))
            self._unanswered[number] = key
            self._next += 1
        self._connection.send_bytes(b"".join(frames))

    async def close(self) -> None:
        await self._connection.ask("close_producer", producer_id=self._id)
        self._connection.producers.pop(self._id, None)
        self.open = False

    def _heard(self, frame: Frame) -> None:
        if frame.name != "send_receipt":
            self._world.violations.append(f"{self._topic.name}: {frame.name}: {frame.command}")
            return
        expected = next(iter(self._unanswered), None)
        if frame.command.sequence_id != expected or frame.position <= self._last:
            self._world.violations.append(f"{self._topic.name}: receipt out of order: {frame.command}")
        self._last = frame.position
        key = self._unanswered.pop(frame.command.sequence_id, "")
        self._world.counts["confirmed"] += 1
        self._world.guard(self._topic.history.confirmed, frame.position, key)

    def _lost(self) -> None:
        self.open = False
        self._unanswered.clear()


class RawConsumer:
    """Takes messages, and acknowledges, gives back or keeps them as chance wants."""

    def __init__(self, world: World, topic: Topic, connection: RawConnection) -> None:
        self.connection = connection
        self.id = connection.next_id()
        self.seen = Consumer(f"consumer {topic.next_name()}")
        self._world = world
        self._topic = topic

    @classmethod
    async def join(cls, world: World, topic: Topic) -> RawConsumer:
        """Raises Refused, for instance when an exclusive one is there."""
        connection = world.connection()
        consumer = cls(world, topic, connection)
        connection.consumers[consumer.id] = Handlers(consumer._heard, consumer._lost)
        fields: dict[str, Any] = {}
        if topic.kind == "Key_Shared":
            fields["keySharedMeta"] = {"keySharedMode": "AUTO_SPLIT"}
        if topic.kind == "Failover":
            fields["priority_level"] = world.rng.choice((0, 0, 1))
        try:
            await connection.ask(
                "subscribe",
                topic=topic.name,
                subscription=SUBSCRIPTION,
                subType=topic.kind,
                consumer_id=consumer.id,
                consumer_name=consumer.seen.name,
                initialPosition="Earliest",
                **fields,
            )
        except (Refused, Ended):
            connection.consumers.pop(consumer.id, None)
            raise
        return consumer

    def flow(self, permits: int) -> None:
        self.seen.permits += permits
        self.connection.send("flow", consumer_id=self.id, messagePermits=permits)

    async def acknowledge(self, positions: list[Position], *, cumulative: bool = False) -> None:
        """Until the receipt is there."""
        history, keys = self._topic.history, self.seen.pending
        history.acknowledging(positions, cumulative=cumulative)
        gone = [one for one in keys if one <= positions[-1]] if cumulative else positions
        for position in gone:
            keys.pop(position, None)
        await self.connection.ask(
            "ack",
            consumer_id=self.id,
            ack_type="Cumulative" if cumulative else "Individual",
            message_id=[message_id(one) for one in positions],
        )
        self._world.counts["acknowledged"] += len(gone)
        self._world.guard(history.durable, gone, time.monotonic())

    def give_back(self, positions: list[Position]) -> None:
        """A negative acknowledgement: of these, or of everything on ordered subscriptions."""
        self._world.counts["given back"] += len(positions)
        if self._topic.kind in ORDERED:
            self.seen.rewinds += 1
            self.seen.pending.clear()
            self.connection.send("redeliverUnacknowledgedMessages", consumer_id=self.id)
            return
        returned = self._topic.history.given_back(self.seen, positions)
        ids = [message_id(one) for one in positions]
        self.connection.send("redeliverUnacknowledgedMessages", consumer_id=self.id, message_ids=ids)

        def answered() -> None:
            for one in returned:
                one.known_at = time.monotonic()

        self.connection.ping(answered)

    async def leave(self) -> None:
        """CloseConsumer; what it still has goes to others."""
        self._topic.gone(self)
        self._topic.history.left(self.seen)
        self.connection.consumers.pop(self.id, None)
        await self.connection.ask("close_consumer", consumer_id=self.id)

    def _heard(self, frame: Frame) -> None:
        if frame.name == "message":
            self._world.counts["delivered"] += 1
            assert frame.metadata is not None
            key = frame.metadata.partition_key
            since = self.connection.written_since
            self._world.guard(self._topic.history.delivery, self.seen, frame.position, key, since)
        elif frame.name == "active_consumer_change":
            for other in self._topic.failovers.told(self.seen, frame.command.is_active):
                self._topic.expect_to_hear(other, self.seen)
        elif frame.name == "close_consumer":
            self._world.violations.append(f"{self._topic.name}: the server closed a consumer")

    def _lost(self) -> None:
        self._topic.gone(self)
        self._topic.history.left(self.seen)


class Topic:
    """One topic (or partition) with its subscription, and what happens to it from tick to tick."""

    def __init__(self, world: World, name: str, kind: Kind) -> None:
        self.name = name
        self.kind: Kind = kind
        self.history = Subscription(name, SUBSCRIPTION, kind)
        self.failovers = Failovers()
        self.consumers: list[RawConsumer] = []
        self.producers: list[RawProducer] = []
        self._world = world
        self._named = 0

    def next_name(self) -> int:
        self._named += 1
        return self._named

    def gone(self, consumer: RawConsumer) -> None:
        """No longer one of the consumers."""
        if consumer in self.consumers:
            self.consumers.remove(consumer)
        self.failovers.active.discard(consumer.seen)

    def expect_to_hear(self, other: Consumer, newly_active: Consumer) -> None:
        """`other` believes to be active beside another one: it has to hear otherwise."""

        def answered() -> None:
            if {other, newly_active} <= self.failovers.active and other.here and newly_active.here:
                both = f"{other.name} and {newly_active.name}"
                self._world.violations.append(f"{self.history}: two are active: {both}")

        for one in self.consumers:
            if one.seen is other:
                one.connection.ping(answered)

    async def begin(self) -> None:
        """Create topic and subscription, before anything is published."""
        await self._join()
        if not self.consumers:
            raise AssertionError(f"nobody can subscribe: {self._world.violations}")
        await self.consumers[0].leave()

    async def tick(self) -> None:
        """One or two things happen."""
        rng = self._world.rng
        self.producers = [one for one in self.producers if one.open]
        action = rng.random()
        try:
            if action < 0.40:
                await self._publish()
            elif action < 0.50:
                await self._join()
            elif action < 0.55 and self.consumers:
                self._world.counts["left"] += 1
                await rng.choice(self.consumers).leave()
            elif self.consumers:
                await self._consume(rng.choice(self.consumers))
        except Ended:
            pass  # a connection was cut while this waited for an answer on it

    async def drain(self) -> None:
        """One step towards everything delivered and acknowledged; no more trouble."""
        try:
            if not self.consumers:
                await self._join()
            for consumer in [*self.consumers]:
                if consumer.seen.permits < 50:
                    consumer.flow(200)
                if consumer.seen.pending:
                    await consumer.acknowledge([*consumer.seen.pending])
        except Ended:
            pass

    async def backlog(self) -> int:
        """What the server counts as unacknowledged. Raises Ended when there is no consumer to ask with."""
        if not self.consumers:
            raise Ended
        consumer = self.consumers[0]
        answer = await consumer.connection.ask("consumerStats", consumer_id=consumer.id)
        return int(answer.command.msgBacklog)

    async def _publish(self) -> None:
        rng = self._world.rng
        if not self.producers or (len(self.producers) < 3 and rng.random() < 0.1):
            self.producers.append(await RawProducer.create(self._world, self))
        producer = rng.choice(self.producers)
        producer.send(rng.randrange(1, 16))
        if producer.idle and rng.random() < 0.02:
            await producer.close()

    async def _join(self) -> None:
        if len(self.consumers) >= CONSUMERS_MAX:
            return
        holder = self.kind == "Exclusive" and bool(self.consumers)
        try:
            consumer = await RawConsumer.join(self._world, self)
        except Refused as refused:
            # A consumer whose connection was cut a moment ago may still be there for the server.
            if refused.name != "ConsumerBusy" or self.kind != "Exclusive":
                self._world.violations.append(f"{self.history}: Subscribe is refused: {refused}")
            self._world.counts["refused"] += holder
            return
        if not consumer.seen.here:
            return  # its connection was cut in the same moment
        self._world.counts["joined"] += 1
        self.consumers.append(consumer)
        self._world.guard(self.history.joined, consumer.seen)
        consumer.flow(self._world.rng.choice((1, 5, 20, 100)))

    async def _consume(self, consumer: RawConsumer) -> None:
        rng, pending = self._world.rng, [*consumer.seen.pending]
        if consumer.seen.permits < 10:
            consumer.flow(rng.choice((1, 5, 20, 100)))
        if not pending:
            return
        choice = rng.random()
        if choice < 0.10:
            consumer.give_back(rng.sample(pending, rng.randrange(1, min(len(pending), 8) + 1)))
        elif choice < 0.40 and self.kind in ORDERED:
            await consumer.acknowledge([rng.choice(pending)], cumulative=True)
        else:
            some = rng.sample(pending, rng.randrange(1, len(pending) + 1))
            await consumer.acknowledge(some if choice < 0.7 else pending)
