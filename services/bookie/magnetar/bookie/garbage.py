"""Ledgers that a bookie need not keep, and protection against copies assigned to it during their removal."""

from __future__ import annotations

from magnetar.common.metadata.keys import Keys
from magnetar.common.metadata.store import MetadataStore
from magnetar.common.metadata.values import LedgerMetadata


def is_moved_away(bookie_id: str, ledger: LedgerMetadata) -> bool:
    """Returns whether a ledger is closed and entirely on other bookies: auto-recovery replaced this one.

    Open ledgers never count: a bookie receives entries of an open ledger before metadata names it (ensemble
    change, recovery), and a replaced one may hold the last copy of an entry that recovery needs.
    """
    return (
        ledger.state == LedgerMetadata.CLOSED
        and bool(ledger.fragments)
        and not any(bookie_id in fragment.bookie_ids for fragment in ledger.fragments)
    )


async def disown_copies(metadata: MetadataStore, keys: Keys, bookie_id: str) -> None:
    """Makes every transaction fail that names this bookie for copies begun before now.

    Auto-recovery copies a ledger first and then names its new bookie, guarded by the version of the bookie's
    cookie. This rewrites the cookie unchanged. Raises MetadataError.
    """
    cookie = await metadata.get(keys.cookie(bookie_id))
    if cookie is not None:  # without one, no bookie is named
        await metadata.put(cookie.key, cookie.value, cookie.version)
