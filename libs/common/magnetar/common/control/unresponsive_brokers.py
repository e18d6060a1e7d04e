"""Brokers that gave no answer a moment ago: one that stands still makes each caller wait once, not always."""

from __future__ import annotations

import asyncio
from typing import Final

from magnetar.common.metadata.values import BrokerRegistration

SILENT_S: Final = 5.0
"""For how long such a broker is not asked where another one will do. Its session ends by and by."""


class SilentBrokers:
    """Remembers runs of brokers, on one event loop."""

    def __init__(self) -> None:
        self._until: dict[tuple[str, int], float] = {}

    def __contains__(self, broker: BrokerRegistration) -> bool:
        return self._until.get((broker.broker_id, broker.run), 0.0) > asyncio.get_running_loop().time()

    def note(self, broker: BrokerRegistration) -> None:
        """It gave no answer just now."""
        now = asyncio.get_running_loop().time()
        self._until = {run: until for run, until in self._until.items() if until > now}
        self._until[broker.broker_id, broker.run] = now + SILENT_S
