"""A topic's head key: the mutable part of its metadata, written only by its owner.

The value is kept encoded: most loaded topics never use it again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TypeVar

from magnetar.common.errors import MagnetarError, StorageError
from magnetar.common.metadata.store import MetadataStore, Op, Put
from magnetar.common.metadata.values import TERMINATED, TopicHead, decode, encode
from magnetar.common.metadata.values import LedgerRef as RefValue
from magnetar.common.naming.position import Position
from magnetar.ledger.ledger_store import LedgerRef
from magnetar.ledger.managed_ledger.guarded_key import GuardedKey

HeadEdit = Callable[[TopicHead], None]
"""Changes a copy of the head, which is then written."""

EditT = TypeVar("EditT", bound=HeadEdit)

PropertiesChange = Callable[[dict[str, str]], dict[str, str]]
"""Computes a topic's new properties; may be called again. A MagnetarError leaves them unchanged."""


class TopicHeadKey(GuardedKey):
    """The head, as known to its owner."""

    __slots__ = ("_edits",)

    def __init__(self, metadata: MetadataStore, key: str, value: bytes, version: int) -> None:
        super().__init__(metadata, key, value, version)
        self._edits: list[tuple[HeadEdit, asyncio.Future[None]]] | None = None

    def decode(self) -> TopicHead:
        """Returns a copy to read, or to change and `put`."""
        return decode(TopicHead, self.value)

    def put(self, head: TopicHead) -> Put:
        """Returns the guarded write of a changed head; call `sync` first."""
        return self.put_value(encode(head))

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

    async def commit(self, head: TopicHead, ops: Sequence[Op] = ()) -> None:
        """Writes the head with `ops` in one transaction. Raises as `commit_put`."""
        await self.commit_put(self.put(head), ops)

    # The head as the name of a ledger of records: `new_record_ledger.RecordLedgerHead`

    @property
    def record_ledger(self) -> LedgerRef | None:
        """The topic's cursor ledger; None before its first one."""
        head = self.decode()
        return read_ref(head.cursor_ledger) if head.HasField("cursor_ledger") else None

    async def name_record_ledger(self, ref: LedgerRef, ops: Sequence[Op]) -> None:
        """Makes `ref` the topic's cursor ledger. Raises as `commit`."""
        head = self.decode()
        head.cursor_ledger.CopyFrom(ref_value(ref))
        await self.commit(head, ops)


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
