"""Lookup, partition metadata and topic lists."""

from __future__ import annotations

from typing import Any

import pytest
from magnetar.common.wire import pulsar_pb2 as pb

from tests.integration.harness import Endpoint
from tests.integration.raw.transcript import Line, line


def test_lookup_says_connect_here(endpoint: Endpoint, topic: str) -> None:
    with line(endpoint) as c:
        request_id = c.request("lookupTopic", topic=topic)
        answer = c.expect("lookupTopicResponse", request_id=request_id).command
        assert answer.response == pb.CommandLookupTopicResponse.Connect
        assert answer.brokerServiceUrl.startswith("pulsar://")
        assert answer.brokerServiceUrl.endswith(f":{endpoint.port}")


def test_an_authoritative_lookup_is_answered(endpoint: Endpoint, topic: str) -> None:
    with line(endpoint) as c:
        request_id = c.request("lookupTopic", topic=topic, authoritative=True)
        answer = c.expect("lookupTopicResponse", request_id=request_id).command
        assert answer.response == pb.CommandLookupTopicResponse.Connect


@pytest.mark.parametrize("name", ["persistent://public/default", "bogus://public/default/t"])
def test_a_lookup_of_a_malformed_name_fails(endpoint: Endpoint, name: str) -> None:
    with line(endpoint) as c:
        request_id = c.request("lookupTopic", topic=name)
        answer = c.expect("lookupTopicResponse", request_id=request_id).command
        assert answer.response == pb.CommandLookupTopicResponse.Failed
        assert pb.ServerError.Name(answer.error) == "InvalidTopicName"


def test_a_missing_topic_has_no_partitions_and_is_not_invented(endpoint: Endpoint, topic: str) -> None:
    with line(endpoint) as c:
        for _ in range(2):
            request_id = c.request("partitionMetadata", topic=topic)
            answer = c.expect("partitionMetadataResponse", request_id=request_id).command
            assert answer.response == pb.CommandPartitionedTopicMetadataResponse.Success
            assert answer.partitions == 0


@pytest.mark.parametrize("namespace", ["public/missing", "missing/default"])
def test_a_missing_namespace_is_not_found(endpoint: Endpoint, namespace: str) -> None:
    topic = f"persistent://{namespace}/t"
    with line(endpoint) as c:
        for command, response in [
            ("lookupTopic", "lookupTopicResponse"),
            ("partitionMetadata", "partitionMetadataResponse"),
        ]:
            request_id = c.request(command, topic=topic)
            answer = c.expect(response, request_id=request_id).command
            assert pb.ServerError.Name(answer.error) == "TopicNotFound", answer
        # Whoever skips the lookup is refused as well, and nothing is created.
        c.request("producer", topic=topic, producer_id=1)
        c.expect("error")
        c.ask_subscribe(topic)
        c.expect("error")


def topics_of_namespace(c: Line, **fields: Any) -> pb.CommandGetTopicsOfNamespaceResponse:
    request_id = c.request("getTopicsOfNamespace", namespace="public/default", **fields)
    answer = c.expect("getTopicsOfNamespaceResponse", request_id=request_id).command
    assert isinstance(answer, pb.CommandGetTopicsOfNamespaceResponse)
    return answer


def test_topics_of_a_namespace_by_mode(endpoint: Endpoint, topic: str, volatile_topic: str) -> None:
    with line(endpoint) as c:
        c.open_producer(topic, 1)
        c.open_producer(volatile_topic, 2)
        persistent = set(topics_of_namespace(c).topics)
        volatile = set(topics_of_namespace(c, mode="NON_PERSISTENT").topics)
        both = set(topics_of_namespace(c, mode="ALL").topics)
        assert topic in persistent
        assert volatile_topic not in persistent
        assert volatile_topic in volatile
        assert topic not in volatile
        assert {topic, volatile_topic} <= both


def test_a_pattern_is_evaluated_by_the_broker(endpoint: Endpoint, topic: str) -> None:
    with line(endpoint) as c:
        c.open_producer(topic + "-yes", 1)
        c.open_producer(topic + "-no", 2)
        pattern = "persistent://public/default/.*" + topic[-8:] + "-y.*"
        answer = topics_of_namespace(c, topics_pattern=pattern)
        if answer.filtered:
            assert list(answer.topics) == [topic + "-yes"]
        else:
            assert {topic + "-yes", topic + "-no"} <= set(answer.topics)


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        ("tcClientConnectRequest", {"tc_id": 0}),
        ("newTxn", {"txn_ttl_seconds": 10}),
        ("addPartitionToTxn", {"txnid_most_bits": 1, "partitions": ["persistent://public/default/t"]}),
        ("addSubscriptionToTxn", {"txnid_most_bits": 1}),
        ("endTxn", {"txnid_most_bits": 1}),
    ],
)
@pytest.mark.usefixtures("our_contract")
def test_transactions_are_refused_with_their_request_id(
    endpoint: Endpoint, name: str, fields: dict[str, object]
) -> None:
    with line(endpoint) as c:
        request_id = c.request(name, **fields)
        answer = c.receive()
        assert answer.name in {"error", name.replace("Request", "") + "Response"}
        assert answer.command.request_id == request_id
        assert answer.command.HasField("error")
        assert answer.command.message
        c.send("ping")
        c.expect("pong")
