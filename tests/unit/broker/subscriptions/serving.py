"""A subscription served in virtual time, over entries in memory, to clients that write down what comes.

Only storage and sockets are replaced: cursor, source, dispatchers and deliveries are the real ones.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from magnetar.broker.byte_budget import ByteBudget
from magnetar.broker.client_endings import EndCode
from magnetar.broker.memory_config import MemoryConfig
from magnetar.broker.read_pauses import ReadPauses
from magnetar.broker.stats import TopicStats
from magnetar.broker.subscriptions.config import DispatchConfig
from magnetar.broker.subscriptions.consumers.consumer import Consumer, ConsumerOptions
from magnetar.broker.subscriptions.limits.broker_unacked_limit import BrokerUnackedLimit
from magnetar.broker.subscriptions.subscription import Subscription
from magnetar.broker.subscriptions.types.subscription_type import SubType
from magnetar.common.errors import MagnetarError
from magnetar.common.naming.position import Position
from magnetar.common.wire import pulsar_pb2 as pb
from magnetar.ledger.ledger_store import LedgerRef, Run
from magnetar.ledger.managed_ledger.context import ReadResult
from magnetar.ledger.managed_ledger.cursor import Cursor
from magnetar.ledger.managed_ledger.entry_cache import EntryCache
from magnetar.ledger.managed_ledger.ledger_list import LedgerSpan, LedgerSpans
from magnetar.ledger.managed_ledger.topic_delays import TopicDelays
from magnetar.sim.loop import SimClock, SimLoop

LEDGER_ENTRIES = 10
"""Entries of one ledger; then another one begins."""

READ_S = 0.001
"""Virtual seconds that a read from storage takes."""


@dataclass(frozen=True, slots=True)
class Message:
    """One Message frame. `number` counts the topic's entries, over all ledgers."""

    number: int
    position: Position
    redelivery_count: int
    ack_set: tuple[int, ...]
    epoch: int | None


@dataclass(eq=False)
class Client:
    """The far end of one consumer. `on_message` is asked at each delivery, before anything else happens."""

    name: str
    messages: list[Message] = field(default_factory=list)
    active: list[bool] = field(default_factory=list)
    """What it was told about being the active consumer, in order."""
    on_message: Callable[[Client, Message], None] | None = None
    writable: bool = True
    unwritable_s: float = 0.0
    read_pauses: ReadPauses = field(default_factory=ReadPauses)
    connected: bool = True
    listener: str | None = None
    certificate: bytes | None = None
    protocol_version: int = 20
    address: str = "client:1"

    @property
    def numbers(self) -> list[int]:
        """The numbers of the entries that came, in order."""
        return [message.number for message in self.messages]

    def take(self) -> list[int]:
        """The numbers of what came since the last call."""
        numbers = self.numbers
        self.messages.clear()
        return numbers

    def write(self, data: bytes) -> None:
        command = pb.BaseCommand.FromString(data[8:])
        assert command.type == pb.BaseCommand.ACTIVE_CONSUMER_CHANGE
        self.active.append(command.active_consumer_change.is_active)

    def write_parts(self, parts: list[bytes]) -> None:
        for head, entry in zip(parts[::2], parts[1::2], strict=True):
            command = pb.BaseCommand.FromString(head[8:]).message
            position = Position(command.message_id.ledgerId, command.message_id.entryId)
            number = StoredTopic.number_of(position)
            assert entry.endswith(b"%d" % number), "the entry is the one that its id names"
            message = Message(
                number,
                position,
                command.redelivery_count,
                tuple(command.ack_set),
                command.consumer_epoch if command.HasField("consumer_epoch") else None,
            )
            self.messages.append(message)
            if self.on_message is not None:
                self.on_message(self, message)

    def publish_pending(self, byte_count: int) -> None:
        raise AssertionError("a consumer publishes nothing")

    def pause_reading_for(self, seconds: float) -> None:
        raise AssertionError("a consumer publishes nothing")

    def close(self, reason: str, code: EndCode) -> None:
        self.connected = False

    async def is_alive(self) -> bool:
        return self.connected


class StoredTopic:
    """What a subscription needs of a managed ledger: numbered entries in ledgers of LEDGER_ENTRIES each.

    Entries before number `cached_from` have to be read from storage, which takes a moment.
    """

    delays: TopicDelays | None = None
    clock: SimClock
    """That of the loop, set by the serving."""
    transactions: Any = None
    terminated = False

    def __init__(self, name: str) -> None:
        self.name = name
        self.spans = LedgerSpans()
        self.counts: list[int] = []
        """Messages by entry."""
        self.flags: list[int] = []
        self.keys: list[str | None] = []
        """By entry; None: it is no metadata at all, and so has no key."""
        self.cached_from = 0
        self.run_entries = 4

    def now_ms(self) -> int:
        return self.clock.wall_ms()

    def entries_between(self, after: Position, through: Position) -> int:
        return max(0, self.spans.ordinal(through) - self.spans.ordinal(after))

    def append(self, messages: int = 1, flags: int = 0, key: str | None = None) -> None:
        number = len(self.counts)
        self.keys.append(key)
        self.counts.append(messages)
        self.flags.append(flags)
        if number % LEDGER_ENTRIES == 0:
            self.spans.add(LedgerSpan(LedgerRef(self.position_of(number).ledger_id, 1)))
        self.spans.spans[-1].entries += 1

    @staticmethod
    def position_of(number: int) -> Position:
        return Position(number // LEDGER_ENTRIES * 3 + 5, number % LEDGER_ENTRIES)

    @staticmethod
    def number_of(position: Position) -> int:
        return (position.ledger_id - 5) // 3 * LEDGER_ENTRIES + position.entry_id

    @property
    def last_position(self) -> Position:
        return self.spans.spans[-1].last_position if self.spans.spans else Position(5, -1)

    def next_position(self, after: Position) -> Position | None:
        return self.spans.next_position(after)

    def entry(self, number: int) -> bytes:
        key = self.keys[number]
        if key is None:
            return b"%d" % number
        metadata = pb.MessageMetadata(
            producer_name="p", sequence_id=number, publish_time=0, partition_key=key
        ).SerializeToString()
        return b"\x0e\x01\x00\x00\x00\x00" + len(metadata).to_bytes(4, "big") + metadata + b"%d" % number

    def _run(self, start: Position, entries_max: int) -> Run:
        first = self.number_of(start)
        end = min(first + min(entries_max, self.run_entries), len(self.counts))
        end = min(end, first - first % LEDGER_ENTRIES + LEDGER_ENTRIES)
        same = [number for number in range(first, end) if self.flags[number] == self.flags[first]]
        end = first + next((n for n, number in enumerate(same) if number != first + n), len(same))
        counts = self.counts[first:end]
        return Run(
            [self.entry(number) for number in range(first, end)],
            message_counts=None if set(counts) == {1} else counts,
            flags=self.flags[first],
            ledger_id=start.ledger_id,
            first_entry_id=start.entry_id,
        )

    def read_cached(self, start: Position, entries_max: int, bytes_max: int) -> Run | None:
        return self._run(start, entries_max) if self.number_of(start) >= self.cached_from else None

    async def read(self, start: Position, entries_max: int, bytes_max: int) -> ReadResult:
        await asyncio.sleep(READ_S)
        runs: list[Run] = []
        position: Position | None = start
        while position is not None and entries_max > 0:
            run = self._run(position, entries_max)
            runs.append(run)
            entries_max -= len(run.entries)
            position = self.next_position(Position(run.ledger_id, run.last_entry_id))
        last = runs[-1]
        return ReadResult(runs, Position(last.ledger_id, last.last_entry_id + 1), [])

    def flush_cursors(self, done: Callable[[MagnetarError | None], None]) -> None:
        done(None)


class Serving:
    """One subscription with its clients, in a simulated loop. Calls return when all is quiet by default."""

    topic_type: type[StoredTopic] = StoredTopic

    def __init__(
        self,
        sub_type: SubType.ValueType,
        *,
        topic: str = "persistent://public/default/t",
        config: DispatchConfig | None = None,
        entries: int = 0,
        cached_from: int = 0,
        unacked_max: int = 0,
        consumer_unacked_max: int = 0,
        broker_limit: BrokerUnackedLimit | None = None,
    ) -> None:
        self.loop = SimLoop()
        self.sub_type = sub_type
        self.config = config or DispatchConfig()
        self.topic = self.topic_type(topic)
        self.topic.clock = SimClock(self.loop)
        for _ in range(entries):
            self.topic.append()
        self.topic.cached_from = cached_from
        self.cursor = Cursor("s", self.topic.spans, Position(5, -1), durable=False)
        self.budget = ByteBudget(MemoryConfig(), EntryCache(0))
        self.consumer_unacked_max = consumer_unacked_max
        self._tasks: set[asyncio.Task[Any]] = set()
        self.subscription = Subscription(
            cast(Any, self.topic),
            self.cursor,
            self.config,
            self.budget,
            TopicStats(),
            self._spawn,
            unacked_max=unacked_max,
            broker_limit=broker_limit,
        )
        self._next_id = 0
        self.quiet_s = 0.1
        """Virtual seconds that every call lets pass, unless told otherwise."""

    def _spawn(self, coro: Any, name: str) -> None:
        task = asyncio.get_running_loop().create_task(coro, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def do(self, change: Callable[[], object] = lambda: None, wait_s: float | None = None) -> None:
        """Make a change on the loop, then let virtual time pass. Raises what a callback raised."""

        async def main() -> None:
            change()
            await asyncio.sleep(self.quiet_s if wait_s is None else wait_s)

        self.loop.run_until_complete(main())
        if self.loop.errors:
            raise self.loop.errors[0]

    def close(self) -> None:
        self.loop.close()

    def consumer(self, name: str, **options: Any) -> Consumer:
        """A consumer that is not connected yet, at the end of a new client."""
        self._next_id += 1
        chosen: dict[str, Any] = {
            "priority_level": 0,
            "properties": {},
            "epoch": None,
            **options,
        }
        return Consumer(
            ConsumerOptions(self._next_id, name, **chosen),
            Client(name),
            partition=-1,
            unacked_max=self.consumer_unacked_max,
            clock=SimClock(self.loop),
            sends_entry_metadata=False,
        )

    def join(self, name: str, permits: int = 0, wait_s: float | None = None, **options: Any) -> Consumer:
        consumer = self.consumer(name, **options)

        def connect() -> None:
            self.subscription.add_consumer(consumer, self.sub_type)
            if permits:
                self.subscription.add_permits(consumer, permits)

        self.do(connect, wait_s)
        return consumer

    def leave(self, consumer: Consumer, wait_s: float | None = None) -> None:
        client_of(consumer).connected = False
        self.do(lambda: self.subscription.remove_consumer(consumer), wait_s)

    def flow(self, consumer: Consumer, permits: int) -> None:
        self.do(lambda: self.subscription.add_permits(consumer, permits))

    def publish(self, count: int = 1, messages: int = 1, flags: int = 0) -> None:
        def confirmed() -> None:
            for _ in range(count):
                self.topic.append(messages, flags)
            self.subscription.wake()

        self.do(confirmed)

    def ack(self, consumer: Consumer, *numbers: int) -> None:
        def ack() -> None:
            for number in numbers:
                self.subscription.ack(*self.topic.position_of(number), consumer)

        self.do(ack)

    def ack_cumulative(self, consumer: Consumer, number: int) -> None:
        self.do(lambda: self.subscription.ack_cumulative(self.topic.position_of(number), consumer))

    def redeliver(
        self, consumer: Consumer, numbers: Sequence[int] | None = None, epoch: int | None = None
    ) -> None:
        positions = None if numbers is None else [self.topic.position_of(number) for number in numbers]
        self.do(lambda: self.subscription.redeliver(consumer, positions, epoch))


def client_of(consumer: Consumer) -> Client:
    """The client at the far end of a consumer."""
    assert isinstance(consumer.peer, Client)
    return consumer.peer
