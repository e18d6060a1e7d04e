"""Event loop lag: the delay that every other task also waits."""

from __future__ import annotations

import asyncio
from typing import Final

from magnetar.common.obs.metrics import REGISTRY
from prometheus_client import Histogram

PROBE_INTERVAL_S: Final = 0.5

LOOP_LAG_SECONDS: Final = Histogram(
    "magnetar_event_loop_lag_seconds",
    "Delay of an event loop timer beyond its scheduled time, seconds.",
    buckets=(0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 1.0, 5.0),
    registry=REGISTRY,
)


class LoopLagProbe:
    """A timer that measures its own lateness, twice a second."""

    __slots__ = ("_due", "_loop", "_timer", "last_s")

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._due = 0.0
        self.last_s = 0.0
        """The newest measurement, in seconds."""

    def start(self) -> None:
        self._due = self._loop.time() + PROBE_INTERVAL_S
        self._timer = self._loop.call_at(self._due, self._probe)

    def stop(self) -> None:
        """Stops measuring; idempotent."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _probe(self) -> None:
        self.last_s = max(0.0, self._loop.time() - self._due)
        LOOP_LAG_SECONDS.observe(self.last_s)
        self.start()
