"""How much load a bundle is expected to be: kept and shown.

Nothing follows it: the leader of a cluster's brokers spreads bundles by what they are measured to take.
"""

from __future__ import annotations

from magnetar.broker.stored_values import change_value, read_value
from magnetar.common.metadata.keys import Keys
from magnetar.common.metadata.store import MetadataStore
from magnetar.common.metadata.values import ResourceQuota


def initial_quota() -> ResourceQuota:
    """The default that Pulsar begins with."""
    return ResourceQuota(
        message_rate_in=40,
        message_rate_out=120,
        bandwidth_in=100_000,
        bandwidth_out=300_000,
        memory=80,
        dynamic=True,
    )


class ResourceQuotas:
    """The default quota; those of single bundles are their namespace's."""

    def __init__(self, metadata: MetadataStore, keys: Keys) -> None:
        self._metadata = metadata
        self._key = keys.default_resource_quota

    async def default(self) -> ResourceQuota:
        """Quota of bundles without one of their own."""
        found = await read_value(self._metadata, self._key, ResourceQuota)
        return initial_quota() if found is None else found

    async def set_default(self, quota: ResourceQuota) -> None:
        """Raises MetadataError."""

        def edit(stored: ResourceQuota) -> None:
            stored.CopyFrom(quota)

        await change_value(self._metadata, self._key, ResourceQuota, edit)
