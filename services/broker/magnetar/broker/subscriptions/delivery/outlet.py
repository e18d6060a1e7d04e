"""The outlet of a subscription: sends entries with their batch state and delivery count from the cursor, and
counts them.
"""

from __future__ import annotations

from magnetar.broker.latencies import Sample
from magnetar.broker.stats import SubscriptionStats, TopicStats
from magnetar.broker.subscriptions.consumers.consumer import Consumer, fitting
from magnetar.broker.subscriptions.filters.withheld_acks import WithheldAcks
from magnetar.common.naming.position import Position
from magnetar.common.wire.ack_set import acked_bits_to_words
from magnetar.ledger.ledger_store import RUN_MARKER, Run
from magnetar.ledger.managed_ledger.cursor import Cursor


class Outlet:
    """Sends the entries of one subscription; created with its first consumer.

    Each subscription type divides runs among consumers itself, and calls `count` for entries that it sends
    without the outlet.
    """

    __slots__ = ("_cursor", "_sent_until", "_stats", "_topic_stats", "sample", "withheld")

    def __init__(
        self, cursor: Cursor, stats: SubscriptionStats, topic_stats: TopicStats, last_position: Position
    ) -> None:
        """`last_position`: entries up to it, inclusive, may have been delivered before."""
        self._cursor = cursor
        self._stats = stats
        self._topic_stats = topic_stats
        self._sent_until = last_position
        self.sample: Sample | None = None
        """The latency sample whose entry is not sent yet; None for none."""
        self.withheld: WithheldAcks | None = None
        """Messages that transactions acknowledge; None in a subscription that has none of these."""

    @property
    def has_entry_state(self) -> bool:
        """True when some entry must not be sent as it is: messages of it are acknowledged or withheld, or it
        has a delivery count.
        """
        return self._cursor.has_entry_state or (self.withheld is not None and self.withheld.present)

    def is_settled(self, ledger_id: int, entry_id: int, messages: int) -> bool:
        """True when nothing of an entry with so many messages is to be sent now."""
        return self._cursor.is_acked(ledger_id, entry_id) or (
            self.withheld is not None and self.withheld.withholds(ledger_id, entry_id, messages)
        )

    def may_have_entry_state(self, run: Run) -> bool:
        """True when an entry of the run may have acknowledged batch messages or a delivery count."""
        return self.has_entry_state and (run.ledger_id, run.first_entry_id) <= self._sent_until

    def front(
        self, consumer: Consumer, run: Run, messages_max: int, bytes_max: int, *, replayed: bool
    ) -> Run | None:
        """Returns the part of a run that may be sent now; None when its first entry is already acknowledged.

        That is one entry if the cursor may have state of it; otherwise as many entries as `messages_max` and
        `bytes_max` allow, at least one.
        """
        first = run.first_entry_id
        if replayed or self.may_have_entry_state(run):
            one = run.slice(first, first)
            return None if self.is_settled(run.ledger_id, first, one.messages) else one
        return self.within(run, messages_max, bytes_max)

    @staticmethod
    def within(run: Run, messages_max: int, bytes_max: int) -> Run:
        """Returns the front of a run that `messages_max` and `bytes_max` allow: at least one entry."""
        taken = fitting(len(run.entries), run.message_counts, messages_max)
        if run.byte_length > bytes_max:
            taken = min(taken, _within(run.entries, bytes_max))
        return run.slice(run.first_entry_id, run.first_entry_id + taken - 1)

    def skips(self, run: Run) -> bool:
        """Acknowledges a run of markers, which only brokers use; returns False for any other run."""
        if not run.flags & RUN_MARKER:
            return False
        self._cursor.ack_range(run.ledger_id, run.first_entry_id, run.last_entry_id)
        return True

    def send(self, consumer: Consumer, run: Run, *, individual: bool) -> None:
        """Sends a run: complete new entries, or one entry with its state from the cursor.

        `individual`: the consumer holds it until it acknowledges it. Ordered types send 0 as the redelivery
        count, as Pulsar 4.0 does; the durable count is kept for consumers of the other types.
        """
        if len(run.entries) == 1:
            messages = self.send_one(consumer, run, individual=individual)
            if individual:
                consumer.pending.add(run.ledger_id, run.first_entry_id, messages)
        else:
            messages = run.messages
            consumer.deliver(run, messages)
            if individual:
                consumer.pending.add_run(run)
        if individual:
            consumer.note_unacked()
        self.count(run.ledger_id, run.last_entry_id, messages, run.byte_length)

    def send_one(self, consumer: Consumer, run: Run, *, individual: bool) -> int:
        """Sends a run of one entry without counting it; returns how many messages of it are
        unacknowledged.
        """
        messages = run.messages
        ledger_id, entry_id = run.ledger_id, run.first_entry_id
        # Use only as many bits as the entry has messages: the acknowledging client claimed the batch size.
        acked = self._cursor.batch_acked(ledger_id, entry_id)
        if self.withheld is not None:
            acked |= self.withheld.bits(ledger_id, entry_id)
        acked &= (1 << messages) - 1
        ack_set = None
        if acked:
            ack_set = acked_bits_to_words(acked, messages)
            messages -= acked.bit_count()
        count = self._cursor.delivery_count(ledger_id, entry_id) if individual else 0
        consumer.deliver(run, messages, redelivery_count=count, ack_set=ack_set)
        return messages

    def count(self, ledger_id: int, last_entry_id: int, messages: int, byte_count: int) -> None:
        """Counts entries that were just sent to a consumer, up to and including this one."""
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
