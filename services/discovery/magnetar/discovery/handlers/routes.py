"""Which handler answers which command."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, Final

from magnetar.common.errors import NotAllowed, ProtocolError
from magnetar.common.wire import commands
from magnetar.common.wire.pulsar_pb2 import BaseCommand, ServerError
from magnetar.discovery.handlers import lookups
from magnetar.discovery.handlers.services import Services

Answer = bytes | Coroutine[Any, Any, bytes] | None
"""At once, once it is awaited, or none."""

_T = BaseCommand.Type

ROUTES: Final[dict[int, Callable[[Services, BaseCommand], Answer]]] = {
    _T.LOOKUP: lookups.lookup,
    _T.PARTITIONED_METADATA: lookups.partitions,
    _T.GET_TOPICS_OF_NAMESPACE: lookups.passed_on,
    _T.GET_SCHEMA: lookups.passed_on,
    _T.PING: lambda services, command: commands.PONG,
    _T.PONG: lambda services, command: None,
}
"""Command type -> what answers it, on a connection that began with Connect."""


def answer(services: Services, command: BaseCommand) -> Answer:
    """The answer to a command. Raises MagnetarError, to be answered as such, also when awaited."""
    handler = ROUTES.get(command.type)
    if handler is not None:
        return handler(services, command)
    if command.type == _T.CONNECT:
        raise ProtocolError("Connect was sent twice on one connection")
    why = (
        f"this is a discovery service, which serves no topics: {_T.Name(command.type)} goes to the broker "
        "that a lookup names"
    )
    if command.type == _T.SEND:
        send = command.send
        return commands.send_error(send.producer_id, send.sequence_id, ServerError.NotAllowedError, why)
    raise NotAllowed(why)
