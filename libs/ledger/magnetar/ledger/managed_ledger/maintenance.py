"""Maintenance of a managed ledger: its metadata operations, one step at a time, retried until they succeed.

Each step is chosen from the current state, so no pending flag can be lost.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from magnetar.common.errors import LogFailed, MetadataError, OwnershipLost, StorageError
from magnetar.common.obs.logs import get_logger
from magnetar.ledger.managed_ledger.appender import Appender, Step

log = get_logger(__name__)

_BACKOFF_MIN_S: Final = 0.05
_BACKOFF_MAX_S: Final = 5.0


async def maintain(
    topic: str, appender: Appender, steps: Callable[[], list[Step]], lose: Callable[[StorageError], None]
) -> None:
    """Runs due steps in the given order until none is left. Ends the managed ledger if ownership is lost or a
    step breaks.

    A failed step does not delay the others: it is retried later together with the others that failed. While
    steps fail and no ledger is open, waiting publishes are refused with the reason.
    """
    loop = asyncio.get_running_loop()
    backoff_s, again_at = _BACKOFF_MIN_S, 0.0
    failed: list[Step] = []
    try:
        while due := steps():
            step = next((step for step in due if step not in failed), None)
            if step is None:
                await asyncio.sleep(again_at - loop.time())
            if step is None or (failed and loop.time() >= again_at):
                failed.clear()
                backoff_s = min(backoff_s * 2, _BACKOFF_MAX_S)
                continue
            try:
                await step()
            except OwnershipLost as error:
                lose(error)
            except (MetadataError, StorageError) as error:
                log.warning("managed ledger maintenance failed", topic=topic, error=str(error))
                if appender.current is None or appender.held:
                    if not isinstance(error, StorageError):
                        error = LogFailed(f"{topic} has no ledger to write to: {error}")
                    appender.block(error)
                failed.append(step)
                again_at = loop.time() + backoff_s
            else:
                if not failed:
                    backoff_s = _BACKOFF_MIN_S
                    appender.step_done()
    except Exception as error:
        log.exception("managed ledger maintenance broke", topic=topic)
        lose(LogFailed(f"{topic}: maintenance broke: {error!r}"))
