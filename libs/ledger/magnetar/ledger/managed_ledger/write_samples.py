"""Write latency of storage as seen by the broker: bookies and network, or its own disk.

One run at a time is timed, up to a hundred a second, from its hand-over to the ledger until its confirmation;
time spent waiting for a new ledger is excluded. If the run's ledger fails, the sample is dropped after a
while and another run is timed.
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
"""Time in ms after which an unconfirmed sample is dropped."""


class WriteSamples:
    """The run being timed; shared by all topics of a process."""

    __slots__ = ("_began_at", "_last_entry_id", "_ledger_id", "_taken_ms", "waits")

    def __init__(self) -> None:
        self.waits = False
        """Whether a run is being timed."""
        self._ledger_id = self._last_entry_id = -1
        self._taken_ms = 0
        self._began_at = 0.0

    def handed_over(self, run: Run, clock: Clock) -> None:
        """Starts timing a run just accepted by its ledger, if a sample is due."""
        wait_ms = GIVEN_UP_AFTER_MS if self.waits else SAMPLE_EVERY_MS
        # After the clock went back the sample is invalid: the next run is timed.
        if 0 <= run.publish_time_ms - self._taken_ms < wait_ms:
            return
        self.waits = True
        self._taken_ms = run.publish_time_ms
        self._began_at = clock.monotonic()
        self._ledger_id, self._last_entry_id = run.ledger_id, run.last_entry_id

    def confirmed(self, last: Position, clock: Clock) -> None:
        """Records that a topic is durable up to this position; called while a run of any topic is timed."""
        if last.ledger_id == self._ledger_id and last.entry_id >= self._last_entry_id:
            self.waits = False
            now = clock.monotonic()
            STORAGE_LATENCY.observe(now, now - self._began_at)
