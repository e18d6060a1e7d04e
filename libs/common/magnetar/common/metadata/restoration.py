"""Whether this metadata was restored from an older backup, and what is forbidden until it is reconciled.

Bookies hold data written since the backup that metadata does not know: ledgers created, closed, moved or
deleted. The key `restoration` records the operator's progress:

    WRITING     part of the backup is restored        no process starts
    RESTORED    all of it is restored                 bookies start, brokers do not; nothing is deleted
    RECONCILED  bookies were compared and repaired    brokers start; nothing is deleted
    RELEASED    unknown ledgers may be deleted        normal operation

Without the key nothing was restored.
"""

from __future__ import annotations

from magnetar.common.errors import MetadataError
from magnetar.common.metadata.keys import Keys
from magnetar.common.metadata.store import MetadataStore
from magnetar.common.metadata.values import Restoration, decode


async def read_restoration(metadata: MetadataStore, keys: Keys) -> Restoration | None:
    """Returns the record of the last restoration; None without one. Raises MetadataError, StorageError."""
    found = await metadata.get(keys.restoration)
    return None if found is None else decode(Restoration, found.value)


def holds_deletion(restoration: Restoration | None) -> bool:
    """Returns whether deletion of ledgers missing in metadata is suspended."""
    return restoration is not None and restoration.state != Restoration.RELEASED


def is_given_up(restoration: Restoration | None, ledger_id: int) -> bool:
    """Returns whether a ledger missing in metadata was created after the backup and released by an
    operator.
    """
    return (
        restoration is not None
        and restoration.state == Restoration.RELEASED
        and restoration.lost_from <= ledger_id < restoration.lost_until
    )


def is_compared(restoration: Restoration | None) -> bool:
    """Returns whether metadata has the current ensembles of ledgers; until then no ledger may be closed by
    it.
    """
    return restoration is None or restoration.state in (Restoration.RECONCILED, Restoration.RELEASED)


async def require_whole(metadata: MetadataStore, keys: Keys) -> None:
    """Raises MetadataError while the metadata is only partly restored."""
    restoration = await read_restoration(metadata, keys)
    if restoration is not None and restoration.state == Restoration.WRITING:
        raise MetadataError(
            "metadata is being restored, or that was interrupted: let `magnetar admin metadata restore` end, "
            "or run it again"
        )


async def require_reconciled(metadata: MetadataStore, keys: Keys) -> None:
    """Raises MetadataError while restored metadata was not reconciled with bookies: a ledger whose ensemble
    changed since the backup would be closed before its end.
    """
    if not is_compared(await read_restoration(metadata, keys)):
        raise MetadataError(
            "metadata was restored and not yet compared with bookies: start the bookies, run `magnetar admin "
            "metadata reconcile`, then start brokers"
        )
