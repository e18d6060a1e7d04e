"""The way out of a subscription: sends runs to a consumer, with what the cursor knows of them, and counts."""

from __future__ import annotations

from magnetar.broker.latencies import Sample
from magnetar.broker.stats import SubscriptionStats, TopicStats
from magnetar.broker.subscriptions.consumer import Consumer, fitting
from magnetar.broker.subscriptions.key_shared_waiting import Share
from magnetar.broker.subscriptions.slot_pending_acks import slot_pending
from magnetar.common.naming.position import Position
from magnetar.common.wire.ack_set import acked_bits_to_words
from magnetar.ledger.ledger_store import RUN_MARKER, Run
from magnetar.ledger.managed_ledger.cursor import Cursor


class Outlet:
    """Sends the entries of one subscription; made with its first consumer."""

    __slots__ = ("_cursor", "_sent_until", "_stats", "_topic_stats", "sample")

    def __init__(
        self, cursor: Cursor, stats: SubscriptionStats, topic_stats: TopicStats, last_position: Position
    ) -> None:
        """`last_position`: up to there, entries may have been delivered before."""
        self._cursor = cursor
        self._stats = stats
        self._topic_stats = topic_stats
        self._sent_until = last_position
        self.sample: Sample | None = None
        """The entry that is followed until it goes out here; None for none."""

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
        return self.within(run, messages_max, bytes_max)

    @staticmethod
    def within(run: Run, messages_max: int, bytes_max: int) -> Run:
        """The front of a run that `messages_max` and `bytes_max` allow: at least one entry."""
        taken = fitting(len(run.entries), run.message_counts, messages_max)
        if run.byte_length > bytes_max:
            taken = min(taken, _within(run.entries, bytes_max))
        return run.slice(run.first_entry_id, run.first_entry_id + taken - 1)

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
        if len(run.entries) == 1:
            messages = self._send_one(consumer, run, individual=individual)
            if individual:
                consumer.pending.add(run.ledger_id, run.first_entry_id, messages)
        else:
            messages = run.messages
            consumer.deliver(run, messages)
            if individual:
                consumer.pending.add_run(run)
        if individual:
            consumer.note_unacked()
        self._count(run.ledger_id, run.last_entry_id, messages, run.byte_length)

    def _send_one(self, consumer: Consumer, run: Run, *, individual: bool) -> int:
        """Send a run of one entry; returns how many of its messages are unacknowledged."""
        messages = run.messages
        ledger_id, entry_id = run.ledger_id, run.first_entry_id
        # Only as many as there are: the size of the batch was the word of whoever acknowledged.
        acked = self._cursor.batch_acked(ledger_id, entry_id) & (1 << messages) - 1
        ack_set = None
        if acked:
            ack_set = acked_bits_to_words(acked, messages)
            messages -= acked.bit_count()
        count = self._cursor.delivery_count(ledger_id, entry_id) if individual else 0
        consumer.deliver(run, messages, redelivery_count=count, ack_set=ack_set)
        return messages

    def send_singly(self, consumer: Consumer, runs: list[Run]) -> int:
        """Shared: send runs of one ordinary entry each, of which the cursor knows nothing; returns bytes."""
        size = sum([run.byte_length for run in runs])
        consumer.deliver_runs(runs, len(runs), size)
        add = consumer.pending.add
        for run in runs:
            add(run.ledger_id, run.first_entry_id, 1)
        consumer.note_unacked()
        ledger_id, entry_id = max([(run.ledger_id, run.first_entry_id) for run in runs])
        self._count(ledger_id, entry_id, len(runs), size)
        return size

    def send_in_slot(self, consumer: Consumer, run: Run, slot: int) -> None:
        """Key_Shared: send one entry with what the cursor knows of it."""
        pending = slot_pending(consumer)
        messages = self._send_one(consumer, run, individual=True)
        pending.add_in_slot(run.ledger_id, run.first_entry_id, messages, slot)
        consumer.note_unacked()
        self._count(run.ledger_id, run.first_entry_id, messages, run.byte_length)

    def send_share(self, consumer: Consumer, share: Share) -> None:
        """Key_Shared: send new entries, whole."""
        messages, byte_count = share.messages, share.byte_length
        ledger_id, entry_ids = share.ledger_id, share.entry_ids
        consumer.deliver_entries(ledger_id, entry_ids, share.entries, messages, byte_count, share.metadata)
        slot_pending(consumer).add_entries(ledger_id, entry_ids, share.slots, share.message_counts)
        consumer.note_unacked()
        self._count(ledger_id, entry_ids[-1], messages, byte_count)

    def send_whole(self, consumer: Consumer, runs: list[Run]) -> tuple[int, int]:
        """Send new runs to a consumer of an ordered type, as they are; returns (entries, bytes)."""
        entries = messages = size = 0
        for run in runs:
            entries += len(run.entries)
            messages += run.messages
            size += run.byte_length
        consumer.deliver_runs(runs, messages, size)
        self._count(runs[-1].ledger_id, runs[-1].last_entry_id, messages, size)
        return entries, size

    def _count(self, ledger_id: int, last_entry_id: int, messages: int, byte_count: int) -> None:
        self._sent_until = max(self._sent_until, Position(ledger_id, last_entry_id))
        if self.sample is not None and (ledger_id, last_entry_id) >= self.sample.position:
            sample, self.sample = self.sample, None
            sample.sent()
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
