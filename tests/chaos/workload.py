"""A topic under faults: one producer and the consumers of one subscription, which find their broker again."""

from __future__ import annotations

import asyncio
import random
import re
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from magnetar.common.wire import pulsar_pb2 as pb

from tests.chaos.cluster_client import BrokerConnection, Doors
from tests.chaos.history import Published, ServedByMany
from tests.integration.raw.transcript import Frame, message_id, payload_frame
from tests.soak.history import ORDERED, Consumer, Failovers, Kind, Position, Violation
from tests.soak.raw_client import Ended, Handlers, Refused, Silence

SUBSCRIPTION = "chaos"
EVERYTHING = "everything"
"""A subscription that nobody uses until the end, when it has every message."""
KEYS = 6
IN_FLIGHT_MAX = 64
PERMITS = 200
READ_PERMITS = 1_000
CONSUMERS: dict[Kind, int] = {"Exclusive": 1, "Failover": 2, "Shared": 2, "Key_Shared": 2}
BACKOFF_S = (0.05, 0.4)
TICK_S = (0.1, 0.3)
VARIABLE = re.compile(
    r"persistent://\S+|public/chaos(-once)?/\S+|0x\w+|\d+\.\d+\.\d+\.\d+:\d+"
    r"|(?<=ledger )\d+|(?<=entry )\d+:\d+|'bookie-\d.*"
)
FAILURES = (Refused, Ended, Silence, OSError)
STORED_BEFORE = (2**64 - 1, 2**64 - 1)
"""-1:-1, where the receipt of a duplicate says that it is."""


@dataclass(slots=True)
class World:
    """What the topics of a run share."""

    rng: random.Random
    doors: Doors
    counts: Counter[str]
    violations: list[str] = field(default_factory=list)
    refusals: Counter[str] = field(default_factory=Counter)
    """What servers refused while they recovered, and how often."""
    ending: bool = False
    """No more messages are published; what is there is drained."""
    over: bool = False

    def refused(self, message: str) -> None:
        """Count what a server said, whatever topic or bundle it was about."""
        self.refusals[VARIABLE.sub("...", message)[:120]] += 1

    def guard(self, call: Callable[..., None], *args: Any, **kwargs: Any) -> None:
        """Keep what the checker says; the run goes on, so that one report shows all of it."""
        try:
            call(*args, **kwargs)
        except Violation as violation:
            self.violations.append(str(violation))


class Client:
    """Something that is attached to its topic's owner, wherever that is; what both kinds do alike."""

    def __init__(self, world: World, topic: Topic) -> None:
        self.world = world
        self.topic = topic
        self.connection: BrokerConnection | None = None
        self.id = 0
        self.doing = ""
        """What it waits for, and since when (time.monotonic)."""
        self.doing_since = 0.0
        self._assigned = ""
        self._turn = world.rng.randrange(2)

    async def run(self) -> None:
        """Attach, work, find the topic again when it is lost; until the run is over."""
        while not self.world.over:
            try:
                await self._find()
                while self.connection is not None and not self.world.over:
                    self.does("works")
                    await asyncio.sleep(self.world.rng.uniform(*TICK_S))
                    if self.connection is None:
                        break
                    if self.connection.silent:
                        await self._desert(self.connection)
                    else:
                        await self.tick(self.connection)
            except FAILURES as failure:
                if isinstance(failure, Refused):
                    self.world.refused(f"{failure.name}: {failure.args[1]}")
                if isinstance(failure, Silence):
                    self.world.violations.append(f"{self.topic.name}: {failure}")
                self.let_go()
            if not self._assigned and not self.world.over:
                self._turn += 1
                await asyncio.sleep(self.world.rng.uniform(*BACKOFF_S))

    async def _find(self) -> None:
        doors = self.world.doors
        url, self._assigned = self._assigned, ""
        self.does("looks for its broker")
        self.world.counts["followed assigned URLs"] += bool(url)
        connection = await doors.to(url or await doors.where(self.topic.name, self._turn), self.topic.number)
        self.connection, self.id = connection, connection.next_id()
        self.does("attaches")
        await self.attach(connection)

    def does(self, what: str) -> None:
        """For whoever wants to know what hangs."""
        self.doing, self.doing_since = what, time.monotonic()

    async def _desert(self, connection: BrokerConnection) -> None:
        """It is silent. Who finds the topic elsewhere goes there; who does not waits here."""
        self._turn += 1
        url = await self.world.doors.where(self.topic.name, self._turn)
        if connection.silent and connection is self.connection and url != connection.url:
            self.world.counts["left a silent broker"] += 1
            connection.deserted = True
            self._assigned = url
            self.let_go()

    def closed_by_server(self, frame: Frame) -> None:
        """The server has closed it, and may say where it is now."""
        self.world.counts["closed by the server"] += 1
        self._assigned = str(frame.command.assignedBrokerServiceUrl)
        self.let_go()

    def is_at(self, connection: BrokerConnection, number: int) -> bool:
        """Whether this is the attachment of now, not an earlier one."""
        return connection is self.connection and number == self.id

    async def attach(self, connection: BrokerConnection) -> None:
        raise NotImplementedError

    async def tick(self, connection: BrokerConnection) -> None:
        raise NotImplementedError

    def let_go(self) -> None:
        raise NotImplementedError


class Publisher(Client):
    """Sends numbered messages in order; what has no receipt is sent again, first, on the next connection."""

    def __init__(self, world: World, topic: Topic) -> None:
        super().__init__(world, topic)
        self.published = Published(topic.name, once=topic.once)
        self._name = f"chaos-{topic.number}"
        """A name of its own is what a producer needs for its messages to be deduplicated."""
        self.receipts: list[float] = []
        """When each came (time.monotonic)."""
        self.unconfirmed: dict[int, str] = {}
        """Keys by number, in order."""
        self._next = 0

    async def attach(self, connection: BrokerConnection) -> None:
        producer_id = self.id

        def heard(frame: Frame) -> None:
            self._heard(connection, producer_id, frame)

        connection.producers[producer_id] = Handlers(heard, lambda: self._lost(connection, producer_id))
        named = {"producer_name": self._name} if self.topic.once else {}
        await connection.ask("producer", topic=self.topic.name, producer_id=producer_id, **named)
        if self.is_at(connection, producer_id):
            self.world.counts["sent again"] += len(self.unconfirmed)
            self._send(connection, producer_id, [*self.unconfirmed.items()])

    async def tick(self, connection: BrokerConnection) -> None:
        if self.world.ending:
            return
        new = []
        for _ in range(min(self.world.rng.randrange(1, 4), IN_FLIGHT_MAX - len(self.unconfirmed))):
            key = f"key-{self.world.rng.randrange(KEYS)}"
            new.append((self._next, key))
            self._next += 1
        self.unconfirmed.update(new)
        self._send(connection, self.id, new)

    def let_go(self) -> None:
        connection, self.connection = self.connection, None
        if connection is not None and not connection.deserted and connection.open:
            connection.producers.pop(self.id, None)
            connection.send("close_producer", producer_id=self.id, request_id=connection.next_id())

    def _send(self, connection: BrokerConnection, producer_id: int, messages: list[tuple[int, str]]) -> None:
        frames = []
        for number, key in messages:
            metadata = pb.MessageMetadata(
                producer_name=self._name,
                sequence_id=number,
                publish_time=int(time.time() * 1000),
                partition_key=key,
            )
            frames.append(payload_frame(producer_id, number, b"%d" % number, metadata))
        connection.send_bytes(b"".join(frames))

    def _heard(self, connection: BrokerConnection, producer_id: int, frame: Frame) -> None:
        current = self.is_at(connection, producer_id)
        if frame.name == "send_receipt":
            number = frame.command.sequence_id
            if number not in self.unconfirmed:
                return  # sent to two owners, and confirmed by both
            if current and number != next(iter(self.unconfirmed)):
                self.world.violations.append(f"{self.topic.name}: receipt out of order: {frame.command}")
            key = self.unconfirmed.pop(number)
            self.world.counts["confirmed"] += 1
            self.receipts.append(time.monotonic())
            if frame.position == STORED_BEFORE:
                self.world.counts["confirmed as duplicates"] += 1
                self.world.guard(self.published.receipt, number, None)
            else:
                self.world.guard(self.published.receipt, number, frame.position)
                self.world.guard(self.topic.history.confirmed_at, frame.position, key, time.monotonic())
        elif current and frame.name == "send_error":
            self.world.refused(f"send: {frame.command.message}")
            self.let_go()
        elif current:
            self.closed_by_server(frame)

    def _lost(self, connection: BrokerConnection, producer_id: int) -> None:
        if self.is_at(connection, producer_id):
            self.connection = None


class Member(Client):
    """One consumer: acknowledges most, gives some back, and gives permits all the time."""

    def __init__(self, world: World, topic: Topic, number: int) -> None:
        super().__init__(world, topic)
        self.name = f"member-{number}"
        self.seen = Consumer(self.name, here=False)

    async def attach(self, connection: BrokerConnection) -> None:
        topic, consumer_id = self.topic, self.id
        seen = Consumer(self.name)

        def heard(frame: Frame) -> None:
            self._heard(connection, consumer_id, seen, frame)

        def lost() -> None:
            self._lost(connection, consumer_id, seen)

        connection.consumers[consumer_id] = Handlers(heard, lost)
        await topic.subscribe(connection, consumer_id, SUBSCRIPTION, self.name)
        if not self.is_at(connection, consumer_id):
            return
        self.seen = seen
        self.world.guard(topic.history.joined_at, seen, connection, time.monotonic())
        self._flow(connection)

    async def tick(self, connection: BrokerConnection) -> None:
        rng, pending = self.world.rng, [*self.seen.pending]
        if self.seen.permits < PERMITS // 2:
            self._flow(connection)
        if not pending:
            return
        choice = 1.0 if self.world.ending else rng.random()
        if choice < 0.05:
            self._give_back(connection, rng.sample(pending, rng.randrange(1, min(len(pending), 8) + 1)))
        elif choice < 0.4 and self.topic.kind in ORDERED:
            await self._acknowledge(connection, [rng.choice(pending)], cumulative=True)
        elif choice < 0.6:
            await self._acknowledge(connection, rng.sample(pending, rng.randrange(1, len(pending) + 1)))
        else:
            await self._acknowledge(connection, pending)

    def let_go(self) -> None:
        connection, self.connection = self.connection, None
        if connection is not None and not connection.deserted and connection.open:
            connection.consumers.pop(self.id, None)
            connection.send("close_consumer", consumer_id=self.id, request_id=connection.next_id())
        if self.seen.here:
            self.topic.history.left_at(self.seen, time.monotonic())

    def _flow(self, connection: BrokerConnection) -> None:
        more = PERMITS - self.seen.permits
        self.seen.permits += more
        connection.send("flow", consumer_id=self.id, messagePermits=more)

    async def _acknowledge(
        self, connection: BrokerConnection, positions: list[Position], *, cumulative: bool = False
    ) -> None:
        history, pending = self.topic.history, self.seen.pending
        history.acknowledging(positions, cumulative=cumulative)
        gone = [one for one in pending if one <= positions[-1]] if cumulative else positions
        for position in gone:
            pending.pop(position, None)
        self.does("acknowledges")
        await connection.ask(
            "ack",
            consumer_id=self.id,
            ack_type="Cumulative" if cumulative else "Individual",
            message_id=[message_id(one) for one in positions],
        )
        self.world.counts["acknowledged"] += len(gone)
        self.world.guard(history.durable, gone, time.monotonic())

    def _give_back(self, connection: BrokerConnection, positions: list[Position]) -> None:
        self.world.counts["given back"] += len(positions)
        returned = self.topic.history.given_back_at(self.seen, positions, time.monotonic())
        ids = [] if self.topic.kind in ORDERED else [message_id(one) for one in positions]
        connection.send("redeliverUnacknowledgedMessages", consumer_id=self.id, message_ids=ids)

        def answered() -> None:
            for one in returned:
                one.known_at = time.monotonic()

        connection.ping(answered)

    def _heard(self, connection: BrokerConnection, consumer_id: int, seen: Consumer, frame: Frame) -> None:
        if frame.name == "message":
            assert frame.metadata is not None
            key, now = frame.metadata.partition_key, time.monotonic()
            self.world.counts["delivered" if seen.here else "delivered by former owners"] += 1
            history = self.topic.history
            since = connection.written_since
            self.world.guard(history.heard, seen, frame.position, key, now, written_since=since)
        elif frame.name == "active_consumer_change":
            self.topic.failovers.told(seen, frame.command.is_active)
        elif frame.name == "close_consumer" and self.is_at(connection, consumer_id):
            self.closed_by_server(frame)

    def _lost(self, connection: BrokerConnection, consumer_id: int, seen: Consumer) -> None:
        if seen.here:
            self.topic.history.left_at(seen, time.monotonic())
        if self.is_at(connection, consumer_id):
            self.connection = None


class Topic:
    """A topic, its publisher and its members."""

    def __init__(self, world: World, number: int, name: str, kind: Kind, *, once: bool = False) -> None:
        self.number = number
        self.name = name
        self.kind: Kind = kind
        self.once = once
        """Messages are deduplicated."""
        self.history = ServedByMany(name, SUBSCRIPTION, kind)
        self.failovers = Failovers()
        self.publisher = Publisher(world, self)
        self.members = [Member(world, self, one) for one in range(CONSUMERS[kind])]
        self._world = world

    async def subscribe(
        self, connection: BrokerConnection, consumer_id: int, subscription: str, name: str
    ) -> None:
        """Raises what `ask` does."""
        own = subscription == SUBSCRIPTION
        key_shared = own and self.kind == "Key_Shared"
        await connection.ask(
            "subscribe",
            topic=self.name,
            subscription=subscription,
            subType=self.kind if own else "Exclusive",
            consumer_id=consumer_id,
            consumer_name=name,
            initialPosition="Earliest",
            **({"keySharedMeta": {"keySharedMode": "AUTO_SPLIT"}} if key_shared else {}),
        )

    async def begin(self) -> None:
        """Both subscriptions are there before anything is published."""
        while True:
            with suppress(*FAILURES):
                url = await self._world.doors.where(self.name, self.number)
                connection = await self._world.doors.to(url, self.number)
                for subscription in (EVERYTHING, SUBSCRIPTION):
                    consumer_id = connection.next_id()
                    await self.subscribe(connection, consumer_id, subscription, "begin")
                    await connection.ask("close_consumer", consumer_id=consumer_id)
                return
            await asyncio.sleep(0.2)

    @property
    def drained(self) -> bool:
        """Whether all that was published is confirmed and, as far as clients know, acknowledged."""
        held = any(member.seen.pending for member in self.members)
        return not self.publisher.unconfirmed and not held and not self.history.lost()

    async def backlog(self) -> int:
        """What the server counts as unacknowledged. Raises Ended where no member is attached."""
        for member in self.members:
            if member.connection is not None:
                answer = await member.connection.ask("consumerStats", consumer_id=member.id)
                return int(answer.command.msgBacklog)
        raise Ended

    async def check(self) -> None:
        """Read everything that is in the topic, and judge it. Raises Violation or what `ask` does."""
        published = self.publisher.published
        last, somewhere = published.last, published.somewhere
        url = await self._world.doors.where(self.name, self.number)
        connection = await self._world.doors.to(url, self.number)
        entries: list[tuple[Position, int]] = []
        numbers: set[int] = set()
        consumer_id = connection.next_id()
        arrived = asyncio.Event()

        def heard(frame: Frame) -> None:
            if frame.name == "message":
                entries.append((frame.position, int(frame.payload)))
                numbers.add(int(frame.payload))
                if len(entries) % (READ_PERMITS // 2) == 0:
                    connection.send("flow", consumer_id=consumer_id, messagePermits=READ_PERMITS // 2)
            arrived.set()

        connection.consumers[consumer_id] = Handlers(heard, arrived.set)
        await self.subscribe(connection, consumer_id, EVERYTHING, "check")
        connection.send("flow", consumer_id=consumer_id, messagePermits=READ_PERMITS)
        with suppress(TimeoutError):
            while connection.open and (not entries or entries[-1][0] < last or not somewhere <= numbers):
                arrived.clear()
                async with asyncio.timeout(30.0):
                    await arrived.wait()
        connection.consumers.pop(consumer_id, None)
        connection.send("close_consumer", consumer_id=consumer_id, request_id=connection.next_id())
        self._world.counts["read at the end"] += len(entries)
        published.check(entries)
