"""A topic's head key: the mutable part of its metadata, written only by its owner.

Every write is guarded by the version under which the owner knows the head. Only takeovers and the owner
itself write it, so a head that changed under us means that the topic has another owner (storage contract,
section 4). The value is kept encoded: most loaded topics never touch it again.
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
"""A change of a head, made on a copy that is written then."""

EditT = TypeVar("EditT", bound=HeadEdit)

PropertiesChange = Callable[[dict[str, str]], dict[str, str]]
"""Computes a topic's new properties; may be called again. A MagnetarError leaves them unchanged."""


class TopicHeadKey:
    """The head as its owner knows it."""

    __slots__ = ("_edits", "_expected", "_metadata", "key", "value", "version")

    def __init__(self, metadata: MetadataStore, key: str, value: bytes, version: int) -> None:
        self._metadata = metadata
        self.key = key
        self.value = value
        self.version = version
        self._expected: bytes | None = None
        self._edits: list[tuple[HeadEdit, asyncio.Future[None]]] | None = None

    def decode(self) -> TopicHead:
        """A copy to look at or to change and `put`."""
        return decode(TopicHead, self.value)

    def put(self, head: TopicHead) -> Put:
        """The guarded write of a changed head; call `sync` first."""
        assert self._expected is None, "the head's version is known"
        return Put(self.key, encode(head), self.version)

    @property
    def edits_wait(self) -> bool:
        """True while there is something for `write_edits`."""
        return self._edits is not None

    def edit_soon(self, edit: HeadEdit) -> asyncio.Future[None]:
        """Change the head with the next `write_edits`; done once that is durable."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._edits = [*(self._edits or ()), (edit, done)]
        return done

    async def write_edits(self) -> TopicHead:
        """Write all changes that wait at once; returns the head as it is now. Raises as `commit`: then they
        still wait.
        """
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
        """`put` was committed as a part of somebody else's transaction, whose revision we were not told."""
        self.value = self._expected = put.value

    async def sync(self) -> None:
        """Make sure that the head's version is known. Raises OwnershipLost, or MetadataError."""
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
        """Error of a failed guard: the guard of the head is the owner's."""
        if error.key == self.key:
            return OwnershipLost(f"the topic has another owner: {error}")
        return error

    async def unknown(self) -> OwnershipLost | None:
        """After a transaction with the head of unknown outcome: None when it did not happen.

        If it did, what it gave us is lost to us, and the topic is to be loaded anew.
        """
        found = await self._metadata.get(self.key)
        if found is not None and found.version == self.version:
            return None
        return OwnershipLost(f"{self.key} changed in a transaction whose outcome is unknown")

    async def _resolve(self, put: Put) -> None:
        found = await self._metadata.get(self.key)
        # The version first: a transaction may leave the head's value as it is and change other keys.
        if found is not None and found.version == self.version:
            raise MetadataError(f"writing {self.key} had no effect; trying again is safe")
        if found is not None and found.value == put.value:
            self.version = found.version
        else:
            raise OwnershipLost(f"{self.key} was changed by another owner")


def ref_value(ref: LedgerRef) -> RefValue:
    """A ledger's name as metadata keeps it."""
    return RefValue(id=ref.id, key=ref.key)


def read_ref(value: RefValue) -> LedgerRef:
    """A ledger's name as metadata keeps it, read back."""
    return LedgerRef(value.id, value.key)


class RaisedEpoch:
    """The next topic epoch, or `at_least` if that is more; `epoch` is which it was."""

    __slots__ = ("_at_least", "epoch")

    def __init__(self, at_least: int) -> None:
        self._at_least = at_least
        self.epoch = 0

    def __call__(self, head: TopicHead) -> None:
        self.epoch = head.topic_epoch = max(head.topic_epoch + 1, self._at_least)


def with_termination(last: Position) -> HeadEdit:
    """The topic takes no more messages; `last` is the position of its last one."""

    def edit(head: TopicHead) -> None:
        head.terminated.last_ledger_id, head.terminated.last_entry_id = last
        head.format.incompatible_features |= TERMINATED

    return edit


class ChangedProperties:
    """The topic has the properties that `change` makes of its own, or `error`, when that refuses to."""

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
