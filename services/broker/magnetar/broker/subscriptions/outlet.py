"""The way out of a subscription: sends runs to a consumer, with what the cursor knows of them, and counts."""

from __future__ import annotations

from magnetar.broker.stats import SubscriptionStats, TopicStats
from magnetar.broker.subscriptions.consumer import Consumer
from magnetar.common.naming.position import Position
from magnetar.common.wire.ack_set import acked_bits_to_words
from magnetar.ledger.ledger_store import RUN_MARKER, Run
from magnetar.ledger.managed_ledger.cursor import Cursor


class Outlet:
    """Sends the entries of one subscription; made with its first consumer."""

    __slots__ = ("_cursor", "_sent_until", "_stats", "_topic_stats")

    def __init__(
        self, cursor: Cursor, stats: SubscriptionStats, topic_stats: TopicStats, last_position: Position
    ) -> None:
        """`last_position`: up to there, entries may have been delivered before."""
        self._cursor = cursor
        self._stats = stats
        self._topic_stats = topic_stats
        self._sent_until = last_position

    def may_have_entry_state(self, run: Run) -> bool:
        """True when an entry of the run may have been delivered before and carry acked bits or a count."""
        return self._cursor.has_entry_state and (run.ledger_id, run.first_entry_id) <= self._sent_until

    def front(
        self, consumer: Consumer, run: Run, messages_max: int, bytes_max: int, *, replayed: bool
    ) -> Run | None:
        """The part of a run that goes to the consumer now; None when its first entry is acknowledged by now.

        One entry when it may have a state of its own; else as many as `messages_max` and `bytes_max` allow,
        at least one.
        """
        first = run.first_entry_id
        if replayed or self.may_have_entry_state(run):
            return None if self._cursor.is_acked(run.ledger_id, first) else run.slice(first, first)
        taken = consumer.fitting(run, messages_max)
        if run.byte_length > bytes_max:
            taken = min(taken, _within(run.entries, bytes_max))
        return run.slice(first, first + taken - 1)

    def skips(self, run: Run) -> bool:
        """True for a run of markers, which is bookkeeping between brokers: acknowledged unseen, by all."""
        if not run.flags & RUN_MARKER:
            return False
        self._cursor.ack_range(run.ledger_id, run.first_entry_id, run.last_entry_id)
        return True

    def send(self, consumer: Consumer, run: Run, *, individual: bool) -> None:
        """Send a run: whole and new, or one entry with what the cursor knows of it.

        `individual`: the consumer holds it until it acknowledges it. Ordered types send 0 as the redelivery
        count, as Pulsar 4.0 does; the durable count is kept for consumers of the other types.
        """
        messages = run.messages
        if len(run.entries) == 1:
            ledger_id, entry_id = run.ledger_id, run.first_entry_id
            acked = self._cursor.batch_acked(ledger_id, entry_id)
            ack_set = None
            if acked:
                ack_set = acked_bits_to_words(acked, messages)
                messages -= acked.bit_count()
            count = self._cursor.delivery_count(ledger_id, entry_id) if individual else 0
            consumer.deliver(run, messages, redelivery_count=count, ack_set=ack_set)
            if individual:
                consumer.pending.add(ledger_id, entry_id, messages)
        else:
            consumer.deliver(run, messages)
            if individual:
                consumer.pending.add_run(run)
        self._count(run, messages, run.byte_length)

    def send_whole(self, consumer: Consumer, runs: list[Run]) -> tuple[int, int]:
        """Send new runs to a consumer of an ordered type, as they are; returns (entries, bytes)."""
        entries = messages = size = 0
        for run in runs:
            entries += len(run.entries)
            messages += run.messages
            size += run.byte_length
        consumer.deliver_runs(runs, messages, size)
        self._count(runs[-1], messages, size)
        return entries, size

    def _count(self, last: Run, messages: int, byte_count: int) -> None:
        self._sent_until = max(self._sent_until, Position(last.ledger_id, last.last_entry_id))
        self._stats.messages_out += messages
        self._stats.bytes_out += byte_count
        self._topic_stats.messages_out += messages
        self._topic_stats.bytes_out += byte_count


def _within(entries: list[bytes], bytes_max: int) -> int:
    size = 0
    for index, entry in enumerate(entries):
        size += len(entry)
        if size > bytes_max:
            return max(1, index)
    return len(entries)
