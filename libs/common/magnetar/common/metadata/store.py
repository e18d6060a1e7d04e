"""The metadata store's interface: versioned keys, multi-key compare-and-set, watches, sessions.

A version is the store-wide revision at which the key was last written, so it is never reused, even after a
delete; 0 means that the key does not exist. Implementations (SQLite for standalone, etcd for a cluster, one
in libs/sim) pass the same contract tests. A write is never retried by the store: an outcome that cannot be
known is raised as `UnknownOutcome`, and the caller re-reads its guard key.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

ANY_VERSION: Final = -1
"""Expected version: write over any version."""

ABSENT: Final = 0
"""Expected version: the key must not exist."""

VALUE_BYTES_MAX: Final = 1 << 20
"""Maximum value size in bytes; unbounded data never lives in one key. A longer value raises ValueError."""

TXN_OPS_MAX: Final = 128
"""Maximum operations in a transaction, including guards: etcd's --max-txn-ops. Every store raises ValueError
above it, so that code works on all of them.
"""


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
    """Writes `value` if the key is at `expected_version`.

    An `ephemeral` key is removed when the session of its last put ends; a non-ephemeral put makes it
    permanent.
    """

    key: str
    value: bytes
    expected_version: int = ANY_VERSION
    ephemeral: bool = False


@dataclass(frozen=True, slots=True)
class Delete:
    """Removes the key if it is at `expected_version`; removing an absent key is not an error."""

    key: str
    expected_version: int = ANY_VERSION


@dataclass(frozen=True, slots=True)
class Check:
    """Fails the transaction unless the key is at `expected_version`; writes nothing."""

    key: str
    expected_version: int


Op = Put | Delete | Check


@dataclass(frozen=True, slots=True)
class WatchEvent:
    """One change under a watched prefix; `value` is None for a removal."""

    key: str
    value: bytes | None
    version: int


class Watch(Protocol):
    """Changes under a prefix, from the call of `watch` on, in order.

    To follow a prefix from its present state: start the watch, then list, then skip events whose version is
    not above the listing's revision. A watch is a hint: changes are never lost silently, but it may end with
    WatchLost (its queue is bounded), and then the prefix must be listed again under a new watch.
    """

    def __aiter__(self) -> Watch: ...

    async def __anext__(self) -> WatchEvent:
        """Returns the next change. Raises WatchLost, or StopAsyncIteration once the watch or the store is
        closed.
        """
        ...

    async def aclose(self) -> None:
        """Stop watching; a waiting `__anext__` ends. Idempotent."""
        ...


class Session(Protocol):
    """A lease. Its ephemeral keys are removed when it ends. A hint, never a lock: ledger fencing is
    the lock.
    """

    async def put_ephemeral(self, key: str, value: bytes, expected_version: int = ANY_VERSION) -> int:
        """Writes a key bound to this session, taking it over from any other; returns its version."""
        ...

    async def commit(self, ops: Sequence[Op]) -> int:
        """Commits like MetadataStore.commit; ephemeral keys live as long as the session.

        Raises MetadataError, with nothing written, once the session has ended.
        """
        ...

    async def expired(self) -> None:
        """Returns once the store reported the session's end."""
        ...

    @property
    def has_ended(self) -> bool:
        """Returns whether `expired` returns at once."""
        ...

    @property
    def alive_until_s(self) -> float:
        """Time (Clock.monotonic) until which the session certainly lives: the session time after the last
        keep-alive that was answered. Later its state is unknown until the store answers.
        """
        ...

    async def close(self) -> None:
        """End the session and remove its keys; idempotent."""
        ...


class MetadataStore(Protocol):
    """Linearizable reads and writes on a small set of keys. Keys are '/'-separated text."""

    async def get(self, key: str) -> Versioned | None: ...

    async def children(self, prefix: str) -> Listing:
        """Returns every key that starts with `prefix`, with values, at one revision."""
        ...

    async def put(self, key: str, value: bytes, expected_version: int = ANY_VERSION) -> int:
        """Write one key; returns its new version. Raises VersionMismatch or UnknownOutcome."""
        ...

    async def delete(self, key: str, expected_version: int = ANY_VERSION) -> None:
        """Remove one key. Raises VersionMismatch or UnknownOutcome."""
        ...

    async def commit(self, ops: Sequence[Op]) -> int:
        """Commits all of `ops` or none, durably; returns the revision, which is the version of every key put.

        Guards see the state before the transaction. A key may be written once in it (ValueError otherwise);
        transactions without Put and Delete leave the revision unchanged. Raises VersionMismatch for the first
        guard that fails, UnknownOutcome, or another MetadataError when nothing was written.
        """
        ...

    def watch(self, prefix: str) -> Watch:
        """Watches changes under `prefix` from now on, in order."""
        ...

    async def session(self, ttl_ms: int) -> Session:
        """Starts a session that expires `ttl_ms` after its owner's last keep-alive."""
        ...

    async def close(self) -> None: ...


def check_ops(ops: Sequence[Op], *, has_session: bool) -> None:
    """Raises ValueError for operations that no store accepts: too many, a key written twice, a value too
    long, or an ephemeral key without a session.
    """
    if len(ops) > TXN_OPS_MAX:
        raise ValueError(
            f"a metadata transaction of {len(ops)} operations from {ops[0].key!r}: "
            f"at most {TXN_OPS_MAX} fit; split it"
        )
    written = set()
    for op in ops:
        if isinstance(op, Check):
            continue
        if op.key in written:
            raise ValueError(f"metadata key {op.key!r} is written twice in one transaction")
        written.add(op.key)
        if isinstance(op, Put) and op.ephemeral and not has_session:
            raise ValueError(f"metadata key {op.key!r} is to be ephemeral, and there is no session")
        if isinstance(op, Put) and len(op.value) > VALUE_BYTES_MAX:
            raise ValueError(
                f"the value of metadata key {op.key!r} has {len(op.value)} bytes, "
                f"at most {VALUE_BYTES_MAX} fit"
            )
