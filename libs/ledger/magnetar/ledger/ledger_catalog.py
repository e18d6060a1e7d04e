"""The catalog of ledgers: ids and metadata, the same for local ledgers and ledgers on bookies.

Ids come from one counter by compare-and-set. A ledger is created and closed by one transaction each, which
may include the owner's operations, and those of ledgers that are created at the same time. A write of unknown
outcome is never repeated blindly: the ledger's own key, read again, shows the outcome of the whole
transaction.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Sequence

from magnetar.common.errors import NoSuchLedger, UnknownOutcome, VersionMismatch
from magnetar.common.metadata.id_counter import IdCounter
from magnetar.common.metadata.keys import Keys
from magnetar.common.metadata.store import ABSENT, Delete, MetadataStore, Op, Put, Versioned
from magnetar.common.metadata.values import LedgerMetadata, decode, encode
from magnetar.common.runtime.clock import Clock
from magnetar.ledger.ledger_store import ClosedLedger, LedgerRef


class LedgerCatalog:
    """Creates, finds, closes and deletes ledgers in metadata."""

    __slots__ = ("_clock", "_ids", "_keys", "_metadata", "_rng")

    def __init__(self, metadata: MetadataStore, keys: Keys, clock: Clock, rng: random.Random) -> None:
        self._metadata = metadata
        self._keys = keys
        self._clock = clock
        self._rng = rng
        self._ids = IdCounter(metadata, keys.ledger_id_counter)

    async def create(
        self, value: LedgerMetadata, with_ops: Callable[[LedgerRef], Sequence[Op]] | None
    ) -> tuple[LedgerRef, Versioned]:
        """Creates an open ledger with an id above all earlier ones; sets the ref, state and time in `value`.

        Raises VersionMismatch, without creating a ledger, if a guard of `with_ops` fails; UnknownOutcome if
        it was not created after all.
        """
        ref_key = self._rng.getrandbits(64)

        ref: LedgerRef | None = None
        put: Put | None = None

        def ops_for(ledger_id: int) -> Sequence[Op]:
            nonlocal ref, put
            ref = LedgerRef(ledger_id, ref_key)
            value.state = LedgerMetadata.OPEN
            value.created_ms = self._clock.wall_ms()
            value.ref.id, value.ref.key = ref.id, ref.key
            put = Put(self._keys.ledger(ledger_id), encode(value), ABSENT)
            return [put, *(with_ops(ref) if with_ops is not None else ())]

        try:
            _, revision = await self._ids.commit(ops_for)
        except UnknownOutcome:
            assert ref is not None
            found = await self.find(ref)
            if found is None:
                raise
            revision = found[0].version
        assert ref is not None
        assert put is not None
        return ref, Versioned(put.key, put.value, revision)

    async def find(self, ref: LedgerRef) -> tuple[Versioned, LedgerMetadata] | None:
        """Returns a ledger's metadata; None if it does not exist or exists under another key."""
        found = await self._metadata.get(self._keys.ledger(ref.id))
        if found is None:
            return None
        value = decode(LedgerMetadata, found.value)
        return (found, value) if value.ref.key == ref.key else None

    async def get(self, ref: LedgerRef) -> tuple[Versioned, LedgerMetadata]:
        """Returns the same as `find`. Raises NoSuchLedger."""
        found = await self.find(ref)
        if found is None:
            raise NoSuchLedger(f"ledger {ref.id} does not exist, or exists under another key")
        return found

    async def commit_closed(
        self,
        value: LedgerMetadata,
        version: int,
        closed: ClosedLedger,
        with_ops: Callable[[ClosedLedger], Sequence[Op]] | None,
    ) -> None:
        """Closes a ledger by compare-and-set; updates `value` to what was written.

        Raises VersionMismatch, also if the ledger's own key is not at `version` any more.
        """
        key = self._keys.ledger(closed.ref.id)
        after = LedgerMetadata()
        after.CopyFrom(value)
        after.state = LedgerMetadata.CLOSED
        after.last_entry_id = closed.last_entry_id
        after.byte_length = closed.byte_length
        after.closed_ms = self._clock.wall_ms()
        data = encode(after)
        ops: list[Op] = [Put(key, data, version), *(with_ops(closed) if with_ops is not None else ())]
        try:
            await self._metadata.commit(ops)
        except UnknownOutcome:
            # The transaction is atomic: this process's value there means that all of it happened.
            found = await self._metadata.get(key)
            if found is None or found.value != data:
                raise
        value.CopyFrom(after)

    async def close_fenced(
        self,
        ref: LedgerRef,
        fence: Callable[[LedgerRef], Awaitable[ClosedLedger]],
        with_ops: Callable[[ClosedLedger], Sequence[Op]] | None,
    ) -> tuple[LedgerMetadata, ClosedLedger]:
        """Closes a ledger of one copy at the end that `fence` returns, together with `with_ops`.

        Idempotent: on a closed ledger only `with_ops` is committed. Raises NoSuchLedger, VersionMismatch, and
        as `fence`.
        """
        while True:
            found, value = await self.get(ref)
            if value.state == LedgerMetadata.CLOSED:
                closed = ClosedLedger(ref, value.last_entry_id, value.byte_length)
                if with_ops is not None and (ops := with_ops(closed)):
                    await self._metadata.commit(ops)
                return value, closed
            closed = await fence(ref)
            try:
                await self.commit_closed(value, found.version, closed, with_ops)
            except VersionMismatch as error:
                if error.key != found.key:
                    raise
                continue  # closed or deleted concurrently: use its current state
            return value, closed

    async def delete(self, ref: LedgerRef, with_ops: Sequence[Op]) -> int | None:
        """Removes a ledger's metadata, if any, together with `with_ops`.

        Returns the revision of the commit, None if there was nothing to write. Raises VersionMismatch if a
        guard of `with_ops` fails.
        """
        while True:
            found = await self.find(ref)
            ops: list[Op] = list(with_ops)
            if found is not None:
                ops.append(Delete(found[0].key, found[0].version))
            if not ops:
                return None
            try:
                return await self._metadata.commit(ops)
            except VersionMismatch as error:
                if found is None or error.key != found[0].key:
                    raise
