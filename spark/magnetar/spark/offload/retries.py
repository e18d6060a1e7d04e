"""Calls that are retried until a broker answers: brokers restart, topics move.

Only for idempotent calls. Delays have random jitter, so that the calls of many jobs spread.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from magnetar.common.errors import MagnetarError
from magnetar.common.offload.offload_errors import may_pass
from magnetar.spark.offload.tasks import Stopped

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Patience:
    """Timeout of a call and the pauses between tries, in seconds."""

    for_s: float = 120.0
    pause_s: float = 0.1
    pause_max_s: float = 5.0
    stop: threading.Event = field(default_factory=threading.Event)
    """Set when the response is no longer needed."""
    now: Callable[[], float] = time.monotonic
    chance: Callable[[], float] = random.random

    def call(self, act: Callable[[], T]) -> T:
        """Returns the result of `act`, retried after retriable errors.

        Raises its error when that is not retriable or the time is over, and Stopped.
        """
        deadline = self.now() + self.for_s
        pause_s = self.pause_s
        while True:
            try:
                return act()
            except MagnetarError as error:
                waits = pause_s * (0.5 + self.chance())
                if not may_pass(error) or self.now() + waits > deadline:
                    raise
            if self.stop.wait(waits):
                raise Stopped("the job was stopped")
            pause_s = min(2 * pause_s, self.pause_max_s)
