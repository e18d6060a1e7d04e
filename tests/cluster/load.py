"""Load on bookies that goes on through faults, remembers all that was confirmed, and reads all the time.

    async with Load.running(client, outside) as load:
        ...a fault...
    await load.check(client)

Each of a few topics has one ledger after another, as a broker's topics do: the next one is made while the
last is still written. Beside the writer a tailing reader follows it, and a reader of another quorum client,
which knows only what bookies tell it, looks at the newest and at older entries.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final

from magnetar.common.errors import (
    Backpressure,
    EntryUnknown,
    LedgerFenced,
    MetadataError,
    NoSuchEntry,
    NotEnoughBookies,
    StorageError,
)
from magnetar.common.metadata.values import LedgerMetadata
from magnetar.ledger.ledger_store import LedgerListener, LedgerReader, LedgerRef, Run
from magnetar.ledger.quorum.ledger_metadata import OPEN_GAP_END
from magnetar.ledger.quorum.writer import QuorumLedgerWriter

from tests.cluster.ledger_client import LedgerClient, entry_bytes

TOPICS: Final = 3
ENTRIES_A_RUN: Final = 5
ENTRIES_IN_FLIGHT_MAX: Final = 250
ENTRIES_A_LEDGER: Final = 500
PAUSE_S: Final = 0.01
WAIT_SECONDS_MAX: Final = 60.0


@dataclass(slots=True, eq=False)
class Written:
    """One ledger of the load."""

    ref: LedgerRef
    confirmed: int = -1
    """The highest watermark that the writer was told: everything up to it is promised."""
    next: int = 0
    end: int | None = None
    """Where it was closed."""
    error: StorageError | None = None


@dataclass(slots=True)
class Gaps:
    """The longest times between two confirmations, or two reads, of each topic after each fault; seconds."""

    writes: list[float] = field(default_factory=list)
    reads: list[float] = field(default_factory=list)
    undisturbed: list[float] = field(default_factory=list)
    """Between confirmations before any fault, for comparison."""

    def told(self, what: str) -> str:
        return (
            f"{what}: write gap {_spread(self.writes)} (before: {_spread(self.undisturbed)}), "
            f"read gap {_spread(self.reads)}"
        )


def _spread(values: list[float]) -> str:
    in_order = sorted(values)
    return f"p50 {in_order[len(in_order) // 2] * 1e3:.0f} ms, maximum {in_order[-1] * 1e3:.0f} ms"


class Topic:
    """A writer and its tailing reader."""

    def __init__(self, client: LedgerClient) -> None:
        self.ledgers: list[Written] = []
        self.confirmed_at: list[float] = []
        self.read_at: list[float] = []
        self.failed: list[str] = []
        """Ledgers given up, and why."""
        self.reads_failed: list[str] = []
        self.ending = False
        self._tailed: Written | None = None
        self._client = client
        self._loop = asyncio.get_running_loop()

    @property
    def confirmed(self) -> int:
        return sum(each.confirmed + 1 for each in self.ledgers)

    @property
    def needs_no_metadata(self) -> bool:
        """Whether writing and reading will go on for a while without: no ledger is about to be opened, closed
        or followed by another."""
        newest = self.ledgers[-1]
        closed = all(each.end is not None for each in self.ledgers[:-1])
        return closed and self._tailed is newest and newest.next < ENTRIES_A_LEDGER // 2

    async def write(self) -> None:
        async with asyncio.TaskGroup() as group:
            following: asyncio.Task[tuple[Written, QuorumLedgerWriter]] | None = None
            now, writer = await self._create()
            while not self.ending:
                if following is None and (now.error is not None or now.next >= ENTRIES_A_LEDGER):
                    following = group.create_task(self._create())
                if following is not None and following.done():
                    group.create_task(self._close(now, writer))
                    (now, writer), following = following.result(), None
                if now.error is None and now.next - now.confirmed <= ENTRIES_IN_FLIGHT_MAX:
                    self._append(now, writer)
                await asyncio.sleep(PAUSE_S)
            await self._close(now, writer)
            if following is not None:
                await self._close(*await following)

    def _append(self, now: Written, writer: QuorumLedgerWriter) -> None:
        entries = [entry_bytes(now.ref, now.next + n) for n in range(ENTRIES_A_RUN)]
        try:
            assert writer.append(Run(entries)) == now.next
        except Backpressure:
            return
        except StorageError as error:
            now.error = error
        else:
            now.next += ENTRIES_A_RUN

    async def _create(self) -> tuple[Written, QuorumLedgerWriter]:
        while True:
            now = Written(LedgerRef(-1, 0))

            def confirmed(last: int, now: Written = now) -> None:
                assert last > now.confirmed, "the watermark went back"
                assert now.end is None, "confirmed after it was closed"
                now.confirmed = last
                self.confirmed_at.append(self._loop.time())

            def failed(error: StorageError, last: int, now: Written = now) -> None:
                assert last == now.confirmed
                now.error = error
                self.failed.append(f"{now.ref.id}: {error!r}")

            try:
                writer = await self._client.create(LedgerListener(confirmed, failed))
            except (NotEnoughBookies, MetadataError):
                await asyncio.sleep(0.05)
                continue
            now.ref = writer.ref
            self.ledgers.append(now)
            return now, writer

    async def _close(self, now: Written, writer: QuorumLedgerWriter) -> None:
        while True:
            try:
                closed = await writer.close()
                break
            except LedgerFenced:
                _, closed = await self._client.store.recover(now.ref)
                break
            except (MetadataError, NotEnoughBookies):
                await asyncio.sleep(0.1)
        assert closed.last_entry_id >= now.confirmed, f"{now} was closed at {closed.last_entry_id}"
        now.end = closed.last_entry_id

    async def tail(self) -> None:
        """Read everything as soon as it is confirmed."""
        index = 0
        while True:
            if index == len(self.ledgers):
                if self.ending:
                    return
                await asyncio.sleep(PAUSE_S)
                continue
            ledger = self.ledgers[index]
            index += 1
            reader = await self.open(self._client, ledger.ref)
            self._tailed = ledger
            position = 0
            while ledger.end is None or position <= ledger.end:
                if reader.last_confirmed < position:
                    if ledger.end is not None and reader.last_confirmed < ledger.end:
                        reader = await self.open(self._client, ledger.ref)  # it was recovered
                    await asyncio.sleep(PAUSE_S)
                    continue
                position = await self.read(reader, position, reader.last_confirmed)

    async def open(self, client: LedgerClient, ref: LedgerRef) -> LedgerReader:
        while True:
            try:
                return await client.store.open(ref)
            except MetadataError:
                await asyncio.sleep(0.05)

    async def read(self, reader: LedgerReader, first: int, last: int) -> int:
        """Read and compare; returns the entry after."""
        try:
            runs = await reader.read(first, last, 256 << 10)
        except (EntryUnknown, MetadataError) as error:
            self.reads_failed.append(f"{reader.ref.id}:{first}: {error!r}")
            await asyncio.sleep(0.05)
            return first
        self.read_at.append(self._loop.time())
        for run in runs:
            for entry_id, entry in enumerate(run.entries, run.first_entry_id):
                assert entry_id == first, "entries are skipped, or there twice"
                assert entry == entry_bytes(reader.ref, entry_id), f"{reader.ref.id}:{entry_id} was changed"
                first += 1
        return first

    async def look(self, outside: LedgerClient) -> None:
        """As somebody who is not the writer: the newest entries, and any of before."""
        rng = random.Random(len(self.ledgers))
        while not self.ending:
            await asyncio.sleep(0.02)
            if not self.ledgers:
                continue
            for ledger in (self.ledgers[-1], rng.choice(self.ledgers)):
                reader = await self.open(outside, ledger.ref)
                try:
                    await reader.refresh()  # type: ignore[attr-defined]
                except MetadataError:
                    continue
                last = reader.last_confirmed
                told = ledger.confirmed if ledger.end is None else ledger.end
                # A close is known to etcd before its writer has heard.
                assert last <= max(told, ledger.next - 1)
                if last < 0:
                    continue
                first = max(0, last - 30) if ledger is self.ledgers[-1] else rng.randrange(last + 1)
                try:
                    await self.read(reader, first, min(last, first + 50))
                except NoSuchEntry:
                    raise AssertionError(f"{ledger} lost entry {first} that bookies told of") from None


class Load:
    """Topics at work."""

    def __init__(self, client: LedgerClient) -> None:
        self.topics = [Topic(client) for _ in range(TOPICS)]
        self._client = client
        self._loop = asyncio.get_running_loop()

    @staticmethod
    @asynccontextmanager
    async def running(client: LedgerClient, outside: LedgerClient) -> AsyncIterator[Load]:
        """Load until the end of the block, when all its ledgers are closed; raises what went wrong in it."""
        load = Load(client)
        try:
            async with asyncio.TaskGroup() as group:
                for topic in load.topics:
                    group.create_task(topic.write())
                    group.create_task(topic.tail())
                    group.create_task(topic.look(outside))
                await load.confirms(100)
                yield load
                for topic in load.topics:
                    topic.ending = True
        finally:
            for topic in load.topics:
                topic.ending = True

    @property
    def ledgers(self) -> list[Written]:
        return [ledger for topic in self.topics for ledger in topic.ledgers]

    @property
    def confirmed(self) -> int:
        return sum(topic.confirmed for topic in self.topics)

    @property
    def failed(self) -> list[str]:
        return [each for topic in self.topics for each in topic.failed]

    @property
    def reads_failed(self) -> list[str]:
        return [each for topic in self.topics for each in topic.reads_failed]

    async def confirms(self, entries: int = 100) -> None:
        """Wait until each topic has that many entries more confirmed, and has read some."""
        targets = [(topic, topic.confirmed + entries, len(topic.read_at)) for topic in self.topics]
        await self.until(
            lambda: all(
                topic.confirmed >= target and len(topic.read_at) > reads for topic, target, reads in targets
            ),
            f"{entries} more entries of each topic are confirmed",
        )

    async def needs_no_metadata(self) -> None:
        """Wait for a moment at which no topic is between two ledgers."""
        await self.until(
            lambda: all(topic.needs_no_metadata for topic in self.topics), "every topic is within a ledger"
        )

    async def until(self, condition: Callable[[], bool], what: str) -> None:
        deadline = self._loop.time() + WAIT_SECONDS_MAX
        while not condition():
            assert self._loop.time() < deadline, f"not within {WAIT_SECONDS_MAX:g} s: {what}"
            await asyncio.sleep(0.02)

    async def goes_around(self, bookie_id: str) -> None:
        """Wait until metadata says of each topic's newest ledger that it goes on without a bookie: another
        one is in its place, or it has a gap."""
        await self._newest(
            lambda value: (
                bookie_id not in value.fragments[-1].bookie_ids
                or bookie_id in {gap.bookie_id for gap in value.gaps}
            )
        )

    async def takes_back(self, bookie_id: str) -> None:
        """Wait until each topic's newest ledger is written to a bookie again, or to others in its place."""
        await self._newest(
            lambda value: (
                (bookie_id, OPEN_GAP_END) not in {(gap.bookie_id, gap.last_entry_id) for gap in value.gaps}
            )
        )

    async def _newest(self, condition: Callable[[LedgerMetadata], bool]) -> None:
        """Wait until the metadata of each topic's newest ledger is like this."""
        async with asyncio.timeout(WAIT_SECONDS_MAX):
            while True:
                newest = [topic.ledgers[-1].ref for topic in self.topics]
                if all([condition(await self._client.metadata_of(ref)) for ref in newest]):
                    return
                await asyncio.sleep(0.02)

    def measure(self, gaps: Gaps, since: float) -> None:
        """Add each topic's longest gap since a moment of the loop's time."""
        for topic in self.topics:
            gaps.writes.append(self._longest(topic.confirmed_at, since))
            gaps.reads.append(self._longest(topic.read_at, since))

    async def measure_undisturbed(self, gaps: Gaps, seconds: float = 1.0) -> None:
        """Add each topic's longest gap of that time, without a fault."""
        since = self._loop.time()
        await asyncio.sleep(seconds)
        gaps.undisturbed += [self._longest(topic.confirmed_at, since) for topic in self.topics]

    def _longest(self, times: list[float], since: float) -> float:
        """From the moment to the first, between any two, from the last one to now."""
        after = [*(each for each in times if each > since), self._loop.time()]
        return max(late - early for early, late in zip([since, *after], after, strict=False))

    async def check(self, client: LedgerClient, whole_within_s: float) -> None:
        """Everything that was confirmed is there as it was, for anybody; and, later, on every bookie."""
        for ledger in self.ledgers:
            assert ledger.end is not None
            last = await client.read_all(ledger.ref)
            assert last == ledger.end >= ledger.confirmed, f"{ledger} ends at {last}"
        await client.until_whole([ledger.ref for ledger in self.ledgers], whole_within_s)
