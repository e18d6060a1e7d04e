"""The sequence of segment files: the open one, the next one being prepared, sealed ones and spares.

The slow work (zero-filling ahead of the writer, creating the next file, sealing) happens in the pool while
groups are written; the writer waits only if it overtakes it. Free space is monitored here.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, Final

from magnetar.common.errors import LogFailed
from magnetar.common.obs.logs import get_logger
from magnetar.common.runtime.blocking import BlockingPool
from magnetar.common.runtime.clock import Clock
from magnetar.common.runtime.disk import Disk
from magnetar.ledger.segment_log.codec_v1 import BLOCK
from magnetar.ledger.segment_log.config import SegmentLogConfig
from magnetar.ledger.segment_log.file_codec_v1 import SegmentHeader
from magnetar.ledger.segment_log.inventory import SegmentInventory
from magnetar.ledger.segment_log.segment import Segment, create_segment, new_header

log = get_logger(__name__)

RETRY_S: Final = 1.0
"""Wait in seconds before segment creation is retried."""

FILL_GROUP_BYTES_MAX: Final = 256 * 1024
"""Group size in bytes up to which filling ahead pays: it halves the time of a small sync, but doubles the
writes of a stream of large groups.
"""

SPACE_CHECK_S: Final = 0.1
"""Interval in seconds at which appends check the free space of a full disk."""

_FILL_STEPS: Final = 4
"""Number of steps in which the distance ahead is filled."""


class SegmentChain:
    """Owns the open segment. All calls on the loop.

    `on_ready()` is called when a `reserve` that returned None may be retried, `on_unavailable(error)` when no
    segment exists and none could be created; creation is then retried until it succeeds.
    """

    def __init__(
        self,
        disk: Disk,
        pool: BlockingPool,
        clock: Clock,
        rng: random.Random,
        config: SegmentLogConfig,
        active: Segment,
        on_ready: Callable[[], None],
        on_unavailable: Callable[[LogFailed], None],
        on_sealed: Callable[[Segment], None],
        on_removed: Callable[[Segment], None],
        spares: list[str],
        inventory: SegmentInventory | None = None,
    ) -> None:
        self._disk = disk
        self._pool = pool
        self._clock = clock
        self._rng = rng
        self._config = config
        self._on_ready = on_ready
        self._on_unavailable = on_unavailable
        self._on_sealed = on_sealed
        self._on_removed = on_removed
        self._spares = spares
        self._inventory = inventory
        self._unlisted: Segment | None = None
        """The segment created but not yet in the segment list."""
        self._loop = asyncio.get_running_loop()
        self._active: Segment | None = active
        self._next: Segment | None = None
        self._last_sequence = active.sequence
        self._preparing = False
        self._filling: Segment | None = None
        self._fill_task: asyncio.Task[None] | None = None
        self._waiting = False
        self._retry: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._closing = False
        self._full = False
        self._free_bytes = 0
        self._space_checked_at = clock.monotonic()
        self._check_space()

    @property
    def active(self) -> Segment | None:
        """The segment that groups are written to; None after a failure until a new one is ready."""
        return self._active

    def is_full(self) -> bool:
        """Returns whether free space is below the reserve; checks again by itself while it is."""
        if self._full and self._clock.monotonic() - self._space_checked_at >= SPACE_CHECK_S:
            self._check_space()
        return self._full

    def look_at_space(self) -> str | None:
        """Checks free space now; returns how short it is when it is below the reserve, otherwise None.

        Raises OSError.
        """
        if self._clock.monotonic() - self._space_checked_at >= SPACE_CHECK_S:
            self._check_space()
        if not self._full:
            return None
        reserve = self._config.reserve_bytes
        return f"the disk has {self._free_bytes} free bytes, and the log keeps {reserve} in reserve"

    def next_sequence(self) -> int:
        """Returns a new segment sequence."""
        self._last_sequence += 1
        return self._last_sequence

    async def discard(self, segment: Segment) -> None:
        """Recycles or removes the file of a segment no longer needed, durably.

        Raises OSError; the next start then finds the segment again.
        """
        useful = segment.file.size() >= self._config.segment_size_bytes // 2
        if useful and not self._full and len(self._spares) < self._config.recycled_segments_max:
            spare = await self._pool.run(partial(self._recycle, segment))
            self._spares.append(spare)
        else:
            await self._pool.run(partial(self._unlink, segment))
        self._check_space()

    def reserve(self, length: int) -> Segment | None:
        """Returns the segment in which the next `length` bytes may be written at `end`, or None: wait for
        `on_ready`.

        Call it only while no group is in flight.
        """
        self._check_space()
        size = self._config.segment_size_bytes
        segment = self._active
        if segment is None or self._is_over(segment, length):
            following = self._take_next()
            if following is None:
                return None
            if segment is not None:
                self._spawn(self._seal(segment))
            self._active = segment = following
        end = segment.end + length
        if end > segment.filled_end:
            if self._filling is segment:
                # Otherwise the fill would overwrite the group with zeros.
                self._waiting = True
                return None
            segment.filled_end = end
        behind = segment.filled_end < size and segment.filled_end - end < self._config.fill_ahead_bytes
        if behind and length <= FILL_GROUP_BYTES_MAX:
            self._start_fill(segment)
        if end > size // 2:
            self._prepare()
        return segment

    def abandon_active(self) -> None:
        """Abandons the open segment after a failed group: only a footer at its durable end is still
        written.
        """
        segment = self._active
        assert segment is not None, "a group was in flight in it"
        segment.failed = True
        self._active = None
        self._spawn(self._seal(segment))
        self._prepare()

    async def close(self) -> None:
        """Waits for background work and seals the open segment; the next start has nothing to repair."""
        self._closing = True
        if self._retry is not None:
            self._retry.cancel()
        await self._settle()
        if self._next is not None:
            await self._pool.run(partial(self._unlink, self._next))
            self._next = None
        if self._unlisted is not None:
            self._unlisted.close()  # an empty file: the next start removes it
        if self._active is not None:
            active, self._active = self._active, None
            await self._seal(active)

    async def abort(self) -> None:
        """Stops without sealing, as after a failed start."""
        self._closing = True
        for task in list(self._tasks):
            task.cancel()
        await self._settle()

    async def _settle(self) -> None:
        while self._tasks:
            await asyncio.gather(*self._tasks, return_exceptions=True)

    def _is_over(self, segment: Segment, length: int) -> bool:
        if segment.failed:
            return True
        too_long = segment.end + length > self._config.segment_size_bytes and segment.end > BLOCK
        return too_long or segment.entries >= self._config.segment_entries_max

    def _take_next(self) -> Segment | None:
        following, self._next = self._next, None
        if following is None:
            self._waiting = True
            self._prepare()
        return following

    def _prepare(self) -> None:
        if self._next is None and not self._preparing and self._retry is None and not self._closing:
            self._preparing = True
            self._spawn(self._make_next())

    async def _make_next(self) -> None:
        header = new_header(self._rng, self.next_sequence(), self._clock.wall_ms())
        spare = self._spares.pop() if self._spares and self._unlisted is None else None
        try:
            self._next = await self._pool.run(lambda: self._create(header, spare))
        except OSError as error:
            log.error("no new segment could be made", segment=header.sequence, error=str(error))
            self._retry = self._loop.call_later(RETRY_S, self._try_again)
            if self._waiting:
                self._on_unavailable(LogFailed(f"the log has no segment to write to: {error}"))
        else:
            self._resume()
        finally:
            self._preparing = False

    def _create(self, header: SegmentHeader, spare: str | None) -> Segment:
        segment = self._unlisted
        if segment is None:
            segment = create_segment(self._disk, header, self._config.first_fill_bytes, spare)
        if self._inventory is not None:
            self._unlisted = segment
            self._inventory.add(segment.sequence)
            self._unlisted = None
        return segment

    def _unlink(self, segment: Segment) -> None:
        self._unlist(segment)
        segment.unlink()

    def _recycle(self, segment: Segment) -> str:
        self._unlist(segment)
        return segment.recycle()

    def _unlist(self, segment: Segment) -> None:
        if self._inventory is not None:
            self._inventory.remove(segment.sequence, segment.last_group_sequence)

    def _try_again(self) -> None:
        self._retry = None
        self._prepare()

    def _resume(self) -> None:
        if self._waiting:
            self._waiting = False
            self._on_ready()

    def _start_fill(self, segment: Segment) -> None:
        if self._filling is None and not self._closing:
            self._filling = segment
            self._fill_task = self._spawn(self._fill(segment))

    async def _fill(self, segment: Segment) -> None:
        """Zero-fills in steps until the writer has its distance again."""
        config = self._config
        step = max(BLOCK, config.fill_ahead_bytes // _FILL_STEPS // BLOCK * BLOCK)
        target = min(segment.end + config.fill_ahead_bytes + step, config.segment_size_bytes)
        try:
            while segment.filled_end < target and not self._closing:
                start = segment.filled_end
                end = min(start + step, target)
                await self._pool.run(partial(segment.fill, start, end))
                segment.filled_end = end
                if self._waiting:
                    break
        except OSError as error:
            log.error(
                "zero-filling failed, a fresh segment follows", segment=segment.sequence, error=str(error)
            )
            segment.failed = True
        finally:
            self._filling = None
        self._resume()

    async def _seal(self, segment: Segment) -> None:
        if self._filling is segment and self._fill_task is not None:
            await asyncio.wait([self._fill_task])  # it would lengthen the file behind the trailer
        try:
            if segment.indexes:
                await self._pool.run(lambda: segment.seal(segment.durable_end))
                self._on_sealed(segment)
            else:
                await self._pool.run(partial(self._unlink, segment))
                self._on_removed(segment)
        except OSError as error:
            segment.unsealable = True
            log.warning(
                "segment not sealed, it is scanned at the next start",
                segment=segment.sequence,
                error=str(error),
            )

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._finished)
        return task

    def _finished(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._loop.call_exception_handler(
                {"message": "background work of the log failed", "exception": error, "task": task}
            )

    def _check_space(self) -> None:
        self._space_checked_at = self._clock.monotonic()
        free = self._free_bytes = self._disk.free_bytes()
        full = free < self._config.reserve_bytes
        if full != self._full:
            self._full = full
            event = (
                "disk nearly full, appends are refused" if full else "disk has space again, appends resume"
            )
            log.warning(event, free_bytes=free, reserve_bytes=self._config.reserve_bytes)
            if full and self._spares and not self._closing:
                self._spawn(self._drop_spares())

    async def _drop_spares(self) -> None:
        spares = self._spares[:]
        self._spares.clear()
        for spare in spares:
            try:
                await self._pool.run(partial(self._disk.unlink, spare))
            except OSError as error:
                log.warning("a spare file was not removed", path=spare, error=str(error))
