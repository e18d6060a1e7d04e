"""The writer and the reader of one local ledger."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from magnetar.common.errors import LedgerClosed, LedgerFenced, NoSuchEntry, StorageError, VersionMismatch
from magnetar.common.metadata.store import Op
from magnetar.common.metadata.values import LedgerMetadata, decode
from magnetar.ledger.ledger_store import ClosedLedger, LedgerListener, LedgerRef, Run, WriteReport
from magnetar.ledger.segment_log.log import SegmentLog

WithOps = Callable[[ClosedLedger], Sequence[Op]]
CommitClosed = Callable[[LedgerMetadata, int, ClosedLedger, WithOps | None], Awaitable[None]]


class LocalLedgerWriter:
    """The single writer of a ledger; implements `ledger_store.LedgerWriter`."""

    __slots__ = (
        "_closed",
        "_commit_closed",
        "_confirmed_waiter",
        "_error",
        "_gone",
        "_key",
        "_ledger",
        "_listener",
        "_log",
        "_metadata",
        "_next_entry_id",
        "_refusal",
        "_version",
        "last_confirmed",
    )

    def __init__(
        self,
        log: SegmentLog,
        commit_closed: CommitClosed,
        ref: LedgerRef,
        key: str,
        metadata: bytes,
        version: int,
        listener: LedgerListener,
        gone: Callable[[LedgerRef], None],
    ) -> None:
        self.last_confirmed = -1
        self._log = log
        self._commit_closed = commit_closed
        self._key = key
        # Stored as bytes: a message object living as long as its ledger would cost an idle topic half a KiB.
        self._metadata = metadata
        self._version = version
        self._listener = listener
        self._gone = gone
        self._next_entry_id = 0
        self._refusal: StorageError | None = None
        self._error: StorageError | None = None
        self._closed: ClosedLedger | None = None
        self._confirmed_waiter: asyncio.Future[None] | None = None
        self._ledger = log.ledger(ref)
        self._ledger.on_durable = self._durable
        self._ledger.on_failed = self._failed

    @property
    def ref(self) -> LedgerRef:
        return self._ledger.ref

    def append(self, run: Run) -> int:
        """See `LedgerWriter.append`."""
        if self._refusal is not None:
            raise self._refusal
        first = self._next_entry_id
        ledger = self._ledger
        run.ledger_id = ledger.ref.id
        run.first_entry_id = first
        try:
            self._log.append(ledger, run, self.last_confirmed)
        except StorageError:
            run.ledger_id = run.first_entry_id = -1
            raise
        self._next_entry_id = first + len(run.entries)
        return first

    async def close(self, with_ops: WithOps | None = None) -> ClosedLedger:
        """Closes the ledger; see `LedgerWriter.close`. A repeated call returns the same."""
        if self._closed is not None:
            return self._closed
        if self._refusal is None:
            self._refusal = LedgerClosed(f"ledger {self.ref.id} is closed")
        await self._confirmed()
        closed = ClosedLedger(self.ref, self.last_confirmed, self._ledger.byte_length)
        try:
            metadata = decode(LedgerMetadata, self._metadata)
            await self._commit_closed(metadata, self._version, closed, with_ops)
        except VersionMismatch as error:
            if error.key != self._key:
                self._refusal = self._error  # the ledger stays as it was
                raise
            self.fenced()
            raise LedgerFenced(f"ledger {self.ref.id} is no longer open: another owner closed it") from error
        self._closed = closed
        self._detach()
        return closed

    def write_report(self) -> WriteReport:
        """See `LedgerWriter.write_report`: the log reports a group before the next one is durable."""
        return WriteReport(*self._log.group_commit.synced_s)

    def fenced(self) -> None:
        """Fails once because another owner fenced the ledger."""
        self._failed(LedgerFenced(f"ledger {self.ref.id} was fenced by another owner"))

    async def _confirmed(self) -> None:
        """Waits until every append is confirmed, or the ledger failed."""
        while self.last_confirmed + 1 < self._next_entry_id and self._error is None:
            if self._confirmed_waiter is None:
                self._confirmed_waiter = asyncio.get_running_loop().create_future()
            await asyncio.shield(self._confirmed_waiter)

    def _durable(self, last_entry_id: int) -> None:
        self.last_confirmed = last_entry_id
        self._wake()
        self._listener.on_confirmed(last_entry_id)

    def _failed(self, error: StorageError) -> None:
        if self._error is not None or self._closed is not None:
            return
        self._error = self._refusal = error
        self._detach()
        self._wake()
        self._listener.on_failed(error, self.last_confirmed)

    def _wake(self) -> None:
        waiter, self._confirmed_waiter = self._confirmed_waiter, None
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    def _detach(self) -> None:
        self._ledger.on_durable = self._ledger.on_failed = None
        self._gone(self.ref)


class LocalLedgerReader:
    """Implements `ledger_store.LedgerReader`. `end` is the last entry of a closed ledger, else None."""

    __slots__ = ("_end", "_log", "ref")

    def __init__(self, log: SegmentLog, ref: LedgerRef, end: int | None) -> None:
        self.ref = ref
        self._log = log
        self._end = end

    @property
    def last_confirmed(self) -> int:
        return self._log.ledger(self.ref).last_entry_id if self._end is None else self._end

    @property
    def copies(self) -> int:
        """Always one: the local copy."""
        return 1

    async def read(self, first: int, last: int, max_bytes: int) -> list[Run]:
        """See `LedgerReader.read`."""
        confirmed = self.last_confirmed
        if not 0 <= first <= confirmed or last < first:
            raise NoSuchEntry(
                f"ledger {self.ref.id} has no entries {first} to {last}, it ends at {confirmed}"
            )
        return await self._log.read(self.ref, first, min(last, confirmed), max_bytes)
