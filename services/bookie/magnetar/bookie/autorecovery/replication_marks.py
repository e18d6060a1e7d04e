"""Setting and removing a ledger's under-replication mark: compare-and-set on one key."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from magnetar.common.errors import MetadataError, UnknownOutcome, VersionMismatch
from magnetar.common.metadata.keys import Keys
from magnetar.common.metadata.store import ABSENT, Check, MetadataStore, Op, Put
from magnetar.common.metadata.values import LedgerRef, UnderReplicated, decode, encode

ATTEMPTS_MAX: Final = 10
"""Maximum conflicts: concurrent writes of a mark are rare, so more of them indicate a bug."""


async def merge_mark(
    metadata: MetadataStore,
    keys: Keys,
    ref: LedgerRef,
    missing: Collection[str],
    now_ms: int,
    guards: Collection[Check] = (),
) -> None:
    """Ensures that the ledger is marked and that its mark includes `missing`.

    Raises VersionMismatch if one of `guards` fails, and other MetadataErrors.
    """
    key = keys.under_replicated(ref.id)
    for _ in range(ATTEMPTS_MAX):
        found = await metadata.get(key)
        mark = None if found is None else decode(UnderReplicated, found.value)
        if mark is not None and mark.ref != ref:
            mark = None  # of an earlier ledger with this id
        names = sorted({*missing, *(mark.missing_bookie_ids if mark is not None else ())})
        if mark is None:
            mark = UnderReplicated(ref=ref, created_ms=now_ms)
        elif list(mark.missing_bookie_ids) == names:
            return
        del mark.missing_bookie_ids[:]
        mark.missing_bookie_ids.extend(names)
        version = ABSENT if found is None else found.version
        ops: list[Op] = [*guards, Put(key, encode(mark), version)]
        try:
            await metadata.commit(ops)
        except VersionMismatch as error:
            if error.key != key:
                raise
            continue
        except UnknownOutcome:
            continue  # read again, it says
        return
    raise MetadataError(f"the mark of ledger {ref.id} changes too often")


async def remove_mark(metadata: MetadataStore, keys: Keys, ledger_id: int, version: int) -> bool:
    """Removes a mark unless it changed since `version`; returns whether it is removed."""
    key = keys.under_replicated(ledger_id)
    try:
        await metadata.delete(key, version)
    except VersionMismatch:
        return await metadata.get(key) is None
    except UnknownOutcome:
        return await metadata.get(key) is None
    return True
