"""The interface to topics that other brokers have loaded."""

from __future__ import annotations

from typing import Protocol

from magnetar.common.naming.namespace_name import NamespaceName


class RemoteTopics(Protocol):
    """Lists topics of other brokers."""

    async def non_persistent(self, namespace: NamespaceName) -> list[str]:
        """Returns the full names of a namespace's non-persistent topics that other brokers have loaded.

        Raises MagnetarError when one of the brokers does not answer.
        """
        ...
