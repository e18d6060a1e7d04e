"""A new ledger of records, which has a deletion intent until the head that it belongs to names it.

So a crash leaves no orphan: either the head names the new ledger and the old one has an intent, or the
reverse.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from magnetar.common.errors import (
    Backpressure,
    LogFailed,
    MetadataError,
    NotEnoughBookies,
    OwnershipLost,
    StorageError,
    VersionMismatch,
)
from magnetar.common.metadata.keys import delete_ledger_intent_id
from magnetar.common.metadata.store import ABSENT, Check, Delete, Op
from magnetar.ledger.ledger_store import LedgerListener, LedgerRef, LedgerWriter, Run
from magnetar.ledger.managed_ledger.context import ManagedLedgerContext
from magnetar.ledger.managed_ledger.intents import delete_ledger_intent, finish_quietly

_RETRY_S = 0.05
_SNAPSHOT_RUN_BYTES = 1024 * 1024


class RecordLedgerHead(Protocol):
    """A metadata value with one writer that names a ledger of records, as a topic's head does."""

    key: str
    version: int

    @property
    def record_ledger(self) -> LedgerRef | None:
        """The ledger that the value names; None without one."""
        ...

    async def name_record_ledger(self, ref: LedgerRef, ops: Sequence[Op]) -> None:
        """Writes the value with another ledger and `ops` in one transaction. Raises OwnershipLost,
        VersionMismatch for a guard among `ops`, MetadataError.
        """
        ...

    def explain(self, error: VersionMismatch) -> MetadataError | OwnershipLost:
        """Returns the error of a failed guard: OwnershipLost for the value's own guard."""
        ...


class NewRecordLedger:
    """A ledger of records from its creation until the head names it, and its writer's callbacks after that.

    `on_confirmed` and `on_failed` get the writer and a ledger listener's arguments.
    """

    __slots__ = (
        "_confirmed",
        "_ctx",
        "_failed",
        "_head",
        "_intent_version",
        "_on_confirmed",
        "_on_failed",
        "_properties",
        "_wake",
        "byte_length",
        "entries",
        "writer",
    )

    def __init__(
        self,
        ctx: ManagedLedgerContext,
        head: RecordLedgerHead,
        properties: dict[str, str],
        on_confirmed: Callable[[LedgerWriter, int], None],
        on_failed: Callable[[LedgerWriter, StorageError], None],
    ) -> None:
        self._ctx = ctx
        self._head = head
        self._properties = properties
        self._on_confirmed = on_confirmed
        self._on_failed = on_failed
        self._confirmed = -1
        self._failed: StorageError | None = None
        self._wake: asyncio.Future[None] | None = None
        self._intent_version = ABSENT
        self.entries = self.byte_length = 0
        self.writer: LedgerWriter | None = None

    async def create(self) -> None:
        """Creates the ledger with a deletion intent."""
        ctx, head = self._ctx, self._head
        listener = LedgerListener(on_confirmed=self._writer_confirmed, on_failed=self._writer_failed)

        def with_ops(ref: LedgerRef) -> Sequence[Op]:
            return [Check(head.key, head.version), delete_ledger_intent(ctx, ref, expected_version=ABSENT)]

        try:
            self.writer = await ctx.ledgers.create(
                listener,
                ensemble_size=ctx.config.ensemble_size,
                write_quorum=ctx.config.write_quorum,
                ack_quorum=ctx.config.ack_quorum,
                properties=self._properties,
                with_ops=with_ops,
            )
        except VersionMismatch as error:
            raise head.explain(error) from error
        intent = await ctx.metadata.get(self._intent_key)
        self._intent_version = ABSENT if intent is None else intent.version

    async def append(self, entries: list[bytes]) -> int:
        """Writes a snapshot, or a part of it; returns the id of its first entry once it is confirmed.

        Raises LogFailed and other storage errors.
        """
        assert self.writer is not None
        last = -1
        for run in snapshot_runs(entries, self._ctx.clock.wall_ms()):
            while True:
                try:
                    last = self.writer.append(run) + len(run.entries) - 1
                except Backpressure:
                    await asyncio.sleep(_RETRY_S)
                else:
                    break
            self.entries += len(run.entries)
            self.byte_length += run.byte_length
        while self._confirmed < last:
            if isinstance(self._failed, NotEnoughBookies):
                raise self._failed
            if self._failed is not None:
                raise LogFailed(f"ledger of records {self.writer.ref.id} failed: {self._failed}")
            self._wake = asyncio.get_running_loop().create_future()
            await self._wake
        self._wake = None
        return last + 1 - len(entries)

    async def adopt(self) -> LedgerRef | None:
        """Makes the head name this ledger; returns the previous one, which now has an intent."""
        assert self.writer is not None
        if self._intent_version == ABSENT:
            raise LogFailed(f"ledger of records {self.writer.ref.id} was cleaned up before it was used")
        old = self._head.record_ledger
        ops: list[Op] = [Delete(self._intent_key, self._intent_version)]
        if old is not None:
            ops.append(delete_ledger_intent(self._ctx, old))
        try:
            await self._head.name_record_ledger(self.writer.ref, ops)
        except VersionMismatch as error:
            raise LogFailed(
                f"ledger of records {self.writer.ref.id} was cleaned up before it was used"
            ) from error
        return old

    async def abandon(self) -> None:
        """Abandons the ledger; its intent remains if it cannot be deleted now."""
        if self.writer is not None:
            await finish_quietly(self._ctx, self.writer.ref)

    @property
    def _intent_key(self) -> str:
        assert self.writer is not None
        return self._ctx.keys.intent(delete_ledger_intent_id(self.writer.ref.id))

    def _writer_confirmed(self, last_confirmed: int) -> None:
        self._confirmed = last_confirmed
        self._notify()
        if self.writer is not None:
            self._on_confirmed(self.writer, last_confirmed)

    def _writer_failed(self, error: StorageError, last_confirmed: int) -> None:
        self._confirmed = max(self._confirmed, last_confirmed)
        self._failed = error
        self._notify()
        if self.writer is not None:
            self._on_failed(self.writer, error)

    def _notify(self) -> None:
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)


def snapshot_runs(entries: list[bytes], now_ms: int) -> Iterable[Run]:
    """Yields a snapshot in runs of limited size."""
    start = size = 0
    for at, entry in enumerate(entries):
        size += len(entry)
        if size >= _SNAPSHOT_RUN_BYTES or at == len(entries) - 1:
            yield Run(entries[start : at + 1], publish_time_ms=now_ms)
            start, size = at + 1, 0
