"""A subscription of a persistent topic: its cursor, its consumers, and the loop that delivers entries to
them.

`wake` may be called at any event that could allow a delivery (permits, acknowledgements, new entries, a
writable socket, a finished read). The following turn checks the delivery again, which checks the dispatcher
and the entry source, so no order of events can leave it stuck. A turn is a bounded amount of work; more work
schedules another turn. The subscription types differ in their deliveries (package `types`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from magnetar.broker.byte_budget import ByteBudget
from magnetar.broker.dispatch.eligibility import Code, Situation, explain, reason
from magnetar.broker.latencies import Sample
from magnetar.broker.reason import Reason, in_words
from magnetar.broker.stats import SubscriptionStats, TopicStats
from magnetar.broker.subscriptions.config import DispatchConfig
from magnetar.broker.subscriptions.consumers.consumer import Consumer
from magnetar.broker.subscriptions.consumers.holders import holder_of, take_through
from magnetar.broker.subscriptions.delivery.delivery import Delivery, DispatchRateGate, limited_step
from magnetar.broker.subscriptions.delivery.outlet import Outlet
from magnetar.broker.subscriptions.entries.aborted_entries import settle_next
from magnetar.broker.subscriptions.entries.compacted_source import CompactedSource
from magnetar.broker.subscriptions.entries.entry_reader import EntryReader
from magnetar.broker.subscriptions.entries.entry_source import EntrySource
from magnetar.broker.subscriptions.filters.delay_gate import DelayGate, count_delayed, delayed_reason
from magnetar.broker.subscriptions.filters.withheld_acks import WithheldAcks
from magnetar.broker.subscriptions.limits.broker_unacked_limit import BrokerUnackedLimit
from magnetar.broker.subscriptions.limits.open_transactions import open_transactions
from magnetar.broker.subscriptions.membership import Membership, WithMembers
from magnetar.broker.subscriptions.transactional_acks import give_back, take_from_holders
from magnetar.broker.subscriptions.types.subscription_type import DeliveryParts, SubType
from magnetar.broker.task_spawner import Spawn
from magnetar.broker.tenure import Tenure
from magnetar.common.errors import MagnetarError, TransactionNotAllowed
from magnetar.common.naming.position import Position
from magnetar.common.naming.txn_id import Action, TxnId
from magnetar.ledger.managed_ledger.cursor import Cursor
from magnetar.ledger.managed_ledger.managed_ledger import ManagedLedger
from magnetar.ledger.managed_ledger.pending_acks import PendingAck
from magnetar.ledger.managed_ledger.topic_transactions import TopicTransactions
from pyroaring import BitMap

_ROOM_MAX: Final = 1 << 62
"""Unacknowledged messages allowed where no limit applies."""

TURN_BYTES_MAX: Final = 1024 * 1024


class Subscription(WithMembers):
    """Delivers a topic's entries to its consumers according to its type, and processes their
    acknowledgements.

    Objects that only delivery needs exist while a consumer is connected, so an idle subscription is small.
    """

    __slots__ = (
        "_ack_waiters",
        "_blocked_on_unacked",
        "_blocked_since_ms",
        "_broker_limit",
        "_budget",
        "_config",
        "_delay_gate",
        "_delay_tick_ms",
        "_delivery",
        "_ledger",
        "_left_ms",
        "_outlet",
        "_source",
        "_spawn",
        "_tenure",
        "_topic_stats",
        "_turn_scheduled",
        "_unacked_max",
        "_withheld",
        "cursor",
        "dispatch_rate",
        "idle_since",
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
        *,
        unacked_max: int = 0,
        broker_limit: BrokerUnackedLimit | None = None,
        tenure: Tenure | None = None,
    ) -> None:
        """Creates a subscription without consumers over its cursor.

        `unacked_max`: unacknowledged messages at which Shared and Key_Shared pause; 0: no limit. `tenure`
        proves that this broker owns the topic; None: it always does.
        """
        super().__init__(Membership(cursor.name, ledger.name, config))
        self.name = cursor.name
        self.cursor = cursor
        self.stats = SubscriptionStats()
        self._ledger = ledger
        self._config = config
        self._topic_stats = topic_stats
        self._budget = budget
        self._spawn = spawn
        self._source: EntrySource | None = None
        self._delivery: Delivery | None = None
        self._outlet: Outlet | None = None
        self._delay_tick_ms = 0
        self._delay_gate: DelayGate | None = None
        self.dispatch_rate: DispatchRateGate | None = None
        """Limits the rate of delivery; None: no rate limit."""
        self.idle_since: float | None = None
        """Time when housekeeping first found it without consumers; only used where subscriptions expire."""
        self._turn_scheduled = False
        self._unacked_max = unacked_max
        self._blocked_on_unacked = False
        self._blocked_since_ms = self._left_ms = 0
        # When the limit was reached, and when the last consumer left: ms since 1970 UTC; 0: not yet.
        self._broker_limit = broker_limit
        self._tenure = tenure
        self._withheld: WithheldAcks | None = None
        self._ack_waiters: list[Callable[[MagnetarError | None], object]] | None = None

    # -- figures for statistics and limits

    @property
    def unacked_messages(self) -> int:
        """Delivered and unacknowledged messages of all consumers; not counted on ordered types."""
        return sum(consumer.pending.messages for consumer in self.consumers)

    def backlog(self) -> int:
        """Entries that are not acknowledged."""
        return self.cursor.backlog()

    @property
    def properties(self) -> dict[str, str]:
        """Properties set by its first consumer or an operator; stored with its cursor."""
        return self.cursor.properties

    @property
    def delayed(self) -> int:
        """Entries known to wait for their delivery time; Shared and Key_Shared only."""
        delays = self._ledger.delays
        ordered = self._delivery is not None and not self._members.individual
        if delays is None or not self._delay_tick_ms or ordered:
            return 0
        return count_delayed(delays, self.cursor)

    @property
    def acks_at_risk(self) -> int:
        """Acknowledged entries that would be redelivered if this process crashed now."""
        return self.cursor.acks_at_risk

    @property
    def mark_deleted_ms(self) -> int:
        """When the mark-delete position on disk last moved, ms since 1970 UTC; 0: not since the load."""
        return self.cursor.advanced_ms

    @property
    def source(self) -> EntrySource | None:
        """Its entry source; None while no consumer is connected."""
        return self._source

    @property
    def in_replay(self) -> int:
        """Entries that were read and wait for delivery; Shared and Key_Shared only."""
        source, delivery = self._source, self._delivery
        if source is None or delivery is None or not self._members.individual:
            return 0
        return source.replays + delivery.waiting

    @property
    def blocked_on_unacked(self) -> bool:
        """True from a limit on unacknowledged messages on, until they fall to half of it."""
        return self._members.individual and self._unacked_room() <= 0

    def _unacked_room(self) -> int:
        """Returns how many more messages may be delivered; 0 from a limit on until half of it."""
        if self._broker_limit is not None and self._broker_limit.pauses(self):
            return 0
        limit = self._unacked_max
        if limit <= 0:
            self._blocked_on_unacked = False
            return _ROOM_MAX
        unacked = self.unacked_messages
        if unacked >= limit:
            if not self._blocked_on_unacked:
                self._blocked_since_ms = self._ledger.now_ms()
            self._blocked_on_unacked = True
        elif unacked <= limit // 2:
            self._blocked_on_unacked = False
        return 0 if self._blocked_on_unacked else limit - unacked

    def why_not_dispatching(self) -> str | None:
        """Explains in words what prevents delivery now; None when nothing does."""
        return in_words(self.reasons())

    def reasons(self) -> list[Reason]:
        """Explains what prevents delivery now; when no reason `stops`, the next turn delivers something.

        Asks what a turn asks, and passes acknowledged entries as a turn does.
        """
        now_ms = self._ledger.now_ms()
        if self._tenure is not None and self._tenure.waited_for:
            text = (
                "metadata does not answer, and storage has not confirmed yet that this broker owns the topic"
            )
            uncertain_ms = int(self._tenure.uncertain_s * 1000)
            return [reason(Code.METADATA_OUTAGE, text, since_ms=now_ms - uncertain_ms if uncertain_ms else 0)]
        source, delivery, backlog = self._source, self._delivery, self.backlog()
        no_consumer = reason(
            Code.NO_CONSUMER, "no consumer is connected", since_ms=self._left_ms, backlog=backlog
        )
        if source is None or delivery is None:
            return explain(Situation(backlog=backlog, nothing_left=True, candidates=()), no_consumer)
        return explain(
            Situation(
                backlog=backlog,
                nothing_left=source.exhausted() and not delivery.keeps_ready,
                candidates=delivery.candidates,
                redelivers=source.replaying,
                paused_by=delivery.paused_by,
                limited_by=self._limited_by() if self._members.individual else None,
                throttled_by=None if self.dispatch_rate is None else self.dispatch_rate.reason,
                fetching=source.fetching,
                kept_back=self._kept_back(delivery),
                unacknowledged=self._unacknowledged(source, backlog),
                idle=delivery.idle(),
            ),
            no_consumer,
        )

    def _limited_by(self) -> Reason | None:
        """Returns the limit on unacknowledged messages that is reached, that of the broker first."""
        if self._unacked_room() > 0:
            return None
        if self._broker_limit is not None and (found := self._broker_limit.reason(self)) is not None:
            return found
        unacked, limit = self.unacked_messages, self._unacked_max
        return reason(
            Code.UNACKED_LIMIT,
            f"the subscription has too many unacknowledged messages: {unacked}, and more go out at "
            f"{limit // 2} (maxUnackedMessagesPerSubscription is {limit})",
            since_ms=self._blocked_since_ms,
            scope="subscription",
            unacked=unacked,
            limit=limit,
        )

    def _kept_back(self, delivery: Delivery) -> list[Reason]:
        found = open_transactions(self._ledger, self.cursor)
        if self._ledger.delays is not None:
            delayed = delayed_reason(self._ledger.delays, self.delayed)
            found += [] if delayed is None else [delayed]
        return found + delivery.kept_back()

    def _unacknowledged(self, source: EntrySource, backlog: int) -> Reason | None:
        """Returns that entries were sent and are not acknowledged; None when none are."""
        if self._members.individual:
            entries = sum(len(each.pending) for each in self.consumers)
        else:
            unread = self._ledger.entries_between(source.read_position, self._ledger.last_position)
            withheld = 0 if self._withheld is None else self._withheld.entries
            entries = backlog - unread - withheld
        if entries <= 0:
            return None
        return reason(
            Code.WAITING_FOR_ACKS,
            f"{entries} entries were sent and wait for their acknowledgement",
            since_ms=max(each.sent_at_ms for each in self.consumers),
            entries=entries,
        )

    def limit_unacked(self, subscription_max: int, consumer_max: int) -> None:
        """Changes the limits on unacknowledged messages of Shared and Key_Shared; 0: none."""
        self._unacked_max = subscription_max
        self._blocked_on_unacked = False
        for consumer in self.consumers:
            consumer.limit_unacked(consumer_max)
        self.wake()

    # -- connecting and removing consumers

    def add_consumer(self, consumer: Consumer, sub_type: SubType.ValueType) -> None:
        """Connects a consumer. Raises as `Membership.add`."""
        self._members.add(consumer, sub_type)
        if self._delivery is None:
            self._delivery = self._begin()
        self.idle_since = None
        if self._ledger.terminated:
            asyncio.get_running_loop().call_soon(self.tell_of_end)
        self._delivery.consumer_added(consumer)
        self.wake()

    def _begin(self) -> Delivery:
        """Creates the delivery for the first consumer, starting after the mark-delete position."""
        kind, dispatcher = self._members.kind, self._members.dispatcher
        assert kind is not None, "set with the first consumer"
        self._source = EntrySource(
            self._ledger, self.cursor, self._config, self._budget, self._spawn, self.wake
        )
        self._outlet = outlet = Outlet(self.cursor, self.stats, self._topic_stats, self._ledger.last_position)
        if self._members.individual and self._delay_tick_ms:
            self._add_delay_gate(self._source, late=False)
        transactions = self._ledger.transactions
        if transactions is not None and transactions.pending(self.cursor) is not None:
            self._withhold(transactions)
        parts = DeliveryParts(
            source=self._source,
            cursor=self.cursor,
            outlet=outlet,
            stats=self.stats,
            config=self._config,
            budget=self._budget,
            wake=self.wake,
            now_ms=self._ledger.now_ms,
            reader_for=self._reader_for,
        )
        return kind.delivery(dispatcher, parts)

    def _reader_for(self, consumer: Consumer) -> EntryReader:
        """Returns where the entries of a consumer are read.

        A durable cursor before the first entry of the topic is also before the view, whose first entries the
        topic may no longer have.
        """
        self.cursor.reads_view = consumer.read_compacted
        if not consumer.read_compacted:
            return self._ledger
        mark_delete = self.cursor.mark_delete
        if self.cursor.durable and mark_delete.entry_id < 0 and mark_delete == self._ledger.first_position():
            self.cursor.return_before_view()
        return CompactedSource(self._ledger)

    def _add_delay_gate(self, source: EntrySource, *, late: bool) -> None:
        """Holds delayed entries back; `late`: some may have been delivered already."""

        def deliver_due(entries: Iterable[tuple[int, int]]) -> None:
            source.deliver_due(entries)
            self.wake()

        def read_again(ledger_id: int, entry_ids: BitMap) -> None:
            source.read_again(ledger_id, entry_ids)
            self.wake()

        def is_held(ledger_id: int, entry_id: int) -> bool:
            return any(each.pending.holds(ledger_id, entry_id) for each in self.consumers)

        def held() -> Iterable[Position]:
            for each in self.consumers:
                for position in each.pending.positions():
                    yield Position(*position)

        self._delay_gate = DelayGate(
            self._ledger,
            self.cursor,
            tick_ms=self._delay_tick_ms,
            read_position=lambda: source.read_position,
            deliver_due=deliver_due,
            read_again=read_again,
            is_held=is_held,
            held=held,
            late=late,
        )
        source.add_gate(self._delay_gate, schedules=True)

    def delay_delivery(self, tick_ms: int) -> None:
        """Enables delayed delivery on Shared and Key_Shared with this tick; 0 disables it."""
        before, self._delay_tick_ms = self._delay_tick_ms, tick_ms
        source = self._source
        if source is None or not self._members.individual or bool(before) == bool(tick_ms):
            return
        gate, self._delay_gate = self._delay_gate, None
        if gate is not None:
            source.remove_gate(gate)
            gate.open()
        if tick_ms:
            self._add_delay_gate(source, late=True)
            source.ask_again()

    def remove_consumer(self, consumer: Consumer) -> None:
        """Disconnects a consumer; the entries that it holds unacknowledged are redelivered."""
        if not self._members.remove(consumer):
            return
        assert self._source is not None, "made with the first consumer"
        assert self._delivery is not None, "made with the first consumer"
        if self.consumers:
            self._delivery.consumer_removed(consumer)
        else:
            self._delivery.close()
            self._source.close()
            self._source = self._delivery = self._outlet = self._delay_gate = self._withheld = None
            self._left_ms = self._ledger.now_ms()
        consumer.pending.clear()
        if self._broker_limit is not None:
            self._report_unacked(self._broker_limit)
        self.wake()

    def add_permits(self, consumer: Consumer, permits: int) -> None:
        consumer.permits += permits
        self.wake()

    # -- acknowledgement

    def ack(self, ledger_id: int, entry_id: int, consumer: Consumer) -> None:
        """Acknowledges an entry, whichever of the subscription's consumers holds it."""
        messages = self._settle(consumer, ledger_id, entry_id)
        if self.cursor.ack(ledger_id, entry_id):
            self._count_acks(consumer, messages or 1)
        elif messages:
            # It was acknowledged and counted during its delivery; its holder may be unblocked now.
            self.wake()

    def ack_many(self, ledger_id: int, entry_ids: Sequence[int], consumer: Consumer) -> None:
        """Acknowledges entries of one ledger, whichever of the subscription's consumers hold them."""
        pending = consumer.pending
        before = pending.messages
        if self._members.individual and pending.remove_many(ledger_id, entry_ids) != len(entry_ids):
            # Some were delivered to other consumers, or acknowledged before.
            for other in self.consumers:
                if other is not consumer and other.pending.remove_many(ledger_id, entry_ids):
                    self.wake()
        new = self.cursor.ack_many(ledger_id, entry_ids)
        if new:
            self._count_acks(consumer, max(new, before - pending.messages))
        elif pending.messages < before:
            self.wake()

    def ack_batch(
        self, ledger_id: int, entry_id: int, acked_bits: int, batch_size: int, consumer: Consumer
    ) -> None:
        """Acknowledges some messages of a batch entry; bit i of `acked_bits` is message i."""
        if self.cursor.is_acked(ledger_id, entry_id):
            self.ack(ledger_id, entry_id, consumer)
            return
        before = self.cursor.batch_acked(ledger_id, entry_id).bit_count()
        if self.cursor.ack_batch(ledger_id, entry_id, acked_bits, batch_size):
            self._settle(consumer, ledger_id, entry_id)
            self._count_acks(consumer, max(0, batch_size - before))
            return
        acked = self.cursor.batch_acked(ledger_id, entry_id)
        after = acked.bit_count()
        holder = holder_of(self.consumers, consumer, ledger_id, entry_id)
        if holder is not None:
            withheld = 0
            if self._withheld is not None:
                # Messages that a transaction acknowledges are no longer with the consumer.
                withheld = (self._withheld.bits(ledger_id, entry_id) & ~acked).bit_count()
            if after + withheld < batch_size:
                holder.pending.reduce(ledger_id, entry_id, batch_size - after - withheld)
            else:
                holder.pending.remove(ledger_id, entry_id)
            if holder is not consumer:
                self.wake()
        if after > before:
            self._count_acks(consumer, after - before)

    def ack_cumulative(self, position: Position, consumer: Consumer) -> None:
        """Acknowledges everything up to and including `position`."""
        before = self.cursor.backlog()
        self.cursor.ack_cumulative(position)
        if self.cursor.reads_view:
            self._ledger.pass_in_view(self.cursor, position)
        self._count_acks(consumer, max(0, before - self.cursor.backlog()))

    def ack_in_transaction(
        self,
        txn: TxnId,
        acked: PendingAck,
        consumer: Consumer,
        done: Callable[[MagnetarError | None], object],
    ) -> None:
        """Acknowledges in a transaction; `done` is called once that is durable, never from inside.

        Raises TransactionConflict, or TransactionNotAllowed; then nothing was acknowledged.
        """
        if acked.cumulative is not None and self._members.individual:
            raise TransactionNotAllowed(
                "a Shared or Key_Shared subscription has no order: acknowledge its messages one by one"
            )
        transactions = self._ledger.use_transactions()
        transactions.ack(txn, self.cursor, acked, done)
        withheld = self._withhold(transactions)
        if self._members.individual:
            take_from_holders(self.consumers, consumer, acked, self.cursor, withheld)
            if self._broker_limit is not None:
                self._report_unacked(self._broker_limit)
            self.wake()

    def _withhold(self, transactions: TopicTransactions) -> WithheldAcks:
        """Withholds from delivery what is pending in transactions, from the first acknowledgement on."""
        withheld = self._withheld
        if withheld is None:
            assert self._source is not None, "there is a consumer"
            assert self._outlet is not None, "there is a consumer"
            withheld = self._withheld = WithheldAcks(transactions, self.cursor)
            self._outlet.withheld = withheld
            self._source.add_gate(withheld)
        return withheld

    def transaction_ended(self, action: Action, acked: PendingAck) -> None:
        """Handles the end of a transaction that acknowledged here: committed acknowledgements are in the
        cursor, aborted ones are free again.
        """
        if action is Action.COMMIT:
            self.stats.acks += sum(map(len, acked.individual.values())) + sum(
                bits.bit_count() for bits, _ in acked.batches.values()
            )
            if acked.cumulative is not None and self.cursor.reads_view:
                self._ledger.pass_in_view(self.cursor, acked.cumulative)
        elif self._source is not None:
            self.stats.messages_redelivered += give_back(self._source, self.consumers, acked, self.cursor)
        self.wake()

    def when_persisted(self, done: Callable[[MagnetarError | None], object]) -> None:
        """Calls `done` once all acknowledgements received so far are durable; one flush serves a turn of
        the event loop.
        """
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
        if self._ledger.terminated:
            self.when_persisted(lambda _error: asyncio.get_running_loop().call_soon(self.tell_of_end))
        if self._broker_limit is not None:
            self._report_unacked(self._broker_limit)
        # Only a limit on unacknowledged messages can make an acknowledgement allow a delivery.
        if consumer.capacity > 0 or self._blocked_on_unacked:
            self.wake()

    def tell_of_end(self) -> None:
        """Notifies each consumer that the topic is terminated, after the response to the last
        acknowledgement.
        """
        cursor = self.cursor
        settle_next(self._ledger, cursor)
        if cursor.backlog() or (cursor.reads_view and self._ledger.compaction.has_after(cursor.mark_delete)):
            return
        for consumer in self.consumers:
            if not consumer.told_of_end:
                consumer.tell_of_end()

    def read_limit_moved(self) -> None:
        """Delivers what a transaction held back until its end; entries that it aborted are settled."""
        settle_next(self._ledger, self.cursor)
        if self._ledger.terminated:
            self.tell_of_end()
        self.wake()

    def _report_unacked(self, limit: BrokerUnackedLimit) -> None:
        limit.report(self, self.unacked_messages if self._members.individual else 0)

    def _settle(self, consumer: Consumer, ledger_id: int, entry_id: int) -> int:
        """Removes the entry from its holder; returns how many of its messages were unacknowledged."""
        messages = consumer.pending.remove(ledger_id, entry_id)
        if messages or not self._members.individual:
            return messages
        holder = holder_of(self.consumers, consumer, ledger_id, entry_id)
        if holder is None:
            return 0
        self.wake()
        return holder.pending.remove(ledger_id, entry_id)

    def skip_to(self, position: Position) -> int:
        """Acknowledges everything up to `position` because it expired or exceeds a backlog quota.

        Returns how many entries were skipped.
        """
        before = self.cursor.backlog()
        self.cursor.ack_cumulative(position)
        if self._ledger.transactions is not None:
            self._ledger.transactions.settle_cursor(self.cursor, position)
        if self._members.individual:
            take_through(self.consumers, position)
        if self._source is not None:
            self._source.forget_acknowledged()
        if self._broker_limit is not None:
            self._report_unacked(self._broker_limit)
        if self._ledger.terminated:
            self.tell_of_end()
        self.wake()
        return max(0, before - self.cursor.backlog())

    def expire_to(self, position: Position, now_ms: int) -> int:
        """Skips expired entries up to `position` and counts them; returns how many were skipped."""
        expired = self.skip_to(position)
        self.stats.messages_expired += expired
        self.stats.expired_at_ms = now_ms
        return expired

    def unread(self) -> int:
        """Returns the number of entries not read yet; without consumers, all after the mark-delete
        position.
        """
        read = self.cursor.mark_delete if self._source is None else self._source.read_position
        return self._ledger.entries_between(read, self._ledger.last_position)

    # -- redelivery

    def redeliver(self, consumer: Consumer, positions: Sequence[Position] | None, epoch: int | None) -> None:
        """Redelivers `positions` (None: everything that the consumer holds) at its client's request."""
        if self._delivery is not None:
            self._delivery.redeliver(consumer, positions, epoch)
            if self._broker_limit is not None:
                self._report_unacked(self._broker_limit)
            self.wake()

    def rewind(self) -> None:
        """Restarts after the mark-delete position of a cursor that was moved."""
        if self._delivery is not None:
            self._delivery.rewind()
            if self._outlet is not None:
                self._outlet.sample = None  # redelivered entries have been durable for long
            self.wake()

    # -- dispatch

    def wake(self) -> None:
        """Schedules a turn that checks whether entries can be delivered, after a change."""
        if self._delivery is not None and not self._turn_scheduled:
            self._turn_scheduled = True
            asyncio.get_running_loop().call_soon(self._turn)

    def follow(self, sample: Sample) -> None:
        """See `latencies.Sampled`."""
        if self._outlet is not None and self._outlet.sample is None:
            self._outlet.sample = sample

    def _turn(self) -> None:
        self._turn_scheduled = False
        if self._tenure is not None and not self._tenure.certain(self.wake):
            return
        entries = size = 0
        rate = self.dispatch_rate
        kind = self._members.kind
        if kind is None:
            return
        turn_entries_max, individual = kind.turn_entries_max, kind.individual
        while entries < turn_entries_max and size < TURN_BYTES_MAX:
            delivery, source = self._delivery, self._source
            if delivery is None or source is None:
                return
            entries_max, bytes_max = turn_entries_max - entries, TURN_BYTES_MAX - size
            if individual:
                room = self._unacked_room()
                source.replays_only = room <= 0
                if room > 0:
                    entries_max = min(entries_max, room)
                elif not source.replaying:
                    return
            if rate is None:
                done = delivery.step(entries_max, bytes_max)
            else:
                done = limited_step(delivery, rate, self.stats, entries_max, bytes_max)
            if self._broker_limit is not None:
                self._report_unacked(self._broker_limit)
            if done is None:
                return
            entries += done[0]
            size += done[1]
        self.wake()
