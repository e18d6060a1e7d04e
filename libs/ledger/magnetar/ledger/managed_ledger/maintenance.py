"""The maintenance of a managed ledger: its metadata work, one step at a time, tried again until it is done.

Each step is chosen anew from the present state, so there is no flag that could be lost.
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
    topic: str, appender: Appender, next_step: Callable[[], Step | None], lose: Callable[[StorageError], None]
) -> None:
    """Do steps until there is none; a lost owner, or a step that breaks, is the end of the managed ledger.

    While steps fail and there is no ledger to write to, what waits for one is told why.
    """
    backoff_s = _BACKOFF_MIN_S
    try:
        while (step := next_step()) is not None:
            try:
                await step()
            except OwnershipLost as error:
                lose(error)
            except (MetadataError, StorageError) as error:
                log.warning("managed ledger maintenance failed", topic=topic, error=str(error))
                if appender.current is None:
                    if not isinstance(error, StorageError):
                        error = LogFailed(f"{topic} has no ledger to write to: {error}")
                    appender.block(error)
                await asyncio.sleep(backoff_s)
                backoff_s = min(backoff_s * 2, _BACKOFF_MAX_S)
            else:
                backoff_s = _BACKOFF_MIN_S
                appender.step_done()
    except Exception as error:
        log.exception("managed ledger maintenance broke", topic=topic)
        lose(LogFailed(f"{topic}: maintenance broke: {error!r}"))
