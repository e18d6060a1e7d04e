"""Which brokers are asked when any will do: those that are up and not about to go, one after the other."""

from __future__ import annotations

from magnetar.common.cluster.broker_directory import BrokerDirectory
from magnetar.common.metadata.values import BrokerRegistration


class LiveBrokers:
    """Takes turns among the brokers of a directory."""

    def __init__(self, directory: BrokerDirectory, first: int = 0) -> None:
        """`first`, any number, keeps many discoveries from beginning with the same broker."""
        self._directory = directory
        self._turn = first

    def some(self, count: int) -> list[BrokerRegistration]:
        """Up to so many different brokers, from the one whose turn it is; draining ones when there are no
        others. Empty when no broker is up.
        """
        known = self._directory.all()
        able = [broker for broker in known if not broker.draining] or known
        if not able:
            return []
        start = self._turn % len(able)
        self._turn += 1
        return (able[start:] + able[:start])[:count]
