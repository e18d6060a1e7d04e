"""Whether this metadata was put back from an older copy, and what nobody may do until that is dealt with.

Bookies have what was written since the copy, and metadata knows nothing of it: neither the ledgers that were
made, nor that some were closed, moved or deleted. The key `restoration` says how far an operator has come:

    WRITING     half of the copy is there                nobody starts
    RESTORED    all of it is there                       bookies start, brokers do not; nothing is deleted
    RECONCILED  who holds what was compared and mended   brokers start; nothing is deleted
    RELEASED    what metadata lacks may go               as ever

Without the key nothing was restored.
"""

from __future__ import annotations

from magnetar.common.errors import MetadataError
from magnetar.common.metadata.keys import Keys
from magnetar.common.metadata.store import MetadataStore
from magnetar.common.metadata.values import Restoration, decode


async def read_restoration(metadata: MetadataStore, keys: Keys) -> Restoration | None:
    """The record of the last restoration; None without one. Raises MetadataError, StorageError."""
    found = await metadata.get(keys.restoration)
    return None if found is None else decode(Restoration, found.value)


def holds_deletion(restoration: Restoration | None) -> bool:
    """Whether nothing may be deleted because metadata lacks it."""
    return restoration is not None and restoration.state != Restoration.RELEASED


def is_given_up(restoration: Restoration | None, ledger_id: int) -> bool:
    """Whether a ledger that metadata lacks was made after the copy, and an operator let it go."""
    return (
        restoration is not None
        and restoration.state == Restoration.RELEASED
        and restoration.lost_from <= ledger_id < restoration.lost_until
    )


def is_compared(restoration: Restoration | None) -> bool:
    """Whether metadata knows the last bookies of a ledger: as long as not, none may be closed by it."""
    return restoration is None or restoration.state in (Restoration.RECONCILED, Restoration.RELEASED)


async def require_whole(metadata: MetadataStore, keys: Keys) -> None:
    """Raises MetadataError while only a part of a copy was put back."""
    restoration = await read_restoration(metadata, keys)
    if restoration is not None and restoration.state == Restoration.WRITING:
        raise MetadataError(
            "metadata is being restored, or that was interrupted: let `magnetar admin metadata restore` end, "
            "or run it again"
        )


async def require_reconciled(metadata: MetadataStore, keys: Keys) -> None:
    """Raises MetadataError while nobody has compared restored metadata with what bookies hold: a ledger that
    got other bookies since the copy would be closed before its end."""
    if not is_compared(await read_restoration(metadata, keys)):
        raise MetadataError(
            "metadata was restored and not yet compared with bookies: start the bookies, run `magnetar admin "
            "metadata reconcile`, then start brokers"
        )
