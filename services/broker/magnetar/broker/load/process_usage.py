"""What this process takes of its machine."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

WINDOW_S: Final = 0.5
"""Less time than that tells nothing of a process: it either ran in it or did not."""


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
        self._percent = 0.0

    def percent(self) -> float:
        """Since it was asked last, or made; 100 is one processor. Asked again too soon it says the same."""
        at_s, used_s = self._monotonic(), self._used()
        passed_s = at_s - self._at_s
        if passed_s >= WINDOW_S:
            self._percent = 100 * (used_s - self._used_s) / passed_s
            self._at_s, self._used_s = at_s, used_s
        return self._percent


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
