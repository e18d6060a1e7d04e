"""Checks of replication clusters and allowed clusters."""

from __future__ import annotations

from collections.abc import Sequence

from magnetar.broker.admin.edge.errors import Refused
from magnetar.broker.clusters import Clusters
from magnetar.common.metadata.values import Namespace, Tenant

_GLOBAL = "global"


async def check_clusters(clusters: Clusters, names: Sequence[str], tenant: str, of: Tenant | None) -> None:
    """Raises Refused for clusters that are unknown, peers of each other, or not allowed for the tenant."""
    if _GLOBAL in names:
        raise Refused(412, "Cannot specify global in the list of clusters")
    known = set(await clusters.names())
    for name in names:
        if name not in known:
            raise Refused(403, f"Invalid cluster id: {name}")
    for name in names:
        if of is None or name not in of.allowed_clusters:
            raise Refused(
                403, f"Cluster [{name}] is not in the list of allowed clusters list for tenant [{tenant}]"
            )
    for name in names:
        found = await clusters.get(name)
        peers = set() if found is None else set(found.data.peer_cluster_names.names) & set(names)
        if peers:
            raise Refused(
                409, f"{name} and {sorted(peers)[0]} are peer clusters: only one may be in the list"
            )


def check_local(clusters: Clusters, names: Sequence[str]) -> None:
    """Raises Refused (405) for any cluster except the local one: replication is not supported yet."""
    if list(names) != [clusters.local]:
        raise Refused(
            405,
            f"replication between clusters is not supported yet: the replication clusters must be "
            f"[{clusters.local}]",
        )


def clusters_of(namespace: Namespace, local: str) -> list[str]:
    """Returns the replication clusters of a namespace."""
    return list(namespace.replication_clusters.names) or [local]
