"""A ledger store in memory whose confirmations, failures and crashes are decided by the test."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from magnetar.common.errors import (
    Backpressure,
    EntryUnreadable,
    LedgerClosed,
    LogFailed,
    NoSuchEntry,
    NoSuchLedger,
    StorageError,
)
from magnetar.common.metadata.store import MetadataStore, Op
from magnetar.ledger.ledger_store import ClosedLedger, LedgerListener, LedgerRef, Obstacle, Run, WriteReport


@dataclass
class ScriptedLedger:
    """One ledger: its writer and its reader. Nothing is confirmed until the test says so."""

    ref: LedgerRef
    store: ScriptedLedgers
    listener: LedgerListener
    runs: list[Run] = field(default_factory=list)
    last_confirmed: int = -1
    end: int | None = None
    unreadable: set[int] = field(default_factory=set)
    copies: int = 1
    quorums: tuple[int, int, int] = (1, 1, 1)
    report: WriteReport | None = None
    room: int = 1 << 40
    """Unconfirmed entries that it takes."""

    @property
    def appended(self) -> int:
        return sum(len(run.entries) for run in self.runs) - 1

    def append(self, run: Run) -> int:
        if self.end is not None:
            raise LedgerClosed(f"ledger {self.ref.id} is closed")
        if self.appended - self.last_confirmed + len(run.entries) > self.room:
            raise Backpressure(f"ledger {self.ref.id} takes {self.room} unconfirmed entries")
        first = self.appended + 1
        run.ledger_id, run.first_entry_id = self.ref.id, first
        self.runs.append(replace(run))
        return first

    def write_report(self) -> WriteReport | None:
        return self.report

    def confirm(self, last: int | None = None) -> None:
        self.last_confirmed = self.appended if last is None else last
        self.listener.on_confirmed(self.last_confirmed)

    def fail(self) -> None:
        self.listener.on_failed(LogFailed("as the test wants it"), self.last_confirmed)

    async def close(self, with_ops: Callable[[ClosedLedger], Sequence[Op]] | None = None) -> ClosedLedger:
        closed = ClosedLedger(self.ref, self.last_confirmed, 0)
        ops = with_ops(closed) if with_ops is not None else ()
        await self.store.open_gate.wait()
        await self.store.commit(ops)
        self.end = self.last_confirmed
        return closed

    async def read(self, first: int, last: int, max_bytes: int) -> list[Run]:
        assert max_bytes > 0
        if first > self.last_confirmed:
            raise NoSuchEntry(f"{first} of ledger {self.ref.id}")
        if first in self.unreadable:
            raise EntryUnreadable(f"{first} of ledger {self.ref.id}")
        last = min(last, self.last_confirmed, *(bad - 1 for bad in self.unreadable if bad > first), 1 << 40)
        return [
            run.slice(max(first, run.first_entry_id), min(last, run.last_entry_id))
            for run in self.runs
            if run.first_entry_id <= last and run.last_entry_id >= first
        ]


class ScriptedLedgers:
    """`ledgers` by id, in the order they were made; closing waits while `open_gate` is not set.

    Creating raises `refusal`, if there is one.
    """

    def __init__(self, metadata: MetadataStore) -> None:
        self.metadata = metadata
        self.ledgers: dict[int, ScriptedLedger] = {}
        self.made = 0
        self.open_gate = asyncio.Event()
        self.open_gate.set()
        self.refusal: StorageError | None = None

    async def commit(self, ops: Sequence[Op]) -> None:
        if ops:
            await self.metadata.commit(ops)

    async def create(
        self,
        listener: LedgerListener,
        *,
        ensemble_size: int,
        write_quorum: int,
        ack_quorum: int,
        properties: dict[str, str],
        with_ops: Callable[[LedgerRef], Sequence[Op]] | None = None,
    ) -> ScriptedLedger:
        if self.refusal is not None:
            raise self.refusal
        self.made += 1
        ref = LedgerRef(self.made, 7)
        await self.commit(with_ops(ref) if with_ops is not None else ())
        quorums = (ensemble_size, write_quorum, ack_quorum)
        ledger = ScriptedLedger(ref, self, listener, copies=write_quorum, quorums=quorums)
        self.ledgers[ref.id] = ledger
        return ledger

    async def open(self, ref: LedgerRef) -> ScriptedLedger:
        if ref.id not in self.ledgers:
            raise NoSuchLedger(f"ledger {ref.id}")
        return self.ledgers[ref.id]

    async def recover(
        self, ref: LedgerRef, with_ops: Callable[[ClosedLedger], Sequence[Op]] | None = None
    ) -> tuple[ScriptedLedger, ClosedLedger]:
        """Ends where the test set `end`, else after everything that was appended."""
        ledger = await self.open(ref)
        if ledger.end is None:
            ledger.end = ledger.appended
        ledger.last_confirmed = ledger.end
        closed = ClosedLedger(ref, ledger.end, 0)
        await self.commit(with_ops(closed) if with_ops is not None else ())
        return ledger, closed

    async def disk_usage(self, copies: int) -> float | None:
        return None

    def obstacle(self, ack_quorum: int) -> Obstacle | None:
        return None if self.refusal is None else Obstacle(str(self.refusal), seen_to_end=False)

    async def delete(self, ref: LedgerRef, with_ops: Sequence[Op] = ()) -> None:
        await self.commit(with_ops)
        self.ledgers.pop(ref.id, None)
