"""Searches for the consumer that holds an entry unacknowledged, on Shared and Key_Shared."""

from __future__ import annotations

from collections.abc import Iterable

from magnetar.broker.subscriptions.consumers.consumer import Consumer
from magnetar.common.naming.position import Position


def holder_of(
    consumers: Iterable[Consumer], likely: Consumer, ledger_id: int, entry_id: int
) -> Consumer | None:
    """Returns the consumer that holds the entry, checking `likely` first; None when no consumer does."""
    if likely.pending.holds(ledger_id, entry_id):
        return likely
    for other in consumers:
        if other.pending.holds(ledger_id, entry_id):
            return other
    return None


def take_through(consumers: Iterable[Consumer], position: Position) -> None:
    """Removes every entry up to and including `position` from the consumers that hold them."""
    for consumer in consumers:
        for ledger_id, entry_id in list(consumer.pending.positions()):
            if (ledger_id, entry_id) > position:
                break
            consumer.pending.remove(ledger_id, entry_id)
