"""A process that is killed while its loop goes on: nothing of it may run any more."""

from __future__ import annotations

from magnetar.common.errors import LedgerClosed, StorageError
from magnetar.ledger.managed_ledger.managed_ledger import ManagedLedger

from tests.simulation.power_loss import Process


class _Nobody:
    """Listens for a process that is no more."""

    def on_lost(self, error: StorageError) -> None:
        pass


def kill(process: Process, ledger: ManagedLedger) -> None:
    """Kill the world's process with its managed ledger: the next one is its only owner."""
    process.world.kill()
    ledger._listener = _Nobody()  # type: ignore[assignment]
    ledger.lose(LedgerClosed("killed"))
    if ledger._maintenance is not None:
        ledger._maintenance.cancel()
