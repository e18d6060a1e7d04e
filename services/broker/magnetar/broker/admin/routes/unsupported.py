"""Routes of Pulsar's admin API for unsupported features, mainly resource groups.

Lists are empty. Calls that would create, change or describe such an object are refused with an explanation.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from aiohttp import web
from magnetar.broker.admin.edge.call import Call, answer, done, nothing
from magnetar.broker.admin.edge.errors import Refused
from magnetar.broker.admin.edge.routing import Route
from magnetar.broker.admin.objects.namespaces import NAMESPACE_ERRORS, NAMESPACE_PATH
from magnetar.broker.admin.objects.topics import require_namespace
from magnetar.common.security.authorization.operations import Operation

_GROUPS: Final = (
    "resource groups are not supported yet: limit namespaces and topics by their publish and dispatch rates"
)


async def _nothing(_call: Call) -> web.Response:
    return answer([])


async def _no_group(_call: Call) -> web.Response:
    raise Refused(404, "ResourceGroup does not exist")


async def _no_groups(_call: Call) -> web.Response:
    raise Refused(405, _GROUPS)


async def _no_group_of_namespace(call: Call) -> web.Response:
    await require_namespace(call.broker, call.namespace, "Namespace does not exist")
    return done() if call.request.method == "DELETE" else nothing()


async def _group_of_namespace(call: Call) -> web.Response:
    await require_namespace(call.broker, call.namespace, "Namespace does not exist")
    raise Refused(405, _GROUPS)


async def _no_version(call: Call) -> web.Response:
    await require_namespace(call.broker, call.namespace, "Namespace does not exist")
    raise Refused(405, "the replication configuration has no version, as in Apache Pulsar")


def _namespace_route(
    method: str, path: str, handler: Any, summary: str, errors: Mapping[int, str] | None = None, **more: Any
) -> Route:
    return Route(
        object="namespaces",
        method=method,
        path=f"{NAMESPACE_PATH}/{path}",
        handler=handler,
        summary=summary,
        errors={**NAMESPACE_ERRORS, **(errors or {})},
        **more,
        operation=Operation.POLICY,
    )


_GROUP_PATH: Final = "/admin/v2/resourcegroups"

ROUTES: Final = [
    Route(
        object="resourcegroups",
        method="GET",
        path=_GROUP_PATH,
        handler=_nothing,
        summary="List the resource groups: always empty, because resource groups are not supported yet.",
        answer="Set<String>",
        operation=Operation.SUPER_USER,
    ),
    Route(
        object="resourcegroups",
        method="GET",
        path=f"{_GROUP_PATH}/{{resourcegroup}}",
        handler=_no_group,
        summary="Get a resource group: none exists, because resource groups are not supported yet.",
        answer="ResourceGroup",
        errors={404: "ResourceGroup doesn't exist"},
        operation=Operation.SUPER_USER,
    ),
    Route(
        object="resourcegroups",
        method="PUT",
        path=f"{_GROUP_PATH}/{{resourcegroup}}",
        handler=_no_groups,
        summary="Create or update a resource group: always refused, because resource groups are not "
        "supported yet.",
        body="ResourceGroup",
        status=204,
        errors={405: "resource groups are not supported yet"},
        operation=Operation.SUPER_USER,
    ),
    Route(
        object="resourcegroups",
        method="DELETE",
        path=f"{_GROUP_PATH}/{{resourcegroup}}",
        handler=_no_group,
        summary="Delete a resource group: none exists, because resource groups are not supported yet.",
        status=204,
        errors={404: "ResourceGroup doesn't exist"},
        operation=Operation.SUPER_USER,
    ),
    _namespace_route(
        "GET",
        "resourcegroup",
        _no_group_of_namespace,
        "Get the resource group of a namespace: always unset, because resource groups are not supported yet.",
        answer="String",
    ),
    _namespace_route(
        "POST",
        "resourcegroup/{resourcegroup}",
        _group_of_namespace,
        "Set the resource group of a namespace: always refused, because resource groups are not "
        "supported yet.",
        errors={405: "resource groups are not supported yet"},
        status=204,
    ),
    _namespace_route(
        "DELETE",
        "resourcegroup",
        _no_group_of_namespace,
        "Remove a namespace from its resource group: succeeds without effect.",
        status=204,
    ),
    _namespace_route(
        "GET",
        "configversion",
        _no_version,
        "Get the version of the replication configuration: always refused, because replication is not "
        "supported yet.",
        errors={405: "the version does not exist"},
        answer="String",
    ),
]
