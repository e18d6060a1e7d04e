"""A subscription of a persistent topic: its cursor, its consumers, and the loop that gives them entries.

`wake` may be called at any event that could let something go out (permits, acknowledgements, new entries, a
socket with room, a finished read); the turn that follows asks the dispatcher and the entry source anew, so no
event order can leave it stuck. A turn is a bounded slice of work; more work asks for another turn.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from magnetar.broker.byte_budget import ByteBudget
from magnetar.broker.config import DispatchConfig
from magnetar.broker.dispatch.chunk_affinity import ChunkAffinity
from magnetar.broker.dispatch.eligibility import explain
from magnetar.broker.stats import SubscriptionStats, TopicStats
from magnetar.broker.subscriptions.consumer import Consumer
from magnetar.broker.subscriptions.entry_source import EntrySource, Spawn
from magnetar.broker.subscriptions.membership import Membership
from magnetar.common.errors import MagnetarError
from magnetar.common.naming.position import Position
from magnetar.common.obs.logs import get_logger
from magnetar.common.wire.ack_set import acked_bits_to_words
from magnetar.common.wire.batch import parse_metadata
from magnetar.common.wire.pulsar_pb2 import CommandSubscribe
from magnetar.ledger.ledger_store import RUN_CHUNK, RUN_MARKER, Run
from magnetar.ledger.managed_ledger.cursor import Cursor
from magnetar.ledger.managed_ledger.managed_ledger import ManagedLedger

log = get_logger(__name__)

TURN_ENTRIES_MAX: Final = 1_000
"""Entries delivered before other work gets the event loop again (about half a millisecond)."""

TURN_BYTES_MAX: Final = 1024 * 1024

SubType = CommandSubscribe.SubType

_SHARED: Final = SubType.Shared
"""Looking a name up in protobuf's enum costs as much as a frame."""


class Subscription:
    """Delivers a topic's entries to its consumers as its type promises, and takes their acknowledgements.

    What only delivery needs exists while a consumer is connected: an idle subscription is small.
    """

    __slots__ = (
        "_ack_waiters",
        "_blocked_on_unacked",
        "_budget",
        "_chunks",
        "_config",
        "_delivered_until",
        "_ledger",
        "_members",
        "_parked",
        "_source",
        "_spawn",
        "_topic_stats",
        "_turn_scheduled",
        "cursor",
        "name",
        "stats",
    )

    def __init__(
        self,
        ledger: ManagedLedger,
        cursor: Cursor,
        config: DispatchConfig,
        budget: ByteBudget,
        topic_stats: TopicStats,
        spawn: Spawn,
    ) -> None:
        self.name = cursor.name
        self.cursor = cursor
        self.stats = SubscriptionStats()
        self._ledger = ledger
        self._config = config
        self._topic_stats = topic_stats
        self._members = Membership(cursor.name, config.round_robin_entries_max)
        self._budget = budget
        self._spawn = spawn
        self._source: EntrySource | None = None
        self._chunks: ChunkAffinity[Consumer] | None = None
        self._parked: dict[Consumer, list[tuple[int, int]]] | None = None
        # Chunks that wait for the consumer of their message; others are delivered meanwhile.
        self._delivered_until = ledger.last_position
        self._turn_scheduled = False
        self._blocked_on_unacked = False
        self._ack_waiters: list[Callable[[MagnetarError | None], None]] | None = None

    # -- what others look at

    @property
    def type(self) -> SubType.ValueType | None:
        """The subscription type; None while no consumer is connected."""
        return self._members.type

    @property
    def consumers(self) -> list[Consumer]:
        return self._members.consumers

    @property
    def consumer_count(self) -> int:
        return len(self.consumers)

    @property
    def unacked_messages(self) -> int:
        """Delivered and unacknowledged messages of all consumers; counted on Shared only, as in Pulsar."""
        return sum(consumer.pending.messages for consumer in self.consumers)

    def backlog(self) -> int:
        """Entries that are not acknowledged."""
        return self.cursor.backlog()

    @property
    def blocked_on_unacked(self) -> bool:
        """Too many unacknowledged messages: blocked at the limit, free again at half of it."""
        limit = self._config.subscription_unacked_max
        if not limit or self.type != _SHARED:
            return False
        unacked = self.unacked_messages
        if unacked >= limit:
            self._blocked_on_unacked = True
        elif unacked <= limit // 2:
            self._blocked_on_unacked = False
        return self._blocked_on_unacked

    def why_not_dispatching(self) -> str | None:
        """In words, what keeps entries from going out now; None when nothing does."""
        return explain(
            self.consumers,
            self.backlog(),
            reading=self._source is not None and self._source.reading,
            unacked_limit_reached=self.blocked_on_unacked,
        )

    # -- consumers come and go

    def add_consumer(self, consumer: Consumer, sub_type: SubType.ValueType) -> None:
        """Connect a consumer. Raises ConsumerBusy when the type or an exclusive holder forbids it."""
        self._members.add(consumer, sub_type)
        if self._source is None:
            self._source = EntrySource(
                self._ledger, self.cursor, self._config, self._budget, self._spawn, self.wake
            )
        self.wake()

    def remove_consumer(self, consumer: Consumer) -> None:
        """Disconnect a consumer; what it holds unacknowledged is delivered again."""
        if not self._members.remove(consumer):
            return
        if not self.consumers:
            # The next consumer starts behind the mark-delete position, with what is unacknowledged there.
            if self._source is not None:
                self._source.close()
            self._source = self._chunks = self._parked = None
        else:
            if self._chunks is not None:
                self._chunks.forget(consumer)
            assert self._source is not None, "made with the first consumer"
            parked = [] if self._parked is None else self._parked.pop(consumer, [])
            for ledger_id, entry_id in (*consumer.pending.positions(), *parked):
                self._source.replay(ledger_id, entry_id)
        consumer.pending.clear()
        self.wake()

    def add_permits(self, consumer: Consumer, permits: int) -> None:
        consumer.permits += permits
        self.wake()

    # -- acknowledgement

    def ack(self, ledger_id: int, entry_id: int, consumer: Consumer) -> None:
        """An entry is acknowledged, whoever of the subscription's consumers holds it."""
        messages = self._settle(consumer, ledger_id, entry_id)
        if self.cursor.ack(ledger_id, entry_id):
            self._count_acks(consumer, messages or 1)

    def ack_many(self, ledger_id: int, entry_ids: Sequence[int], consumer: Consumer) -> None:
        """Entries of one ledger are acknowledged, whoever of the subscription's consumers holds them."""
        pending = consumer.pending
        before = pending.messages
        if self.type == _SHARED and pending.remove_many(ledger_id, entry_ids) != len(entry_ids):
            # Some were delivered to others, or acknowledged before.
            for other in self.consumers:
                if other is not consumer:
                    other.pending.remove_many(ledger_id, entry_ids)
        new = self.cursor.ack_many(ledger_id, entry_ids)
        if new:
            self._count_acks(consumer, max(new, before - pending.messages))

    def ack_batch(
        self, ledger_id: int, entry_id: int, acked_bits: int, batch_size: int, consumer: Consumer
    ) -> None:
        """Some messages of a batch entry are acknowledged; bit i of `acked_bits` is message i."""
        before = self.cursor.batch_acked(ledger_id, entry_id).bit_count()
        if self.cursor.ack_batch(ledger_id, entry_id, acked_bits, batch_size):
            self._settle(consumer, ledger_id, entry_id)
            self._count_acks(consumer, batch_size - before)
            return
        after = self.cursor.batch_acked(ledger_id, entry_id).bit_count()
        holder = self._holder(consumer, ledger_id, entry_id)
        if holder is not None:
            holder.pending.reduce(ledger_id, entry_id, batch_size - after)
        if after > before:
            self._count_acks(consumer, after - before)

    def ack_cumulative(self, position: Position, consumer: Consumer) -> None:
        """Everything up to `position`, that one included, is acknowledged."""
        before = self.cursor.backlog()
        self.cursor.ack_cumulative(position)
        self._count_acks(consumer, max(0, before - self.cursor.backlog()))

    def when_persisted(self, done: Callable[[MagnetarError | None], None]) -> None:
        """Call `done` once the acknowledgements taken so far are durable; one flush serves a loop turn."""
        if self._ack_waiters is None:
            self._ack_waiters = []
            asyncio.get_running_loop().call_soon(self._flush_acks)
        self._ack_waiters.append(done)

    def _flush_acks(self) -> None:
        waiters, self._ack_waiters = self._ack_waiters or [], None

        def flushed(error: MagnetarError | None) -> None:
            for done in waiters:
                done(error)

        self._ledger.flush_cursors(flushed)

    def _count_acks(self, consumer: Consumer, messages: int) -> None:
        self.stats.acks += messages
        consumer.stats.acks += messages
        # Only an unacked limit can turn an acknowledgement into something to deliver.
        if consumer.held_back_by is None or self._blocked_on_unacked:
            self.wake()

    def _holder(self, consumer: Consumer, ledger_id: int, entry_id: int) -> Consumer | None:
        if consumer.pending.holds(ledger_id, entry_id):
            return consumer
        for other in self.consumers:
            if other.pending.holds(ledger_id, entry_id):
                return other
        return None

    def _settle(self, consumer: Consumer, ledger_id: int, entry_id: int) -> int:
        """Nobody holds the entry any more; returns how many of its messages were unacknowledged."""
        messages = consumer.pending.remove(ledger_id, entry_id)
        if messages or self.type != _SHARED:
            return messages
        holder = self._holder(consumer, ledger_id, entry_id)
        return 0 if holder is None else holder.pending.remove(ledger_id, entry_id)

    # -- redelivery

    def redeliver(self, consumer: Consumer, positions: Sequence[Position] | None, epoch: int | None) -> None:
        """The client asks for `positions` (None: everything it holds) to be delivered again.

        On Shared just those pending at that consumer, and their delivery counts rise. On Exclusive ids are
        ignored: everything unacknowledged is sent again in order (as Apache Pulsar 4.0 does).
        """
        source = self._source
        if source is None:
            return
        if self.type != _SHARED:
            if epoch is not None:
                consumer.epoch = epoch
            source.rewind(self.cursor.mark_delete)
            self.wake()
            return
        wanted = list(consumer.pending.positions()) if positions is None else positions
        for ledger_id, entry_id in wanted:
            messages = consumer.pending.remove(ledger_id, entry_id)
            if messages:
                self.cursor.count_redelivery(ledger_id, entry_id)
                source.replay(ledger_id, entry_id)
                self.stats.messages_redelivered += messages
                consumer.stats.messages_redelivered += messages
        self.wake()

    def rewind(self) -> None:
        """After the cursor was moved: start again behind its mark-delete position."""
        self._parked = None
        if self._source is not None:
            self._source.rewind(self.cursor.mark_delete)
        self.wake()

    # -- dispatch

    def wake(self) -> None:
        """Something changed; look in this turn of the event loop whether entries can go out."""
        if self._members.dispatcher is not None and not self._turn_scheduled:
            self._turn_scheduled = True
            asyncio.get_running_loop().call_soon(self._turn)

    def _turn(self) -> None:
        self._turn_scheduled = False
        entries = size = 0
        while entries < TURN_ENTRIES_MAX and size < TURN_BYTES_MAX:
            dispatcher, source = self._members.dispatcher, self._source
            if dispatcher is None or source is None or self.blocked_on_unacked:
                return
            if self._parked:
                self._unpark(source)
            choice = dispatcher.next()
            if choice is None:
                return
            consumer, messages_max = choice
            peeked = source.peek(min(messages_max, TURN_ENTRIES_MAX))
            if peeked is None:
                return
            run, replayed = peeked
            if not replayed and self._in_whole_runs:
                room = min(messages_max, TURN_ENTRIES_MAX - entries)
                runs = source.take_runs(room, TURN_BYTES_MAX - size)
                if runs:
                    run_entries, run_bytes = self._deliver_runs(consumer, runs)
                    entries += run_entries
                    size += run_bytes
                    continue
            if run.flags & RUN_MARKER:
                # Bookkeeping between brokers: acknowledged unseen, for every subscription.
                self.cursor.ack_range(run.ledger_id, run.first_entry_id, run.last_entry_id)
                source.advance(len(run.entries))
                continue
            if run.flags & RUN_CHUNK and len(dispatcher.consumers) > 1:
                run = run.slice(run.first_entry_id, run.first_entry_id)
                self._deliver_chunk(consumer, run)
                source.advance(1)
                entries += 1
                size += run.byte_length
                continue
            if replayed or self._may_have_entry_state(run):
                run = run.slice(run.first_entry_id, run.first_entry_id)
                if self.cursor.is_acked(run.ledger_id, run.first_entry_id):
                    source.advance(1)
                    continue
            else:
                taken = consumer.fitting(run, messages_max)
                run = run.slice(run.first_entry_id, run.first_entry_id + taken - 1)
            self._deliver(consumer, run)
            source.advance(len(run.entries))
            entries += len(run.entries)
            size += run.byte_length
        self.wake()

    @property
    def _in_whole_runs(self) -> bool:
        """True while entries go to one consumer in order, and none has bits or counts of its own."""
        return self.type != _SHARED and not self.cursor.has_entry_state

    def _deliver_runs(self, consumer: Consumer, runs: list[Run]) -> tuple[int, int]:
        """Send runs as they are; returns (entries, bytes)."""
        entries = messages = size = 0
        for run in runs:
            entries += len(run.entries)
            messages += run.messages
            size += run.byte_length
        consumer.deliver_runs(runs, messages, size)
        last = runs[-1]
        self._delivered_until = max(self._delivered_until, Position(last.ledger_id, last.last_entry_id))
        self._count_delivered(messages, size)
        return entries, size

    def _count_delivered(self, messages: int, byte_count: int) -> None:
        self.stats.messages_out += messages
        self.stats.bytes_out += byte_count
        self._topic_stats.messages_out += messages
        self._topic_stats.bytes_out += byte_count

    def _may_have_entry_state(self, run: Run) -> bool:
        """True when an entry of the run may have been delivered before and carry acked bits or a count."""
        return self.cursor.has_entry_state and (run.ledger_id, run.first_entry_id) <= self._delivered_until

    def _deliver(self, consumer: Consumer, run: Run) -> None:
        """Send a run: whole and new, or one entry with what the cursor knows of it."""
        messages = run.messages
        shared = self.type == _SHARED
        if len(run.entries) == 1:
            ledger_id, entry_id = run.ledger_id, run.first_entry_id
            acked = self.cursor.batch_acked(ledger_id, entry_id)
            ack_set = None
            if acked:
                ack_set = acked_bits_to_words(acked, messages)
                messages -= acked.bit_count()
            # Ordered types send 0, as Pulsar 4.0 does; the durable count is kept for Shared consumers.
            count = self.cursor.delivery_count(ledger_id, entry_id) if shared else 0
            consumer.deliver(run, messages, redelivery_count=count, ack_set=ack_set)
            if shared:
                consumer.pending.add(ledger_id, entry_id, messages)
        else:
            consumer.deliver(run, messages)
            if shared:
                consumer.pending.add_run(run)
        self._delivered_until = max(self._delivered_until, Position(run.ledger_id, run.last_entry_id))
        self._count_delivered(messages, run.byte_length)

    def _deliver_chunk(self, candidate: Consumer, run: Run) -> None:
        """Give one chunk to the consumer that has its message's first one, or park it until that one can."""
        if self._chunks is None:
            self._chunks = ChunkAffinity()
        metadata = parse_metadata(run.entries[0])
        target = self._chunks.target(metadata.uuid, candidate)
        if target.capacity <= 0:
            if self._parked is None:
                self._parked = {}
            self._parked.setdefault(target, []).append((run.ledger_id, run.first_entry_id))
            return
        self._deliver(target, run)
        self._chunks.delivered(metadata.uuid, metadata.chunk_id, metadata.num_chunks_from_msg, target)

    def _unpark(self, source: EntrySource) -> None:
        """Chunks whose consumer can take something again are delivered as a replay."""
        assert self._parked is not None, "asked before"
        for consumer in [each for each in self._parked if each.capacity > 0]:
            for ledger_id, entry_id in self._parked.pop(consumer):
                source.replay(ledger_id, entry_id)
