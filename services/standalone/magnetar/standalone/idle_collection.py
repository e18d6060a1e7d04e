"""Garbage collection while the process is idle.

A full collection traverses all long-lived topics and connections and blocks the event loop meanwhile. So full
collections run while the process is idle, and surviving objects are frozen: later collections traverse only
newer objects.
"""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Callable
from typing import Final

CHECK_INTERVAL_S: Final = 5.0

IDLE_CPU_SHARE_MAX: Final = 0.02
"""Share of one core over a check interval, below which the process is idle."""

YOUNG_OBJECTS_MIN: Final = 10_000
"""Minimum net allocations since the last collection for another one."""


async def collect_when_idle(cpu_s: Callable[[], float] = time.process_time) -> None:
    """Collect and freeze while idle, until cancelled."""
    collections = _older_collections()
    while True:
        before = cpu_s()
        await asyncio.sleep(CHECK_INTERVAL_S)
        if cpu_s() - before > IDLE_CPU_SHARE_MAX * CHECK_INTERVAL_S:
            continue
        if gc.get_count()[0] >= YOUNG_OBJECTS_MIN or _older_collections() != collections:
            gc.collect()
            gc.freeze()
            collections = _older_collections()


def _older_collections() -> int:
    """Return the number of collections of the two older generations since the start."""
    stats = gc.get_stats()
    return int(stats[1]["collections"] + stats[2]["collections"])
