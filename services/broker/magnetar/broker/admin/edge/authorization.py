"""Authorization of requests: what a call is about, by its path, and how its refusal looks over HTTP."""

from __future__ import annotations

from magnetar.broker.admin.edge.call import Call
from magnetar.broker.admin.edge.errors import Refused
from magnetar.common.errors import Unauthorized
from magnetar.common.naming.topic_name import NON_PERSISTENT, PERSISTENT, TopicName
from magnetar.common.security.authorization.authorizer import Target
from magnetar.common.security.authorization.operations import Operation


async def authorize(call: Call, operation: Operation, path: str) -> None:
    """Check that the caller may do an operation of this class; `path` is the route's, with names in braces.

    Raises Refused with the status of the class, NamespaceNotFound when there is no such tenant, InvalidName,
    MetadataError. With authorization off nothing is looked at.
    """
    if call.broker.authorizer.enabled and operation is not Operation.OPEN:
        await authorize_target(call, operation, _target(call, operation, path))


async def may(call: Call, operation: Operation, target: Target) -> bool:
    """Returns whether the caller may do an operation, for parts of an answer. Raises NamespaceNotFound,
    MetadataError.
    """
    try:
        await call.broker.authorizer.check_operation(call.principal, operation, target)
    except Unauthorized:
        return False
    return True


async def authorize_target(call: Call, operation: Operation, target: Target) -> None:
    """Check an operation on what only the body of the request names. Raises as `authorize`."""
    try:
        await call.broker.authorizer.check_operation(call.principal, operation, target)
    except Unauthorized as error:
        raise Refused(operation.status, str(error)) from error


def _target(call: Call, operation: Operation, path: str) -> Target:
    names = call.names
    if "topic" in names:
        domain = names.get("domain") or (NON_PERSISTENT if f"/{NON_PERSISTENT}/" in path else PERSISTENT)
        by_subscription = operation is Operation.TOPIC_CONSUME and "subscription" in names
        return Target(
            topic=TopicName.of(domain, call.namespace, names["topic"]),
            subscription=call.subscription if by_subscription else "",
        )
    if "namespace" in names:
        return Target(namespace=call.namespace)
    if "tenant" in names:
        return Target(tenant=call.tenant)
    query = call.request.query
    return Target(tenant=query.get("tenant") or query.get("property"))
