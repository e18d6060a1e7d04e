"""Which ledgers that exist a bookie need not keep, and that none is given to it unseen as it lets them go."""

from __future__ import annotations

from magnetar.common.metadata.keys import Keys
from magnetar.common.metadata.store import MetadataStore
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


async def disown_copies(metadata: MetadataStore, keys: Keys, bookie_id: str) -> None:
    """Make every transaction fail that names this bookie for copies that were begun before now.

    Auto-recovery copies a ledger first and names its new bookie then, on condition that the bookie's cookie
    is what it was before the copying. So the cookie is written again, as it is. Raises MetadataError.
    """
    cookie = await metadata.get(keys.cookie(bookie_id))
    if cookie is not None:  # without one, no bookie is named
        await metadata.put(cookie.key, cookie.value, cookie.version)
