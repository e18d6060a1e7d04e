"""Reads of one subscription from storage: one at a time, within the broker's memory budget.

The bytes that were read count in the byte budget until they are delivered or dropped. While memory is short a
read waits for room; after a failed read the next one waits a little. `wake` follows in each case, also after
an unexpected error: a subscription whose reads ended would be stuck silently.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from magnetar.broker.byte_budget import ByteBudget, ReadHolder
from magnetar.broker.dispatch.eligibility import Code, reason
from magnetar.broker.reason import Reason, iso_time
from magnetar.broker.task_spawner import Spawn
from magnetar.common.errors import MagnetarError
from magnetar.common.naming.position import Position
from magnetar.common.obs.logs import get_logger
from magnetar.common.obs.metrics import REGISTRY
from prometheus_client import Counter

log = get_logger(__name__)

READ_RETRY_S: Final = 1.0
"""Pause between a failed read from storage and the next one."""

READ_RETRY_MAX_S: Final = 30.0
"""Maximum pause after unexpected errors; the pause doubles with each of them."""

BROKEN_READS: Final = Counter(
    "magnetar_dispatch_read_errors_total",
    "Dispatch reads that failed with an unexpected error and are retried; each one indicates a bug.",
    registry=REGISTRY,
)

_BROKEN_MAX: Final = 16
"""Maximum count of consecutive broken reads; more make no difference."""

_FoundT = TypeVar("_FoundT")


class ReadAhead:
    """The read in progress, and the bytes of earlier reads that `holder` still holds."""

    __slots__ = (
        "_began_ms",
        "_broken",
        "_budget",
        "_bytes_max",
        "_failure",
        "_generation",
        "_holder",
        "_now_ms",
        "_offered",
        "_paused",
        "_reads_from",
        "_retries_ms",
        "_spawn",
        "_subscription",
        "_topic",
        "_wake",
        "held_bytes",
        "under_way",
    )

    def __init__(
        self,
        holder: ReadHolder,
        topic: str,
        subscription: str,
        bytes_max: int,
        budget: ByteBudget,
        spawn: Spawn,
        wake: Callable[[], None],
        now_ms: Callable[[], int],
    ) -> None:
        """Creates it idle; a read reserves at most `bytes_max` bytes. `now_ms` is the wall clock."""
        self._holder = holder
        self._topic = topic
        self._subscription = subscription
        self._bytes_max = bytes_max
        self._budget = budget
        self._spawn = spawn
        self._wake = wake
        self._offered = True
        self._broken = 0
        """Consecutive reads that failed with an unexpected error."""
        self._paused: asyncio.TimerHandle | None = None
        self._now_ms = now_ms
        self._reads_from: Position | None = None
        self._began_ms = self._retries_ms = 0
        self._failure = ""
        # For explanations: where and when the last read began, why the last failed one did, and the next try.
        self._generation = 0
        self.under_way = False
        self.held_bytes = 0

    @property
    def offered(self) -> bool:
        """True when entries that were read may be dropped to free memory: a turn could have delivered
        some.
        """
        return self._offered

    def begin(
        self, start: Position, read: Callable[[int], Awaitable[_FoundT]], take: Callable[[_FoundT], int]
    ) -> None:
        """Starts a read, unless one is in progress or memory is short; calls `wake` when there are entries or
        the caller should retry.

        `read` gets how many bytes it may return, unless a single entry has more. `take` gets the result,
        unless it was dropped meanwhile, and returns how many bytes of it are held. It takes all of it, or
        raises and takes nothing.
        """
        if self.under_way or self._paused is not None:
            return
        reserved = self._budget.share_of_read(self._bytes_max)
        if not self._budget.reserve_read(self._holder, reserved):
            self._budget.wait_to_read(id(self), self._wake)
            return
        self.under_way = True
        self._reads_from, self._began_ms = start, self._now_ms()
        self._spawn(self._read(start, read, take, reserved, self._generation), "read for dispatch")

    @property
    def reason(self) -> Reason | None:
        """The wait for entries: a read, the pause after a failed one, or memory; None without one."""
        at, now_ms = str(self._reads_from), self._now_ms()
        if self.under_way:
            took_s = max(0, now_ms - self._began_ms) / 1000
            text = f"waiting for a read from storage at {at}, for {took_s:.3f} s"
            return reason(Code.READING, text, since_ms=self._began_ms, position=at)
        if self._paused is not None:
            retry_s = max(0, self._retries_ms - now_ms) / 1000
            text = f"the read from storage at {at} failed ({self._failure}): tried again in {retry_s:.3f} s"
            until = iso_time(self._retries_ms)
            return reason(
                Code.READ_FAILED, text, since_ms=self._began_ms, position=at, error=self._failure, until=until
            )
        if self._budget.waits_to_read(id(self)):
            used, wanted = self._budget.used, self._budget.share_of_read(self._bytes_max)
            text = f"waiting for {wanted} bytes of memory for a read: {used} of the broker's are in use"
            return reason(Code.MEMORY_FULL, text, bytesWanted=wanted, bytesUsed=used)
        return None

    def drop(self) -> None:
        """Drops the result of the read in progress when it arrives."""
        if self.under_way:
            self._generation += 1
            self.under_way = False

    def close(self) -> None:
        """Stops reading and releases all memory; drops the result of a read in progress."""
        self._generation += 1
        if self._paused is not None:
            self._paused.cancel()
        self._budget.forget(id(self))
        self.release(self.held_bytes)

    def release(self, byte_count: int) -> None:
        """Releases `byte_count` of the bytes held."""
        if byte_count:
            self.held_bytes -= byte_count
            self._budget.release_read(self._holder, byte_count, all_of_it=not self.held_bytes)

    async def _read(
        self,
        start: Position,
        read: Callable[[int], Awaitable[_FoundT]],
        take: Callable[[_FoundT], int],
        reserved: int,
        generation: int,
    ) -> None:
        try:
            found = await read(reserved)
            if generation != self._generation:
                self._give_up_room(reserved)
                return
            read_bytes = take(found)
        except Exception as error:
            self._give_up_room(reserved)
            self._failed(generation, start, error)
            return
        self.under_way = False
        self._broken = 0
        self.held_bytes += read_bytes
        self._offered = False
        self._wake()
        asyncio.get_running_loop().call_soon(self._offer)
        self._give_up_room(reserved - read_bytes)

    def _give_up_room(self, byte_count: int) -> None:
        """Releases the unused part of the bytes reserved for a read."""
        self._budget.release_read(self._holder, byte_count, all_of_it=not self.held_bytes)

    def _offer(self) -> None:
        """Offers memory left over after the turn of `_wake` to subscriptions that wait for it."""
        self._offered = True
        if self.held_bytes:
            self._budget.release_read(self._holder, 0, all_of_it=False)

    def _failed(self, generation: int, start: Position, error: Exception) -> None:
        retry_s = READ_RETRY_S
        where = {"topic": self._topic, "subscription": self._subscription, "position": str(start)}
        if not isinstance(error, MagnetarError):
            BROKEN_READS.inc()
            if not self._broken:
                log.error("unexpected error in a read for dispatch, retrying", **where, exc_info=error)
            retry_s = min(READ_RETRY_S * 2.0**self._broken, READ_RETRY_MAX_S)
            self._broken = min(self._broken + 1, _BROKEN_MAX)
        elif generation == self._generation:
            log.warning("read for dispatch failed, retrying", **where, error=str(error))
        if generation == self._generation:
            self.under_way = False
            self._failure = str(error) or type(error).__name__
            self._retries_ms = self._now_ms() + int(retry_s * 1000)
            self._paused = asyncio.get_running_loop().call_later(retry_s, self._resume)

    def _resume(self) -> None:
        self._paused = None
        self._wake()
