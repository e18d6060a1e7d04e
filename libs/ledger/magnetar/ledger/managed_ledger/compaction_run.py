"""One run of a topic's compaction, part by part.

A part reads the topic's entries after the horizon, up to the limit or to the memory's limit:

1. one pass over them finds the latest message of each key (`TailScan`);
2. the keys of earlier segments, never their entries, show what is overwritten or deleted there;
3. the survivors, and segments that are merged with them (`plan_merges`), are written to new ledgers, which
   are closed and whose end marks are read back;
4. one transaction names the new view. Until then the old view is in force and the new ledgers have deletion
   intents; afterwards the replaced ones have.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Final

from magnetar.common.errors import DataCorruption, EntryUnreadable, LogFull, MagnetarError
from magnetar.common.naming.position import Position
from magnetar.common.obs.logs import get_logger
from magnetar.ledger.cold.key_rows import KeyRun
from magnetar.ledger.compacted import page as pages
from magnetar.ledger.compacted.batch_parts import without_in_steps
from magnetar.ledger.compacted.chunk_groups import ChunkGroup
from magnetar.ledger.compacted.figures import CompactionProgress, ViewEnd
from magnetar.ledger.compacted.key_hash import KeyHash
from magnetar.ledger.compacted.latest_keys import split_hashes
from magnetar.ledger.compacted.live_entries import live_numbers
from magnetar.ledger.compacted.merge_plan import SegmentGroup, plan_merges
from magnetar.ledger.compacted.pace import RunPace
from magnetar.ledger.compacted.page import SegmentEnd, StoredEntry
from magnetar.ledger.compacted.rebuild import REBUILT
from magnetar.ledger.compacted.segment import SegmentKeys, read_index, read_page
from magnetar.ledger.compacted.segment_builder import SegmentBuilder
from magnetar.ledger.compacted.settings import CompactionSettings
from magnetar.ledger.compacted.survivors import first_from, next_stretch, stored_entries
from magnetar.ledger.compacted.tail_scan import Survivors, TailScan
from magnetar.ledger.compacted.view import PendingGroup, View, ViewSegment
from magnetar.ledger.ledger_store import Run
from magnetar.ledger.managed_ledger.context import ManagedLedgerContext, ReadResult
from magnetar.ledger.managed_ledger.page_ledger import PageLedger
from magnetar.ledger.managed_ledger.storage_reads import TailReads
from pyroaring import BitMap

log = get_logger(__name__)

READ_BYTES: Final = 256 << 10
READ_ENTRIES: Final = 1_000
"""Limits of one read of the topic; the event loop waits for its checks and copies, about a millisecond."""

KEPT_BYTES_MAX: Final = 8 << 20
"""New entries up to this size stay in memory for the second pass."""

PROBED_KEYS: Final = 256 << 10
"""New keys that are compared with those of earlier segments at a time, about 100 bytes each."""

_PROBED_BYTES: Final = 2_048 * pages.HASH_BYTES
"""Bytes of hashes of earlier segments that are compared in one step."""

_CHECK_DISKS_BYTES: Final = 64 << 20
"""Bytes written between two checks of disks."""

DEAD_SET_BYTES_MAX: Final = 8 << 10
DEAD_SETS_BYTES_MAX: Final = 128 << 10
"""Bytes of one dead set, and of all, in the view's metadata value; larger ones are pages of a ledger."""


NameView = Callable[[View, Sequence[PageLedger]], Awaitable[None]]
"""Names a view with its new ledgers in one transaction; durable on return."""


@dataclass(slots=True)
class CompactionRun:
    """The parts of a run have this in common."""

    ctx: ManagedLedgerContext
    topic: str
    tail: Callable[[], TailReads]
    check_serving: Callable[[], None]
    name: NameView
    settings: CompactionSettings
    progress: CompactionProgress
    pace: RunPace
    removed_messages: int = 0
    ledgers: list[PageLedger] = field(default_factory=list)
    """Ledgers that no view names yet."""
    _unchecked_bytes: int = 0
    """Bytes written since disks were checked last."""

    async def part(self, view: View, limit: Position) -> View:
        """Compacts a part; returns the view in force afterwards, the same one if nothing was new."""
        tail = await self._scan(view, limit)
        if not tail.scan.entries and not (self.settings.rewrite and view.segments):
            return view
        return await self._finish(view, tail)

    async def rebuild(self, view: View, start: View, limit: Position) -> View:
        """Replaces damaged segments from `start`, see `rebuild_start`; returns the same view if the topic's
        entries do not suffice. The caller keeps them from being trimmed.
        """
        first = view.segments[len(start.segments)].first
        tail = await self._scan(start, limit)
        scan = tail.scan
        whole = scan.entries > 0 and scan.position_of(0) == first and tail.horizon >= view.horizon
        if not whole or tail.unreadable or scan.orphan_chunks:
            log.warning("damaged segments of a compacted view stay: entries are missing", topic=self.topic)
            return view
        removed = self.removed_messages
        after = await self._finish(start, tail)
        self.removed_messages = removed  # most of it was left out before
        REBUILT.inc(sum(segment.damaged for segment in view.segments))
        log.info("damaged segments of a compacted view rebuilt", topic=self.topic, first=str(first))
        return after

    async def _finish(self, view: View, tail: _Tail) -> View:
        """Writes and names the view with what was scanned after it."""
        survivors = await self._decide(tail.scan)
        dead = await self._dead_sets(view, tail.scan, survivors)
        before = sum(segment.dead for segment in view.segments)
        after = await self._write(view, tail, survivors, dead)
        await self.name(after, self.ledgers)
        self.removed_messages += survivors.dropped + sum(map(len, dead)) - before
        self.ledgers = []
        self.progress.parts += 1
        return after

    async def abandon(self) -> None:
        """Deletes the ledgers that no view names; what fails is left to their intents."""
        for ledger in self.ledgers:
            await ledger.abandon()
        self.ledgers = []

    # First pass

    async def _scan(self, view: View, limit: Position) -> _Tail:
        pending = [
            ChunkGroup(group.group_hash, group.key_hash, list(group.positions)) for group in view.pending
        ]
        scan = TailScan(
            KeyHash(view.hash_key),
            pending,
            retain_null_key=self.settings.retain_null_key,
            is_aborted=self.settings.is_aborted,
        )
        tail = _Tail(scan, view.horizon)
        memory_bytes = self.settings.limits.memory_bytes
        at = Position(view.horizon.ledger_id, view.horizon.entry_id + 1)
        while at <= limit:
            if keys := await self._read_keys(at, limit):
                for each in keys:
                    await self._feed(tail, each)
                at = Position(keys[-1].run.ledger_id, keys[-1].run.last_entry_id + 1)
            else:
                result = await self._read_tail(at, limit, READ_ENTRIES, READ_BYTES)
                for run in result.runs:
                    await self._feed(tail, KeyRun(run, True, run.byte_length))
                tail.unreadable += len(result.unreadable)
                if not result.runs and not result.unreadable:
                    break
                at = result.next
            if scan.byte_length >= memory_bytes or scan.full:
                return tail
        tail.horizon = max(tail.horizon, limit)
        return tail

    async def _feed(self, tail: _Tail, keys: KeyRun) -> None:
        tail.take(keys)
        self.progress.entries_read += len(keys.run.entries)
        for _ in tail.scan.feed(keys.run, keys.bodies):
            if self.pace.over():
                await asyncio.sleep(0)

    async def _read_keys(self, start: Position, limit: Position) -> Sequence[KeyRun]:
        await self.pace.turn()
        self.check_serving()
        found = await self.tail().read_keys(start, limit)
        await self._account(sum(each.run.byte_length for each in found))
        return found

    async def _read_tail(
        self, start: Position, limit: Position, entries_max: int, bytes_max: int
    ) -> ReadResult:
        await self.pace.turn()
        self.check_serving()
        result = await self.tail().read(start, limit, entries_max, bytes_max)
        await self._account(sum(run.byte_length for run in result.runs))
        return result

    async def _account(self, bytes_read: int) -> None:
        self.progress.bytes_read += bytes_read
        await self.pace.spend(bytes_read)
        await self.pace.turn()
        await self._keep()

    async def _keep(self) -> None:
        for ledger in self.ledgers:
            await ledger.keep()

    async def _decide(self, scan: TailScan) -> Survivors:
        for survivors in scan.finish():
            if survivors is not None:
                return survivors
            await self.pace.step()
        raise AssertionError("a scan ends with its survivors")

    # Earlier segments

    async def _dead_sets(self, view: View, scan: TailScan, survivors: Survivors) -> list[BitMap]:
        """Returns the dead messages of each earlier segment after this part."""
        if not view.segments:
            return []
        dead = [BitMap(await view.dead(segment)) for segment in view.segments]
        new: set[bytes] = set()
        for latest in scan.latest.partitions():
            new.update(latest)
            if len(new) >= PROBED_KEYS:
                await self._probe(view, new, dead)
                new = set()
            await self.pace.step()
        if new:
            await self._probe(view, new, dead)
        for position in survivors.exempt:
            found = await view.locate(position)
            if found is not None:
                dead[found[0]].discard(found[1])
        for position in survivors.abandoned:
            found = await view.locate(position)
            if found is not None:
                dead[found[0]].add(found[1])
        return dead

    async def _probe(self, view: View, new: set[bytes], dead: list[BitMap]) -> None:
        for segment, dead_here in zip(view.segments, dead, strict=True):
            if len(dead_here) == segment.keyed:
                continue
            keys = SegmentKeys(await view.reader(segment), await view.index(segment))
            async for first, hashes in keys.pages():
                self.check_serving()
                for start in range(0, len(hashes), _PROBED_BYTES):
                    found = split_hashes(hashes[start : start + _PROBED_BYTES])
                    if not new.isdisjoint(found):
                        ordinal = first + start // pages.HASH_BYTES
                        dead_here.update([ordinal + at for at, each in enumerate(found) if each in new])
                    await self.pace.step()
                self.progress.bytes_read += len(hashes)
                await self.pace.spend(len(hashes))
                await asyncio.sleep(0)

    # Writing

    async def _write(self, view: View, tail: _Tail, survivors: Survivors, dead: list[BitMap]) -> View:
        """Writes the new ledgers and returns the new view."""
        segments = [replace(segment, dead=len(now)) for segment, now in zip(view.segments, dead, strict=True)]
        plan = plan_merges(
            [segment.size for segment in segments],
            self._new_bytes(tail, survivors),
            tail.byte_length,
            view.merge_credit,
            everything=self.settings.rewrite,
        )
        kept: list[tuple[ViewSegment, BitMap]] = []
        end: SegmentEnd | None = None
        for group in plan.groups:
            if group.rewrite:
                segment, end = await self._write_group(view, group, tail, survivors, dead)
                kept.append((segment, BitMap()))
            else:
                kept.append((segments[group.start], dead[group.start]))
        after = replace(
            view,
            horizon=tail.horizon,
            pending=tuple(
                [
                    PendingGroup(each.group_hash, each.key_hash, tuple(each.positions))
                    for each in survivors.pending
                ]
            ),
            runs=view.runs + 1,
            retain_null_key=self.settings.retain_null_key,
            merge_credit=plan.credit,
            dead_sets=None,
        )
        after = await self._with_dead_sets(after, kept)
        if plan.groups and plan.groups[-1].rewrite and end is not None:
            return replace(after, end=ViewEnd(end.last, end.last_batch_index))
        return replace(after, end=await after.find_end())

    def _new_bytes(self, tail: _Tail, survivors: Survivors) -> int:
        """Returns an estimate of the survivors' bytes, 0 only for none."""
        count = len(survivors.ordinals)
        return count and max(1, tail.byte_length * count // max(tail.scan.messages, 1))

    async def _write_group(
        self, view: View, group: SegmentGroup, tail: _Tail, survivors: Survivors, dead: list[BitMap]
    ) -> tuple[ViewSegment, SegmentEnd]:
        ledger = await self._new_ledger()
        builder = SegmentBuilder()
        for at in range(group.start, group.stop):
            if len(dead[at]) < view.segments[at].keyed or view.segments[at].unkeyed:
                async for entry in self._live_entries(view, view.segments[at], dead[at]):
                    await self._add(ledger, builder, entry)
        if group.takes_new:
            async for entry in self._surviving_entries(view, tail, survivors):
                await self._add(ledger, builder, entry)
        end = builder.finish()
        await self._append(ledger, builder.take())
        await ledger.close()
        reader = await self.ctx.ledgers.open(ledger.ref)
        if (await read_index(reader)).end != end:
            raise DataCorruption(f"ledger {ledger.ref.id} of a compaction is not what was written")
        segment = ViewSegment(
            ledger.ref,
            end.first,
            end.last,
            end.entries,
            end.keyed,
            end.unkeyed,
            end.byte_length,
            ledger.byte_length,
            reader=reader,
        )
        return segment, end

    async def _check_disks(self) -> None:
        """Raises LogFull if disks are too full for compaction, which stops before publishing does."""
        most = self.settings.limits.disk_usage_max
        if most >= 1:
            return
        used = await self.ctx.ledgers.disk_usage(self.ctx.config.write_quorum)
        if used is not None and used > most:
            raise LogFull(
                f"compaction stops while disks are {used:.1%} full, above "
                f"magnetarCompactionDiskUsageThreshold={most:g}: free space on them, or raise it"
            )

    async def _new_ledger(self) -> PageLedger:
        await self._check_disks()
        self._unchecked_bytes = 0
        ledger = PageLedger(self.ctx, self.progress.writes)
        await ledger.create(self.topic)
        self.ledgers.append(ledger)
        return ledger

    async def _add(self, ledger: PageLedger, builder: SegmentBuilder, entry: StoredEntry) -> None:
        builder.add(entry)
        if complete := builder.take():
            await self._append(ledger, complete)
        if self.pace.over():
            await asyncio.sleep(0)

    async def _append(self, ledger: PageLedger, complete: Sequence[bytes]) -> None:
        self.check_serving()
        await ledger.append(complete)
        size = sum(map(len, complete))
        self.progress.bytes_written += size
        self._unchecked_bytes += size
        if self._unchecked_bytes >= _CHECK_DISKS_BYTES:
            self._unchecked_bytes = 0
            await self._check_disks()
        await self.pace.spend(size)
        await self.pace.turn()
        await self._keep()

    async def _live_entries(
        self, view: View, segment: ViewSegment, dead: BitMap
    ) -> AsyncIterator[StoredEntry]:
        """Yields the live entries of an earlier segment, past the cache of pages."""
        with _noting_damage(segment):
            reader, index = await view.reader(segment), await view.index(segment)
        keys = SegmentKeys(reader, index)
        for line in index.entries:
            with _noting_damage(segment):
                data = await read_page(reader, line.page_id)
                page = pages.decode_entries(data)
            self.progress.bytes_read += len(data)
            await self.pace.spend(len(data))
            await self.pace.turn()
            for number, ordinal, died in live_numbers(page, line.first_keyed, dead):
                keyed = page.keyed[number]
                hashes = await keys.between(ordinal, ordinal + keyed)
                at = ordinal - line.first_keyed
                indexes = page.batch_indexes[at : at + keyed]
                flags = page.flags[number]
                body = page.entry(number)
                if died:
                    flags |= pages.PARTIAL
                    alive = [each for each in range(keyed) if ordinal + each not in dead]
                    split = split_hashes(hashes)
                    hashes = b"".join([split[each] for each in alive])
                    indexes = tuple([indexes[each] for each in alive])
                    body = await self._without(body, died)
                yield StoredEntry(
                    page.positions[number],
                    page.publish_times_ms[number],
                    page.first_indexes[number],
                    page.messages[number],
                    flags,
                    body,
                    hashes,
                    indexes,
                )

    async def _without(self, entry: bytes, died: list[int]) -> bytes:
        """Returns a batch without the messages that died."""
        steps = without_in_steps(entry, frozenset(died))
        while True:
            try:
                next(steps)
            except StopIteration as end:
                rebuilt: bytes = end.value
                return rebuilt
            await self.pace.step()

    async def _surviving_entries(
        self, view: View, tail: _Tail, survivors: Survivors
    ) -> AsyncIterator[StoredEntry]:
        key_hash = KeyHash(view.hash_key)
        ordinals, scan = survivors.ordinals, tail.scan
        if tail.runs is not None:
            for run in tail.runs:
                for entry in stored_entries(scan, ordinals, key_hash, run):
                    if entry is not None:
                        yield entry
                    elif self.pace.over():
                        await asyncio.sleep(0)
            return
        ordinal = first_from(ordinals, 0)
        while ordinal is not None:
            first, last = next_stretch(scan, ordinals, ordinal, READ_ENTRIES)
            at = scan.position_of(first)
            result = await self._read_tail(at, tail.horizon, last - first + 1, READ_BYTES)
            if result.unreadable or not result.runs:
                raise EntryUnreadable(f"entry {at} of {self.topic} was readable a moment ago")
            if (result.runs[0].ledger_id, result.runs[0].first_entry_id) != at:
                raise DataCorruption(f"entry {at} of {self.topic} is gone while the topic is compacted")
            for run in result.runs:
                for entry in stored_entries(scan, ordinals, key_hash, run):
                    if entry is not None:
                        yield entry
                    elif self.pace.over():
                        await asyncio.sleep(0)
            end = result.runs[-1]
            _, following = scan.ordinals_of(scan.number_at(Position(end.ledger_id, end.last_entry_id)))
            ordinal = first_from(ordinals, following)

    async def _with_dead_sets(self, view: View, kept: list[tuple[ViewSegment, BitMap]]) -> View:
        """Returns the view with these segments; large dead sets are written to a ledger of their own."""
        segments: list[ViewSegment] = []
        paged: list[bytes] = []
        room = DEAD_SETS_BYTES_MAX
        for segment, dead in kept:
            dead.run_optimize()
            data = dead.serialize() if dead else b""
            if len(data) <= min(DEAD_SET_BYTES_MAX, room):
                room -= len(data)
                segments.append(
                    replace(segment, dead=len(dead), dead_set=data, dead_first_page=0, dead_pages=0)
                )
                continue
            parts = [
                pages.encode_dead(number, data[at : at + pages.PAGE_BYTES_MAX])
                for number, at in enumerate(range(0, len(data), pages.PAGE_BYTES_MAX))
            ]
            segments.append(
                replace(
                    segment,
                    dead=len(dead),
                    dead_set=b"",
                    dead_first_page=len(paged),
                    dead_pages=len(parts),
                )
            )
            paged += parts
        view = replace(view, segments=tuple(segments))
        if not paged:
            return view
        ledger = await self._new_ledger()
        await self._append(ledger, paged)
        await ledger.close()
        return replace(view, dead_sets=ledger.ref)


@contextmanager
def _noting_damage(segment: ViewSegment) -> Iterator[None]:
    """Notes a failed read of a segment, so that the next run rebuilds it or leaves it alone."""
    try:
        yield
    except (DataCorruption, EntryUnreadable):
        segment.damaged = True
        raise


class _Tail:
    """New entries of one part: the scan, where it ended, and the entries themselves while they are small."""

    __slots__ = ("byte_length", "horizon", "runs", "scan", "unreadable")

    def __init__(self, scan: TailScan, horizon: Position) -> None:
        self.scan = scan
        self.horizon = horizon
        self.byte_length = 0
        self.unreadable = 0
        self.runs: list[Run] | None = []

    def take(self, keys: KeyRun) -> None:
        """Notes a run that is scanned next; without bodies its entries are read again for the second pass."""
        run = keys.run
        self.byte_length += keys.byte_length
        self.horizon = Position(run.ledger_id, run.last_entry_id)
        if not keys.bodies:
            self.runs = None
        elif self.runs is not None:
            self.runs.append(run)
            if self.byte_length > KEPT_BYTES_MAX:
                self.runs = None


async def finish_run(run: CompactionRun) -> None:
    """Abandons what a failed run left; never raises but for cancellation."""
    try:
        await run.abandon()
    except MagnetarError as error:
        log.warning(
            "ledgers of a failed compaction are left to their intents", topic=run.topic, error=str(error)
        )
