"""Bookies whose content a test sets entry by entry, and one ledger on them, under virtual time.

`ReplicaBookie` is a bookie as its clients see it: what it holds, what it is in doubt about, whether it
answers. It keeps the promises of a bookie (a fence is for ever, 'no such entry' is certain) and nothing else.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Collection, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any

from magnetar.common.metadata.keys import Keys
from magnetar.common.metadata.store import Put
from magnetar.common.metadata.values import LedgerMetadata, decode, encode
from magnetar.ledger.bookie_protocol.bookie_client import (
    AppendDone,
    BookieUnreachable,
    EncodedAppend,
    ReadAnswer,
)
from magnetar.ledger.bookie_protocol.bookie_pb2 import (
    ENTRY_UNKNOWN,
    ENTRY_UNREADABLE,
    FENCED,
    LOG_FAILED,
    NO_SUCH_ENTRY,
    OK,
    UNREACHABLE,
    AppendBatch,
    Code,
    Description,
    EntryRanges,
    LedgerList,
    LedgerState,
    Record,
)
from magnetar.ledger.bookie_protocol.bookie_pb2 import LedgerRef as WireRef
from magnetar.ledger.bookie_protocol.records import check_record, decode_run, encode_run
from magnetar.ledger.ledger_catalog import LedgerCatalog
from magnetar.ledger.ledger_store import LedgerRef, Run
from magnetar.ledger.quorum.reader import QuorumLedgerReader, ReadContext, ReadOptions
from magnetar.ledger.quorum.recovery import LedgerRecovery, RecoveryOptions
from magnetar.ledger.quorum.replica_order import ReplicaOrder
from magnetar.ledger.quorum.striping import Fragment, LedgerLayout, Striping
from magnetar.sim.loop import SimClock, SimLoop, run
from magnetar.sim.metadata import SimMetadataServer, SimMetadataStore

REF = LedgerRef(7, 77)
NEVER_S = 3_600.0


def entry(entry_id: int) -> bytes:
    """What the old writer wrote: of various lengths."""
    return f"entry {entry_id} ".encode() + b"x" * (entry_id % 5)


def a_run(first: int, last: int) -> Run:
    return Run(
        [entry(n) for n in range(first, last + 1)], 1000, first, ledger_id=REF.id, first_entry_id=first
    )


@dataclass(slots=True, eq=False)
class ReplicaBookie:
    """Implements `BookieClient` and is the bookie behind it."""

    bookie_id: str
    held: dict[int, bytes] = field(default_factory=dict)
    lac: int = -1
    fenced: bool = False
    limbo: bool = False
    torn: bool = False
    """In limbo, for a torn last group alone."""
    down: bool = False
    silent: bool = False
    """Takes what is sent and never answers."""
    silence_ends_s: float = NEVER_S
    """When clients give up on a silent bookie."""
    takes_appends: bool = True
    refusals: list[Code.ValueType] = field(default_factory=list)
    """Answers to the next appends, which are not taken."""
    fence_code: Code.ValueType = OK
    ignores_fences: bool = False
    delay_s: float = 0.001
    damaged: set[int] = field(default_factory=set)
    lying: bool = False
    """Bits flip on the way out."""
    appended: list[tuple[int, int, int]] = field(default_factory=list)
    """(first, last, LAC) of what came with recovery=True."""
    reads: list[tuple[int, int, bool]] = field(default_factory=list)
    lacs_told: list[int] = field(default_factory=list)
    listings: list[tuple[int, int]] = field(default_factory=list)
    listed_at_once: int = 1 << 30
    lists_entries: bool = True
    row: tuple[int, int] = (0, 0)
    """What it saw come without a hole: from an entry to before another."""

    pending_bytes: int = 0

    async def _answer(self) -> None:
        if self.silent:
            await asyncio.sleep(self.silence_ends_s)
            raise BookieUnreachable(f"{self.bookie_id} did not answer")
        await asyncio.sleep(self.delay_s)
        if self.down:
            raise BookieUnreachable(f"{self.bookie_id} is down")

    def append(self, append: EncodedAppend, done: AppendDone) -> None:
        loop = asyncio.get_running_loop()
        if self.silent:
            loop.call_later(self.silence_ends_s, done, UNREACHABLE, "did not answer")
            return

        def take() -> None:
            if self.refusals:
                done(self.refusals.pop(), "as told")
            elif self.down:
                done(UNREACHABLE, "down")
            elif not self.takes_appends:
                done(LOG_FAILED, "no disk")
            else:
                done(*self.take(append.wire))

        loop.call_later(self.delay_s, take)

    def take(self, wire: bytes) -> tuple[Code.ValueType, str]:
        """Store what an append holds."""
        for each in AppendBatch.FromString(wire).appends:
            run = decode_run(each.record)
            if self.fenced and not each.recovery:
                return FENCED, "fenced"
            lac = check_record(each.record).lac
            self.lac = max(self.lac, lac)
            if each.recovery:
                self.appended.append((run.first_entry_id, run.last_entry_id, lac))
            for n, data in enumerate(run.entries, run.first_entry_id):
                assert self.held.get(n, data) == data, "an entry came again with other bytes"
                self.held[n] = data
                self.damaged.discard(n)
        return OK, ""

    def write_lac(self, ref: LedgerRef, lac: int) -> None:
        self.lacs_told.append(lac)

    async def read(
        self, ref: LedgerRef, first: int, last: int, max_bytes: int, *, fence: bool = False
    ) -> ReadAnswer:
        self.reads.append((first, last, fence))
        if fence and not self.down and not self.silent:
            self.fenced = True
        await self._answer()
        records: list[Record] = []
        entries: list[bytes] = []
        at, size = first, 0
        while at <= last and at in self.held and at not in self.damaged:
            size += len(self.held[at])
            if entries and size > max_bytes:
                break
            entries.append(self.held[at])
            at += 1
        half = (len(entries) + 1) // 2
        for start, part in ((0, entries[:half]), (half, entries[half:])):
            if part:
                run_ = Run(part, 1000, first + start, ledger_id=ref.id, first_entry_id=first + start)
                records.append(encode_run(run_, ref, self.lac))
        if self.lying:
            records = [Record(header=r.header, body=bytes([r.body[0] ^ 1]) + r.body[1:]) for r in records]
        if at > last or (entries and size > max_bytes):
            return ReadAnswer(records, OK, at, "")
        code = NO_SUCH_ENTRY
        if at in self.damaged:
            code = ENTRY_UNREADABLE
        elif self.limbo:
            code = ENTRY_UNKNOWN
        return ReadAnswer(records, code, at, "", torn=self.torn and code == ENTRY_UNKNOWN)

    def state(self) -> LedgerState:
        return LedgerState(
            ledger=WireRef(id=REF.id, key=REF.key),
            code=OK,
            lac=self.lac,
            last_entry_id=max(self.held, default=-1),
            fenced=self.fenced,
            limbo=self.limbo,
            byte_length=sum(map(len, self.held.values())),
            row_first_entry_id=self.row[0],
            row_end=self.row[1],
            torn=self.torn,
        )

    async def read_lac(self, ref: LedgerRef, *, above: int = -1, wait_ms: int = 0) -> LedgerState:
        await self._answer()
        return self.state()

    async def fence(self, ref: LedgerRef) -> LedgerState:
        if not self.down and not self.silent and not self.ignores_fences:
            self.fenced = True
        await self._answer()
        state = self.state()
        state.code = self.fence_code
        return state

    async def list_ledgers(
        self, *, after_ledger_id: int = -1, limit: int = 0, only_limbo: bool = False
    ) -> LedgerList:
        raise NotImplementedError

    async def delete_hint(self, refs: Sequence[LedgerRef]) -> None:
        raise NotImplementedError

    async def clear_limbo(self, ref: LedgerRef) -> LedgerState:
        raise NotImplementedError

    async def describe(self) -> Description:
        raise NotImplementedError

    async def list_entries(self, ref: LedgerRef, first: int, last: int) -> EntryRanges:
        self.listings.append((first, last))
        await self._answer()
        if not self.lists_entries:
            raise BookieUnreachable(f"{self.bookie_id} is of an earlier release")
        answer = EntryRanges(code=OK, until=min(last, first + self.listed_at_once - 1))
        for n in sorted(each for each in self.held if first <= each <= answer.until):
            if answer.lasts and answer.lasts[-1] == n - 1:
                answer.lasts[-1] = n
            else:
                answer.firsts.append(n)
                answer.lasts.append(n)
        return answer


class ReplicaWorld:
    """Bookies a, b, c ... of one ledger, spare ones, metadata, and the parts under test."""

    def __init__(self, loop: SimLoop, striping: Striping, spares: int = 0) -> None:
        self.loop = loop
        self.striping = striping
        names = "abcdefghijklmnop"
        self.ensemble = list(names[: striping.ensemble_size])
        self.spares = list(names[striping.ensemble_size : striping.ensemble_size + spares])
        self.bookies = {name: ReplicaBookie(name) for name in [*self.ensemble, *self.spares]}
        self.keys = Keys("test")
        self.server = SimMetadataServer()
        self.metadata = SimMetadataStore(self.server, random.Random(1))
        self.clock = SimClock(loop)
        self.catalog = LedgerCatalog(self.metadata, self.keys, self.clock, random.Random(2))
        self.order = ReplicaOrder(self.clock)
        self.context = ReadContext(clients=self, order=self.order, options=ReadOptions())
        value = LedgerMetadata(
            state=LedgerMetadata.OPEN,
            ensemble_size=striping.ensemble_size,
            write_quorum=striping.write_quorum,
            ack_quorum=striping.ack_quorum,
            last_entry_id=-1,
        )
        value.ref.id, value.ref.key = REF.id, REF.key
        self.set_fragments(value, Fragment(0, tuple(self.ensemble)))

    # BookieClients

    def client(self, bookie_id: str) -> ReplicaBookie:
        return self.bookies[bookie_id]

    async def close(self) -> None:
        raise NotImplementedError

    # what a test does

    def set_fragments(self, value: LedgerMetadata, *fragments: Fragment) -> None:
        LedgerLayout(self.striping, fragments).write_to(value)
        self.store(value)

    def store(self, value: LedgerMetadata) -> None:
        """Somebody else writes the ledger's metadata."""
        self.server.commit([Put(self.keys.ledger(REF.id), encode(value))])

    def stored(self) -> LedgerMetadata:
        found = self.server.get(self.keys.ledger(REF.id))
        assert found is not None
        return decode(LedgerMetadata, found.value)

    def layout(self) -> LedgerLayout:
        return LedgerLayout.of(self.stored())

    def put(self, entry_ids: range, positions: Sequence[int] | None = None) -> None:
        """The old writer's entries, on their write sets or on some positions of these."""
        for n in entry_ids:
            for position in self.striping.write_set(n):
                if positions is None or position in positions:
                    self.bookies[self.ensemble[position]].held[n] = entry(n)

    def lac(self, lac: int, *bookie_ids: str) -> None:
        for bookie_id in bookie_ids or self.ensemble:
            self.bookies[bookie_id].lac = lac

    def replace(
        self, ensemble: Sequence[str], position: int, striping: Striping, *, excluded: Collection[str] = ()
    ) -> str | None:
        free = [each for each in self.spares if each not in ensemble and each not in excluded]
        return free[0] if free else None

    def recovery(self, **options: Any) -> LedgerRecovery:
        return LedgerRecovery(
            self.catalog,
            self.metadata,
            self.keys,
            self.context,
            self.replace,
            self.clock,
            RecoveryOptions(**options),
        )

    async def now(self) -> LedgerMetadata:
        return (await self.catalog.get(REF))[1]

    def reader(self, **options: Any) -> QuorumLedgerReader:
        return QuorumLedgerReader(REF, self.layout(), self.context, reload=self.now, **options)

    def has_everywhere(self, entry_ids: range) -> bool:
        """Every entry is on all of its write set, as metadata says."""
        layout = self.layout()
        return all(
            self.bookies[bookie_id].held.get(n) == entry(n)
            for n in entry_ids
            for bookie_id in layout.bookies_of(n)
        )


def in_world(
    scenario: Callable[[ReplicaWorld], Coroutine[Any, Any, None]],
    *,
    sizes: tuple[int, int, int] = (3, 3, 2),
    spares: int = 0,
) -> None:
    """Run a scenario to its end."""
    loop = SimLoop(1)

    async def main() -> None:
        await scenario(ReplicaWorld(loop, Striping(*sizes), spares))

    run(loop, main())
