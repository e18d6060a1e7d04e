"""Which consumer of a subscription holds an entry unacknowledged, on Shared and Key_Shared."""

from __future__ import annotations

from collections.abc import Iterable

from magnetar.broker.subscriptions.consumers.consumer import Consumer
from magnetar.common.naming.position import Position


def holder_of(
    consumers: Iterable[Consumer], likely: Consumer, ledger_id: int, entry_id: int
) -> Consumer | None:
    """Who holds the entry, `likely` most likely; None when nobody does."""
    if likely.pending.holds(ledger_id, entry_id):
        return likely
    for other in consumers:
        if other.pending.holds(ledger_id, entry_id):
            return other
    return None


def take_through(consumers: Iterable[Consumer], position: Position) -> None:
    """Nobody holds anything up to `position` any more, that one included."""
    for consumer in consumers:
        for ledger_id, entry_id in list(consumer.pending.positions()):
            if (ledger_id, entry_id) > position:
                break
            consumer.pending.remove(ledger_id, entry_id)
