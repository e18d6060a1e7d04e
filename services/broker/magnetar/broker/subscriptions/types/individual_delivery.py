"""Delivery of entries that each consumer holds until it acknowledges them: Shared and Key_Shared.

A negative acknowledgement redelivers entries that the consumer holds and raises their delivery count. The
entries of a disconnected consumer go to the others, oldest first, with an unchanged delivery count.
"""

from __future__ import annotations

from collections.abc import Sequence

from magnetar.broker.reason import Reason
from magnetar.broker.subscriptions.consumers.consumer import Consumer
from magnetar.broker.subscriptions.types.subscription_type import DeliveryParts
from magnetar.common.naming.position import Position


class IndividualDelivery:
    """Base of the Shared and Key_Shared deliveries; subclasses add `step`."""

    __slots__ = ("_consumers", "_cursor", "_outlet", "_source", "_stats")

    def __init__(self, consumers: Sequence[Consumer], parts: DeliveryParts) -> None:
        """`consumers` is the dispatcher's own list, which it keeps up to date."""
        self._consumers = consumers
        self._source = parts.source
        self._cursor = parts.cursor
        self._outlet = parts.outlet
        self._stats = parts.stats

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

    @property
    def candidates(self) -> Sequence[Consumer]:
        return self._consumers

    def consumer_added(self, consumer: Consumer) -> None:
        """Does nothing: the consumer gets entries from the next step on."""

    def consumer_removed(self, consumer: Consumer) -> None:
        self._source.replay_all(consumer.pending.positions())

    def redeliver(self, consumer: Consumer, positions: Sequence[Position] | None, epoch: int | None) -> None:
        """Redelivers entries that are pending at that consumer, and raises their delivery count."""
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
        """Does nothing: only the consumers hold entries."""
