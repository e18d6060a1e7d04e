"""Calls to other brokers during a handover of a bundle."""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

from magnetar.common.control.control_pb2 import TakeRequest, TakeResponse
from magnetar.common.metadata.values import BrokerRegistration
from magnetar.common.naming.bundle_range import BundleRange
from magnetar.common.naming.namespace_name import NamespaceName


class OtherBrokers(Protocol):
    """The other brokers of the cluster."""

    async def next_owner(
        self, namespace: NamespaceName, bundle: BundleRange, excepted: Collection[str]
    ) -> BrokerRegistration:
        """Chooses the next owner of the bundle. Raises ServiceNotReady without a candidate."""
        ...

    async def prepare(self, broker: BrokerRegistration) -> None:
        """Connects to the broker, so that the next call does not wait for a connection. Raises
        ServiceNotReady.
        """
        ...

    async def take(self, broker: BrokerRegistration, request: TakeRequest) -> TakeResponse:
        """Makes the broker take a bundle. Raises the broker's error, or ServiceNotReady when it does not
        answer.
        """
        ...
