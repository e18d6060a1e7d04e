"""Space reclamation after ledger deletions: removes segments without live bytes, rewrites others.

`ledger.garbage_collector` decides which ledgers are deleted; this module counts their bytes and removes files
in order: first a durable replacement, then the last reader, then the file.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, Protocol

from magnetar.common.errors import DataCorruption
from magnetar.common.obs.logs import get_logger
from magnetar.common.obs.metrics import REGISTRY, begin_at_zero
from magnetar.common.runtime.blocking import BlockingPool
from magnetar.common.runtime.clock import Clock
from magnetar.common.runtime.disk import Disk
from magnetar.ledger.ledger_store import LedgerRef
from magnetar.ledger.segment_log.compaction import (
    SLICE_BYTES,
    DuplicateMismatch,
    IncompleteIndex,
    Rewrite,
    output_bytes_max,
)
from magnetar.ledger.segment_log.config import SegmentLogConfig
from magnetar.ledger.segment_log.file_codec_v1 import FLAG_SORTED, LedgerSummary
from magnetar.ledger.segment_log.index import NO_RUN
from magnetar.ledger.segment_log.inventory import SegmentInventory
from magnetar.ledger.segment_log.segment import Segment, new_header
from prometheus_client import Counter, Gauge

log = get_logger(__name__)

INPUTS_MAX: Final = 8
"""Maximum segments merged into one."""

SORT_LEDGERS_MIN: Final = 8
SORT_RUNS_MIN: Final = 4
"""Minimum ledgers, and average runs per ledger, of a segment that is worth sorting."""

IDLE_SHARE: Final = 3
"""Minimum pause after each compaction slice, as a multiple of the slice's duration."""

SEGMENTS = Gauge("magnetar_log_segments", "Segment files of the log.", registry=REGISTRY)
LIVE_BYTES = Gauge(
    "magnetar_log_live_bytes",
    "Bytes in sealed segment files that belong to ledgers that exist, as of the last garbage collection.",
    registry=REGISTRY,
)
DEAD_BYTES = Gauge(
    "magnetar_log_dead_bytes",
    "Bytes in sealed segment files that belong to deleted ledgers, as of the last garbage collection.",
    registry=REGISTRY,
)
RECLAIMED_BYTES = Counter(
    "magnetar_log_reclaimed_bytes", "Bytes of segment files that were given back.", registry=REGISTRY
)
COMPACTION_BYTES = Counter(
    "magnetar_log_compaction_bytes", "Bytes of segment files written by compaction.", registry=REGISTRY
)
COMPACTIONS = Counter(
    "magnetar_log_compactions", "Segment files rewritten, by outcome.", ["outcome"], registry=REGISTRY
)
begin_at_zero(COMPACTIONS, "done", "given up", "conflict")
CARRIED_HOLES = Counter(
    "magnetar_log_unreadable_entries",
    "Entries that compaction found unreadable and carried on as holes.",
    registry=REGISTRY,
)
CONFLICTS = Counter(
    "magnetar_log_duplicate_conflicts",
    "Times that two sound copies of an entry differed; neither is removed.",
    registry=REGISTRY,
)


@dataclass(frozen=True, slots=True)
class SegmentSpace:
    """Used bytes of a segment, including headers."""

    live: int
    total: int

    @property
    def live_ratio(self) -> float:
        return self.live / self.total if self.total else 0.0


def line_bytes(line: LedgerSummary) -> int:
    """Returns the approximate bytes of a ledger in a segment, including headers and index."""
    return line.byte_length + 128 * line.runs + 128


def space_of(segment: Segment, dead: Collection[LedgerRef]) -> SegmentSpace:
    """Returns the live bytes of a segment without these deleted ledgers."""
    total = live = 0
    for ref, line in segment.lines.items():
        size = line_bytes(line)
        total += size
        if ref not in dead:
            live += size
    return SegmentSpace(live, total)


class LogSegments(Protocol):
    """The interface of a log's segments for space reclamation."""

    @property
    def segments(self) -> Sequence[Segment]:
        """Returns every segment with a group."""
        ...

    @property
    def inventory(self) -> SegmentInventory | None:
        """The list of segment files; None if none is kept."""
        ...

    def finished_segments(self) -> list[Segment]:
        """Returns the segments that accept no more writes, oldest first."""
        ...

    def segments_of(self, ref: LedgerRef) -> list[Segment]:
        """Returns the segments with a ledger's records."""
        ...

    def next_sequence(self) -> int:
        """Returns a new segment sequence."""
        ...

    def replace(self, inputs: Sequence[Segment], output: Segment | None) -> None:
        """Redirects reads from `inputs` to `output`."""
        ...

    async def discard(self, segment: Segment) -> None:
        """Removes or recycles the file of a replaced segment without readers. Raises OSError."""
        ...


class SpaceKeeper:
    """Removes and rewrites segments of one log. One call of `reclaim` at a time, on the loop."""

    def __init__(
        self,
        segment_log: LogSegments,
        disk: Disk,
        pool: BlockingPool,
        clock: Clock,
        rng: random.Random,
        config: SegmentLogConfig,
    ) -> None:
        self._log = segment_log
        self._disk = disk
        self._pool = pool
        self._clock = clock
        self._rng = rng
        self._config = config
        self._conflicting: set[int] = set()
        self._duplicated: set[int] | None = None
        self._stop = asyncio.Event()
        self.deleted_ledger_bytes = 0
        """Bytes of files deleted because all of their ledgers were; since the start."""
        self.compacted_bytes = 0
        """Bytes by which files shrank in rewrites; since the start."""

    def stop(self) -> None:
        """Ends a running `reclaim` soon, and starts no more."""
        self._stop.set()

    async def reclaim(self, dead: Collection[LedgerRef]) -> None:
        """Removes segments with only dead ledgers, rewrites those with few live bytes.

        A disk failure ends it with a log line; the rest is found again next time.
        """
        try:
            await self._remove_dead(dead)
            while not self._stop.is_set() and (inputs := await self._pick(dead)):
                if not await self._rewrite(inputs, dead):
                    break
        except OSError as error:
            log.warning("compaction stopped: the disk failed it", error=str(error))
        spaces = await self._spaces(dead)
        SEGMENTS.set(len(self._log.segments))
        LIVE_BYTES.set(sum(space.live for space in spaces.values()))
        DEAD_BYTES.set(sum(space.total - space.live for space in spaces.values()))

    async def _spaces(self, dead: Collection[LedgerRef]) -> dict[Segment, SegmentSpace]:
        """Returns the space of all sealed segments; counted in the pool, for there may be many ledgers."""
        segments = self._log.finished_segments()
        return await self._pool.run(lambda: {segment: space_of(segment, dead) for segment in segments})

    async def _remove_dead(self, dead: Collection[LedgerRef]) -> None:
        for segment, space in (await self._spaces(dead)).items():
            # A segment that is entirely unreadable stays, for an operator to examine.
            if space.total and not space.live and not self._blocked([segment]) and not self._stop.is_set():
                size = segment.file.size()
                await self._replace([segment], None)
                log.info("segment removed: its ledgers are gone", segment=segment.sequence, bytes=size)

    def _blocked(self, segments: Sequence[Segment]) -> bool:
        """Returns whether an older unsealable segment still needs the first group of one of these, which
        records its durable end.
        """
        open_ones = [each.sequence for each in self._log.segments if not each.sealed and each not in segments]
        return any(
            not segment.header.flags & FLAG_SORTED
            and min(open_ones, default=segment.sequence) < segment.sequence
            for segment in segments
        )

    async def _pick(self, dead: Collection[LedgerRef]) -> list[Segment]:
        """Returns the segments to compact next: several together, or one alone to keep its order; may be
        empty.
        """
        if self._duplicated is None:
            finished = self._log.finished_segments()
            self._duplicated = await self._pool.run(lambda: duplicated_segments(finished))
        spaces = await self._spaces(dead)
        config = self._config
        poor = [
            (space.live_ratio, segment.sequence, segment)
            for segment, space in spaces.items()
            if space.total
            and (
                space.live_ratio < config.compaction_live_ratio
                or segment.unsealable
                or segment.sequence in self._duplicated
            )
            and self._may_rewrite(segment)
        ]
        chosen: list[Segment] = []
        room, entries = config.segment_size_bytes, config.segment_entries_max
        for _, _, segment in sorted(poor, key=lambda each: each[:2]):
            room -= spaces[segment].live
            entries -= sum(line.runs for line in segment.lines.values())
            if chosen and (room < 0 or entries < 0 or len(chosen) == INPUTS_MAX):
                break
            chosen.append(segment)
        if chosen:
            return chosen
        return [segment for segment in spaces if self._may_rewrite(segment) and self._wants_sorting(segment)][
            :1
        ]

    def _may_rewrite(self, segment: Segment) -> bool:
        return segment.sequence not in self._conflicting and not self._blocked([segment])

    def _wants_sorting(self, segment: Segment) -> bool:
        config = self._config
        if not config.sort_after_s or segment.header.flags & FLAG_SORTED:
            return False
        if self._clock.monotonic() - segment.sealed_at < config.sort_after_s:
            return False
        runs = sum(line.runs for line in segment.lines.values())
        return len(segment.lines) >= SORT_LEDGERS_MIN and runs >= SORT_RUNS_MIN * len(segment.lines)

    async def _rewrite(self, inputs: list[Segment], dead: Collection[LedgerRef]) -> bool:
        """Writes one output and replaces its inputs with it; returns False if it must not run now.

        Raises OSError.
        """
        live = {ref for segment in inputs for ref in segment.lines if ref not in dead}
        live_bytes = sum(space_of(segment, dead).live for segment in inputs)
        if not self._fits(output_bytes_max(inputs, live_bytes)):
            log.warning("no compaction: it would fill the disk", live_bytes=live_bytes)
            return False
        header = new_header(self._rng, self._log.next_sequence(), self._clock.wall_ms(), FLAG_SORTED)
        slice_bytes = min(SLICE_BYTES, self._config.group_bytes_max)
        elsewhere = {ref: self._elsewhere(ref, inputs) for ref in live}
        rewrite = Rewrite(self._disk, header, inputs, sorted(live, key=_order), elsewhere, slice_bytes)
        finished = False
        try:
            while size := await self._slice(rewrite):
                if self._stop.is_set():
                    return False
                if not self._fits(size):
                    log.warning("compaction given up: it would fill the disk", live_bytes=live_bytes)
                    return False
            output = await self._pool.run(rewrite.finish)
            finished = True
        except DuplicateMismatch as error:
            CONFLICTS.inc()
            COMPACTIONS.labels(outcome="conflict").inc()
            self._conflicting.update(segment.sequence for segment in inputs)
            log.error("copies of an entry differ, their segments are left as they are", error=str(error))
            return True
        except IncompleteIndex as error:
            self._conflicting.add(error.segment.sequence)
            log.error("a damaged segment is left as it is", error=str(error))
            return True
        finally:
            if not finished:
                COMPACTIONS.labels(outcome="given up").inc()
                with contextlib.suppress(OSError):
                    await self._pool.run(rewrite.abandon)
        if output is not None:
            output.sealed_at = self._clock.monotonic()
        await self._installed(inputs, output, rewrite)
        return True

    async def _installed(self, inputs: list[Segment], output: Segment | None, rewrite: Rewrite) -> None:
        before = sum(segment.file.size() for segment in inputs)
        after = 0 if output is None else output.file.size()
        CARRIED_HOLES.inc(rewrite.unreadable_entries)
        COMPACTION_BYTES.inc(after)
        COMPACTIONS.labels(outcome="done").inc()
        sequences = [segment.sequence for segment in inputs]
        await self._replace(inputs, output)
        if output is not None:
            self.compacted_bytes += max(0, before - after)
        log.info(
            "segments compacted",
            segments=sequences,
            into=None if output is None else output.sequence,
            bytes_before=before,
            bytes_after=after,
            unreadable_entries=rewrite.unreadable_entries,
            duplicates=rewrite.duplicates,
        )

    async def _slice(self, rewrite: Rewrite) -> int:
        """Runs one step, then pauses to keep to the rate and leave the processor to other work."""
        start = self._clock.monotonic()
        size = await self._pool.run(rewrite.step)
        took = self._clock.monotonic() - start
        rest = max(size / self._config.compaction_bytes_per_s, IDLE_SHARE * took)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._stop.wait(), rest)
        return size

    def _fits(self, length: int) -> bool:
        """Returns whether the output fits. Compaction may use the half of the reserve that cursors may not:
        it is how a full disk is emptied.
        """
        return self._disk.free_bytes() - length >= self._config.reserve_bytes // 2

    def _elsewhere(self, ref: LedgerRef, inputs: Sequence[Segment]) -> list[Segment]:
        """Returns finished segments, except the inputs, whose entries of a ledger may be copies of theirs."""
        ranges = [line for segment in inputs if (line := segment.line(ref)) is not None]
        return [
            segment
            for segment in self._log.segments_of(ref)
            if segment.sealed
            and segment not in inputs
            and any(_overlap(segment.summaries[ref], line) for line in ranges)
        ]

    async def _replace(self, inputs: Sequence[Segment], output: Segment | None) -> None:
        """Replaces inputs by a durable output; the inputs are removed once they have no readers."""
        inventory = self._log.inventory
        if output is not None and inventory is not None:
            await self._pool.run(partial(inventory.add, output.sequence))
        self._log.replace(inputs, output)
        for segment in inputs:
            size = segment.file.size()
            await segment.retire()
            await self._log.discard(segment)
            RECLAIMED_BYTES.inc(size)
            if output is None:
                self.deleted_ledger_bytes += size


def duplicated_segments(segments: Sequence[Segment]) -> set[int]:
    """Returns segments whose records are also in a later, sorted segment: inputs of a compaction interrupted
    between its last two steps. Blocks.
    """
    found = set()
    for output in segments:
        if not output.header.flags & FLAG_SORTED:
            continue
        for segment in segments:
            if segment.sequence < output.sequence and _is_copied(segment, output):
                found.add(segment.sequence)
    return found


def _is_copied(segment: Segment, output: Segment) -> bool:
    """Returns whether the first run of a shared ledger is in both: an input's records are copied as a
    whole.
    """
    for ref, line in segment.lines.items():
        copied = output.lines.get(ref)
        if copied is None or not _overlap(line, copied):
            continue
        try:
            index = output.load_index(ref)
        except DataCorruption:
            continue
        place = index.find(line.base)
        return place != NO_RUN and index.first_entry_id(place) == line.base
    return False


def _overlap(one: LedgerSummary, other: LedgerSummary) -> bool:
    return (
        bool(one.runs and other.runs) and one.base <= other.last_entry_id and other.base <= one.last_entry_id
    )


def _order(ref: LedgerRef) -> tuple[int, int]:
    return ref.id, ref.key
