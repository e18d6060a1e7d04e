"""Follows a part of metadata for the life of the process, through any failure of its watches.

A watch ends when it fell behind, when the store is unavailable, or after a bug in a listener. Each time the
part is read and watched again, so that the process never stops receiving changes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from magnetar.common.errors import MetadataError, WatchLost
from magnetar.common.obs.logs import get_logger
from magnetar.common.obs.metrics import REGISTRY
from prometheus_client import Counter

log = get_logger(__name__)

RETRY_MIN_S: Final = 0.1
RETRY_MAX_S: Final = 5.0
"""Longest wait in seconds between attempts to follow; the wait doubles up to it."""

FAILURES: Final = Counter(
    "magnetar_watch_failures_total",
    "Times that a part of metadata could not be followed any more and was read anew, by what it is.",
    ["watch"],
    registry=REGISTRY,
)


async def follow_for_ever(watch: str, follow: Callable[[], Awaitable[None]]) -> None:
    """Calls `follow` repeatedly until it returns, which means that the store was closed.

    `follow` opens a watch, refreshes its state and applies changes until it fails; on failure it leaves
    nothing open. A lost watch is ordinary and retried at once, unless the next one is lost soon. Other
    failures are counted, and logged once until following has worked for RETRY_MAX_S.
    """
    loop = asyncio.get_running_loop()
    failures = FAILURES.labels(watch)  # shown from now on, at 0
    wait_s = 0.0
    logged = False
    while True:
        began = loop.time()
        error: Exception
        try:
            await follow()
            return
        except WatchLost as lost:
            error = lost
        except Exception as failed:
            error = failed
            failures.inc()
        if loop.time() - began >= RETRY_MAX_S:
            wait_s, logged = 0.0, False
        if not isinstance(error, WatchLost):
            wait_s = max(wait_s, RETRY_MIN_S)
            if not logged:
                bug = None if isinstance(error, MetadataError) else error
                log.warning(
                    "metadata not followed, trying again", watch=watch, error=str(error), exc_info=bug
                )
            logged = True
        await asyncio.sleep(wait_s)
        wait_s = min(max(2 * wait_s, RETRY_MIN_S), RETRY_MAX_S)
