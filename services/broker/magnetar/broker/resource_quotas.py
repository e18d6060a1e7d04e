"""Resource quotas: the expected load of bundles, stored and returned by the admin API.

The broker does not apply them: the leader balances bundles by their measured load.
"""

from __future__ import annotations

from magnetar.broker.stored_values import change_value, read_value
from magnetar.common.metadata.keys import Keys
from magnetar.common.metadata.store import MetadataStore
from magnetar.common.metadata.values import ResourceQuota


def initial_quota() -> ResourceQuota:
    """Returns Pulsar's default quota."""
    return ResourceQuota(
        message_rate_in=40,
        message_rate_out=120,
        bandwidth_in=100_000,
        bandwidth_out=300_000,
        memory=80,
        dynamic=True,
    )


class ResourceQuotas:
    """Reads and changes the default quota; quotas of single bundles are stored with their namespace."""

    def __init__(self, metadata: MetadataStore, keys: Keys) -> None:
        self._metadata = metadata
        self._key = keys.default_resource_quota

    async def default(self) -> ResourceQuota:
        """Returns the quota of bundles without their own."""
        found = await read_value(self._metadata, self._key, ResourceQuota)
        return initial_quota() if found is None else found

    async def set_default(self, quota: ResourceQuota) -> None:
        """Stores the default quota. Raises MetadataError."""

        def edit(stored: ResourceQuota) -> None:
            stored.CopyFrom(quota)

        await change_value(self._metadata, self._key, ResourceQuota, edit)
