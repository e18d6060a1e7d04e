"""Routes for the placement of namespaces: clusters, anti-affinity groups and bookie affinity groups.

The leader applies anti-affinity groups when it assigns bundles; a standalone has no other broker to choose.
Bookie affinity groups are only stored and returned: ledgers are placed by rack.
"""

from __future__ import annotations

from typing import Any, Final

from aiohttp import web
from magnetar.broker.admin.edge.call import NAME_CHARS_MAX, Call, answer, done, names, nothing, plain
from magnetar.broker.admin.edge.errors import Refused
from magnetar.broker.admin.edge.routing import Route
from magnetar.broker.admin.objects.namespaces import NAMESPACE_ERRORS, NAMESPACE_PATH
from magnetar.broker.admin.policies.replication_clusters import check_clusters, check_local, clusters_of
from magnetar.common.errors import NamespaceNotFound
from magnetar.common.metadata.values import Namespace
from magnetar.common.naming.namespace_name import check_entity
from magnetar.common.security.authorization.operations import Operation

# -- clusters


async def _replication(call: Call) -> web.Response:
    namespace = await call.broker.policy_writer.namespace(call.namespace)
    return answer(clusters_of(namespace, call.broker.clusters.local))


async def _set_replication(call: Call) -> web.Response:
    namespace = await call.broker.policy_writer.namespace(call.namespace)
    wanted = await _checked_clusters(call)
    if not wanted:
        raise Refused(412, "ClusterIds should not be null")
    allowed = namespace.allowed_clusters
    if allowed and not set(wanted) <= set(allowed):
        raise Refused(403, f"Cluster {wanted} is not in the list of allowed clusters of {call.namespace}")
    check_local(call.broker.clusters, wanted)

    def edit(namespace: Namespace) -> None:
        namespace.replication_clusters.names[:] = wanted

    await _change(call, edit)
    return nothing()


async def _allowed(call: Call) -> web.Response:
    return answer(list((await call.broker.policy_writer.namespace(call.namespace)).allowed_clusters))


async def _set_allowed(call: Call) -> web.Response:
    await call.broker.policy_writer.namespace(call.namespace)
    wanted = await _checked_clusters(call)

    def edit(namespace: Namespace) -> None:
        missing = set(clusters_of(namespace, call.broker.clusters.local)) - set(wanted)
        if wanted and missing:
            raise Refused(
                400,
                f"The list of allowed clusters should include all replication clusters: "
                f"{sorted(missing)[0]} is missing",
            )
        namespace.allowed_clusters[:] = wanted

    await _change(call, edit)
    return nothing()


async def _checked_clusters(call: Call) -> list[str]:
    wanted = names(await call.json_or(None), "the clusters")
    tenant = await call.broker.tenancy.tenant(call.tenant)
    await check_clusters(call.broker.clusters, wanted, call.tenant, tenant)
    return wanted


async def _set_migration(call: Call) -> web.Response:
    await call.broker.policy_writer.namespace(call.namespace)
    migrated = await call.json()
    if not isinstance(migrated, bool):
        raise Refused(400, "the body must be true or false")
    if migrated:
        raise Refused(
            405, "migration of clients is not supported yet: give clients the address of the other cluster"
        )
    return done()


# -- anti-affinity


async def _group(call: Call) -> web.Response:
    group = (await call.broker.policy_writer.namespace(call.namespace)).anti_affinity_group
    return plain(group) if group else nothing()


async def _set_group(call: Call) -> web.Response:
    await call.broker.policy_writer.namespace(call.namespace)
    group = await _text(call)
    if not group.strip() or len(group) > NAME_CHARS_MAX:
        raise Refused(412, f"antiAffinityGroup can't be empty, nor longer than {NAME_CHARS_MAX} characters")

    def edit(namespace: Namespace) -> None:
        namespace.anti_affinity_group = group

    return await _change(call, edit)


async def _remove_group(call: Call) -> web.Response:
    return await _change(call, lambda namespace: namespace.ClearField("anti_affinity_group"))


async def _text(call: Call) -> str:
    """Returns the body as text, either JSON or plain: clients send both. Raises Refused."""
    raw = await call.body()
    try:
        text = raw.decode()
    except UnicodeDecodeError as error:
        raise Refused(400, "the body is not UTF-8") from error
    if not text.lstrip().startswith('"'):
        return text
    value: Any = await call.json()
    if not isinstance(value, str):
        raise Refused(400, "the body must be a string")
    return value


async def _namespaces_of_group(call: Call) -> web.Response:
    return await _in_group(call, call.request.query.get("tenant"))


async def _namespaces_of_group_v1(call: Call) -> web.Response:
    return await _in_group(call, call.request.query.get("property"))


async def _in_group(call: Call, tenant: str | None) -> web.Response:
    if not tenant:
        raise Refused(400, "Tenant should not be null")
    check_entity("tenant", tenant)
    if not await call.broker.clusters.exists(call.names["cluster"]):
        raise Refused(412, f"Cluster {call.names['cluster']} does not exist.")
    found = []
    for name in await call.broker.namespaces.namespaces_of(tenant):
        try:
            namespace = await call.broker.policy_writer.namespace(name)
        except NamespaceNotFound:
            continue  # deleted meanwhile
        if namespace.anti_affinity_group == call.names["group"]:
            found.append(str(name))
    return answer(found)


# -- bookies

_PRIMARY: Final = "bookkeeperAffinityGroupPrimary"
_SECONDARY: Final = "bookkeeperAffinityGroupSecondary"


async def _bookies(call: Call) -> web.Response:
    namespace = await call.broker.policy_writer.namespace(call.namespace)
    if not namespace.HasField("bookie_affinity"):
        return nothing()
    affinity = namespace.bookie_affinity
    secondary = {_SECONDARY: affinity.secondary} if affinity.secondary else {}
    return answer({_PRIMARY: affinity.primary, **secondary})


async def _set_bookies(call: Call) -> web.Response:
    await call.broker.policy_writer.namespace(call.namespace)
    given = await call.json()
    if not isinstance(given, dict):
        raise Refused(400, f"the body must be an object with {_PRIMARY}")
    groups = [given.get(_PRIMARY) or "", given.get(_SECONDARY) or ""]
    if not all(isinstance(group, str) and len(group) <= NAME_CHARS_MAX for group in groups):
        raise Refused(
            400, f"{_PRIMARY} and {_SECONDARY} must be strings of at most {NAME_CHARS_MAX} characters"
        )
    if not groups[0]:
        raise Refused(412, f"{_PRIMARY} can't be empty; DELETE removes the bookie affinity")

    def edit(namespace: Namespace) -> None:
        namespace.bookie_affinity.primary, namespace.bookie_affinity.secondary = groups

    return await _change(call, edit)


async def _remove_bookies(call: Call) -> web.Response:
    return await _change(call, lambda namespace: namespace.ClearField("bookie_affinity"))


async def _change(call: Call, edit: Any) -> web.Response:
    await call.broker.policy_writer.change_namespace(call.namespace, edit)
    return done()


_CONFLICT: Final = {409: "Concurrent modification"}
_CLUSTERS: Final = {
    403: "Invalid cluster id; the tenant or the namespace may not use the cluster",
    405: "replication between clusters is not supported yet",
    409: "the list contains two peer clusters; concurrent modification",
    412: "invalid list of clusters; invalid name",
}


def _route(method: str, path: str, handler: Any, summary: str, **more: Any) -> Route:
    conflict = {} if method == "GET" else _CONFLICT
    return Route(
        object="namespaces",
        method=method,
        path=f"{NAMESPACE_PATH}/{path}",
        handler=handler,
        summary=summary,
        errors={**NAMESPACE_ERRORS, **conflict, **more.pop("errors", {})},
        **more,
    )


def _group_route(path: str, handler: Any, query: str) -> Route:
    return Route(
        object="namespaces",
        method="GET",
        path=f"{path}/{{cluster}}/antiAffinity/{{group}}",
        handler=handler,
        summary="List the namespaces of a tenant in an anti-affinity group.",
        query=(query,),
        answer="List<String>",
        errors={404: "Tenant does not exist", 412: "Cluster does not exist; invalid name"},
        operation=Operation.TENANT_ADMIN,
    )


_BOOKIES: Final = "persistence/bookieAffinity"

ROUTES: Final = [
    # Before the policies of namespaces: a namespace named antiAffinity cannot be addressed, as in Pulsar.
    _group_route("/admin/v2/namespaces", _namespaces_of_group, "tenant:String"),
    _group_route("/admin/namespaces", _namespaces_of_group_v1, "property:String"),
    _route(
        "GET",
        "replication",
        _replication,
        "Get the replication clusters of a namespace.",
        answer="Set<String>",
        operation=Operation.POLICY,
    ),
    _route(
        "POST",
        "replication",
        _set_replication,
        "Set the replication clusters of a namespace.",
        body="Set<String>",
        errors=_CLUSTERS,
        operation=Operation.POLICY,
    ),
    _route(
        "GET",
        "allowedClusters",
        _allowed,
        "Get the allowed clusters of a namespace.",
        answer="Set<String>",
        operation=Operation.POLICY,
    ),
    _route(
        "POST",
        "allowedClusters",
        _set_allowed,
        "Set the allowed clusters of a namespace.",
        body="Set<String>",
        errors=_CLUSTERS,
        tenant_first=True,
        operation=Operation.POLICY,
    ),
    _route(
        "POST",
        "migration",
        _set_migration,
        "Migrate the clients of a namespace to the cluster that this cluster migrates to.",
        body="boolean",
        status=204,
        errors={405: "migration of clients is not supported yet"},
        operation=Operation.SUPER_USER,
    ),
    _route(
        "GET",
        "antiAffinity",
        _group,
        "Get the anti-affinity group of a namespace, as unquoted text.",
        answer="String",
        operation=Operation.POLICY,
    ),
    _route(
        "POST",
        "antiAffinity",
        _set_group,
        "Set the anti-affinity group of a namespace: bundles of a group are placed on different "
        "brokers if possible.",
        body="String",
        status=204,
        errors={412: "Invalid antiAffinityGroup; invalid name"},
        operation=Operation.POLICY,
    ),
    _route(
        "DELETE",
        "antiAffinity",
        _remove_group,
        "Remove a namespace from its anti-affinity group.",
        status=204,
        operation=Operation.POLICY,
    ),
    _route(
        "GET",
        _BOOKIES,
        _bookies,
        "Get the bookie affinity groups of a namespace.",
        answer="BookieAffinityGroupData",
        operation=Operation.SUPER_USER,
    ),
    _route(
        "POST",
        _BOOKIES,
        _set_bookies,
        "Set the bookie affinity groups of a namespace. Stored only: placement of ledgers considers "
        "racks alone.",
        body="BookieAffinityGroupData",
        status=204,
        errors={412: "the primary group is missing; invalid name"},
        operation=Operation.SUPER_USER,
    ),
    _route(
        "DELETE",
        _BOOKIES,
        _remove_bookies,
        "Remove the bookie affinity groups of a namespace.",
        status=204,
        operation=Operation.SUPER_USER,
    ),
]
