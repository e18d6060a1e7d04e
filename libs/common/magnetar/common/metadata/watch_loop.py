"""Following a part of metadata for as long as the process lives, whatever becomes of the watches on it.

A watch ends when it fell behind, when the store is away, or because of a bug in who listens to it. None of
that may leave a process that never hears of a change again: each time the part is read and watched anew.
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
"""Between two tries to follow: the time doubles from the one to the other."""

FAILURES: Final = Counter(
    "magnetar_watch_failures_total",
    "Times that a part of metadata could not be followed any more and was read anew, by what it is.",
    ["watch"],
    registry=REGISTRY,
)


async def follow_for_ever(watch: str, follow: Callable[[], Awaitable[None]]) -> None:
    """Call `follow` again and again until it returns, which says that the store was closed.

    `follow` makes a watch, brings what it knows up to date, and takes changes until it fails; it has nothing
    left open then. A lost watch is an ordinary end, and made again at once unless the next one is lost soon.
    Everything else is counted, and logged once until it was well again for RETRY_MAX_S.
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
