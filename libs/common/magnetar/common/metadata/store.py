"""The metadata store's interface: versioned keys, multi-key compare-and-set, watches, sessions.

A version is the store-wide revision at which the key was last written, so it is never reused, even after a
delete; 0 means that the key does not exist. Implementations (SQLite for standalone, etcd for a cluster, one
in libs/sim) pass the same contract tests. A write is never retried by the store: an outcome that cannot be
known is raised as `UnknownOutcome`, and the caller re-reads its guard key.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

ANY_VERSION: Final = -1
"""As an expected version: write whatever is there."""

ABSENT: Final = 0
"""As an expected version: the key must not exist."""


@dataclass(frozen=True, slots=True)
class Versioned:
    """A key with its value, as read."""

    key: str
    value: bytes
    version: int


@dataclass(frozen=True, slots=True)
class Listing:
    """Keys under a prefix, in key order, all read at one store revision."""

    revision: int
    items: list[Versioned]


@dataclass(frozen=True, slots=True)
class Put:
    """Write `value`, provided the key is at `expected_version`."""

    key: str
    value: bytes
    expected_version: int = ANY_VERSION


@dataclass(frozen=True, slots=True)
class Delete:
    """Remove the key, provided it is at `expected_version`; removing an absent key is no error."""

    key: str
    expected_version: int = ANY_VERSION


@dataclass(frozen=True, slots=True)
class Check:
    """Write nothing; the transaction fails unless the key is at `expected_version`."""

    key: str
    expected_version: int


Op = Put | Delete | Check


@dataclass(frozen=True, slots=True)
class WatchEvent:
    """One change under a watched prefix; `value` is None for a removal."""

    key: str
    value: bytes | None
    version: int


class Session(Protocol):
    """A lease. Its ephemeral keys go when it ends. A hint, never a lock: ledger fencing is the lock."""

    async def put_ephemeral(self, key: str, value: bytes, expected_version: int = ANY_VERSION) -> int:
        """Write a key that lives as long as the session; returns its version."""
        ...

    async def expired(self) -> None:
        """Return once the store has said that the session ended."""
        ...

    async def close(self) -> None:
        """End the session and remove its keys; idempotent."""
        ...


class MetadataStore(Protocol):
    """Linearizable reads and writes on a small set of keys. Keys are '/'-separated text."""

    async def get(self, key: str) -> Versioned | None: ...

    async def children(self, prefix: str) -> Listing:
        """Every key that starts with `prefix`, with values, at one revision."""
        ...

    async def put(self, key: str, value: bytes, expected_version: int = ANY_VERSION) -> int:
        """Write one key; returns its new version. Raises VersionMismatch or UnknownOutcome."""
        ...

    async def delete(self, key: str, expected_version: int = ANY_VERSION) -> None:
        """Remove one key. Raises VersionMismatch or UnknownOutcome."""
        ...

    async def commit(self, ops: Sequence[Op]) -> int:
        """All of `ops` or none, durably; returns the revision, which is the version of every key put.

        Raises VersionMismatch for the first guard that fails, or UnknownOutcome.
        """
        ...

    def watch(self, prefix: str) -> AsyncIterator[WatchEvent]:
        """Changes under `prefix` from now on, in order. Close the iterator to stop."""
        ...

    async def session(self, ttl_ms: int) -> Session:
        """Start a session that ends `ttl_ms` after its owner was last heard of."""
        ...

    async def close(self) -> None: ...
