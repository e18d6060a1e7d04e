"""Loads a topic: takeover, and creation of its managed ledger."""

from __future__ import annotations

from magnetar.ledger.managed_ledger.context import (
    Guards,
    ManagedLedgerContext,
    ManagedLedgerListener,
    no_guards,
)
from magnetar.ledger.managed_ledger.managed_ledger import ManagedLedger
from magnetar.ledger.managed_ledger.takeover import take_over


async def open_managed_ledger(
    ctx: ManagedLedgerContext,
    name: str,
    listener: ManagedLedgerListener,
    *,
    create: bool,
    properties: dict[str, str],
    guards: Guards = no_guards,
) -> ManagedLedger:
    """Takes over and loads a topic. `properties` and `guards` apply if this creates it.

    Raises TopicNotFound if it does not exist and `create` is False, CursorLedgerMissing or DataCorruption if
    its cursors are unreadable, OwnershipLost if another owner took over meanwhile.
    """
    taken = await take_over(ctx, name, create=create, properties=properties, guards=guards)
    return ManagedLedger(ctx, name, listener, taken)
