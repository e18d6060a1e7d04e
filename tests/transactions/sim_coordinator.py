"""Coordinators of a simulated broker."""

from __future__ import annotations

from collections.abc import Callable

from magnetar.broker.transactions.coordinator import GRACE_S, Coordinator, open_coordinator
from magnetar.broker.transactions.participants import Participants
from magnetar.ledger.managed_ledger import ManagedLedgerContext


async def take_over(
    ctx: ManagedLedgerContext, number: int, participants: Participants, on_lost: Callable[[], None]
) -> Coordinator:
    """Takes a coordinator over; `on_lost` is called when another broker does. Raises errors of storage."""
    found = await open_coordinator(ctx, number, participants, cluster="sim", active_max=0)
    found.on_lost = on_lost
    return found


__all__ = ["GRACE_S", "take_over"]
