"""Exclusive and Failover: one active consumer gets every entry, in order, whole runs at a time.

Nothing is kept of what was sent: what has to be sent again is everything behind the mark-delete position
that is not acknowledged.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from magnetar.broker.dispatch.exclusive import ExclusiveDispatcher
from magnetar.broker.dispatch.failover import FailoverDispatcher
from magnetar.broker.subscriptions.consumer import Consumer
from magnetar.broker.subscriptions.entry_source import EntrySource
from magnetar.broker.subscriptions.hash_range_gate import HashRangeGate
from magnetar.broker.subscriptions.outlet import Outlet
from magnetar.common.naming.position import Position
from magnetar.ledger.managed_ledger.cursor import Cursor


class OrderedDelivery:
    """Delivery to the one consumer of an Exclusive subscription. Implements delivery.Delivery."""

    __slots__ = ("_cursor", "_dispatcher", "_outlet", "_source")

    individual: Final = False

    def __init__(
        self,
        dispatcher: ExclusiveDispatcher[Consumer] | FailoverDispatcher[Consumer],
        source: EntrySource,
        cursor: Cursor,
        outlet: Outlet,
    ) -> None:
        self._dispatcher = dispatcher
        self._source = source
        self._cursor = cursor
        self._outlet = outlet

    @property
    def paused_by(self) -> str | None:
        return None

    @property
    def waiting(self) -> int:
        return 0

    @property
    def candidates(self) -> Sequence[Consumer]:
        return self._dispatcher.consumers

    def step(self, entries_max: int, bytes_max: int) -> tuple[int, int] | None:
        choice = self._dispatcher.next()
        if choice is None:
            return None
        consumer, messages_max = choice
        messages_max = min(messages_max, entries_max)
        source, outlet = self._source, self._outlet
        peeked = source.peek(messages_max)
        if peeked is None:
            return None
        run, replayed = peeked
        if not self._cursor.has_entry_state:
            # No entry has bits or counts of its own to look up.
            runs = source.take_runs(messages_max, bytes_max)
            if runs:
                return outlet.send_whole(consumer, runs)
        if outlet.skips(run):
            source.advance(len(run.entries))
            return len(run.entries), 0
        part = outlet.front(consumer, run, messages_max, bytes_max, replayed=replayed)
        if part is None:
            source.advance(1)
            return 1, 0
        outlet.send(consumer, part, individual=False)
        source.advance(len(part.entries))
        return len(part.entries), part.byte_length

    def consumer_added(self, consumer: Consumer) -> None:
        """It starts behind the mark-delete position, as its source does; hash ranges limit what it gets."""
        if consumer.hash_ranges:
            self._source.gate = HashRangeGate(consumer.hash_ranges)

    def consumer_removed(self, consumer: Consumer) -> None:
        raise AssertionError("nobody is left when the consumer of an Exclusive subscription leaves")

    def redeliver(self, consumer: Consumer, positions: Sequence[Position] | None, epoch: int | None) -> None:
        """Ids are ignored: everything unacknowledged is sent again in order, as Apache Pulsar 4.0 does."""
        if epoch is not None:
            consumer.epoch = epoch
        self.rewind()

    def rewind(self) -> None:
        self._source.rewind(self._cursor.mark_delete)

    def close(self) -> None:
        """Nothing is kept."""
