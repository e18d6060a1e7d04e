"""What this process takes of its machine."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path


class CpuMeter:
    """How much of the processors this process takes."""

    def __init__(
        self,
        monotonic: Callable[[], float] = time.monotonic,
        used: Callable[[], float] = time.process_time,
    ) -> None:
        self._monotonic = monotonic
        self._used = used
        self._at_s = monotonic()
        self._used_s = used()

    def percent(self) -> float:
        """Since it was asked last, or made; 100 is one processor."""
        at_s, used_s = self._monotonic(), self._used()
        passed_s = at_s - self._at_s
        if passed_s <= 0:
            return 0.0
        percent = 100 * (used_s - self._used_s) / passed_s
        self._at_s, self._used_s = at_s, used_s
        return percent


def resident_bytes() -> int:
    """Memory that this process has; 0 where unknown."""
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    except (OSError, ValueError, IndexError):
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")


def machine_bytes() -> int:
    """Memory that the machine has."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
