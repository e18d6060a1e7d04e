"""Round-robin selection among available brokers that are not draining."""

from __future__ import annotations

from magnetar.common.cluster.broker_directory import BrokerDirectory
from magnetar.common.metadata.values import BrokerRegistration


class LiveBrokers:
    """Selects brokers of a directory in turn."""

    def __init__(self, directory: BrokerDirectory, first: int = 0) -> None:
        """`first`, a random number, spreads discoveries over different first brokers."""
        self._directory = directory
        self._turn = first

    def some(self, count: int) -> list[BrokerRegistration]:
        """Return up to this many different brokers, in turn; draining brokers only if there are no
        others. Empty when no broker is available.
        """
        known = self._directory.all()
        able = [broker for broker in known if not broker.draining] or known
        if not able:
            return []
        start = self._turn % len(able)
        self._turn += 1
        return (able[start:] + able[:start])[:count]
