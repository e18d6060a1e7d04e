"""Locks on ledgers under repair: one replication worker at a time, by an ephemeral key.

A lock only saves work. After an undetected session end two workers may copy the same ledger: the copies are
equal, and compare-and-set on the ledger's metadata accepts the first.
"""

from __future__ import annotations

import contextlib

from magnetar.bookie.autorecovery.session_holder import SessionHolder
from magnetar.common.errors import MetadataError, UnknownOutcome, VersionMismatch
from magnetar.common.metadata.keys import Keys
from magnetar.common.metadata.store import ABSENT, MetadataStore
from magnetar.common.metadata.values import Leader, decode, encode
from magnetar.common.runtime.clock import Clock


class LedgerLocks:
    """The locks of one bookie's workers, which never compete for a ledger. A lock is the version of
    its key.
    """

    def __init__(
        self, metadata: MetadataStore, keys: Keys, sessions: SessionHolder, clock: Clock, bookie_id: str
    ) -> None:
        self._metadata = metadata
        self._keys = keys
        self._sessions = sessions
        self._clock = clock
        self._bookie_id = bookie_id

    async def acquire(self, ledger_id: int) -> int | None:
        """Returns a lock; None if another worker has it. Raises MetadataError."""
        key = self._keys.replication_lock(ledger_id)
        value = encode(Leader(id=self._bookie_id, since_ms=self._clock.wall_ms()))
        session = await self._sessions.get()
        try:
            return await session.put_ephemeral(key, value, ABSENT)
        except (VersionMismatch, UnknownOutcome):
            found = await self._metadata.get(key)
        if found is None or decode(Leader, found.value).id != self._bookie_id:
            return None
        # The key is this process's own: written now, or left over from a failed release. No other task holds
        # it.
        return found.version

    async def release(self, ledger_id: int, lock: int) -> None:
        """Releases a lock; if that fails, the end of the session releases it."""
        with contextlib.suppress(MetadataError):
            await self._metadata.delete(self._keys.replication_lock(ledger_id), lock)
