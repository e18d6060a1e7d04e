"""A topic's head key: the mutable part of its metadata, written only by its owner.

Every write is guarded by the head's version as known to the owner. Only takeovers and the owner write it, so
an unexpected version means that the topic has another owner (storage contract, section 4). The value is kept
encoded: most loaded topics never use it again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TypeVar

from magnetar.common.errors import (
    MagnetarError,
    MetadataError,
    OwnershipLost,
    StorageError,
    UnknownOutcome,
    VersionMismatch,
)
from magnetar.common.metadata.store import MetadataStore, Op, Put
from magnetar.common.metadata.values import TERMINATED, TopicHead, decode, encode
from magnetar.common.metadata.values import LedgerRef as RefValue
from magnetar.common.naming.position import Position
from magnetar.ledger.ledger_store import LedgerRef

HeadEdit = Callable[[TopicHead], None]
"""Changes a copy of the head, which is then written."""

EditT = TypeVar("EditT", bound=HeadEdit)

PropertiesChange = Callable[[dict[str, str]], dict[str, str]]
"""Computes a topic's new properties; may be called again. A MagnetarError leaves them unchanged."""


class TopicHeadKey:
    """The head, as known to its owner."""

    __slots__ = ("_edits", "_expected", "_metadata", "key", "value", "version")

    def __init__(self, metadata: MetadataStore, key: str, value: bytes, version: int) -> None:
        self._metadata = metadata
        self.key = key
        self.value = value
        self.version = version
        self._expected: bytes | None = None
        self._edits: list[tuple[HeadEdit, asyncio.Future[None]]] | None = None

    def decode(self) -> TopicHead:
        """Returns a copy to read, or to change and `put`."""
        return decode(TopicHead, self.value)

    def put(self, head: TopicHead) -> Put:
        """Returns the guarded write of a changed head; call `sync` first."""
        assert self._expected is None, "the head's version is known"
        return Put(self.key, encode(head), self.version)

    @property
    def edits_wait(self) -> bool:
        """Whether `write_edits` has pending changes."""
        return self._edits is not None

    def edit_soon(self, edit: HeadEdit) -> asyncio.Future[None]:
        """Schedules a change for the next `write_edits`; the future is done once that is durable."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._edits = [*(self._edits or ()), (edit, done)]
        return done

    async def write_edits(self) -> TopicHead:
        """Writes all pending changes; returns the new head. Raises as `commit`: then they remain pending."""
        edits = self._edits or []
        await self.sync()
        head = self.decode()
        for edit, _ in edits:
            edit(head)
        await self.commit(head)
        self._edits = (self._edits or [])[len(edits) :] or None
        for _, done in edits:
            if not done.done():
                done.set_result(None)
        return head

    def fail_edits(self, error: StorageError) -> None:
        """Ends all waits for a change without a result."""
        edits, self._edits = self._edits or (), None
        for _, done in edits:
            if not done.done():
                done.set_exception(error)

    def written(self, put: Put) -> None:
        """Records that `put` was committed in another component's transaction, whose revision is unknown."""
        self.value = self._expected = put.value

    async def sync(self) -> None:
        """Ensures that the head's version is known. Raises OwnershipLost, or MetadataError."""
        if self._expected is None:
            return
        found = await self._metadata.get(self.key)
        if found is None or found.value != self._expected:
            raise OwnershipLost(f"{self.key} was changed by another owner")
        self.version = found.version
        self._expected = None

    async def commit(self, head: TopicHead, ops: Sequence[Op] = ()) -> None:
        """Write the head with `ops` in one transaction.

        Raises OwnershipLost when the head has another version, VersionMismatch when a guard among `ops`
        fails, MetadataError when nothing was written.
        """
        put = self.put(head)
        try:
            self.version = await self._metadata.commit([put, *ops])
        except UnknownOutcome:
            await self._resolve(put)
        except VersionMismatch as error:
            raise self.explain(error) from error
        self.value = put.value

    def explain(self, error: VersionMismatch) -> MetadataError | OwnershipLost:
        """Returns the error of a failed guard: OwnershipLost for the head's own guard."""
        if error.key == self.key:
            return OwnershipLost(f"the topic has another owner: {error}")
        return error

    async def unknown(self) -> OwnershipLost | None:
        """Resolves a head transaction of unknown outcome; returns if it did not happen.

        If it did, its results are unknown, and the topic must be loaded again.
        """
        found = await self._metadata.get(self.key)
        if found is not None and found.version == self.version:
            return None
        return OwnershipLost(f"{self.key} changed in a transaction whose outcome is unknown")

    async def _resolve(self, put: Put) -> None:
        found = await self._metadata.get(self.key)
        # Compare the version first: a transaction may leave the head's value unchanged and write other keys.
        if found is not None and found.version == self.version:
            raise MetadataError(f"writing {self.key} had no effect; trying again is safe")
        if found is not None and found.value == put.value:
            self.version = found.version
        else:
            raise OwnershipLost(f"{self.key} was changed by another owner")


def ref_value(ref: LedgerRef) -> RefValue:
    """Converts a ledger reference to its metadata form."""
    return RefValue(id=ref.id, key=ref.key)


def read_ref(value: RefValue) -> LedgerRef:
    """Converts a ledger reference from its metadata form."""
    return LedgerRef(value.id, value.key)


class RaisedEpoch:
    """Raises the topic epoch to the next value, or to `at_least` if higher; `epoch` is the result."""

    __slots__ = ("_at_least", "epoch")

    def __init__(self, at_least: int) -> None:
        self._at_least = at_least
        self.epoch = 0

    def __call__(self, head: TopicHead) -> None:
        self.epoch = head.topic_epoch = max(head.topic_epoch + 1, self._at_least)


def with_termination(last: Position) -> HeadEdit:
    """Returns an edit that terminates the topic; `last` is the position of its last message."""

    def edit(head: TopicHead) -> None:
        head.terminated.last_ledger_id, head.terminated.last_entry_id = last
        head.format.incompatible_features |= TERMINATED

    return edit


class ChangedProperties:
    """Replaces the topic's properties by the result of `change`, or records its refusal in `error`."""

    __slots__ = ("_change", "error")

    def __init__(self, change: PropertiesChange) -> None:
        self._change = change
        self.error: MagnetarError | None = None

    def __call__(self, head: TopicHead) -> None:
        try:
            properties = self._change(dict(head.properties))
        except MagnetarError as error:
            self.error = error
            return
        head.properties.clear()
        head.properties.update(properties)
