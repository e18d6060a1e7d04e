"""The broker's responses as encoded frames: one builder per command.

Per-message commands have their own modules (receipts.py, messages.py). Optional arguments that are None are
omitted from the command.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from magnetar.common.naming.txn_id import TxnId
from magnetar.common.wire.command_parser import command_field
from magnetar.common.wire.frame import encode_command
from magnetar.common.wire.pulsar_pb2 import (
    AuthData,
    BaseCommand,
    CommandAckResponse,
    CommandConsumerStatsResponse,
    CommandLookupTopicResponse,
    CommandPartitionedTopicMetadataResponse,
    CommandPing,
    CommandPong,
    FeatureFlags,
    MessageIdData,
    Schema,
    ServerError,
)
from magnetar.common.wire.varint import UINT64_MAX

PROTOCOL_VERSION: Final = 21
"""The newest version of pulsar.proto that Magnetar supports."""

_TYPE_OF_FIELD: Final[Mapping[str, Any]] = {
    field.name: field.number for field in BaseCommand.DESCRIPTOR.fields if field.message_type is not None
}

NO_REQUEST_ID: Final = UINT64_MAX
"""The request id of an error that answers no request in particular."""

AUTH_REFRESH: Final = b"PulsarAuthRefresh"
"""The challenge that every client answers with its current credentials."""

PING: Final = encode_command(BaseCommand(type=BaseCommand.PING, ping=CommandPing()))
PONG: Final = encode_command(BaseCommand(type=BaseCommand.PONG, pong=CommandPong()))


def _command(field: str, **values: Any) -> bytes:
    """Encodes a command; values of None are omitted, and protobuf checks names and types."""
    command = BaseCommand(type=_TYPE_OF_FIELD[field])
    given = {name: value for name, value in values.items() if value is not None}
    getattr(command, field).MergeFrom(type(getattr(command, field))(**given))
    return encode_command(command)


def connected(
    server_version: str,
    protocol_version: int,
    max_message_size: int,
    feature_flags: FeatureFlags | None = None,
) -> bytes:
    """Answers Connect. `protocol_version` is the lower of both sides' versions; announce only supported
    flags.
    """
    return _command(
        "connected",
        server_version=server_version,
        protocol_version=protocol_version,
        max_message_size=max_message_size,
        feature_flags=feature_flags,
    )


def auth_challenge(server_version: str, protocol_version: int, method: str, data: bytes) -> bytes:
    """Asks for credentials; `data` of AUTH_REFRESH asks for fresh ones in place of those that expired."""
    return _command(
        "authChallenge",
        server_version=server_version,
        challenge=AuthData(auth_method_name=method, auth_data=data),
        protocol_version=protocol_version,
    )


def success(request_id: int, schema: Schema | None = None) -> bytes:
    return _command("success", request_id=request_id, schema=schema)


def error(request_id: int, server_error: ServerError.ValueType, message: str) -> bytes:
    """Encodes a plain Error; for most failures use `error_answer`, which chooses the response expected for
    each command.
    """
    return _command("error", request_id=request_id, error=server_error, message=message)


def producer_success(
    request_id: int,
    producer_name: str,
    *,
    last_sequence_id: int = -1,
    schema_version: bytes = b"",
    topic_epoch: int | None = None,
    producer_ready: bool = True,
) -> bytes:
    """Answers Producer. `schema_version` is present even if empty: Java clients fail without the field."""
    return _command(
        "producer_success",
        request_id=request_id,
        producer_name=producer_name,
        last_sequence_id=last_sequence_id,
        schema_version=schema_version,
        topic_epoch=topic_epoch,
        producer_ready=producer_ready,
    )


def send_error(
    producer_id: int, sequence_id: int, server_error: ServerError.ValueType, message: str
) -> bytes:
    return _command(
        "send_error", producer_id=producer_id, sequence_id=sequence_id, error=server_error, message=message
    )


def close_producer(
    producer_id: int, assigned_broker_url: str | None = None, assigned_broker_url_tls: str | None = None
) -> bytes:
    """Closes a producer; the client looks the topic up again, or connects to the named broker. It is not
    answered.
    """
    return _command(
        "close_producer",
        producer_id=producer_id,
        request_id=UINT64_MAX,
        assignedBrokerServiceUrl=assigned_broker_url,
        assignedBrokerServiceUrlTls=assigned_broker_url_tls,
    )


def close_consumer(
    consumer_id: int, assigned_broker_url: str | None = None, assigned_broker_url_tls: str | None = None
) -> bytes:
    """Closes a consumer; the client looks the topic up again, or connects to the named broker. It is not
    answered.
    """
    return _command(
        "close_consumer",
        consumer_id=consumer_id,
        request_id=UINT64_MAX,
        assignedBrokerServiceUrl=assigned_broker_url,
        assignedBrokerServiceUrlTls=assigned_broker_url_tls,
    )


def lookup_connect(
    request_id: int,
    broker_url: str,
    *,
    broker_url_tls: str | None = None,
    authoritative: bool = True,
    proxy_through_service_url: bool = False,
) -> bytes:
    """Answers Lookup: the topic is served by that broker."""
    return _command(
        "lookupTopicResponse",
        request_id=request_id,
        response=CommandLookupTopicResponse.Connect,
        brokerServiceUrl=broker_url,
        brokerServiceUrlTls=broker_url_tls,
        authoritative=authoritative,
        proxy_through_service_url=proxy_through_service_url,
    )


def lookup_redirect(
    request_id: int, broker_url: str, *, broker_url_tls: str | None = None, authoritative: bool
) -> bytes:
    """Answers Lookup: ask that broker, passing on `authoritative`."""
    return _command(
        "lookupTopicResponse",
        request_id=request_id,
        response=CommandLookupTopicResponse.Redirect,
        brokerServiceUrl=broker_url,
        brokerServiceUrlTls=broker_url_tls,
        authoritative=authoritative,
    )


def partition_metadata(request_id: int, partitions: int) -> bytes:
    """Answers PartitionedMetadata; `partitions` is 0 for a non-partitioned topic."""
    return _command(
        "partitionMetadataResponse",
        request_id=request_id,
        partitions=partitions,
        response=CommandPartitionedTopicMetadataResponse.Success,
    )


def ack_response(
    consumer_id: int,
    request_id: int,
    server_error: ServerError.ValueType | None = None,
    message: str | None = None,
    *,
    txn: TxnId | None = None,
) -> bytes:
    """Answers Ack; with its transaction where the acknowledgement was in one."""
    return _command(
        "ackResponse",
        consumer_id=consumer_id,
        request_id=request_id,
        error=server_error,
        message=message,
        txnid_least_bits=None if txn is None else txn.least,
        txnid_most_bits=None if txn is None else txn.most,
    )


def ack_responses(consumer_id: int, request_ids: Iterable[int], txn: TxnId) -> bytes:
    """Answers Acks in a transaction, each with its request id; nothing without request ids."""
    command = BaseCommand(
        type=BaseCommand.ACK_RESPONSE,
        ackResponse=CommandAckResponse(
            consumer_id=consumer_id, txnid_least_bits=txn.least, txnid_most_bits=txn.most
        ),
    )
    frames: list[bytes] = []
    for request_id in request_ids:
        command.ackResponse.request_id = request_id
        frames.append(encode_command(command))
    return b"".join(frames)


def active_consumer_change(consumer_id: int, is_active: bool) -> bytes:
    return _command("active_consumer_change", consumer_id=consumer_id, is_active=is_active)


def reached_end_of_topic(consumer_id: int) -> bytes:
    return _command("reachedEndOfTopic", consumer_id=consumer_id)


def position_id(ledger_id: int, entry_id: int) -> MessageIdData:
    """Returns the message id of an entry, without an index in it. Ids may be -1."""
    return MessageIdData(ledgerId=ledger_id & UINT64_MAX, entryId=entry_id & UINT64_MAX)


def message_id(ledger_id: int, entry_id: int, *, partition: int = -1, batch_index: int = -1) -> MessageIdData:
    """Returns a message id with all its fields, as Apache Pulsar does; each may be -1."""
    data = position_id(ledger_id, entry_id)
    data.partition = partition
    data.batch_index = batch_index
    return data


def last_message_id(
    request_id: int, last: MessageIdData, mark_delete_position: MessageIdData | None = None
) -> bytes:
    return _command(
        "getLastMessageIdResponse",
        request_id=request_id,
        last_message_id=last,
        consumer_mark_delete_position=mark_delete_position,
    )


def consumer_stats(response: CommandConsumerStatsResponse) -> bytes:
    """Encodes a response prepared by the caller, including its request id."""
    return encode_command(
        BaseCommand(type=BaseCommand.CONSUMER_STATS_RESPONSE, consumerStatsResponse=response)
    )


def topics_of_namespace(
    request_id: int,
    topics: Iterable[str],
    *,
    topics_hash: str | None = None,
    filtered: bool = False,
    changed: bool = True,
) -> bytes:
    """Answers GetTopicsOfNamespace. `filtered`: by the client's pattern; not `changed`: the client's hash is
    current, no topics follow.
    """
    return _command(
        "getTopicsOfNamespaceResponse",
        request_id=request_id,
        topics=list(topics),
        topics_hash=topics_hash,
        filtered=filtered,
        changed=changed,
    )


def watch_topic_list_success(
    request_id: int, watcher_id: int, topics: Iterable[str], topics_hash: str
) -> bytes:
    return _command(
        "watchTopicListSuccess",
        request_id=request_id,
        watcher_id=watcher_id,
        topic=list(topics),
        topics_hash=topics_hash,
    )


def watch_topic_update(
    watcher_id: int, new_topics: Iterable[str], deleted_topics: Iterable[str], topics_hash: str
) -> bytes:
    return _command(
        "watchTopicUpdate",
        watcher_id=watcher_id,
        new_topics=list(new_topics),
        deleted_topics=list(deleted_topics),
        topics_hash=topics_hash,
    )


def get_schema(request_id: int, schema: Schema, schema_version: bytes) -> bytes:
    return _command("getSchemaResponse", request_id=request_id, schema=schema, schema_version=schema_version)


def get_or_create_schema(request_id: int, schema_version: bytes) -> bytes:
    return _command("getOrCreateSchemaResponse", request_id=request_id, schema_version=schema_version)


def tc_client_connected(request_id: int) -> bytes:
    """Answers TcClientConnect: this broker runs the coordinator."""
    return _command("tcClientConnectResponse", request_id=request_id)


def new_txn(request_id: int, txn: TxnId) -> bytes:
    return _of_txn("newTxnResponse", request_id, txn)


def partitions_added(request_id: int, txn: TxnId) -> bytes:
    return _of_txn("addPartitionToTxnResponse", request_id, txn)


def subscriptions_added(request_id: int, txn: TxnId) -> bytes:
    return _of_txn("addSubscriptionToTxnResponse", request_id, txn)


def txn_ended(request_id: int, txn: TxnId) -> bytes:
    return _of_txn("endTxnResponse", request_id, txn)


def txn_ended_on_partition(request_id: int, txn: TxnId) -> bytes:
    return _of_txn("endTxnOnPartitionResponse", request_id, txn)


def txn_ended_on_subscription(request_id: int, txn: TxnId) -> bytes:
    return _of_txn("endTxnOnSubscriptionResponse", request_id, txn)


def _of_txn(response: str, request_id: int, txn: TxnId) -> bytes:
    return _command(response, request_id=request_id, txnid_least_bits=txn.least, txnid_most_bits=txn.most)


def request_id_of(command: BaseCommand) -> int | None:
    """Returns the request id of any command; None if it has none and so expects no response."""
    request = getattr(command, command_field(command))
    if "request_id" not in request.DESCRIPTOR.fields_by_name or not request.HasField("request_id"):
        return None
    request_id: int = request.request_id
    return request_id


_OWN_FAILURE: Final[Mapping[str, tuple[str, str, str]]] = {
    "consumerStats": ("consumerStatsResponse", "error_code", "error_message"),
    "getSchema": ("getSchemaResponse", "error_code", "error_message"),
    "getOrCreateSchema": ("getOrCreateSchemaResponse", "error_code", "error_message"),
    "tcClientConnectRequest": ("tcClientConnectResponse", "error", "message"),
    "newTxn": ("newTxnResponse", "error", "message"),
    "addPartitionToTxn": ("addPartitionToTxnResponse", "error", "message"),
    "addSubscriptionToTxn": ("addSubscriptionToTxnResponse", "error", "message"),
    "endTxn": ("endTxnResponse", "error", "message"),
    "endTxnOnPartition": ("endTxnOnPartitionResponse", "error", "message"),
    "endTxnOnSubscription": ("endTxnOnSubscriptionResponse", "error", "message"),
    "ack": ("ackResponse", "error", "message"),
}
"""Requests whose failure is reported in their own response: (response, code field, text field)."""

_FAILED: Final[Mapping[str, tuple[str, int]]] = {
    "lookupTopic": ("lookupTopicResponse", CommandLookupTopicResponse.Failed),
    "partitionMetadata": ("partitionMetadataResponse", CommandPartitionedTopicMetadataResponse.Failed),
}
"""The same for requests whose response also has a result code."""

_COPIED: Final = ("consumer_id", "txnid_least_bits", "txnid_most_bits")
"""Fields that a response copies from its request, if both have them."""


def error_answer(command: BaseCommand, server_error: ServerError.ValueType, message: str) -> bytes | None:
    """Returns the response that reports this command's failure, in the form that the client expects.

    None for a command without request id, which expects no response.
    """
    request_id = request_id_of(command)
    if request_id is None:
        return None
    field = command_field(command)
    if field in _FAILED:
        response, failed = _FAILED[field]
        return _command(response, request_id=request_id, response=failed, error=server_error, message=message)
    if field not in _OWN_FAILURE:
        return error(request_id, server_error, message)
    response, code_field, text_field = _OWN_FAILURE[field]
    request = getattr(command, field)
    known = getattr(BaseCommand(), response).DESCRIPTOR.fields_by_name
    repeated = {
        name: getattr(request, name)
        for name in _COPIED
        if name in known and name in request.DESCRIPTOR.fields_by_name and request.HasField(name)
    }
    failure = {code_field: server_error, text_field: message}
    return _command(response, request_id=request_id, **repeated, **failure)
