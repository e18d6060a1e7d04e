"""One bound on the message bytes that the process holds: publishes, reads, unsent output and the tail cache.

The tail cache shrinks first: it may use only what the other holders leave free. When these alone reach the
bound, the broker stops reading from connections that publish or have much unsent output, and delays reads
from storage. All resume automatically as bytes are settled. A burst of publishes, a stalled consumer, or many
consumers catching up at once therefore fill sockets, not the process's memory.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import islice
from typing import Final, Protocol

from magnetar.broker.memory_config import MemoryConfig
from magnetar.common.obs.metrics import REGISTRY
from magnetar.ledger.managed_ledger.entry_cache import EntryCache
from prometheus_client import Gauge

BUDGET_BYTES: Final = Gauge(
    "magnetar_memory_budget_bytes",
    "Message bytes held by the process, by holder.",
    ["holder"],
    registry=REGISTRY,
)


READ_BYTES_MIN: Final = 64 * 1024
"""Share of a read in bytes, however many read at the same time."""


READERS_AGAIN_S: Final = 0.2
"""Seconds after which all waiting readers are resumed, if releases have resumed only some."""


class ReadHolder(Protocol):
    """A holder of bytes that were read from storage and are not delivered yet."""

    def give_back(self) -> None:
        """Drops the bytes, to be read again later, and releases their reservation."""
        ...


class ByteBudget:
    """Counts bytes by holder and decides which holders have to wait. All calls run on the event loop."""

    __slots__ = (
        "_again",
        "_bytes_max",
        "_cache",
        "_cache_bytes_max",
        "_config",
        "_holders",
        "_publish_bytes_max",
        "_publishers",
        "_readers",
        "_reading",
        "output",
        "publishes",
        "reads",
    )

    def __init__(self, config: MemoryConfig, cache: EntryCache) -> None:
        self._bytes_max = config.budget_megabytes * 1024 * 1024
        self._config = config
        self._publish_bytes_max = 0
        self.limit_publishes()
        self._cache = cache
        self._cache_bytes_max = cache.bytes_max
        self._publishers: dict[int, Callable[[], None]] = {}
        self._readers: dict[int, Callable[[], None]] = {}
        self._again: asyncio.TimerHandle | None = None
        self._reading: set[int] = set()
        self._holders: dict[int, ReadHolder] = {}
        # Those with reservations, and the ones among them that have read something.
        self.publishes = 0
        """Bytes received from producers and not confirmed."""
        self.reads = 0
        """Bytes being read from storage, or read and not delivered."""
        self.output = 0
        """Bytes in the write buffers of sockets."""
        for holder, held in (
            ("publishes", lambda: self.publishes),
            ("reads", lambda: self.reads),
            ("output", lambda: self.output),
            ("cache", lambda: cache.bytes),
        ):
            BUDGET_BYTES.labels(holder).set_function(held)

    def limit_publishes(self) -> None:
        """Reads the bound of pending publishes from the configuration; connections apply it at their next
        publish.
        """
        megabytes = self._config.pending_publish_megabytes_max
        self._publish_bytes_max = min(self._bytes_max, megabytes * 1024 * 1024)

    @property
    def used(self) -> int:
        """Bytes that cannot be released at once; the tail cache is not included."""
        return self.publishes + self.reads + self.output

    @property
    def spent(self) -> bool:
        return self.used >= self._bytes_max

    @property
    def publishes_spent(self) -> bool:
        """True when the broker must stop reading from connections that publish."""
        return self.publishes >= self._publish_bytes_max or self.spent

    def has_room(self, byte_count: int) -> bool:
        """True when the bytes fit without reclaiming memory of another holder."""
        return self.used + byte_count <= self._bytes_max

    def add_publishes(self, byte_count: int) -> None:
        """Accounts for bytes received from a producer (positive) or settled (negative)."""
        self.publishes += byte_count
        self._moved(byte_count)

    def add_output(self, byte_count: int) -> None:
        """Accounts for a write buffer that grew (positive) or drained (negative)."""
        self.output += byte_count
        self._moved(byte_count)

    def share_of_read(self, byte_count: int) -> int:
        """Returns how many of these bytes one read should reserve, so that all who read fit into half of the
        bound: a thousand subscriptions that catch up would otherwise take what others have read ahead.
        """
        among = len(self._reading) + len(self._readers) + 1
        return min(byte_count, max(READ_BYTES_MIN, self._bytes_max // (2 * among)))

    def reserve_read(self, holder: ReadHolder, byte_count: int) -> bool:
        """Reserves bytes for a read; returns False when they do not fit, and the caller then calls
        `wait_to_read`.

        Bytes that other holders have read ahead are reclaimed first, as many as are needed. A single read is
        always allowed when nothing else is held, however large it is.
        """
        if self.used and self.used + byte_count > self._bytes_max:
            for other in [each for each in self._holders.values() if each is not holder]:
                other.give_back()
                if not self.used or self.used + byte_count <= self._bytes_max:
                    break
            else:
                return False
        self._reading.add(id(holder))
        self.reads += byte_count
        self._moved(byte_count)
        return True

    def release_read(self, holder: ReadHolder, byte_count: int, *, all_of_it: bool) -> None:
        """Accounts for bytes of a read that were delivered or dropped; `all_of_it`: the holder has no bytes
        left.

        A holder with bytes left is asked to give them back when other reads wait, even if it had none when
        its read started.
        """
        self.reads -= byte_count
        if all_of_it:
            self._reading.discard(id(holder))
            self._holders.pop(id(holder), None)
        else:
            self._holders[id(holder)] = holder
        self._moved(-byte_count)

    def wait_to_publish(self, who: int, resume: Callable[[], None]) -> None:
        """Calls `resume` once publishes are down to half of their bound; `who` is the waiter's id and waits
        only once.
        """
        self._publishers[who] = resume

    def wait_to_read(self, who: int, resume: Callable[[], None]) -> None:
        """Calls `resume` once when bytes were settled; `who` is the waiter's id and waits only once."""
        self._readers[who] = resume

    def waits_to_read(self, who: int) -> bool:
        """Whether the waiter of this id waits for room for a read."""
        return who in self._readers

    def forget(self, who: int) -> None:
        """Removes the waiter of this id."""
        self._publishers.pop(who, None)
        self._readers.pop(who, None)

    def _moved(self, byte_count: int) -> None:
        if byte_count > 0:
            room = max(0, self._bytes_max - self.used)
            if room < self._cache_bytes_max:
                self._cache.limit(room)
            return
        if self._cache.bytes_max < self._cache_bytes_max:
            self._cache.limit(min(self._cache_bytes_max, max(0, self._bytes_max - self.used)))
        if self._readers and not self.spent:
            self._resume_readers()
        if self._publishers and self.publishes <= self._publish_bytes_max // 2 and not self.spent:
            self._publishers, publishers = {}, self._publishers
            for resume in publishers.values():
                resume()

    def _resume_readers(self) -> None:
        """Resumes the readers that there is room for, those that waited longest first.

        At least one, which may reclaim what others have read; not all, since a thousand would look for room
        at each release.
        """
        count = max(1, (self._bytes_max - self.used) // self.share_of_read(self._bytes_max))
        if self.reads and count < len(self._readers):
            self._resume(count)
            if self._again is None:
                self._again = asyncio.get_running_loop().call_later(READERS_AGAIN_S, self._resume_all_readers)
        else:
            self._resume(len(self._readers))

    def _resume_all_readers(self) -> None:
        """Resumes all, in case those resumed before had nothing left to read, and nothing was released."""
        self._again = None
        self._resume(len(self._readers))

    def _resume(self, count: int) -> None:
        for who in list(islice(self._readers, count)):
            resume = self._readers.pop(who, None)
            if resume is not None:
                resume()
