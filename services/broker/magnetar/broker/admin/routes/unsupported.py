"""Routes of Pulsar's admin API for unsupported features, mainly resource groups and transactions.

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
_TRANSACTIONS: Final = "transactions are not supported yet: there is no transaction coordinator"


async def _nothing(_call: Call) -> web.Response:
    return answer([])


async def _no_group(_call: Call) -> web.Response:
    raise Refused(404, "ResourceGroup does not exist")


async def _no_groups(_call: Call) -> web.Response:
    raise Refused(405, _GROUPS)


async def _no_transactions(call: Call) -> web.Response:
    if "topic" in call.names:
        _ = call.namespace  # an invalid name is reported first
    raise Refused(405, _TRANSACTIONS)


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


def _transaction_route(path: str, summary: str, type_name: str = "", *, body: str = "") -> Route:
    """Declares calls without a response as POST."""
    return Route(
        object="transactions",
        method="GET" if type_name else "POST",
        path=f"/admin/v3/transactions/{path}",
        handler=_no_transactions,
        summary=f"{summary}. Not supported yet.",
        body=body,
        status=200 if type_name else 204,
        answer=type_name,
        operation=Operation.TOPIC_LOOKUP if "{topic}" in path else Operation.SUPER_USER,
        errors=_ABOUT_TOPICS if "{tenant}" in path else _ERRORS,
    )


_ERRORS: Final = {405: "transactions are not supported yet"}
_ABOUT_TOPICS: Final = {**_ERRORS, 404: "Tenant does not exist", 412: "invalid name"}
_GROUP_PATH: Final = "/admin/v2/resourcegroups"
_TOPIC: Final = "{tenant}/{namespace}/{topic}"
_ID: Final = "{mostSigBits}/{leastSigBits}"

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
    Route(
        object="transactions",
        method="GET",
        path="/admin/v3/transactions/coordinators",
        handler=_nothing,
        summary="List the transaction coordinators: always empty, because they are not supported yet.",
        answer="List<TransactionCoordinatorInfo>",
        operation=Operation.SUPER_USER,
    ),
    _transaction_route(
        "coordinatorStats", "Get statistics of transaction coordinators", "Map<TransactionCoordinatorStats>"
    ),
    _transaction_route(
        "coordinatorInternalStats/{coordinatorId}",
        "Get the log of a transaction coordinator",
        "TransactionCoordinatorInternalStats",
    ),
    _transaction_route(
        "transactionCoordinator/replicas", "Set the number of transaction coordinators", body="int"
    ),
    _transaction_route(
        f"transactionMetadata/{_ID}", "Get the metadata of a transaction", "TransactionMetadata"
    ),
    _transaction_route(f"abortTransaction/{_ID}", "Abort a transaction"),
    _transaction_route("slowTransactions/{timeout}", "List slow transactions", "Map<TransactionMetadata>"),
    _transaction_route(
        f"transactionBufferStats/{_TOPIC}",
        "Get statistics of a topic's transaction buffer",
        "TransactionBufferStats",
    ),
    _transaction_route(
        f"transactionBufferInternalStats/{_TOPIC}",
        "Get the internal state of a topic's transaction buffer",
        "TransactionBufferInternalStats",
    ),
    _transaction_route(
        f"transactionInBufferStats/{_TOPIC}/{_ID}",
        "Get the state of a transaction in a topic's transaction buffer",
        "TransactionInBufferStats",
    ),
    _transaction_route(
        f"pendingAckStats/{_TOPIC}/{{subName}}",
        "Get statistics of a subscription's pending acknowledgements",
        "TransactionPendingAckStats",
    ),
    _transaction_route(
        f"pendingAckInternalStats/{_TOPIC}/{{subName}}",
        "Get the internal state of a subscription's pending acknowledgements",
        "TransactionPendingAckInternalStats",
    ),
    _transaction_route(
        f"transactionInPendingAckStats/{_TOPIC}/{{subName}}/{_ID}",
        "Get the pending acknowledgements of a transaction",
        "TransactionInPendingAckStats",
    ),
    _transaction_route(
        f"positionStatsInPendingAck/{_TOPIC}/{{subName}}/{{ledgerId}}/{{entryId}}",
        "Get whether a message is acknowledged in a pending transaction",
        "PositionInPendingAckStats",
    ),
]
