"""Garbage collection in idle moments.

Topics and connections that live long are walked by every full collection, which stops the event loop for as
long as that takes. So full collections run while the process is idle, and what survives one is frozen: later
ones only look at what came since.
"""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Callable
from typing import Final

CHECK_INTERVAL_S: Final = 5.0

IDLE_CPU_SHARE_MAX: Final = 0.02
"""Share of one core over a check interval, under which the process counts as idle."""

YOUNG_OBJECTS_MIN: Final = 10_000
"""Net allocations since the last collection from which one is worth it."""


async def collect_when_idle(cpu_s: Callable[[], float] = time.process_time) -> None:
    """Collect and freeze in idle moments, for ever; ends by cancellation."""
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
    """How often the two older generations were collected since the start."""
    stats = gc.get_stats()
    return int(stats[1]["collections"] + stats[2]["collections"])
