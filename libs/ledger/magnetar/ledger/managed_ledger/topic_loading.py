"""Loading a topic: taking it over, and the object that serves it from then on."""

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
    """Take a topic over and load it. `properties` are those of a topic that is made by this, and `guards`
    hold when it is.

    Raises TopicNotFound when there is none and `create` is False, CursorLedgerMissing or DataCorruption when
    its cursors cannot be known, OwnershipLost when another owner took it meanwhile.
    """
    taken = await take_over(ctx, name, create=create, properties=properties, guards=guards)
    return ManagedLedger(ctx, name, listener, taken)
