"""Transaction coordinators and ledgers of records in the form of Pulsar's admin API."""

from __future__ import annotations

from typing import Any

from magnetar.broker.admin.stats.subscription_stats import time_text
from magnetar.broker.transactions.coordinator_views import CoordinatorFigures, LogFigures


def coordinator_stats(figures: CoordinatorFigures) -> dict[str, Any]:
    """Returns the statistics of a coordinator."""
    return {
        "state": figures.state,
        "leastSigBits": figures.last_number,
        "lowWaterMark": figures.low_watermark,
        "ongoingTxnSize": figures.open,
        "recoverStartTime": figures.recovery_began_ms,
        "recoverEndTime": figures.recovery_ended_ms,
    }


def log_stats(log: LogFigures) -> dict[str, Any]:
    """Returns a ledger of records as a managed ledger with one ledger and no cursors."""
    last = log.last
    entries = 0 if last is None else last.entry_id + 1
    shown: dict[str, Any] = {
        "entriesAddedCounter": entries,
        "numberOfEntries": entries,
        "totalSize": log.byte_length,
        "currentLedgerEntries": entries,
        "currentLedgerSize": log.byte_length,
        "waitingCursorsCount": 0,
        "pendingAddEntriesCount": 0,
        "lastConfirmedEntry": "-1:-1" if last is None else str(last),
        "state": "NoLedger" if last is None else "LedgerOpened",
        "ledgers": [] if last is None else [_ledger(last.ledger_id)],
        "cursors": {},
    }
    if log.opened_ms:
        shown["lastLedgerCreatedTimestamp"] = time_text(log.opened_ms)
    return {"managedLedgerName": log.name, "managedLedgerInternalStats": shown}


def _ledger(ledger_id: int) -> dict[str, Any]:
    """Returns the JSON of an open ledger, which has no size yet, as in Pulsar."""
    return {"ledgerId": ledger_id, "entries": 0, "size": 0, "offloaded": False, "underReplicated": False}
