"""How long storage takes to make a run durable, seen from the broker: bookies and network, or its own disk.

One run at a time is timed, up to a hundred a second, from being handed to its ledger to its confirmation;
what waits for a ledger to be made is not storage's. A run whose ledger fails is written again elsewhere: it
is not found there, and another one is taken in its place after a while.
"""

from __future__ import annotations

from typing import Final

from magnetar.common.naming.position import Position
from magnetar.common.obs.latency import LatencyHistogram
from magnetar.common.runtime.clock import Clock
from magnetar.ledger.ledger_store import Run

STORAGE_LATENCY: Final = LatencyHistogram(
    "magnetar_storage_write_latency_seconds",
    "From a run of entries being handed to its ledger to its being durable on enough copies; sampled.",
)

SAMPLE_EVERY_MS: Final = 10

GIVEN_UP_AFTER_MS: Final = 60_000
"""A run that was not confirmed for so long is not waited for any more."""


class WriteSamples:
    """The run that is timed now; one for all topics of a process."""

    __slots__ = ("_began_at", "_last_entry_id", "_ledger_id", "_taken_ms", "waits")

    def __init__(self) -> None:
        self.waits = False
        """A run is being timed."""
        self._ledger_id = self._last_entry_id = -1
        self._taken_ms = 0
        self._began_at = 0.0

    def handed_over(self, run: Run, clock: Clock) -> None:
        """A run was taken by its ledger: time it, if it is time for one."""
        wait_ms = GIVEN_UP_AFTER_MS if self.waits else SAMPLE_EVERY_MS
        # A clock that went back says nothing: then the next one is timed.
        if 0 <= run.publish_time_ms - self._taken_ms < wait_ms:
            return
        self.waits = True
        self._taken_ms = run.publish_time_ms
        self._began_at = clock.monotonic()
        self._ledger_id, self._last_entry_id = run.ledger_id, run.last_entry_id

    def confirmed(self, last: Position, clock: Clock) -> None:
        """A topic is durable up to here; called while a run is timed, of that topic or another one."""
        if last.ledger_id == self._ledger_id and last.entry_id >= self._last_entry_id:
            self.waits = False
            now = clock.monotonic()
            STORAGE_LATENCY.observe(now, now - self._began_at)
