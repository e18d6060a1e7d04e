"""What Shared and Key_Shared have in common: each consumer holds entries until it acknowledges them.

What a consumer asks for is delivered again from what it holds, and its count rises; what a leaving consumer
held goes to the others, oldest first and uncounted, since nobody asked for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from magnetar.broker.stats import SubscriptionStats
from magnetar.broker.subscriptions.consumer import Consumer
from magnetar.broker.subscriptions.entry_source import EntrySource
from magnetar.broker.subscriptions.outlet import Outlet
from magnetar.common.naming.position import Position
from magnetar.ledger.managed_ledger.cursor import Cursor


class IndividualDelivery:
    """The part of a delivery.Delivery that is the same for Shared and Key_Shared; those add `step`."""

    __slots__ = ("_consumers", "_cursor", "_outlet", "_source", "_stats")

    individual: Final = True

    def __init__(
        self,
        consumers: Sequence[Consumer],
        source: EntrySource,
        cursor: Cursor,
        outlet: Outlet,
        stats: SubscriptionStats,
    ) -> None:
        """`consumers` is the dispatcher's own list, which it keeps up to date."""
        self._consumers = consumers
        self._source = source
        self._cursor = cursor
        self._outlet = outlet
        self._stats = stats

    @property
    def paused_by(self) -> str | None:
        return None

    @property
    def waiting(self) -> int:
        return 0

    @property
    def candidates(self) -> Sequence[Consumer]:
        return self._consumers

    def consumer_added(self, consumer: Consumer) -> None:
        """It gets entries from the next step on."""

    def consumer_removed(self, consumer: Consumer) -> None:
        self._source.replay_all(consumer.pending.positions())

    def redeliver(self, consumer: Consumer, positions: Sequence[Position] | None, epoch: int | None) -> None:
        """Just what is pending at that consumer; each entry's delivery count rises."""
        wanted = list(consumer.pending.positions()) if positions is None else positions
        total = 0
        for ledger_id, entry_id in wanted:
            messages = consumer.pending.remove(ledger_id, entry_id)
            if messages:
                self._cursor.count_redelivery(ledger_id, entry_id)
                self._source.replay(ledger_id, entry_id)
                total += messages
        if total:
            self._stats.messages_redelivered += total
            consumer.redelivers(total)

    def rewind(self) -> None:
        self._source.rewind(self._cursor.mark_delete)

    def close(self) -> None:
        """Nothing is kept beyond what the consumers hold."""
