"""Backup of a cluster's metadata while it runs, and restoration into a store.

A backup reads every key at one revision. It excludes session keys (`session_prefixes`) and the record of an
earlier restoration, except for the ledger ids which that restoration left unreleased.

A restoration holds the key `restoration`, whose version guards each of its writes: two restorations cannot
mix, and after an interruption no process starts until the restoration is run again. Id counters continue far
above the backup's: objects created after the backup keep their ids, so a new ledger never gets the id of one
that bookies still hold.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from magnetar.common.errors import MagnetarError, UnknownOutcome, VersionMismatch
from magnetar.common.metadata.backup_file import BackupHeader
from magnetar.common.metadata.instance import read_instance_id
from magnetar.common.metadata.keys import Keys
from magnetar.common.metadata.store import ABSENT, Check, Delete, MetadataStore, Op, Put
from magnetar.common.metadata.values import (
    Counter,
    InstanceId,
    LedgerMetadata,
    Restoration,
    decode,
    encode,
)
from magnetar.common.runtime.clock import Clock

IDS_SKIPPED: Final = 1_000_000
"""Ids reserved for objects created after the backup; pass a larger number if more ledgers are created between
backups.
"""

OPS_AT_ONCE: Final = 100
BYTES_AT_ONCE: Final = 512 << 10
"""Size limit of one transaction in bytes: below etcd's limits, with room for guards and keys."""

_TRIES_MAX: Final = 5
"""Maximum attempts of one transaction with an unknown outcome; each attempt writes the same."""


class NotRestorable(MagnetarError):
    """Metadata cannot be restored; the message names the obstacle."""


def session_prefixes(keys: Keys) -> tuple[str, ...]:
    """Returns the prefixes of keys that are bound to a session."""
    return (
        keys.bookies_prefix,
        keys.auditor,
        keys.replication_locks_prefix,
        keys.brokers_prefix,
        keys.broker_leader,
        keys.bundle_owners_prefix,
    )


async def read_all(
    metadata: MetadataStore, keys: Keys, clock: Clock, release: str
) -> tuple[BackupHeader, list[tuple[str, bytes]]]:
    """Reads the content of a backup, with keys relative to the cluster's root. Raises MetadataError;
    NotRestorable if the store is empty or half restored.
    """
    taken_ms = clock.wall_ms()
    listing = await metadata.children(keys.root)
    left_out = (*session_prefixes(keys), keys.restoration)
    items, instance_id, unreleased_from = [], b"", 0
    for item in listing.items:
        if item.key == keys.instance_id:
            instance_id = await read_instance_id(metadata, keys)
        if item.key == keys.restoration:
            record = decode(Restoration, item.value)
            if record.state == Restoration.WRITING:
                raise NotRestorable("this metadata is half of a copy: its restoration was not finished")
            unreleased_from = _unreleased_from(record)
        if not item.key.startswith(left_out):
            items.append((item.key.removeprefix(keys.root), item.value))
    if not items:
        raise NotRestorable(f"there is no metadata of a cluster below {keys.root}: is --cluster its name?")
    header = BackupHeader(
        cluster=keys.root.split("/")[2],
        instance_id=instance_id.hex(),
        revision=listing.revision,
        taken_ms=taken_ms,
        release=release,
        unreleased_from=unreleased_from,
    )
    return header, items


def _unreleased_from(record: Restoration) -> int:
    """Returns the lowest ledger id possibly created after an earlier backup and not released; 0
    without one.
    """
    return 0 if record.state == Restoration.RELEASED else record.lost_from


def _lowest(*ledger_ids: int) -> int:
    """Returns the smallest value other than 0; 0 without any."""
    return min(filter(None, ledger_ids), default=0)


def _named(keys: Keys, found: Sequence[str]) -> str:
    """Names a few of the keys for a message; empty if there are none."""
    return ", ".join(key.removeprefix(keys.root) for key in found[:3]) + (", ..." if len(found) > 3 else "")


class Restorer:
    """Restores one backup; used once. `progress(keys written, total)` is called regularly."""

    def __init__(
        self,
        metadata: MetadataStore,
        keys: Keys,
        clock: Clock,
        rng: random.Random,
        *,
        ids_skipped: int = IDS_SKIPPED,
        progress: Callable[[int, int], None] = lambda done, total: None,
    ) -> None:
        self._metadata = metadata
        self._keys = keys
        self._clock = clock
        self._rng = rng
        self._ids_skipped = ids_skipped
        self._progress = progress
        self._record = Restoration()
        self._version = ABSENT
        self._unreleased_from = 0
        """The unreleased mark of the store: ledgers from this id on were never released on bookies."""

    async def restore(
        self, header: BackupHeader, items: Sequence[tuple[str, bytes]], *, replace: bool = False
    ) -> Restoration:
        """Restores a backup; with `replace` existing keys are replaced and removed.

        Raises NotRestorable if the backup is another cluster's, processes are registered, keys exist and
        `replace` is off, or another restoration began; MetadataError if interrupted: run it again.
        """
        keys = self._keys
        if header.cluster != keys.root.split("/")[2]:
            raise NotRestorable(
                f"the backup is of cluster {header.cluster!r}; restore it under that name (--cluster)"
            )
        there = await self._there(replace, header.instance_id)
        counters = _Counters(keys, self._ids_skipped)
        for key, value in [*there, *((keys.root + key, value) for key, value in items)]:
            counters.look_at(key, value)
        self._unreleased_from = _lowest(self._unreleased_from, header.unreleased_from)
        self._begin(header.taken_ms)
        await self._commit([])
        # Counters are written last: after an interruption they still show which ids were used.
        kept = {keys.root + key for key, _ in items}
        await self._write_all(
            [Delete(key) for key, _ in there if key not in kept and not counters.is_one(key)]
        )
        puts = [Put(keys.root + key, value) for key, value in items if not counters.is_one(keys.root + key)]
        await self._write_all(puts)
        known = _Counters(keys, 0)
        for key, value in items:
            known.look_at(keys.root + key, value)
        await self._require_no_registrations()
        return await self._end(counters, lost_from=known.next_of(keys.ledger_id_counter))

    async def mark(self, taken_ms: int = 0) -> Restoration:
        """Marks a store that was restored by other means, such as an etcd snapshot, as `restore` does: ids
        continue far above, and reconciliation is required. Atomic. Raises as `restore`.
        """
        there = await self._there(replace=True)
        if not there:
            raise NotRestorable(f"there is no metadata of a cluster below {self._keys.root}")
        counters, known = _Counters(self._keys, self._ids_skipped), _Counters(self._keys, 0)
        for key, value in there:
            counters.look_at(key, value)
            known.look_at(key, value)
        self._begin(taken_ms)
        return await self._end(counters, lost_from=known.next_of(self._keys.ledger_id_counter))

    # --- internal ---

    async def _there(self, replace: bool, instance_id: str = "") -> list[tuple[str, bytes]]:
        """Returns the cluster's keys in the store, except the record of a restoration. `instance_id` is the
        backup's; empty without one.
        """
        keys = self._keys
        listing = await self._metadata.children(keys.root)
        sessions = session_prefixes(keys)
        up = _named(keys, [item.key for item in listing.items if item.key.startswith(sessions)])
        if up:
            raise NotRestorable(
                f"processes are registered ({up}): stop brokers, discoveries and bookies, and wait until "
                "their sessions have ended"
            )
        half = False
        for item in listing.items:
            if item.key == keys.restoration:
                self._version = item.version
                record = decode(Restoration, item.value)
                half = record.state == Restoration.WRITING
                self._unreleased_from = _unreleased_from(record)
        there = [(item.key, item.value) for item in listing.items if item.key != keys.restoration]
        if not half:
            self._require_same_instance(dict(there), instance_id)
            # A start on an empty store leaves an instance id and counters, which need not be kept.
            matter = [key for key, _ in there if not key.startswith((keys.instance_id, keys.counters_prefix))]
            if matter and not replace:
                raise NotRestorable(
                    f"{len(matter)} keys of the cluster exist: restore into an empty etcd, or replace "
                    "them (--replace)"
                )
        return there

    def _require_same_instance(self, there: Mapping[str, bytes], instance_id: str) -> None:
        value = there.get(self._keys.instance_id)
        found = "" if value is None else decode(InstanceId, value).uuid.hex()
        has_ledgers = any(key.startswith(self._keys.ledgers_prefix) for key in there)
        if has_ledgers and found and instance_id and found != instance_id:
            raise NotRestorable(
                f"the backup is of instance {instance_id}, and the ledgers that are there are of instance "
                f"{found}: another cluster of that name. Bookies of one refuse metadata of the other; to "
                "restore this backup all the same use an empty etcd"
            )

    async def _require_no_registrations(self) -> None:
        """Refuses processes that read the store before this restoration began and registered after it."""
        for prefix in session_prefixes(self._keys):
            listing = await self._metadata.children(prefix)
            if listing.items:
                up = _named(self._keys, [item.key for item in listing.items])
                raise NotRestorable(
                    f"processes registered while metadata was put back ({up}), and may have changed it: stop "
                    "brokers, discoveries and bookies, and run this again"
                )

    def _begin(self, backup_ms: int) -> None:
        self._record = Restoration(
            state=Restoration.WRITING,
            id=self._rng.randbytes(16),
            backup_ms=backup_ms,
            restored_ms=self._clock.wall_ms(),
            lost_from=self._unreleased_from,
        )

    async def _end(self, counters: _Counters, *, lost_from: int) -> Restoration:
        self._record.state = Restoration.RESTORED
        self._record.lost_from = _lowest(lost_from, self._unreleased_from)
        self._record.lost_until = counters.next_of(self._keys.ledger_id_counter)
        await self._commit([Put(key, encode(value)) for key, value in counters.values()])
        return self._record

    async def _write_all(self, ops: Sequence[Put | Delete]) -> None:
        done = 0
        for batch in _batches(ops):
            await self._commit(batch)
            done += len(batch)
            self._progress(done, len(ops))

    async def _commit(self, ops: Sequence[Op]) -> None:
        """Commits if this restoration is still the current one, and records its new version."""
        data = encode(self._record)
        changed = not ops or self._record.state != Restoration.WRITING
        guard: Op = (
            Put(self._keys.restoration, data, self._version)
            if changed
            else Check(self._keys.restoration, self._version)
        )
        for attempt in range(1, _TRIES_MAX + 1):
            try:
                revision = await self._metadata.commit([guard, *ops])
            except VersionMismatch as error:
                raise NotRestorable(
                    "another restoration began meanwhile, and this one has stopped: let that one end, then "
                    "see `magnetar admin metadata status`"
                ) from error
            except UnknownOutcome:
                found = await self._metadata.get(self._keys.restoration)
                if changed and found is not None and found.value == data:
                    revision = found.version
                elif attempt == _TRIES_MAX:
                    raise
                else:
                    continue
            if changed:
                self._version = revision
            return


class _Counters:
    """Counter values to write: above every id in the backup and in the replaced metadata."""

    def __init__(self, keys: Keys, ids_skipped: int) -> None:
        self._keys = keys
        self._ids_skipped = ids_skipped
        self._next = {keys.ledger_id_counter: 1, keys.creation_id_counter: 1}

    def is_one(self, key: str) -> bool:
        return key.startswith(self._keys.counters_prefix)

    def look_at(self, key: str, value: bytes) -> None:
        """Takes a key of the backup, or of the replaced metadata, into account."""
        if self.is_one(key):
            self._next[key] = max(self._next.get(key, 1), decode(Counter, value).next)
        elif key.startswith(self._keys.ledgers_prefix):
            above = decode(LedgerMetadata, value).ref.id + 1
            self._next[self._keys.ledger_id_counter] = max(self._next[self._keys.ledger_id_counter], above)

    def next_of(self, key: str) -> int:
        return self._next[key] + self._ids_skipped

    def values(self) -> Iterator[tuple[str, Counter]]:
        for key in self._next:
            yield key, Counter(next=self.next_of(key))


def _batches(ops: Sequence[Put | Delete]) -> Iterator[list[Put | Delete]]:
    batch: list[Put | Delete] = []
    size = 0
    for op in ops:
        length = len(op.key) + (len(op.value) if isinstance(op, Put) else 0)
        if batch and (len(batch) >= OPS_AT_ONCE or size + length > BYTES_AT_ONCE):
            yield batch
            batch, size = [], 0
        batch.append(op)
        size += length
    if batch:
        yield batch
