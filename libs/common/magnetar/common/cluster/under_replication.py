"""The marks of under-replicated ledgers and the locks of their repairs, read from metadata."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from magnetar.common.metadata.keys import Keys
    from magnetar.common.metadata.store import MetadataStore
    from magnetar.common.metadata.values import Leader, UnderReplicated


@dataclass(frozen=True, slots=True)
class MarkedLedger:
    """A ledger that auto-recovery has marked as under-replicated."""

    ledger_id: int
    ledger_key: int
    """Tells it from an earlier ledger with its id."""
    missing: tuple[str, ...]
    """Bookies of it that are lost or being decommissioned; empty if it only has gaps."""
    since_ms: int
    copied_by: str
    """The bookie whose worker has its lock; empty while none has."""
    copied_since_ms: int
    """When that worker took the lock; 0 without one."""


@dataclass(frozen=True, slots=True)
class Auditor:
    """The bookie that marks ledgers."""

    bookie_id: str
    epoch: int
    since_ms: int


@dataclass(frozen=True, slots=True)
class UnderReplication:
    """All marks and locks."""

    ledgers: list[MarkedLedger]
    """In order of their ids."""
    in_progress: int
    """Locks held."""


async def read_under_replication(metadata: MetadataStore, keys: Keys) -> UnderReplication:
    """Returns the marked ledgers with the workers that repair them. Raises MetadataError."""
    from magnetar.common.metadata.values import Leader, UnderReplicated, decode

    marks = (await metadata.children(keys.under_replicated_prefix)).items
    locks = {
        item.key.removeprefix(keys.replication_locks_prefix): decode(Leader, item.value)
        for item in (await metadata.children(keys.replication_locks_prefix)).items
    }
    nothing = Leader()
    found = []
    for item in marks:
        lock = locks.get(item.key.removeprefix(keys.under_replicated_prefix), nothing)
        ledger_id = keys.under_replicated_of(item.key)
        found.append(_marked(ledger_id, decode(UnderReplicated, item.value), lock))
    return UnderReplication(found, len(locks))


async def read_mark(metadata: MetadataStore, keys: Keys, ledger_id: int) -> MarkedLedger | None:
    """Returns the mark of one ledger; None without one. Raises MetadataError."""
    from magnetar.common.metadata.values import Leader, UnderReplicated, decode

    mark = await metadata.get(keys.under_replicated(ledger_id))
    if mark is None:
        return None
    lock = await metadata.get(keys.replication_lock(ledger_id))
    holder = Leader() if lock is None else decode(Leader, lock.value)
    return _marked(ledger_id, decode(UnderReplicated, mark.value), holder)


async def read_auditor(metadata: MetadataStore, keys: Keys) -> Auditor | None:
    """Returns the auditor; None while no bookie with auto-recovery is up. Raises MetadataError."""
    from magnetar.common.metadata.values import Leader, decode

    found = await metadata.get(keys.auditor)
    if found is None:
        return None
    leader = decode(Leader, found.value)
    return Auditor(leader.id, leader.epoch, leader.since_ms)


def _marked(ledger_id: int, mark: UnderReplicated, lock: Leader) -> MarkedLedger:
    return MarkedLedger(
        ledger_id, mark.ref.key, tuple(mark.missing_bookie_ids), mark.created_ms, lock.id, lock.since_ms
    )
