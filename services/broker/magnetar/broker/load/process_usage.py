"""CPU and memory usage of this process."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

WINDOW_S: Final = 0.5
"""Minimum seconds of a CPU measurement; a shorter one is too coarse."""


class CpuMeter:
    """Measures the CPU usage of this process."""

    def __init__(
        self,
        monotonic: Callable[[], float] = time.monotonic,
        used: Callable[[], float] = time.process_time,
    ) -> None:
        self._monotonic = monotonic
        self._used = used
        self._at_s = monotonic()
        self._used_s = used()
        self._percent = 0.0

    def percent(self) -> float:
        """Returns the CPU usage in percent of one processor since the last call; unchanged when called too
        soon.
        """
        at_s, used_s = self._monotonic(), self._used()
        passed_s = at_s - self._at_s
        if passed_s >= WINDOW_S:
            self._percent = 100 * (used_s - self._used_s) / passed_s
            self._at_s, self._used_s = at_s, used_s
        return self._percent


def resident_bytes() -> int:
    """Returns the resident memory of this process in bytes; 0 when unknown."""
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    except (OSError, ValueError, IndexError):
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")


def machine_bytes() -> int:
    """Returns the memory of the machine in bytes."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
