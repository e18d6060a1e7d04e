"""Delayed entries of a loaded topic: the index, one timer for the next due entries, and chunk loading.

Shared by all subscriptions of a topic; created with its first delayed entry or when an index is found on
disk. The timer follows each entry's own time. Under load it fires every few milliseconds at most, and it
never sleeps longer than a tick, so that a change of the wall clock is detected within one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Protocol

from magnetar.common.errors import MagnetarError
from magnetar.common.obs.logs import get_logger
from magnetar.common.obs.metrics import REGISTRY
from magnetar.ledger.ledger_store import LedgerRef
from magnetar.ledger.managed_ledger.context import ManagedLedgerContext
from magnetar.ledger.managed_ledger.delayed_index import DelayedChunk, DelayedIndex
from magnetar.ledger.managed_ledger.delayed_records import DelayedRecords
from prometheus_client import Counter
from pyroaring import BitMap

log = get_logger(__name__)

FORGOTTEN = Counter(
    "magnetar_delayed_index_rebuilds",
    "Delayed indexes that were given up because a record was lost, and are filled by reading again.",
    registry=REGISTRY,
)

PAUSE_S: Final = 0.002
"""Minimum seconds between timer events; entries due meanwhile are delivered together."""

TICK_S: Final = 1.0
"""Longest sleep in seconds, unless the topic has another setting."""

DUE_ENTRIES_MAX: Final = 1_000
"""Maximum entries delivered before yielding to the event loop."""

_ENCODED_AT_ONCE: Final = 2
_LOAD_ATTEMPTS: Final = 3
_LOAD_RETRY_S: Final = 0.5


class DelayListener(Protocol):
    """A subscription that holds back delayed entries."""

    def on_due(self, entries: Sequence[tuple[int, int]]) -> None:
        """Called with (ledger id, entry id) of due entries, by time and then by position; they left the
        index.
        """
        ...

    def on_forgotten(self, entries: Mapping[int, BitMap]) -> None:
        """Called with entries, by ledger, that left the index without being known as due: each must be read
        again.
        """
        ...


class TopicDelays:
    """The delayed entries of one loaded topic. Used on one event loop.

    `now_ms` returns the time for delivery; `tick_s` is the timer's longest sleep.
    """

    __slots__ = (
        "_armed_for",
        "_flush_soon",
        "_latest_ms",
        "_listeners",
        "_loading",
        "_stopped",
        "_timer",
        "_unencoded",
        "clock_set_back",
        "index",
        "now_ms",
        "records",
        "tick_s",
    )

    def __init__(
        self,
        ctx: ManagedLedgerContext,
        topic: str,
        index: DelayedIndex,
        current_ref: Callable[[], LedgerRef | None],
        flush_soon: Callable[[], None],
    ) -> None:
        """Creates the delays. `current_ref` returns the cursor ledger named by the topic's head, to which
        `flush_soon` writes.
        """
        self.index = index
        self.records = DelayedRecords(ctx, topic, index, current_ref, self._forget)
        self.tick_s = TICK_S
        self._unencoded: list[DelayedChunk] = []
        self._flush_soon = flush_soon
        self.now_ms = ctx.clock.wall_ms
        self._latest_ms = 0
        self.clock_set_back = False
        """Whether the wall clock went back: entries already delivered may be in the index again."""
        self._listeners: list[DelayListener] = []
        self._loading: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._armed_for = _NEVER_MS
        self._stopped = False
        self._arm()

    def listen(self, listener: DelayListener) -> None:
        self._listeners.append(listener)

    def unlisten(self, listener: DelayListener) -> None:
        self._listeners = [other for other in self._listeners if other is not listener]

    @property
    def due_in_ms(self) -> int | None:
        """Returns the time in ms until something may be due; None without delayed entries."""
        due_ms = self.index.next_due_ms
        return None if due_ms is None else max(0, due_ms - self.now_ms())

    def hold(self, deliver_at_ms: int, ledger_id: int, entry_id: int) -> None:
        """Delays an entry that was read until that time."""
        if self.index.add(deliver_at_ms, ledger_id, entry_id) and deliver_at_ms < self._armed_for:
            self._arm()

    def settle(self) -> None:
        """Writes excess entries as chunks, a few at a time; call it after a batch of `hold`."""
        self._unencoded += self.index.seal(self._look())
        if self._unencoded:
            self._encode(_ENCODED_AT_ONCE)

    def leave(self) -> None:
        """Schedules entries not due soon for the topic's last flush."""
        self._unencoded += self.index.seal(self.now_ms(), everything=True)
        self._encode(len(self._unencoded))

    def stop(self) -> None:
        """Stops timers and reads."""
        self._stopped = True
        self._listeners = []
        if self._timer is not None:
            self._timer.cancel()
        if self._loading is not None:
            self._loading.cancel()

    def trimmed(self, first_ledger_id: int) -> None:
        """Removes ledgers below this id."""
        self.index.trimmed(first_ledger_id)

    def _encode(self, chunks_max: int) -> None:
        chunks = self._unencoded[:chunks_max]
        del self._unencoded[:chunks_max]
        # Chunks loaded again meanwhile are not needed any more.
        chunks = [chunk for chunk in chunks if chunk in self.index.chunks()]
        for chunk in chunks:
            chunk.encode()
        if chunks:
            self.records.add(chunks)
            self._flush_soon()

    # Time

    def _look(self) -> int:
        """Returns the time, and detects whether it went back."""
        now_ms = self.now_ms()
        if now_ms < self._latest_ms:
            self.clock_set_back = True
        self._latest_ms = now_ms
        return now_ms

    def _arm(self, pause_s: float = 0.0) -> None:
        """Sets the timer for the next event."""
        at_ms = self.index.next_event_ms()
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._armed_for = None, _NEVER_MS
        if at_ms is None or self._stopped or self._loading is not None:
            return
        delay_s = min(max((at_ms - self.now_ms()) / 1000, pause_s), self.tick_s)
        self._armed_for = at_ms
        self._timer = asyncio.get_running_loop().call_later(delay_s, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        now_ms = self._look()
        due = self.index.take_due(now_ms, DUE_ENTRIES_MAX)
        if due:
            for listener in self._listeners:
                try:
                    listener.on_due(due)
                except Exception:
                    log.exception("a subscription failed to take due entries", topic=self.records.topic)
        if self._unencoded:
            self._encode(_ENCODED_AT_ONCE)
        if self._loading is None and self.index.chunk_to_load(now_ms) is not None:
            self._loading = asyncio.get_running_loop().create_task(self._load())
        self._arm(PAUSE_S)

    # Chunks

    async def _load(self) -> None:
        """Loads the chunks that are due to be loaded."""
        failures = 0
        try:
            while (chunk := self.index.chunk_to_load(self.now_ms())) is not None:
                try:
                    keys = await self.records.read(chunk)
                except MagnetarError as error:
                    failures += 1
                    if failures >= _LOAD_ATTEMPTS:
                        self._forget(f"a record cannot be read: {error}")
                    else:
                        await asyncio.sleep(_LOAD_RETRY_S)
                else:
                    failures = 0
                    self.index.load(chunk, keys)
        except Exception as error:
            log.exception("loading delayed entries broke", topic=self.records.topic)
            self._forget(f"a record cannot be loaded: {error!r}")
        self._loading = None
        self._arm()

    def _forget(self, reason: str) -> None:
        """Drops the index, because records are lost: its entries are read again and re-added."""
        forgotten = self.index.forget()
        log.warning(
            "delayed index given up, its entries are read again",
            topic=self.records.topic,
            entries=sum(map(len, forgotten.values())),
            reason=reason,
        )
        FORGOTTEN.inc()
        for listener in self._listeners:
            listener.on_forgotten(forgotten)


_NEVER_MS: Final = 1 << 62
