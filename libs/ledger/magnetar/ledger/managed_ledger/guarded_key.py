"""A metadata key with a single writer: every write is guarded by the version that this writer knows.

Only takeovers and the owner write such a key, so an unexpected version means that there is another owner
(storage contract, section 4).
"""

from __future__ import annotations

from collections.abc import Sequence

from magnetar.common.errors import MetadataError, OwnershipLost, UnknownOutcome, VersionMismatch
from magnetar.common.metadata.store import MetadataStore, Op, Put


class GuardedKey:
    """The key and its encoded value, as known to its writer."""

    __slots__ = ("_expected", "_metadata", "key", "value", "version")

    def __init__(self, metadata: MetadataStore, key: str, value: bytes, version: int) -> None:
        self._metadata = metadata
        self.key = key
        self.value = value
        self.version = version
        self._expected: bytes | None = None

    def put_value(self, value: bytes) -> Put:
        """Returns the guarded write of a changed value; call `sync` first."""
        assert self._expected is None, "the version is known"
        return Put(self.key, value, self.version)

    def written(self, put: Put) -> None:
        """Records that `put` was committed in another component's transaction, whose revision is unknown."""
        self.value = self._expected = put.value

    async def sync(self) -> None:
        """Ensures that the version is known. Raises OwnershipLost, or MetadataError."""
        if self._expected is None:
            return
        found = await self._metadata.get(self.key)
        if found is None or found.value != self._expected:
            raise OwnershipLost(f"{self.key} was changed by another owner")
        self.version = found.version
        self._expected = None

    async def commit_put(self, put: Put, ops: Sequence[Op] = ()) -> None:
        """Writes the value with `ops` in one transaction.

        Raises OwnershipLost when the key has another version, VersionMismatch when a guard among `ops`
        fails, MetadataError when nothing was written.
        """
        try:
            self.version = await self._metadata.commit([put, *ops])
        except UnknownOutcome:
            await self._resolve(put)
        except VersionMismatch as error:
            raise self.explain(error) from error
        self.value = put.value

    def explain(self, error: VersionMismatch) -> MetadataError | OwnershipLost:
        """Returns the error of a failed guard: OwnershipLost for this key's own guard."""
        if error.key == self.key:
            return OwnershipLost(f"there is another owner: {error}")
        return error

    async def unknown(self) -> OwnershipLost | None:
        """Resolves a transaction of unknown outcome that writes this key; returns if it did not happen.

        If it did, its results are unknown, and the key's owner must load its state again.
        """
        found = await self._metadata.get(self.key)
        if found is not None and found.version == self.version:
            return None
        return OwnershipLost(f"{self.key} changed in a transaction whose outcome is unknown")

    async def _resolve(self, put: Put) -> None:
        found = await self._metadata.get(self.key)
        # Compare the version first: a transaction may leave the value unchanged and write other keys.
        if found is not None and found.version == self.version:
            raise MetadataError(f"writing {self.key} had no effect; trying again is safe")
        if found is not None and found.value == put.value:
            self.version = found.version
        else:
            raise OwnershipLost(f"{self.key} was changed by another owner")
