"""Delivery of every entry to one active consumer, in order, whole runs at a time: Exclusive and Failover.

Sent entries are not recorded: a redelivery sends everything unacknowledged after the mark-delete position
again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from magnetar.broker.reason import Reason
from magnetar.broker.subscriptions.consumers.consumer import Consumer
from magnetar.broker.subscriptions.delivery.outlet import Outlet
from magnetar.broker.subscriptions.entries.entry_source import EntrySource
from magnetar.broker.subscriptions.types.subscription_type import DeliveryParts
from magnetar.common.naming.position import Position
from magnetar.ledger.ledger_store import Run
from magnetar.ledger.managed_ledger.cursor import Cursor


class OrderedDispatcher(Protocol):
    """A dispatcher that gives every entry to one consumer."""

    def next(self) -> tuple[Consumer, int] | None:
        """Returns that consumer and its free permits; None when it can take no message."""
        ...


class OrderedDelivery:
    """The part of a delivery.Delivery that Exclusive and Failover share."""

    __slots__ = ("_cursor", "_dispatcher", "_outlet", "_reader_for", "_source")

    def __init__(self, dispatcher: OrderedDispatcher, parts: DeliveryParts) -> None:
        self._dispatcher = dispatcher
        self._source: EntrySource = parts.source
        self._cursor: Cursor = parts.cursor
        self._outlet: Outlet = parts.outlet
        self._reader_for = parts.reader_for

    @property
    def paused_by(self) -> Reason | None:
        return None

    @property
    def keeps_ready(self) -> bool:
        return False

    def kept_back(self) -> list[Reason]:
        return []

    def idle(self) -> list[Reason]:
        return []

    @property
    def waiting(self) -> int:
        return 0

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
        if not outlet.has_entry_state:
            # No entry has batch state or a delivery count in the cursor.
            runs = source.take_runs(messages_max, bytes_max)
            if runs:
                return self._send_runs(consumer, runs)
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

    def _send_runs(self, consumer: Consumer, runs: list[Run]) -> tuple[int, int]:
        """Sends complete new runs; returns (entries, bytes)."""
        entries = messages = size = 0
        for run in runs:
            entries += len(run.entries)
            messages += run.messages
            size += run.byte_length
        consumer.deliver_runs(runs, messages, size)
        self._outlet.count(runs[-1].ledger_id, runs[-1].last_entry_id, messages, size)
        return entries, size

    def redeliver(self, consumer: Consumer, positions: Sequence[Position] | None, epoch: int | None) -> None:
        """Sends everything unacknowledged again, in order; ids are ignored, as in Apache Pulsar 4.0."""
        if epoch is not None:
            consumer.epoch = epoch
        self.rewind()

    def rewind(self) -> None:
        self._source.rewind(self._cursor.mark_delete)

    def begin_for(self, consumer: Consumer) -> None:
        """Delivers to this consumer what is unacknowledged, read where it wants: see `reader_for`."""
        self._source.read_through(self._reader_for(consumer))
        self.rewind()

    def close(self) -> None:
        """Releases nothing: an ordered delivery keeps no entries."""
