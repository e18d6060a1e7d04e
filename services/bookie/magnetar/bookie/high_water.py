"""The bookie's high-water mark: the durable end of its log, kept in metadata, which exposes an older disk
image.

The mark is raised at each start, when the log moves to another segment, and at most once per interval while
it grows. A fence is answered only after the mark covers it. So the next start detects a disk image that lacks
a fence, or anything confirmed an interval before the bookie stopped. Undetected cases:
docs/decisions/returned-disks.md.

Two processes with the same bookie id never both raise it: each write is guarded by the previous version.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Final

from magnetar.common.errors import LogFailed, MetadataError, UnknownOutcome, VersionMismatch
from magnetar.common.metadata.keys import Keys
from magnetar.common.metadata.store import ABSENT, MetadataStore
from magnetar.common.metadata.values import BookieMark, decode, encode
from magnetar.common.obs.logs import get_logger
from magnetar.common.obs.metrics import REGISTRY
from magnetar.common.runtime.clock import Clock
from magnetar.common.runtime.task_owner import TaskOwner
from magnetar.ledger.segment_log.group_commit import GroupCommit
from prometheus_client import Counter, Gauge

log = get_logger(__name__)

PACE_S: Final = 0.02
"""Minimum seconds between two raises, however many fences wait."""
RETRY_S: Final = 1.0
LAST_RAISE_S: Final = 2.0
"""Maximum seconds that a stop waits for its last raise."""
DOUBT_CHECK_S: Final = 10.0

RAISES = Counter(
    "magnetar_bookie_mark_raises",
    "Times that the bookie wrote to metadata how far its log is durable.",
    registry=REGISTRY,
)
UNMARKED = Gauge(
    "magnetar_bookie_unmarked_groups",
    "Durable groups of the log above the mark in metadata: an older image of the disk that lacks only these "
    "would go unseen.",
    registry=REGISTRY,
)
RETURNED = Gauge(
    "magnetar_bookie_data_in_doubt",
    "1 from a start at which data may have been missing until everything was compared with other bookies.",
    registry=REGISTRY,
)


class HighWater:
    """The mark of one bookie. Call `read`, then `begin`, then `start`; all calls on the event loop."""

    def __init__(
        self, metadata: MetadataStore, keys: Keys, clock: Clock, bookie_id: str, interval_s: float
    ) -> None:
        self.mark = BookieMark(bookie_id=bookie_id)
        self._metadata = metadata
        self._key = keys.bookie_mark(bookie_id)
        self._clock = clock
        self._interval_s = interval_s
        self._version = ABSENT
        self._commit: GroupCommit | None = None
        self._in_doubt: Callable[[], Awaitable[bool]] | None = None
        self._tasks = TaskOwner("high-water mark")
        self._due = asyncio.Event()
        self._news = asyncio.Event()
        self._stopped = False

    async def read(self, directory_id: bytes, generation: int) -> int | None:
        """Returns the group up to which this directory was durable; None if metadata has no mark.

        Raises MetadataError.
        """
        found = await self._metadata.get(self._key)
        known: int | None = None
        if found is not None:
            self._version = found.version
            self.mark = decode(BookieMark, found.value)
            if self.mark.directory_id == directory_id:
                known = self.mark.group_sequence
        self.mark.directory_id, self.mark.generation = directory_id, generation
        return known

    async def doubted(self, reason: str, fenced_below_ledger_id: int) -> None:
        """Records possible data loss, and that ledgers with lower ids accept no more appends of writers.
        Raises MetadataError.
        """
        self.mark.doubt, self.mark.doubt_ms = reason, self._clock.wall_ms()
        self.mark.fenced_below_ledger_id = max(self.mark.fenced_below_ledger_id, fenced_below_ledger_id)
        await self._write()

    async def begin(self, commit: GroupCommit) -> None:
        """Binds the mark to this log, and raises it a first time. Raises MetadataError."""
        self._commit = commit
        self.mark.group_sequence = commit.durable_sequence
        await self._write()
        commit.on_roll = self._due.set

    def start(self, in_doubt: Callable[[], Awaitable[bool]]) -> None:
        """Starts raising the mark in the background. `in_doubt` returns whether the recorded data loss is
        still unresolved.
        """
        self._in_doubt = in_doubt
        RETURNED.set(bool(self.mark.doubt))
        self._tasks.spawn(self._run(), "raise")

    async def covered(self) -> None:
        """Returns once the mark is as high as the log is now.

        Raises LogFailed if that cannot happen any more: the bookie stops, or another process runs as this
        bookie.
        """
        wanted = self._position
        while self.mark.group_sequence < wanted:
            if self._stopped:
                raise LogFailed("metadata cannot be told how far the log is durable")
            self._due.set()
            await self._news.wait()

    def stop(self) -> None:
        """Stops raising."""
        self._stopped = True
        self._due.set()
        self._tell()

    async def close(self) -> None:
        """Stops after a last raise, if metadata answers; idempotent."""
        if self._stopped:
            return
        self.stop()
        await self._tasks.close()
        if self._commit is not None and self._position > self.mark.group_sequence:
            with contextlib.suppress(MetadataError, TimeoutError):
                await asyncio.wait_for(self._raise(), LAST_RAISE_S)

    # --- internal ---

    @property
    def _position(self) -> int:
        assert self._commit is not None, "`begin` was called"
        return self._commit.durable_sequence

    def _tell(self) -> None:
        news, self._news = self._news, asyncio.Event()
        news.set()

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        checked_s = loop.time()
        told = False
        while not self._stopped:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._due.wait(), self._interval_s)
            self._due.clear()
            UNMARKED.set(self._position - self.mark.group_sequence)
            try:
                if self.mark.doubt and loop.time() - checked_s >= DOUBT_CHECK_S:
                    checked_s = loop.time()
                    await self._look_at_doubt()
                if self._position == self.mark.group_sequence or self._stopped:
                    continue
                await self._raise()
                told = False
            except (MetadataError, OSError) as error:
                if not told:
                    log.warning("metadata was not told how far the log is durable", reason=str(error))
                told = True
                await asyncio.sleep(RETRY_S)
                self._due.set()
                continue
            await asyncio.sleep(PACE_S)

    async def _look_at_doubt(self) -> None:
        assert self._in_doubt is not None, "`start` was called"
        if not await self._in_doubt():
            log.warning("nothing is in doubt any more: all was compared with other bookies")
            self.mark.doubt, self.mark.doubt_ms = "", 0
            RETURNED.set(0)
            await self._write()

    async def _raise(self) -> None:
        before = self.mark.group_sequence
        self.mark.group_sequence = self._position
        try:
            await self._write()
        except BaseException:
            self.mark.group_sequence = before
            raise
        self._tell()

    async def _write(self) -> None:
        self.mark.raised_ms = self._clock.wall_ms()
        value = encode(self.mark)
        try:
            self._version = await self._metadata.put(self._key, value, self._version)
        except (UnknownOutcome, VersionMismatch) as error:
            found = await self._metadata.get(self._key)
            there = None if found is None else decode(BookieMark, found.value)
            if found is not None and found.value == value:
                self._version = found.version
            elif isinstance(error, UnknownOutcome):
                raise
            elif found is not None and there is not None and there.generation == self.mark.generation:
                # This is the process's own earlier write, whose outcome was unknown.
                self._version = found.version
                raise
            else:
                log.error("another process is this bookie, or it was decommissioned: the mark stays")
                self.stop()
                raise
        RAISES.inc()
