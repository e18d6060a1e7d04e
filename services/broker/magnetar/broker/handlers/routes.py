"""Which function handles which command.

A command that is not here is answered with an error and its request id when Pulsar knows it and this version
does not, and is a protocol error when only a broker sends it.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, Final

from magnetar.broker.handlers import acks, connect, consumers, lookup, producers, schemas
from magnetar.broker.handlers.client import Client
from magnetar.common.errors import NotSupportedYet, ProtocolError
from magnetar.common.wire.commands import request_id_of
from magnetar.common.wire.pulsar_pb2 import BaseCommand

Handler = Callable[[Client, Any], Coroutine[Any, Any, None] | None]

_T = BaseCommand.Type

ROUTES: Final[dict[int, tuple[str, Handler]]] = {
    _T.CONNECT: ("connect", connect.handle_connect),
    _T.PING: ("ping", connect.handle_ping),
    _T.PONG: ("pong", connect.handle_pong),
    _T.LOOKUP: ("lookupTopic", lookup.handle_lookup),
    _T.PARTITIONED_METADATA: ("partitionMetadata", lookup.handle_partitioned_metadata),
    _T.GET_TOPICS_OF_NAMESPACE: ("getTopicsOfNamespace", lookup.handle_get_topics),
    _T.PRODUCER: ("producer", producers.handle_producer),
    _T.CLOSE_PRODUCER: ("close_producer", producers.handle_close_producer),
    _T.SUBSCRIBE: ("subscribe", consumers.handle_subscribe),
    _T.FLOW: ("flow", consumers.handle_flow),
    _T.CLOSE_CONSUMER: ("close_consumer", consumers.handle_close_consumer),
    _T.UNSUBSCRIBE: ("unsubscribe", consumers.handle_unsubscribe),
    _T.SEEK: ("seek", consumers.handle_seek),
    _T.GET_LAST_MESSAGE_ID: ("getLastMessageId", consumers.handle_get_last_message_id),
    _T.CONSUMER_STATS: ("consumerStats", consumers.handle_consumer_stats),
    _T.ACK: ("ack", acks.handle_ack),
    _T.REDELIVER_UNACKNOWLEDGED_MESSAGES: ("redeliverUnacknowledgedMessages", acks.handle_redeliver),
    _T.GET_SCHEMA: ("getSchema", schemas.handle_get_schema),
    _T.GET_OR_CREATE_SCHEMA: ("getOrCreateSchema", schemas.handle_get_or_create_schema),
}
"""Command type -> (the field of BaseCommand that holds it, its handler)."""


def route(client: Client, command: BaseCommand) -> Coroutine[Any, Any, None] | None:
    """Handle a command; returns what has to be awaited, None when it is done.

    Raises ProtocolError, after which the connection is closed, or another MagnetarError, which is answered.
    """
    if not client.connected and command.type != _T.CONNECT:
        raise ProtocolError(f"the first command is {_T.Name(command.type)}, not CONNECT")
    found = ROUTES.get(command.type)
    if found is None:
        name = _T.Name(command.type)
        if request_id_of(command) is None:
            raise ProtocolError(f"{name} is not a command that a client sends")
        raise NotSupportedYet(f"{name} is not supported by this version")
    field, handler = found
    if not command.HasField(field):  # type: ignore[arg-type]
        raise ProtocolError(f"a command of type {_T.Name(command.type)} has no {field}")
    return handler(client, getattr(command, field))
