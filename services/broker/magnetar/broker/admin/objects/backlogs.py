"""Positions in the backlog of a subscription, and skipping up to one of them."""

from __future__ import annotations

import asyncio
from typing import Final

from magnetar.broker.subscriptions.subscription import Subscription
from magnetar.common.errors import MagnetarError
from magnetar.common.naming.position import Position
from magnetar.ledger.managed_ledger.managed_ledger import ManagedLedger

_SLICE_ENTRIES: Final = 1_000
"""Entries examined between two turns of the event loop."""


async def nth_unacked(
    ledger: ManagedLedger, subscription: Subscription, count: int, *, uncommitted: bool = False
) -> Position | None:
    """Returns the `count`th unacknowledged entry that consumers get, from 1 on; None when there are fewer.

    With `uncommitted` entries of open and aborted transactions count as well.
    """
    cursor = subscription.cursor
    if count > cursor.backlog():
        return None
    position: Position | None = cursor.mark_delete
    seen = 0
    transactions = None if uncommitted else ledger.transactions
    while position is not None:
        position = ledger.next_stored(position) if uncommitted else ledger.next_position(position)
        if (
            position is not None
            and not cursor.is_acked(*position)
            and (transactions is None or not transactions.is_aborted(*position))
        ):
            count -= 1
            if not count:
                return position
        seen += 1
        if seen % _SLICE_ENTRIES == 0:
            await asyncio.sleep(0)
    return None


async def skip(subscription: Subscription, position: Position) -> None:
    """Acknowledges all entries up to `position`; durable on return."""
    if position > subscription.cursor.mark_delete:
        subscription.skip_to(position)
    written: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def flushed(error: MagnetarError | None) -> None:
        if written.done():
            return
        if error is None:
            written.set_result(None)
        else:
            written.set_exception(error)

    subscription.when_persisted(flushed)
    await written
