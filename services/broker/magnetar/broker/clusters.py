"""Clusters in metadata: this cluster, which always exists, and the ones that operators have created.

The data of a cluster is one metadata value, so it is created, changed and deleted atomically. The value has a
size limit because failure domains and isolation policies could otherwise grow without bound.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from magnetar.broker.stored_values import change_value, create_value, read_value
from magnetar.common.errors import NotAllowed
from magnetar.common.metadata.keys import Keys
from magnetar.common.metadata.store import MetadataStore
from magnetar.common.metadata.values import Cluster, Namespace, Tenant, decode
from magnetar.common.obs.logs import get_logger
from magnetar.common.runtime.clock import Clock

log = get_logger(__name__)

CLUSTER_BYTES_MAX: Final = 256 * 1024
"""Size limit of one cluster's data."""


class Clusters:
    """Reads and changes clusters. Reads go to the store, so an operator sees the latest change."""

    def __init__(self, metadata: MetadataStore, keys: Keys, local: str, clock: Clock) -> None:
        """`local` is the name of this cluster."""
        self._metadata = metadata
        self._keys = keys
        self._clock = clock
        self.local = local

    async def names(self) -> list[str]:
        """Returns the names of all clusters, sorted."""
        listing = await self._metadata.children(self._keys.clusters_prefix)
        return sorted({self.local, *(self._keys.cluster_of(item.key) for item in listing.items)})

    async def exists(self, name: str) -> bool:
        return name == self.local or await self._metadata.get(self._keys.cluster(name)) is not None

    async def get(self, name: str) -> Cluster | None:
        """Returns the data of a cluster; None when it does not exist. This broker's own cluster exists by
        default.
        """
        found = await read_value(self._metadata, self._keys.cluster(name), Cluster)
        return Cluster() if found is None and name == self.local else found

    async def create(self, name: str, data: Cluster.Data) -> bool:
        """Creates a cluster; returns False when it already exists. Raises NotAllowed when the data is too
        large.
        """
        if name == self.local:
            return False
        value = Cluster(data=data, created_ms=self._clock.wall_ms())
        _check_size(value, 0)
        made = await create_value(self._metadata, self._keys.cluster(name), value)
        if made:
            log.info("cluster created", cluster=name)
        return made

    async def change(self, name: str, edit: Callable[[Cluster], None]) -> bool:
        """Applies `edit` to a cluster's data; returns False when the cluster does not exist.

        See `change_value`. Raises NotAllowed when the result is too large.
        """

        def checked(value: Cluster) -> None:
            before = value.ByteSize()
            if not value.created_ms:
                value.created_ms = self._clock.wall_ms()
            edit(value)
            _check_size(value, before)

        key = self._keys.cluster(name)
        return await change_value(self._metadata, key, Cluster, checked, create=name == self.local)

    async def used_by(self, name: str) -> str:
        """Describes one user of the cluster; "" without any."""
        for item in (await self._metadata.children(self._keys.tenants_prefix)).items:
            if name in decode(Tenant, item.value).allowed_clusters:
                return f"tenant {self._keys.tenant_of(item.key)}"
        for item in (await self._metadata.children(self._keys.namespaces_prefix())).items:
            namespace = decode(Namespace, item.value)
            if name in namespace.replication_clusters.names or name in namespace.allowed_clusters:
                return f"namespace {self._keys.namespace_of(item.key)}"
        for item in (await self._metadata.children(self._keys.clusters_prefix)).items:
            cluster, other = decode(Cluster, item.value), self._keys.cluster_of(item.key)
            if other == name and cluster.isolation_policies:
                return f"its isolation policy {sorted(cluster.isolation_policies)[0]}"
            if other != name and name in cluster.data.peer_cluster_names.names:
                return f"cluster {other}, which has it as a peer"
        return ""

    async def delete(self, name: str) -> bool:
        """Deletes a cluster; returns False when it does not exist. The caller checks `used_by` first."""
        found = await self._metadata.get(self._keys.cluster(name))
        if found is None:
            return False
        await self._metadata.delete(found.key, found.version)
        log.info("cluster deleted", cluster=name)
        return True


def _check_size(value: Cluster, before: int) -> None:
    size = value.ByteSize()
    if size > max(before, CLUSTER_BYTES_MAX):
        raise NotAllowed(
            f"the data of the cluster would have {size} bytes, at most {CLUSTER_BYTES_MAX} are allowed: "
            "remove unused failure domains or isolation policies"
        )
