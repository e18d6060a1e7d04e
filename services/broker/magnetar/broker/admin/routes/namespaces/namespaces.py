"""Routes of namespaces: lists, creation, deletion, properties and bundles."""

from __future__ import annotations

from itertools import pairwise
from typing import Any, Final

from aiohttp import web
from magnetar.broker.admin.edge.call import (
    NAME_CHARS_MAX,
    Call,
    answer,
    bounded,
    done,
    names,
    nothing,
    plain,
    text_map,
)
from magnetar.broker.admin.edge.errors import Refused
from magnetar.broker.admin.edge.routing import Route
from magnetar.broker.admin.objects.bundles import bundle_range
from magnetar.broker.admin.objects.namespaces import NAMESPACE_ERRORS, NAMESPACE_PATH
from magnetar.broker.admin.objects.topics import require_namespace, visible_topics
from magnetar.broker.admin.policies.broker_limits import check_within_broker
from magnetar.broker.admin.policies.namespace_json import bundles_json, namespace_json, policies_of
from magnetar.broker.admin.policies.policy_json import BadPolicy, whole_number
from magnetar.broker.admin.policies.replication_clusters import check_clusters, check_local, clusters_of
from magnetar.common.cluster.bundles import bundles_of, cut
from magnetar.common.errors import InvalidName, NamespaceNotFound
from magnetar.common.metadata.values import Namespace, Tenant
from magnetar.common.naming.bundle_range import DEFAULT_BUNDLES, RING_END, BundleRange, split_ring
from magnetar.common.naming.namespace_name import NamespaceName
from magnetar.common.security.authorization.operations import Operation

_MODES: Final = {"PERSISTENT": (True,), "NON_PERSISTENT": (False,), "ALL": (True, False)}
_TENANT_PATH: Final = "/admin/v2/namespaces/{tenant}"


async def _list(call: Call) -> web.Response:
    namespaces = call.broker.namespaces
    tenant = call.tenant
    if not await namespaces.tenant_exists(tenant):
        raise NamespaceNotFound("Tenant not found")
    return answer([str(each) for each in await namespaces.namespaces_of(tenant)])


async def _topics(call: Call) -> web.Response:
    """Lists topics for clients that subscribe by a pattern over an http:// service URL."""
    namespace = call.namespace
    mode = call.request.query.get("mode", "PERSISTENT").upper()
    if mode not in _MODES:
        raise InvalidName(f"the topic mode {mode!r} is not one of {', '.join(_MODES)}")
    await require_namespace(call.broker, namespace, "Namespace does not exist")
    found: list[str] = []
    for persistent in _MODES[mode]:
        found += await visible_topics(
            call.broker, namespace, persistent, system_too=call.flag("includeSystemTopic")
        )
    return answer(found)


async def _get(call: Call) -> web.Response:
    namespace = await call.broker.policy_writer.namespace(call.namespace)
    cluster = call.broker.config.cluster_name
    of_topics = await call.broker.policy_writer.permissions_of_topics(call.namespace)
    return answer(namespace_json(namespace, cluster, clusters_of(namespace, cluster), of_topics))


async def _put(call: Call) -> web.Response:
    try:
        name = call.namespace
    except InvalidName as error:
        raise Refused(412, "Namespace name is not valid") from error
    given = await call.json_or({})
    if not isinstance(given, dict):
        raise Refused(400, "the policies of a namespace must be an object")
    tenant = await call.broker.tenancy.tenant(name.tenant)
    if tenant is None:
        raise Refused(404, "Tenant does not exist")
    replication, allowed = await _clusters(call, given, tenant)
    try:
        policies = policies_of(given, call.broker.config.cluster_name)
        check_within_broker("auto_topic_creation", policies, call.broker.config)
    except BadPolicy as error:
        raise Refused(error.status, error.reason) from error
    value = Namespace(policies=policies)
    cut(value, [each.upper for each in _bundles_wanted(given.get("bundles"))[:-1]])
    if replication:
        value.replication_clusters.names.extend(replication)
    value.allowed_clusters.extend(allowed)
    value.properties.update(bounded("namespace", text_map(given.get("properties") or {})))
    await call.broker.tenancy.create_namespace(name, value)
    return done()


async def _clusters(call: Call, given: dict[str, Any], tenant: Tenant) -> tuple[list[str], list[str]]:
    """Returns the replication clusters and the allowed clusters, validated. Raises Refused."""
    found = []
    for key in ("replication_clusters", "allowed_clusters"):
        wanted = names(given.get(key), key)
        for cluster in wanted:
            if cluster not in tenant.allowed_clusters:
                raise Refused(
                    403,
                    f"Cluster [{cluster}] is not in the list of allowed clusters list for tenant "
                    f"[{call.tenant}]",
                )
        await check_clusters(call.broker.clusters, wanted, call.tenant, tenant)
        found.append(wanted)
    replication, allowed = found
    if replication:
        check_local(call.broker.clusters, replication)
    if allowed and call.broker.clusters.local not in allowed:
        raise Refused(400, "The list of allowed clusters should include all replication clusters")
    return replication, allowed


def _bundles_wanted(bundles: Any) -> list[BundleRange]:
    """Returns the requested bundles: equal ranges, or the ones between the boundaries. Raises Refused,
    InvalidName (412).
    """
    if bundles is None:
        return split_ring()
    if not isinstance(bundles, dict):
        raise Refused(400, "bundles must be an object with numBundles")
    boundaries = bundles.get("boundaries")
    if boundaries is not None and boundaries != []:
        edges = names(boundaries, "boundaries")
        if len(edges) < 2:
            raise Refused(412, "boundaries must begin with 0x00000000 and end with 0xffffffff")
        found = [bundle_range(f"{lower}_{upper}") for lower, upper in pairwise(edges)]
        if found[0].lower != 0 or found[-1].upper != RING_END:
            raise Refused(412, "boundaries must begin with 0x00000000 and end with 0xffffffff")
        return found
    given = bundles.get("numBundles")
    try:
        count = DEFAULT_BUNDLES if given is None else whole_number("numBundles", given)
    except BadPolicy as error:
        raise Refused(error.status, error.reason) from error
    return split_ring(count if count > 0 else DEFAULT_BUNDLES)


async def _delete(call: Call) -> web.Response:
    name = call.namespace
    force = call.flag("force")
    if force and not call.broker.config.deletion.force_namespaces:
        raise Refused(
            405,
            "Broker doesn't allow forced deletion of namespaces: delete its topics first, or set "
            "forceDeleteNamespaceAllowed=true",
        )
    await call.broker.deletions.delete_namespace(name, force=force)
    return done()


async def _bundles(call: Call) -> web.Response:
    namespace = await call.broker.policy_writer.namespace(call.namespace)
    return answer(bundles_json(bundles_of(namespace)))


# -- properties


async def _properties(call: Call) -> web.Response:
    return answer(dict((await call.broker.policy_writer.namespace(call.namespace)).properties))


async def _put_properties(call: Call) -> web.Response:
    given = await call.text_map()
    return await _change(call, lambda namespace: namespace.properties.update(given))


async def _clear_properties(call: Call) -> web.Response:
    return await _change(call, lambda namespace: namespace.properties.clear())


async def _property(call: Call) -> web.Response:
    found = (await call.broker.policy_writer.namespace(call.namespace)).properties
    key = call.names["key"]
    return plain(found[key]) if key in found else nothing()


async def _put_property(call: Call) -> web.Response:
    key, value = call.names["key"], call.names["value"]
    if max(len(key), len(value)) > NAME_CHARS_MAX:
        raise Refused(412, f"a key or value of a property may have at most {NAME_CHARS_MAX} characters")

    def edit(namespace: Namespace) -> None:
        namespace.properties[key] = value

    return await _change(call, edit)


async def _delete_property(call: Call) -> web.Response:
    key = call.names["key"]
    removed = ""

    def edit(namespace: Namespace) -> None:
        nonlocal removed
        removed = namespace.properties.pop(key, "")

    await _change(call, edit)
    return plain(removed) if removed else nothing()


async def _change(call: Call, edit: Any) -> web.Response:
    name: NamespaceName = call.namespace

    def checked(namespace: Namespace) -> None:
        edit(namespace)
        bounded("namespace", namespace.properties)

    await call.broker.policy_writer.change_namespace(name, checked)
    call.broker.policies.wrote(name, None)
    return done()


def _route(method: str, path: str, handler: Any, summary: str, **more: Any) -> Route:
    errors = {**NAMESPACE_ERRORS, **more.pop("errors", {})}
    return Route(
        object="namespaces",
        method=method,
        path=path,
        handler=handler,
        summary=summary,
        errors=errors,
        **more,
    )


_CONFLICT: Final = {409: "concurrent modification of the namespace"}

ROUTES: Final = [
    _route(
        "GET",
        _TENANT_PATH,
        _list,
        "List the namespaces of a tenant.",
        answer="List<String>",
        errors={404: "Tenant not found"},
        operation=Operation.TENANT_ADMIN,
    ),
    _route(
        "GET",
        NAMESPACE_PATH,
        _get,
        "Get all policies of a namespace.",
        answer="Policies",
        operation=Operation.POLICY,
    ),
    _route(
        "PUT",
        NAMESPACE_PATH,
        _put,
        "Create a namespace, optionally with policies.",
        body="Policies",
        status=204,
        errors={
            403: "the tenant may not use the cluster",
            405: "replication between clusters is not supported yet",
            404: "Tenant does not exist",
            406: "more partitions than allowed",
            409: "Namespace already exists; the list contains two peer clusters",
            412: "Namespace name is not valid; invalid policy value",
        },
        operation=Operation.TENANT_ADMIN,
    ),
    _route(
        "DELETE",
        NAMESPACE_PATH,
        _delete,
        "Delete a namespace without topics; with `force`, if the broker allows it, delete its topics too.",
        query=("force:boolean=false",),
        status=204,
        errors={
            405: "Broker doesn't allow forced deletion of namespaces; the cluster's own namespace",
            409: "Cannot delete non empty namespace; the namespace is already being deleted",
        },
        operation=Operation.TENANT_ADMIN,
    ),
    _route(
        "GET",
        f"{NAMESPACE_PATH}/topics",
        _topics,
        "List the topics of a namespace.",
        query=("mode:Mode=PERSISTENT", "includeSystemTopic:boolean=false"),
        answer="List<String>",
        operation=Operation.NAMESPACE_USE,
    ),
    _route(
        "GET",
        f"{NAMESPACE_PATH}/bundles",
        _bundles,
        "Get the bundles of a namespace.",
        answer="BundlesData",
        operation=Operation.NAMESPACE_USE,
    ),
    _route(
        "GET",
        f"{NAMESPACE_PATH}/properties",
        _properties,
        "Get all properties of a namespace.",
        answer="Map<String, String>",
        tenant_first=True,
        operation=Operation.TENANT_ADMIN,
    ),
    _route(
        "PUT",
        f"{NAMESPACE_PATH}/properties",
        _put_properties,
        "Set properties of a namespace; other properties stay as they are.",
        body="Map<String, String>",
        status=204,
        errors=_CONFLICT,
        tenant_first=True,
        operation=Operation.TENANT_ADMIN,
    ),
    _route(
        "DELETE",
        f"{NAMESPACE_PATH}/properties",
        _clear_properties,
        "Remove all properties of a namespace.",
        status=204,
        errors=_CONFLICT,
        tenant_first=True,
        operation=Operation.TENANT_ADMIN,
    ),
    _route(
        "GET",
        f"{NAMESPACE_PATH}/property/{{key}}",
        _property,
        "Get a property of a namespace, as unquoted text.",
        answer="String",
        tenant_first=True,
        operation=Operation.TENANT_ADMIN,
    ),
    _route(
        "DELETE",
        f"{NAMESPACE_PATH}/property/{{key}}",
        _delete_property,
        "Remove a property of a namespace and return its value.",
        answer="String",
        errors=_CONFLICT,
        tenant_first=True,
        operation=Operation.TENANT_ADMIN,
    ),
    _route(
        "PUT",
        f"{NAMESPACE_PATH}/property/{{key}}/{{value}}",
        _put_property,
        "Set a property of a namespace.",
        status=204,
        errors=_CONFLICT,
        tenant_first=True,
        operation=Operation.TENANT_ADMIN,
    ),
]
