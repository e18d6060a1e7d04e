"""Routes commands to their handlers."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, Final

from magnetar.common.errors import NotAllowed, ProtocolError
from magnetar.common.naming.namespace_name import NamespaceName
from magnetar.common.naming.topic_name import TopicName
from magnetar.common.security.principal import Principal
from magnetar.common.wire import commands
from magnetar.common.wire.pulsar_pb2 import BaseCommand, ServerError
from magnetar.discovery.handlers import lookups
from magnetar.discovery.handlers.services import Services

Answer = bytes | Coroutine[Any, Any, bytes] | None
"""A response, an awaitable response, or none."""

_T = BaseCommand.Type

ROUTES: Final[dict[int, Callable[[Services, BaseCommand], Answer]]] = {
    _T.LOOKUP: lookups.lookup,
    _T.PARTITIONED_METADATA: lookups.partitions,
    _T.GET_TOPICS_OF_NAMESPACE: lookups.passed_on,
    _T.GET_SCHEMA: lookups.passed_on,
    _T.PING: lambda services, command: commands.PONG,
    _T.PONG: lambda services, command: None,
}
"""Handlers by command type, for connections that completed Connect."""


Check = Callable[[Services, BaseCommand, Principal | None], Coroutine[Any, Any, None]]
"""Raises Unauthorized when the principal may not send the command."""

_CHECKS: Final[dict[int, Check]] = {
    _T.LOOKUP: lambda services, command, who: services.authorizer.check_lookup(
        who, TopicName.parse(command.lookupTopic.topic)
    ),
    _T.PARTITIONED_METADATA: lambda services, command, who: services.authorizer.check_partitions(
        who, TopicName.parse(command.partitionMetadata.topic)
    ),
    _T.GET_TOPICS_OF_NAMESPACE: lambda services, command, who: services.authorizer.check_list(
        who, NamespaceName.parse(command.getTopicsOfNamespace.namespace)
    ),
    _T.GET_SCHEMA: lambda services, command, who: services.authorizer.check_lookup(
        who, TopicName.parse(command.getSchema.topic)
    ),
}
"""Command type -> the right that it needs; the others need none."""


async def _authorized(
    services: Services,
    command: BaseCommand,
    principal: Principal | None,
    check: Check,
    handler: Callable[[Services, BaseCommand], Answer],
) -> bytes:
    await check(services, command, principal)
    answered = handler(services, command)
    assert answered is not None, "commands that need a right are answered"
    return answered if isinstance(answered, bytes) else await answered


def answer(services: Services, command: BaseCommand, principal: Principal | None = None) -> Answer:
    """Return the response to a command. Raises MagnetarError, also when awaited; it becomes an error
    response.
    """
    handler = ROUTES.get(command.type)
    check = _CHECKS.get(command.type)
    if handler is not None and check is not None and services.authorizer.enabled:
        return _authorized(services, command, principal, check, handler)
    if handler is not None:
        return handler(services, command)
    if command.type == _T.CONNECT:
        raise ProtocolError("Connect was sent twice on one connection")
    why = (
        f"a discovery service does not serve topics: send {_T.Name(command.type)} to the broker "
        "that a lookup returns"
    )
    if command.type == _T.SEND:
        send = command.send
        return commands.send_error(send.producer_id, send.sequence_id, ServerError.NotAllowedError, why)
    raise NotAllowed(why)
