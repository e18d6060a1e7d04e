"""A ledger of pages for a compacted view, which has a deletion intent until the view names it.

So a crash leaves no orphan. Intents are finished once they have an age, and a run may take long: `keep`
renews the intent's time. A ledger whose intent was finished all the same is gone, and the run fails.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from magnetar.common.errors import (
    Backpressure,
    LogFailed,
    NotEnoughBookies,
    StorageError,
    UnknownOutcome,
    VersionMismatch,
)
from magnetar.common.metadata.keys import delete_ledger_intent_id
from magnetar.common.metadata.store import ABSENT, Delete, Op
from magnetar.ledger.compacted.figures import WriteTimes
from magnetar.ledger.ledger_store import ClosedLedger, LedgerListener, LedgerRef, LedgerWriter, Run
from magnetar.ledger.managed_ledger.context import ManagedLedgerContext
from magnetar.ledger.managed_ledger.intents import delete_ledger_intent, finish_quietly

KEEP_INTERVAL_S: Final = 15.0
"""Seconds after which the intent is renewed; well below the age at which brokers finish intents."""

_RETRY_S: Final = 0.05
_UNCONFIRMED_BYTES_MAX: Final = 4 << 20


class PageLedger:
    """One ledger in the making; `create` begins it."""

    __slots__ = (
        "_confirmed",
        "_ctx",
        "_failed",
        "_intent_version",
        "_kept_at",
        "_unconfirmed",
        "_wake",
        "_writes",
        "byte_length",
        "closed",
        "pages",
        "ref",
        "writer",
    )

    def __init__(self, ctx: ManagedLedgerContext, writes: WriteTimes) -> None:
        """Notes in `writes` how long each page takes."""
        self._ctx = ctx
        self._writes = writes
        self._confirmed = -1
        self._failed: StorageError | None = None
        self._intent_version = ABSENT
        self._kept_at = ctx.clock.monotonic()
        self._unconfirmed: list[tuple[int, int, float]] = []
        """Pages as (entry id, bytes, time of their hand-over)."""
        self._wake: asyncio.Future[None] | None = None
        self.byte_length = 0
        self.pages = 0
        self.closed: ClosedLedger | None = None
        self.ref = LedgerRef(0, 0)
        self.writer: LedgerWriter | None = None

    async def append(self, pages: Sequence[bytes]) -> None:
        """Appends pages; waits while much is unconfirmed. Raises LogFull, LogFailed, NotEnoughBookies,
        LedgerFenced, MetadataError.
        """
        assert self.writer is not None
        for page in pages:
            run = Run([page], publish_time_ms=self._ctx.clock.wall_ms())
            while True:
                self._check_failed()
                try:
                    last = self.writer.append(run)
                except Backpressure:
                    await asyncio.sleep(_RETRY_S)
                else:
                    break
            self.pages += 1
            self.byte_length += len(page)
            self._unconfirmed.append((last, len(page), self._ctx.clock.monotonic()))
            while sum(size for _, size, _ in self._unconfirmed) > _UNCONFIRMED_BYTES_MAX:
                await self._progress()
        await self.keep()

    async def close(self) -> None:
        """Waits for the confirmation of all pages and closes the ledger. Raises as `append`."""
        assert self.writer is not None
        while self._unconfirmed:
            await self._progress()
        self._check_failed()
        closed = await self.writer.close()
        if closed.last_entry_id != self.pages - 1:
            raise LogFailed(
                f"ledger {self.ref.id} was closed at {closed.last_entry_id} of {self.pages} pages"
            )
        self.closed = closed

    async def keep(self) -> None:
        """Renews the intent's time if it is due. Raises LogFailed if the ledger is gone, MetadataError."""
        now = self._ctx.clock.monotonic()
        if now - self._kept_at < KEEP_INTERVAL_S:
            return
        self._kept_at = now
        put = delete_ledger_intent(self._ctx, self.ref, expected_version=self._intent_version)
        try:
            self._intent_version = await self._ctx.metadata.commit([put])
        except VersionMismatch as error:
            raise self._cleaned_up() from error
        except UnknownOutcome:
            found = await self._ctx.metadata.get(put.key)
            if found is None:
                raise self._cleaned_up() from None
            self._intent_version = found.version

    def adoption(self) -> Op:
        """Returns the operation of the transaction that names the ledger: it removes the intent, and fails if
        the intent was finished meanwhile.
        """
        assert self.closed is not None, "only closed ledgers are named"
        return Delete(self._intent_key, self._intent_version)

    async def abandon(self) -> None:
        """Deletes the ledger unless the view names it; its intent remains if that fails now."""
        await finish_quietly(self._ctx, self.ref)

    @property
    def _intent_key(self) -> str:
        return self._ctx.keys.intent(delete_ledger_intent_id(self.ref.id))

    def _cleaned_up(self) -> LogFailed:
        return LogFailed(f"ledger {self.ref.id} of a compaction was cleaned up before it was used")

    async def create(self, topic: str) -> None:
        """Creates the ledger with its intent. Raises NotEnoughBookies, MetadataError.

        Not guarded by the topic's head, which other tasks of its owner write meanwhile: a former owner's
        ledger has an intent, and its view is never named.
        """
        ctx = self._ctx

        def with_ops(ref: LedgerRef) -> Sequence[Op]:
            return [delete_ledger_intent(ctx, ref, expected_version=ABSENT)]

        self.writer = await ctx.ledgers.create(
            LedgerListener(on_confirmed=self._on_confirmed, on_failed=self._on_failed),
            ensemble_size=ctx.config.ensemble_size,
            write_quorum=ctx.config.write_quorum,
            ack_quorum=ctx.config.ack_quorum,
            properties={"topic": topic, "kind": "compacted"},
            with_ops=with_ops,
        )
        self.ref = self.writer.ref
        intent = await ctx.metadata.get(self._intent_key)
        if intent is None:
            raise self._cleaned_up()
        self._intent_version = intent.version

    async def _progress(self) -> None:
        self._check_failed()
        if self._unconfirmed and self._unconfirmed[0][0] <= self._confirmed:
            self._settle()
            return
        self._wake = asyncio.get_running_loop().create_future()
        await self._wake
        self._settle()

    def _settle(self) -> None:
        self._unconfirmed = [each for each in self._unconfirmed if each[0] > self._confirmed]

    def _check_failed(self) -> None:
        if isinstance(self._failed, NotEnoughBookies):
            raise self._failed
        if self._failed is not None:
            raise LogFailed(f"ledger {self.ref.id} of a compaction failed: {self._failed}")

    def _on_confirmed(self, last_confirmed: int) -> None:
        now = self._ctx.clock.monotonic()
        for page_id, _, began in self._unconfirmed:
            if self._confirmed < page_id <= last_confirmed:
                self._writes.add((now - began) * 1000)
        self._confirmed = last_confirmed
        self._notify()

    def _on_failed(self, error: StorageError, last_confirmed: int) -> None:
        self._confirmed = max(self._confirmed, last_confirmed)
        self._failed = error
        self._notify()

    def _notify(self) -> None:
        wake, self._wake = self._wake, None
        if wake is not None and not wake.done():
            wake.set_result(None)
