"""Which ledgers that exist a bookie need not keep; the garbage collector asks."""

from __future__ import annotations

from magnetar.common.metadata.values import LedgerMetadata


def is_moved_away(bookie_id: str, ledger: LedgerMetadata) -> bool:
    """Whether a ledger is closed and all of it is on other bookies: auto-recovery replaced this one.

    Not before it is closed: a bookie gets entries of an open ledger before metadata names it (an ensemble
    change, a recovery), and one that was replaced may be the last with an entry that recovery looks for.
    """
    return (
        ledger.state == LedgerMetadata.CLOSED
        and bool(ledger.fragments)
        and not any(bookie_id in fragment.bookie_ids for fragment in ledger.fragments)
    )
