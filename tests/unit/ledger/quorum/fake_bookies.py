"""Bookies in memory that do what a test tells them: answer, stay silent, refuse, vanish, doubt.

They keep the rules of real ones: an append is durable or not answered, a fence refuses ordinary appends from
then on, reads and fences tell what is there. `FakeBookies` is `BookieClients` and the registry in one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

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
    NO_SUCH_ENTRY,
    OK,
    UNREACHABLE,
    WRONG_KEY,
    AppendBatch,
    Code,
    Description,
    EntryRanges,
    LedgerList,
    LedgerState,
)
from magnetar.ledger.bookie_protocol.bookie_pb2 import LedgerRef as WireRef
from magnetar.ledger.bookie_protocol.records import decode_run, encode_run
from magnetar.ledger.ledger_store import LedgerRef, Run
from magnetar.ledger.segment_log.codec_v1 import decode_record_header


@dataclass(slots=True)
class Held:
    """What a bookie has of one ledger."""

    key: int
    entries: dict[int, Run] = field(default_factory=dict)
    """By entry id, the run it came in."""
    lac: int = -1
    fenced: bool = False
    unreadable: set[int] = field(default_factory=set)


class FakeBookie:
    """Implements `BookieClient`. Everything public may be changed at any time."""

    def __init__(self, bookie_id: str, rack: str = "", free_bytes: int = 1 << 40) -> None:
        self.bookie_id = bookie_id
        self.rack = rack
        self.free_bytes = free_bytes
        self.disk = (free_bytes, 2 * free_bytes)
        """Free and all bytes, as it describes itself."""
        self.started_ms = 1
        self.ledgers: dict[int, Held] = {}
        self.up = True
        """False: everything is unreachable at once."""
        self.holding = False
        """Appends are durable, their answers are held back until `release`; or for ever."""
        self.refusing: Code.ValueType = OK
        """Answer to every append, which is then not taken."""
        self.doubt = False
        """In limbo: what is not here is unknown."""
        self.appends: list[EncodedAppend] = []
        """Every append that arrived, in order."""
        self.explicit_lacs: list[tuple[int, int]] = []
        self.hints: list[LedgerRef] = []
        self.asked = 0
        """How often it was asked for its last add confirmed."""
        self.answers_after_s = 0.001
        self._held: list[tuple[AppendDone, Code.ValueType]] = []

    @property
    def pending_bytes(self) -> int:
        return 0

    def held(self, ref: LedgerRef) -> Held:
        return self.ledgers.setdefault(ref.id, Held(ref.key))

    def entry_ids(self, ref: LedgerRef) -> list[int]:
        """Which entries of a ledger are here."""
        return sorted(self.held(ref).entries)

    def release(self) -> None:
        """Answer what was held back, and hold nothing back any more."""
        self.holding = False
        held, self._held = self._held, []
        for done, code in held:
            asyncio.get_running_loop().call_soon(done, code, "")

    def lose_answers(self) -> None:
        """The connection breaks: what was held back is unreachable."""
        held, self._held = self._held, []
        for done, _ in held:
            asyncio.get_running_loop().call_soon(done, UNREACHABLE, "the connection broke")

    # --- BookieClient ---

    def append(self, append: EncodedAppend, done: AppendDone) -> None:
        loop = asyncio.get_running_loop()
        if not self.up:
            loop.call_soon(done, UNREACHABLE, f"{self.bookie_id} is down")
            return
        self.appends.append(append)
        code = self.refusing if self.refusing != OK else self._take(append)
        if self.holding:
            self._held.append((done, code))
        else:
            loop.call_soon(done, code, "" if code == OK else "as told")

    def _take(self, append: EncodedAppend) -> Code.ValueType:
        [item] = AppendBatch.FromString(append.wire).appends
        held = self.held(append.ref)
        if held.key != append.ref.key:
            return WRONG_KEY
        if held.fenced and not item.recovery:
            return FENCED
        run = decode_run(item.record)
        header = decode_record_header(item.record.header, 0)
        assert header is not None
        held.lac = max(held.lac, header.lac)
        for entry_id in range(run.first_entry_id, run.last_entry_id + 1):
            before = held.entries.setdefault(entry_id, run).slice(entry_id, entry_id)
            assert before.entries == run.slice(entry_id, entry_id).entries, "an entry never changes"
            held.unreadable.discard(entry_id)
        return OK

    def write_lac(self, ref: LedgerRef, lac: int) -> None:
        if self.up:
            self.explicit_lacs.append((ref.id, lac))
            held = self.held(ref)
            held.lac = max(held.lac, lac)

    async def read(
        self, ref: LedgerRef, first: int, last: int, max_bytes: int, *, fence: bool = False
    ) -> ReadAnswer:
        await self._reach()
        held = self.held(ref)
        if held.key != ref.key:
            return ReadAnswer([], WRONG_KEY, first, "as told")
        if fence:
            held.fenced = True
        found: list[tuple[Run, int, int]] = []
        code, size = OK, 0
        for entry_id in range(first, last + 1):
            run = held.entries.get(entry_id)
            if run is None or entry_id in held.unreadable:
                code = ENTRY_UNREADABLE if run is not None else ENTRY_UNKNOWN if self.doubt else NO_SUCH_ENTRY
                break
            size += len(run.entries[entry_id - run.first_entry_id])
            if found and size > max_bytes:
                break
            if found and found[-1][0] is run:
                found[-1] = run, found[-1][1], entry_id
            else:
                found.append((run, entry_id, entry_id))
        records = [encode_run(run.slice(start, end), ref, -1) for run, start, end in found]
        return ReadAnswer(records, code, -1 if code == OK else entry_id, "")

    async def read_lac(self, ref: LedgerRef, *, above: int = -1, wait_ms: int = 0) -> LedgerState:
        self.asked += 1
        await self._reach()
        return self._state(ref)

    async def fence(self, ref: LedgerRef) -> LedgerState:
        await self._reach()
        self.held(ref).fenced = True
        return self._state(ref)

    async def list_ledgers(
        self, *, after_ledger_id: int = -1, limit: int = 0, only_limbo: bool = False
    ) -> LedgerList:
        await self._reach()
        refs = [LedgerRef(id, held.key) for id, held in sorted(self.ledgers.items()) if id > after_ledger_id]
        return LedgerList(ledgers=map(self._state, refs))

    async def delete_hint(self, refs: Sequence[LedgerRef]) -> None:
        await self._reach()
        self.hints += refs

    async def clear_limbo(self, ref: LedgerRef) -> LedgerState:
        await self._reach()
        self.doubt = False
        return self._state(ref)

    async def describe(self) -> Description:
        await self._reach()
        free, total = self.disk
        return Description(bookie_id=self.bookie_id, free_bytes=free, total_bytes=total)

    async def list_entries(self, ref: LedgerRef, first: int, last: int) -> EntryRanges:
        await self._reach()
        held = [n for n in sorted(self.held(ref).entries) if first <= n <= last]
        return EntryRanges(code=OK, until=last, firsts=held, lasts=held)

    def _state(self, ref: LedgerRef) -> LedgerState:
        held = self.held(ref)
        return LedgerState(
            ledger=WireRef(id=ref.id, key=ref.key),
            code=OK if held.key == ref.key else WRONG_KEY,
            lac=held.lac,
            last_entry_id=max(held.entries, default=-1),
            fenced=held.fenced,
            limbo=self.doubt,
            byte_length=sum(len(run.entries[id - run.first_entry_id]) for id, run in held.entries.items()),
        )

    async def _reach(self) -> None:
        await asyncio.sleep(self.answers_after_s)
        if not self.up:
            raise BookieUnreachable(f"{self.bookie_id} is down")


class FakeBookies:
    """`BookieClients` and `BookieRegistryView` over a set of fake bookies; all writable until told."""

    def __init__(self, *bookie_ids: str, racks: dict[str, str] | None = None) -> None:
        self.all = {each: FakeBookie(each, (racks or {}).get(each, "")) for each in bookie_ids}
        self.unwritable: set[str] = set()
        self._listeners: list[Callable[[], None]] = []

    def __getitem__(self, bookie_id: str) -> FakeBookie:
        return self.all[bookie_id]

    def add(self, bookie_id: str, rack: str = "") -> FakeBookie:
        """Another one comes up."""
        bookie = self.all[bookie_id] = FakeBookie(bookie_id, rack)
        self.changed()
        return bookie

    def take_down(self, bookie_id: str) -> None:
        """A bookie dies: unreachable, and not registered any more."""
        self.all[bookie_id].up = False
        self.all[bookie_id].lose_answers()
        self.unwritable.add(bookie_id)
        self.changed()

    def bring_up(self, bookie_id: str) -> None:
        """It comes back with what it had."""
        self.all[bookie_id].up = True
        self.unwritable.discard(bookie_id)
        self.changed()

    def changed(self) -> None:
        for listener in self._listeners:
            listener()

    def client(self, bookie_id: str) -> FakeBookie:
        bookie = self.all.get(bookie_id)
        if bookie is None:
            bookie = FakeBookie(bookie_id)
            bookie.up = False
        return bookie

    async def close(self) -> None:
        for bookie in self.all.values():
            bookie.lose_answers()

    def writable(self) -> list[FakeBookie]:
        return [each for bookie_id, each in sorted(self.all.items()) if bookie_id not in self.unwritable]

    def on_change(self, listener: Callable[[], None]) -> None:
        self._listeners.append(listener)
