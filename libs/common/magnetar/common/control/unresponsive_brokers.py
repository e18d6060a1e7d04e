"""Brokers that recently did not answer, so that a hanging broker delays each caller once, not always."""

from __future__ import annotations

import asyncio
from typing import Final

from magnetar.common.metadata.values import BrokerRegistration

SILENT_S: Final = 5.0
"""Time in seconds for which such a broker is avoided if another one can serve the call. Its session expires
meanwhile.
"""


class SilentBrokers:
    """Records silent runs of brokers, on one event loop."""

    def __init__(self) -> None:
        self._until: dict[tuple[str, int], float] = {}

    def __contains__(self, broker: BrokerRegistration) -> bool:
        return self._until.get((broker.broker_id, broker.run), 0.0) > asyncio.get_running_loop().time()

    def __bool__(self) -> bool:
        """Whether any broker was silent lately: most of the time none was, and none has to be looked for."""
        return bool(self._until)

    def note(self, broker: BrokerRegistration) -> None:
        """Records that the broker just failed to answer."""
        now = asyncio.get_running_loop().time()
        self._until = {run: until for run, until in self._until.items() if until > now}
        self._until[broker.broker_id, broker.run] = now + SILENT_S
