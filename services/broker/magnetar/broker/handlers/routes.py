"""The table of handlers by command type.

A command without a handler is answered with an error and its request id if clients may send it and this
version does not support it. It is a protocol error if only brokers send it.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, Final

from magnetar.broker.handlers import (
    acks,
    connect,
    consumers,
    credentials,
    lookup,
    producers,
    schemas,
    topic_lists,
    transactions,
)
from magnetar.broker.handlers.client import Client, ConnectState
from magnetar.common.errors import NotSupportedYet, ProtocolError
from magnetar.common.wire.command_parser import command_field
from magnetar.common.wire.commands import request_id_of
from magnetar.common.wire.pulsar_pb2 import BaseCommand

Handler = Callable[[Client, Any], Coroutine[Any, Any, None] | None]

_T = BaseCommand.Type

ROUTES: Final[dict[int, Handler]] = {
    _T.CONNECT: connect.handle_connect,
    _T.AUTH_RESPONSE: credentials.handle_auth_response,
    _T.PING: connect.handle_ping,
    _T.PONG: connect.handle_pong,
    _T.LOOKUP: lookup.handle_lookup,
    _T.PARTITIONED_METADATA: lookup.handle_partitioned_metadata,
    _T.GET_TOPICS_OF_NAMESPACE: topic_lists.handle_get_topics,
    _T.WATCH_TOPIC_LIST: topic_lists.handle_watch_topic_list,
    _T.WATCH_TOPIC_LIST_CLOSE: topic_lists.handle_watch_topic_list_close,
    _T.PRODUCER: producers.handle_producer,
    _T.CLOSE_PRODUCER: producers.handle_close_producer,
    _T.SUBSCRIBE: consumers.handle_subscribe,
    _T.FLOW: consumers.handle_flow,
    _T.CLOSE_CONSUMER: consumers.handle_close_consumer,
    _T.UNSUBSCRIBE: consumers.handle_unsubscribe,
    _T.SEEK: consumers.handle_seek,
    _T.GET_LAST_MESSAGE_ID: consumers.handle_get_last_message_id,
    _T.CONSUMER_STATS: consumers.handle_consumer_stats,
    _T.ACK: acks.handle_ack,
    _T.REDELIVER_UNACKNOWLEDGED_MESSAGES: acks.handle_redeliver,
    _T.GET_SCHEMA: schemas.handle_get_schema,
    _T.GET_OR_CREATE_SCHEMA: schemas.handle_get_or_create_schema,
    _T.TC_CLIENT_CONNECT_REQUEST: transactions.handle_tc_client_connect,
    _T.NEW_TXN: transactions.handle_new_txn,
    _T.ADD_PARTITION_TO_TXN: transactions.handle_add_partition,
    _T.ADD_SUBSCRIPTION_TO_TXN: transactions.handle_add_subscription,
    _T.END_TXN: transactions.handle_end_txn,
    _T.END_TXN_ON_PARTITION: transactions.handle_end_on_partition,
    _T.END_TXN_ON_SUBSCRIPTION: transactions.handle_end_on_subscription,
}
"""Command type -> its handler."""


def route(client: Client, command: BaseCommand) -> Coroutine[Any, Any, None] | None:
    """Handles a command; returns a coroutine to await, None when it is done.

    Raises ProtocolError, after which the connection is closed, or another MagnetarError, which is sent to the
    client.
    """
    if not client.connected and command.type != _T.CONNECT:
        if client.state is ConnectState.CONNECTING:
            raise ProtocolError(f"{_T.Name(command.type)} came before Connected was answered")
        raise ProtocolError(f"the first command is {_T.Name(command.type)}, not CONNECT")
    handler = ROUTES.get(command.type)
    if handler is None:
        name = _T.Name(command.type)
        if request_id_of(command) is None:
            raise ProtocolError(f"{name} is not a command that a client sends")
        raise NotSupportedYet(f"{name} is not supported by this version")
    return handler(client, getattr(command, command_field(command)))
