"""Routes of tenants."""

from __future__ import annotations

from typing import Final

from aiohttp import web
from magnetar.broker.admin.edge.call import Call, answer, done, names
from magnetar.broker.admin.edge.errors import Refused
from magnetar.broker.admin.edge.routing import Route
from magnetar.common.errors import InvalidName
from magnetar.common.security.authorization.operations import Operation


def _tenant(call: Call) -> str:
    try:
        return call.tenant
    except InvalidName as error:
        raise Refused(412, "Tenant name is not valid") from error


async def _list(call: Call) -> web.Response:
    return answer(await call.broker.namespaces.tenants())


async def _get(call: Call) -> web.Response:
    tenant = await call.broker.tenancy.tenant(call.tenant)
    if tenant is None:
        raise Refused(404, "Tenant does not exist")
    return answer({"adminRoles": list(tenant.admin_roles), "allowedClusters": list(tenant.allowed_clusters)})


async def _put(call: Call) -> web.Response:
    tenant = _tenant(call)
    roles, clusters = await _info(call)
    await call.broker.tenancy.create_tenant(tenant, roles, clusters)
    return done()


async def _post(call: Call) -> web.Response:
    tenant = call.tenant
    if await call.broker.tenancy.tenant(tenant) is None:
        raise Refused(404, f"Tenant {tenant} not found")
    roles, clusters = await _info(call)
    await call.broker.tenancy.update_tenant(tenant, roles, clusters)
    return done()


async def _delete(call: Call) -> web.Response:
    tenant = call.tenant
    force = call.flag("force")
    if force and not call.broker.config.deletion.force_tenants:
        raise Refused(
            405,
            "Broker doesn't allow forced deletion of tenants: delete its namespaces first, or set "
            "forceDeleteTenantAllowed=true",
        )
    await call.broker.deletions.delete_tenant(tenant, force=force)
    return done()


async def _info(call: Call) -> tuple[list[str], list[str]]:
    """Returns the roles and clusters in the body, validated."""
    value = await call.json()
    if not isinstance(value, dict):
        raise Refused(400, "the body must be an object with adminRoles and allowedClusters")
    clusters = names(value.get("allowedClusters"), "allowedClusters")
    if not clusters:
        raise Refused(412, "Clusters cannot be null")
    if not set(clusters) <= set(await call.broker.clusters.names()):
        raise Refused(412, "Clusters do not exist")
    roles = names(value.get("adminRoles"), "adminRoles")
    if any(role != role.strip() for role in roles):
        raise Refused(412, "AdminRoles contains whitespace in the beginning or end.")
    return roles, clusters


_PATH: Final = "/admin/v2/tenants/{tenant}"

ROUTES: Final = [
    Route(
        object="tenants",
        method="GET",
        path="/admin/v2/tenants",
        handler=_list,
        summary="List the tenants.",
        answer="List<String>",
        operation=Operation.SUPER_USER,
    ),
    Route(
        object="tenants",
        method="GET",
        path=_PATH,
        handler=_get,
        summary="Get the admin roles and allowed clusters of a tenant.",
        answer="TenantInfo",
        errors={404: "Tenant does not exist", 412: "Tenant name is not valid"},
        operation=Operation.TENANT_ADMIN,
    ),
    Route(
        object="tenants",
        method="PUT",
        path=_PATH,
        handler=_put,
        summary="Create a tenant.",
        body="TenantInfo",
        status=204,
        errors={
            409: "Tenant already exist; a tenant of this name is being deleted",
            412: "Tenant name is not valid; Clusters cannot be null; Clusters do not exist",
        },
        operation=Operation.SUPER_USER,
    ),
    Route(
        object="tenants",
        method="POST",
        path=_PATH,
        handler=_post,
        summary="Update a tenant.",
        body="TenantInfo",
        status=204,
        errors={
            404: "Tenant not found",
            409: "concurrent modification",
            412: "Tenant name is not valid; Clusters cannot be null; Clusters do not exist",
        },
        operation=Operation.SUPER_USER,
    ),
    Route(
        object="tenants",
        method="DELETE",
        path=_PATH,
        handler=_delete,
        summary="Delete a tenant without namespaces; with `force`, if the broker allows it, delete its "
        "namespaces too.",
        query=("force:boolean=false",),
        status=204,
        errors={
            404: "Tenant doesn't exist",
            405: "Broker doesn't allow forced deletion of tenants",
            409: "The tenant still has active namespaces; the tenant is already being deleted",
            412: "Tenant name is not valid",
        },
        operation=Operation.SUPER_USER,
    ),
]
