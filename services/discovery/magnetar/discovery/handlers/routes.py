"""Routes commands to their handlers."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, Final

from magnetar.common.errors import NotAllowed, ProtocolError
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


def answer(services: Services, command: BaseCommand) -> Answer:
    """Return the response to a command. Raises MagnetarError, also when awaited; it becomes an error
    response.
    """
    handler = ROUTES.get(command.type)
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
