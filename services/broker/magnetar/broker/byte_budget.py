"""One bound on the message bytes that the process holds: publishes, reads, unsent output and the tail cache.

The cache gives way first: it may use what the others leave. When they alone reach the bound, connections
that publish or that have much unsent are not served on, and reads wait; all go on by themselves as bytes are
settled. So a flood, a stalled consumer or many that catch up at once fill sockets, not the process.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from magnetar.broker.memory_config import MemoryConfig
from magnetar.common.obs.metrics import REGISTRY
from magnetar.ledger.managed_ledger.entry_cache import EntryCache
from prometheus_client import Gauge

BUDGET_BYTES: Final = Gauge(
    "magnetar_memory_budget_bytes",
    "Message bytes held by the process, by what holds them.",
    ["holder"],
    registry=REGISTRY,
)


class ReadHolder(Protocol):
    """Holds bytes that were read from storage and not delivered yet."""

    def give_back(self) -> None:
        """Forget them, to be read again later; release what was reserved for them."""
        ...


class ByteBudget:
    """Counts bytes by holder and decides who has to wait. All calls on the event loop."""

    __slots__ = (
        "_bytes_max",
        "_cache",
        "_cache_bytes_max",
        "_config",
        "_holders",
        "_publish_bytes_max",
        "_publishers",
        "_readers",
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
        self._holders: dict[int, ReadHolder] = {}
        self.publishes = 0
        """Taken from producers and not confirmed."""
        self.reads = 0
        """Being read from storage, or read and not delivered."""
        self.output = 0
        """Waiting in write buffers of sockets."""
        for holder, held in (
            ("publishes", lambda: self.publishes),
            ("reads", lambda: self.reads),
            ("output", lambda: self.output),
            ("cache", lambda: cache.bytes),
        ):
            BUDGET_BYTES.labels(holder).set_function(held)

    def limit_publishes(self) -> None:
        """Read from the configuration how much may be pending; connections notice at their next publish."""
        megabytes = self._config.pending_publish_megabytes_max
        self._publish_bytes_max = min(self._bytes_max, megabytes * 1024 * 1024)

    @property
    def used(self) -> int:
        """Bytes that cannot be given up at once; the cache is not among them."""
        return self.publishes + self.reads + self.output

    @property
    def spent(self) -> bool:
        return self.used >= self._bytes_max

    @property
    def publishes_spent(self) -> bool:
        """True when connections that publish must not be read on."""
        return self.publishes >= self._publish_bytes_max or self.spent

    def has_room(self, byte_count: int) -> bool:
        """True when the bytes fit without reclaiming memory of another user."""
        return self.used + byte_count <= self._bytes_max

    def add_publishes(self, byte_count: int) -> None:
        """Bytes were taken from a producer (positive) or settled (negative)."""
        self.publishes += byte_count
        self._moved(byte_count)

    def add_output(self, byte_count: int) -> None:
        """A write buffer grew (positive) or drained (negative)."""
        self.output += byte_count
        self._moved(byte_count)

    def reserve_read(self, holder: ReadHolder, byte_count: int) -> bool:
        """Room for a read of so many bytes; False when there is none, then `wait_to_read`.

        What others read ahead is taken back first. A single read is always let through when nothing else is
        held, however large it is.
        """
        if self.used and self.used + byte_count > self._bytes_max:
            for other in [each for each in self._holders.values() if each is not holder]:
                other.give_back()
            if self.used and self.used + byte_count > self._bytes_max:
                return False
        self._holders[id(holder)] = holder
        self.reads += byte_count
        self._moved(byte_count)
        return True

    def release_read(self, holder: ReadHolder, byte_count: int, *, all_of_it: bool) -> None:
        """Bytes of a read were delivered or dropped; `all_of_it`: the holder has nothing more.

        One that has is asked to give it back: also when it had nothing while the read was under way.
        """
        self.reads -= byte_count
        if all_of_it:
            self._holders.pop(id(holder), None)
        else:
            self._holders[id(holder)] = holder
        self._moved(-byte_count)

    def wait_to_publish(self, who: int, resume: Callable[[], None]) -> None:
        """Call `resume` once publishes are down to half of their bound; `who` (an id) waits only once."""
        self._publishers[who] = resume

    def wait_to_read(self, who: int, resume: Callable[[], None]) -> None:
        """Call `resume` once when something was settled; `who` (an id) waits only once."""
        self._readers[who] = resume

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
            self._readers, readers = {}, self._readers
            for resume in readers.values():
                resume()
        if self._publishers and self.publishes <= self._publish_bytes_max // 2 and not self.spent:
            self._publishers, publishers = {}, self._publishers
            for resume in publishers.values():
                resume()
