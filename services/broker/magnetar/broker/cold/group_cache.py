"""Cache of row groups, footers and manifests read from objects, shared by all readers.

Concurrent requests share one load. The cached bytes are bounded; values without a current reader are evicted
first, then the least recently used. Read-ahead never evicts a value in use: with many readers it loads less.
Unused values are dropped after a while.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass
from typing import Final, Generic, Protocol, TypeVar

from magnetar.common.errors import MagnetarError
from magnetar.common.obs.metrics import REGISTRY
from magnetar.common.runtime.clock import Clock
from magnetar.common.runtime.task_owner import TaskOwner
from prometheus_client import Counter, Gauge

HITS: Final = Counter(
    "magnetar_cold_cache_hits",
    "Row groups, footers and manifests of offloaded ledgers found in memory, or being loaded.",
    ["what"],
    registry=REGISTRY,
)
MISSES: Final = Counter(
    "magnetar_cold_cache_misses",
    "Row groups, footers and manifests of offloaded ledgers that a reader waited for.",
    ["what"],
    registry=REGISTRY,
)
READ_AHEAD: Final = Counter(
    "magnetar_cold_read_ahead",
    "Row groups of offloaded ledgers loaded ahead of their reader.",
    registry=REGISTRY,
)
CACHE_BYTES: Final = Gauge(
    "magnetar_cold_cache_bytes",
    "Bytes of row groups, footers and manifests of offloaded ledgers in memory.",
    ["what"],
    registry=REGISTRY,
)

UNUSED_S: Final = 60.0
"""Seconds without use after which a value is dropped and a reader's position forgotten."""

READERS_MAX: Final = 1_000
"""Maximum readers whose positions are remembered; further ones are treated as new."""


class Sized(Protocol):
    """A cached value with its cost."""

    @property
    def cost(self) -> int:
        """Approximate bytes of memory."""
        ...


KeyT = TypeVar("KeyT", bound=Hashable)
ValueT = TypeVar("ValueT", bound=Sized)

Load = Callable[[], Awaitable[ValueT]]


@dataclass(slots=True)
class _Kept(Generic[ValueT]):
    value: ValueT
    used_s: float


class GroupCache(Generic[KeyT, ValueT]):
    """A cache used on one event loop; `close` ends its loads.

    Keeps at most `bytes_max`, or one value that is larger. `what` names its values in metrics.
    """

    def __init__(self, what: str, bytes_max: int, clock: Clock) -> None:
        self._bytes_max = bytes_max
        self._clock = clock
        self._kept: dict[KeyT, _Kept[ValueT]] = {}
        self._loading: dict[KeyT, asyncio.Task[ValueT | MagnetarError]] = {}
        self._places: dict[Hashable, tuple[KeyT, float]] = {}
        self._typical = 0
        self._timer: asyncio.TimerHandle | None = None
        self._tasks = TaskOwner(f"cold {what}")
        self._hits = HITS.labels(what)
        self._misses = MISSES.labels(what)
        self._bytes_gauge = CACHE_BYTES.labels(what)
        self.byte_length = 0
        """Bytes of the cached values."""

    def peek(self, key: KeyT) -> ValueT | None:
        """Returns a value in memory; None when it has to be loaded."""
        kept = self._kept.get(key)
        if kept is None:
            return None
        kept.used_s = self._clock.monotonic()
        self._hits.inc()
        return kept.value

    async def get(self, key: KeyT, load: Load[ValueT]) -> ValueT:
        """Returns a value, from memory or loaded. Raises errors of `load`; the next call retries."""
        found = self.peek(key)
        if found is not None:
            return found
        task = self._loading.get(key)
        if task is None:
            self._misses.inc()
            task = self._start(key, load)
        else:
            self._hits.inc()
        # Other callers may wait for it as well: cancelling one does not end it.
        value = await asyncio.shield(task)
        if isinstance(value, MagnetarError):
            raise value.with_traceback(None)
        return value

    def ahead(self, key: KeyT, load: Load[ValueT]) -> bool:
        """Loads a value ahead of its reader, if it fits without evicting a value in use."""
        if key in self._kept or key in self._loading:
            return True
        if not self._make_room(self._typical * (len(self._loading) + 1), only_idle=True):
            return False
        READ_AHEAD.inc()
        self._start(key, load)
        return True

    def came_from(self, place: Hashable) -> bool:
        """Returns whether a known reader continues at this position."""
        return self._places.pop(place, None) is not None

    def stands_at(self, place: Hashable, key: KeyT) -> None:
        """Records that a reader continues at this position, in this value."""
        if len(self._places) >= READERS_MAX:
            del self._places[next(iter(self._places))]
        self._places[place] = (key, self._clock.monotonic())

    def forget(self, concerned: Callable[[KeyT], bool]) -> None:
        """Drops the cached values of the given keys."""
        for key in [key for key in self._kept if concerned(key)]:
            self._drop(key)

    async def close(self) -> None:
        """Ends loads and clears the cache; idempotent."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        await self._tasks.close()
        self.forget(lambda _: True)
        self._places.clear()

    # --- inside ---

    def _start(self, key: KeyT, load: Load[ValueT]) -> asyncio.Task[ValueT | MagnetarError]:
        task = self._loading[key] = self._tasks.spawn(self._load(key, load), "load")
        task.add_done_callback(lambda _: self._loading.pop(key, None))
        return task

    async def _load(self, key: KeyT, load: Load[ValueT]) -> ValueT | MagnetarError:
        try:
            value = await load()
        except MagnetarError as error:
            return error  # for waiting readers; a group loaded ahead may have none
        self._typical = max(self._typical, value.cost)
        self._make_room(value.cost, only_idle=False)
        self._kept[key] = _Kept(value, self._clock.monotonic())
        self._add(value.cost)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(UNUSED_S / 2, self._drop_unused)
        return value

    def _make_room(self, cost: int, *, only_idle: bool) -> bool:
        """Evicts the least needed values until `cost` fits; returns False when it does not."""
        missing = self.byte_length + cost - self._bytes_max
        if missing <= 0:
            return True
        gone_s = self._clock.monotonic() - UNUSED_S
        stood_in = {key for key, seen_s in self._places.values() if seen_s > gone_s}
        doomed: list[KeyT] = []
        for key in sorted(self._kept, key=lambda key: (key in stood_in, self._kept[key].used_s)):
            if missing <= 0 or (only_idle and key in stood_in):
                break
            missing -= self._kept[key].value.cost
            doomed.append(key)
        if only_idle and missing > 0:
            return False
        for key in doomed:
            self._drop(key)
        return missing <= 0

    def _drop(self, key: KeyT) -> None:
        self._add(-self._kept.pop(key).value.cost)

    def _add(self, cost: int) -> None:
        self.byte_length += cost
        self._bytes_gauge.inc(cost)

    def _drop_unused(self) -> None:
        self._timer = None
        gone_s = self._clock.monotonic() - UNUSED_S
        self._places = {place: at for place, at in self._places.items() if at[1] > gone_s}
        for key in [key for key, kept in self._kept.items() if kept.used_s <= gone_s]:
            self._drop(key)
        if self._kept:
            self._timer = asyncio.get_running_loop().call_later(UNUSED_S / 2, self._drop_unused)
