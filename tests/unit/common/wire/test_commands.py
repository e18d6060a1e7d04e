from __future__ import annotations

from typing import Any

import pytest
from magnetar.common.wire import commands
from magnetar.common.wire import pulsar_pb2 as pb
from magnetar.common.wire.frame import FrameDecoder
from magnetar.common.wire.pulsar_pb2 import ServerError

from tests.unit.common.wire import frames


def decoded(frame: bytes) -> pb.BaseCommand:
    (only,) = FrameDecoder().receive_data(frame)
    return only.command


def request(field: str, **values: Any) -> pb.BaseCommand:
    return frames.command(**{field: values})


ANSWERS = [
    (commands.PING, "ping", {}),
    (commands.PONG, "pong", {}),
    (
        commands.connected("Magnetar", 20, 5_242_880),
        "connected",
        {"server_version": "Magnetar", "protocol_version": 20, "max_message_size": 5_242_880},
    ),
    (commands.success(7), "success", {"request_id": 7}),
    (
        commands.error(7, ServerError.TopicNotFound, "no t"),
        "error",
        {"request_id": 7, "error": ServerError.TopicNotFound, "message": "no t"},
    ),
    (
        commands.producer_success(7, "p", schema_version=b"v", topic_epoch=2, producer_ready=False),
        "producer_success",
        {
            "request_id": 7,
            "producer_name": "p",
            "last_sequence_id": -1,
            "schema_version": b"v",
            "topic_epoch": 2,
            "producer_ready": False,
        },
    ),
    (
        commands.producer_success(7, "p"),
        "producer_success",
        {
            "request_id": 7,
            "producer_name": "p",
            "last_sequence_id": -1,
            "schema_version": b"",
            "producer_ready": True,
        },
    ),
    (
        commands.send_error(1, 2, ServerError.ChecksumError, "bad"),
        "send_error",
        {"producer_id": 1, "sequence_id": 2, "error": ServerError.ChecksumError, "message": "bad"},
    ),
    (
        commands.close_producer(1, "pulsar://b:6650"),
        "close_producer",
        {"producer_id": 1, "request_id": 2**64 - 1, "assignedBrokerServiceUrl": "pulsar://b:6650"},
    ),
    (commands.close_consumer(1), "close_consumer", {"consumer_id": 1, "request_id": 2**64 - 1}),
    (
        commands.lookup_connect(7, "pulsar://b:6650"),
        "lookupTopicResponse",
        {
            "request_id": 7,
            "response": pb.CommandLookupTopicResponse.Connect,
            "brokerServiceUrl": "pulsar://b:6650",
            "authoritative": True,
            "proxy_through_service_url": False,
        },
    ),
    (
        commands.lookup_redirect(7, "pulsar://b:6650", authoritative=False),
        "lookupTopicResponse",
        {
            "request_id": 7,
            "response": pb.CommandLookupTopicResponse.Redirect,
            "brokerServiceUrl": "pulsar://b:6650",
            "authoritative": False,
        },
    ),
    (
        commands.partition_metadata(7, 0),
        "partitionMetadataResponse",
        {
            "request_id": 7,
            "partitions": 0,
            "response": pb.CommandPartitionedTopicMetadataResponse.Success,
        },
    ),
    (commands.ack_response(1, 7), "ackResponse", {"consumer_id": 1, "request_id": 7}),
    (
        commands.active_consumer_change(1, True),
        "active_consumer_change",
        {"consumer_id": 1, "is_active": True},
    ),
    (commands.reached_end_of_topic(1), "reachedEndOfTopic", {"consumer_id": 1}),
    (
        commands.last_message_id(7, commands.message_id(1, -1, partition=3), commands.position_id(1, 2)),
        "getLastMessageIdResponse",
        {
            "request_id": 7,
            "last_message_id": {"ledgerId": 1, "entryId": 2**64 - 1, "partition": 3, "batch_index": -1},
            "consumer_mark_delete_position": {"ledgerId": 1, "entryId": 2},
        },
    ),
    (
        commands.consumer_stats(pb.CommandConsumerStatsResponse(request_id=7, msgBacklog=3)),
        "consumerStatsResponse",
        {"request_id": 7, "msgBacklog": 3},
    ),
    (
        commands.topics_of_namespace(7, ["a", "b"], topics_hash="h"),
        "getTopicsOfNamespaceResponse",
        {"request_id": 7, "topics": ["a", "b"], "topics_hash": "h", "filtered": False, "changed": True},
    ),
    (
        commands.watch_topic_list_success(7, 1, ["a"], "h"),
        "watchTopicListSuccess",
        {"request_id": 7, "watcher_id": 1, "topic": ["a"], "topics_hash": "h"},
    ),
    (
        commands.watch_topic_update(1, ["a"], ["b"], "h"),
        "watchTopicUpdate",
        {"watcher_id": 1, "new_topics": ["a"], "deleted_topics": ["b"], "topics_hash": "h"},
    ),
    (
        commands.get_schema(7, pb.Schema(name="s", schema_data=b"", type=pb.Schema.String), b"v"),
        "getSchemaResponse",
        {
            "request_id": 7,
            "schema": {"name": "s", "schema_data": b"", "type": pb.Schema.String},
            "schema_version": b"v",
        },
    ),
    (
        commands.get_or_create_schema(7, b"v"),
        "getOrCreateSchemaResponse",
        {"request_id": 7, "schema_version": b"v"},
    ),
]


@pytest.mark.parametrize(
    ("frame", "field", "values"), ANSWERS, ids=[f"{index} {row[1]}" for index, row in enumerate(ANSWERS)]
)
def test_an_answer_holds_exactly_what_it_was_given(frame: bytes, field: str, values: dict[str, Any]) -> None:
    assert decoded(frame) == request(field, **values)


def test_the_request_id_of_any_command_is_found_and_none_where_there_is_none() -> None:
    assert commands.request_id_of(request("unsubscribe", consumer_id=1, request_id=0)) == 0
    assert commands.request_id_of(request("ack", consumer_id=1, ack_type=0, request_id=9)) == 9
    assert commands.request_id_of(request("ack", consumer_id=1, ack_type=0)) is None
    assert commands.request_id_of(request("flow", consumer_id=1, messagePermits=1)) is None
    assert commands.request_id_of(request("ping")) is None


REQUESTS = [
    field
    for field in pb.BaseCommand.DESCRIPTOR.fields
    if field.message_type is not None
    and "request_id" in field.message_type.fields_by_name
    and not field.name.lower().endswith(("response", "success", "connected", "error"))
]
OWN_RESPONSE = {
    "lookupTopic": "lookupTopicResponse",
    "partitionMetadata": "partitionMetadataResponse",
    "consumerStats": "consumerStatsResponse",
    "getSchema": "getSchemaResponse",
    "getOrCreateSchema": "getOrCreateSchemaResponse",
    "ack": "ackResponse",
    "tcClientConnectRequest": "tcClientConnectResponse",
    "newTxn": "newTxnResponse",
    "addPartitionToTxn": "addPartitionToTxnResponse",
    "addSubscriptionToTxn": "addSubscriptionToTxnResponse",
    "endTxn": "endTxnResponse",
    "endTxnOnPartition": "endTxnOnPartitionResponse",
    "endTxnOnSubscription": "endTxnOnSubscriptionResponse",
}


@pytest.mark.parametrize("field", [field.name for field in REQUESTS])
def test_every_request_that_fails_gets_the_response_its_sender_waits_for(field: str) -> None:
    consumer = {"consumer_id": 1} if field == "ack" else {}
    failed = request(field, request_id=77, **consumer)
    frame = commands.error_answer(failed, ServerError.NotAllowedError, "not here")
    assert frame is not None
    response = getattr(decoded(frame), OWN_RESPONSE.get(field, "error"))
    assert response.request_id == 77
    assert "not here" in (getattr(response, "message", ""), getattr(response, "error_message", ""))
    codes = (getattr(response, "error", None), getattr(response, "error_code", None))
    assert ServerError.NotAllowedError in codes
    if field in ("lookupTopic", "partitionMetadata"):
        assert response.response == type(response).Failed


def test_a_failed_ack_repeats_consumer_and_transaction() -> None:
    ack = request("ack", consumer_id=3, ack_type=0, request_id=9, txnid_least_bits=0, txnid_most_bits=5)
    frame = commands.error_answer(ack, ServerError.NotAllowedError, "no transactions")
    assert frame is not None
    assert decoded(frame) == request(
        "ackResponse",
        consumer_id=3,
        txnid_least_bits=0,
        txnid_most_bits=5,
        request_id=9,
        error=ServerError.NotAllowedError,
        message="no transactions",
    )


def test_command_without_a_request_id_gets_no_error() -> None:
    ack = request("ack", consumer_id=3, ack_type=0)
    assert commands.error_answer(ack, ServerError.UnknownError, "x") is None
