"""Routes of clusters: their addresses, peers and migration targets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from aiohttp import web
from magnetar.broker.admin.edge.call import Call, answer, done, names, nothing
from magnetar.broker.admin.edge.errors import Refused
from magnetar.broker.admin.edge.routing import Route
from magnetar.broker.admin.routes.clusters.cluster_json import (
    cluster_json,
    migration_json,
    own_data,
    read_cluster,
    read_migration,
)
from magnetar.common.errors import InvalidName
from magnetar.common.metadata.values import Cluster
from magnetar.common.naming.namespace_name import check_entity
from magnetar.common.security.authorization.operations import Operation

CLUSTER_PATH: Final = "/admin/v2/clusters/{cluster}"


def cluster_name(call: Call) -> str:
    """Returns the cluster name in the path. Raises Refused (412) for an invalid name."""
    try:
        return check_entity("cluster", call.names["cluster"])
    except InvalidName as error:
        raise Refused(412, "Cluster name is not valid") from error


async def cluster_of(call: Call, status: int = 404) -> Cluster:
    """Returns the call's cluster. Raises Refused with `status` when it does not exist."""
    name = cluster_name(call)
    found = await call.broker.clusters.get(name)
    if found is None:
        raise Refused(
            status, "Cluster does not exist" if status == 404 else f"Cluster {name} does not exist."
        )
    return found


async def change_cluster(call: Call, edit: Callable[[Cluster], None], status: int = 404) -> None:
    """Changes the call's cluster. Raises Refused with `status` when it does not exist."""
    name = cluster_name(call)
    if not await call.broker.clusters.change(name, edit):
        raise Refused(
            status, "Cluster does not exist" if status == 404 else f"Cluster {name} does not exist."
        )


async def _list(call: Call) -> web.Response:
    return answer(await call.broker.clusters.names())


async def _get(call: Call) -> web.Response:
    found = await cluster_of(call)
    return answer(cluster_json(found.data if found.HasField("data") else own_data(call.broker.urls)))


async def _put(call: Call) -> web.Response:
    name, data = cluster_name(call), read_cluster(await call.json())
    if not await call.broker.clusters.create(name, data):
        raise Refused(409, "Cluster already exists")
    return nothing()


async def _post(call: Call) -> web.Response:
    await cluster_of(call)
    data = read_cluster(await call.json())
    await change_cluster(call, lambda cluster: cluster.data.CopyFrom(data))
    return nothing()


async def _delete(call: Call) -> web.Response:
    name, clusters = cluster_name(call), call.broker.clusters
    if name == clusters.local:
        raise Refused(412, f"Cluster not empty: {name} is the cluster of this broker")
    await cluster_of(call)
    user = await clusters.used_by(name)
    if user:
        raise Refused(412, f"Cluster not empty: it is used by {user}")
    if not await clusters.delete(name):
        raise Refused(404, "Cluster does not exist")
    return done()


# -- peers


async def _peers(call: Call) -> web.Response:
    return answer(list((await cluster_of(call)).data.peer_cluster_names.names))


async def _set_peers(call: Call) -> web.Response:
    name = cluster_name(call)
    await cluster_of(call)
    peers = names(await call.json_or([]), "the peer clusters")
    for peer in peers:
        if peer == name:
            raise Refused(412, f"{name} itself can't be part of peer-list")
        if not await call.broker.clusters.exists(peer):
            raise Refused(412, f"Peer cluster {peer} does not exist")

    def edit(cluster: Cluster) -> None:
        if not cluster.HasField("data"):
            cluster.data.CopyFrom(own_data(call.broker.urls))
        cluster.data.peer_cluster_names.names[:] = peers

    await change_cluster(call, edit)
    return done()


# -- migration to another cluster


async def _migration(call: Call) -> web.Response:
    found = await cluster_of(call)
    if not found.HasField("migration"):
        raise Refused(404, "Cluster does not exist: no migration target is set")
    return answer(migration_json(found.migration))


async def _set_migration(call: Call) -> web.Response:
    await cluster_of(call)
    migration = read_migration(await call.json())
    if call.flag("migrated"):
        if not any(value for _, value in migration.ListFields()):
            raise Refused(400, "Cluster url must not be empty")
        raise Refused(
            405,
            "migration of clients is not supported yet: give clients the address of the other cluster, or "
            "put that cluster behind the address they use; migrated=false stores the target for later",
        )
    await change_cluster(call, lambda cluster: cluster.migration.CopyFrom(migration))
    return nothing()


def cluster_route(method: str, path: str, handler: Any, summary: str, **more: Any) -> Route:
    """Builds a route about one cluster; `path` follows its name."""
    errors = {404: "Cluster doesn't exist.", 412: "Cluster name is not valid.", **more.pop("errors", {})}
    if method != "GET":
        errors = {405: "the configuration of the cluster would be too large", 409: CONFLICT, **errors}
    return Route(
        object="clusters",
        method=method,
        path=f"{CLUSTER_PATH}{path}",
        handler=handler,
        summary=summary,
        errors=errors,
        **more,
        operation=Operation.SUPER_USER,
    )


CONFLICT: Final = "concurrent modification of the cluster"

ROUTES: Final = [
    Route(
        object="clusters",
        method="GET",
        path="/admin/v2/clusters",
        handler=_list,
        summary="List the clusters that this cluster knows.",
        answer="Set<String>",
        operation=Operation.ANY,
    ),
    cluster_route("GET", "", _get, "Get the addresses of a cluster.", answer="ClusterData"),
    cluster_route(
        "PUT",
        "",
        _put,
        "Add a cluster.",
        body="ClusterData",
        errors={409: "Cluster already exists."},
    ),
    cluster_route("POST", "", _post, "Update the addresses of a cluster.", body="ClusterData"),
    cluster_route(
        "DELETE",
        "",
        _delete,
        "Delete a cluster that is not in use.",
        status=204,
        errors={412: "Cluster is not empty; Cluster name is not valid."},
    ),
    cluster_route("GET", "/peers", _peers, "List the peers of a cluster.", answer="Set<String>"),
    cluster_route(
        "POST",
        "/peers",
        _set_peers,
        "Set the peers of a cluster: clusters that can replace it and never replicate with it.",
        body="Set<String>",
        status=204,
        errors={412: "Peer cluster doesn't exist; Cluster name is not valid."},
    ),
    cluster_route(
        "GET",
        "/migrate",
        _migration,
        "Get the cluster that a cluster would migrate to.",
        answer="ClusterPolicies",
        errors={404: "Cluster doesn't exist; no migration target is set."},
    ),
    cluster_route(
        "POST",
        "/migrate",
        _set_migration,
        "Set the cluster that a cluster would migrate to.",
        query=("migrated:boolean=false",),
        body="ClusterUrl",
        errors={405: "migration of clients is not supported yet"},
    ),
]
