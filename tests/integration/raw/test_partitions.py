"""Partitioned topics on the wire, where the configuration says that topics are created so."""

from __future__ import annotations

from typing import Any

import pytest
from magnetar.common.wire import pulsar_pb2 as pb

from tests.integration.admin_calls import admin, path_of
from tests.integration.conftest import Server
from tests.integration.harness import Endpoint
from tests.integration.raw.transcript import Line, line, numbered, payloads

SERVER_SETTINGS = {"allowAutoTopicCreationType": "partitioned", "defaultNumPartitions": "3"}

pytestmark = pytest.mark.usefixtures("server")


def ask(c: Line, topic: str, **fields: Any) -> Any:
    request_id = c.request("partitionMetadata", topic=topic, **fields)
    return c.expect("partitionMetadataResponse", request_id=request_id).command


def partitions(c: Line, topic: str, **fields: Any) -> int:
    answer = ask(c, topic, **fields)
    assert answer.response == pb.CommandPartitionedTopicMetadataResponse.Success, answer
    return int(answer.partitions)


def test_asking_makes_a_partitioned_topic_that_stays(server: Server, topic: str) -> None:
    with line(server.endpoint) as c:
        assert partitions(c, topic) == 3
    server.restart()
    with line(server.endpoint) as c:
        assert partitions(c, topic) == 3
        assert partitions(c, topic.replace("persistent:", "non-persistent:")) == 3


def test_just_asking_makes_nothing(endpoint: Endpoint, topic: str) -> None:
    with line(endpoint, connected=False) as c:
        flags = c.connect().command.feature_flags
        assert flags.supports_get_partitioned_metadata_without_auto_creation
        for _ in range(2):
            answer = ask(c, topic, metadata_auto_creation_enabled=False)
            assert pb.ServerError.Name(answer.error) == "TopicNotFound"
        c.open_producer(topic)
        assert partitions(c, topic, metadata_auto_creation_enabled=False) == 0


def test_the_name_of_a_partition_is_no_partitioned_topic(endpoint: Endpoint, topic: str) -> None:
    with line(endpoint) as c:
        assert partitions(c, f"{topic}-partition-1") == 0
        assert partitions(c, f"{topic}-partition-1") == 0
        assert partitions(c, topic, metadata_auto_creation_enabled=True) == 3
        assert partitions(c, f"{topic}-partition-0-sub-DLQ") == 3, "an ordinary name"


def test_partitions_are_topics_within_their_number(endpoint: Endpoint, topic: str) -> None:
    with line(endpoint) as c:
        assert partitions(c, topic) == 3
        for index in range(3):
            c.open_producer(f"{topic}-partition-{index}", index)
            c.subscribe(f"{topic}-partition-{index}", consumer_id=index)
            c.publish(*numbered(5, index * 5), producer_id=index)
            c.flow(5, consumer_id=index)
            assert payloads(c.expect_messages(5)) == numbered(5, index * 5)
        request_id = c.request("producer", topic=f"{topic}-partition-3", producer_id=9)
        c.expect_error(request_id, "TopicNotFound")
        c.expect_error(c.ask_subscribe(f"{topic}-partition-3", consumer_id=9), "TopicNotFound")
        c.expect_error(c.request("producer", topic=topic, producer_id=10), "TopicNotFound")


def test_messages_carry_their_partition(endpoint: Endpoint, topic: str) -> None:
    with line(endpoint) as c:
        partitions(c, topic)
        c.open_producer(f"{topic}-partition-2")
        c.subscribe(f"{topic}-partition-2")
        c.publish(b"x")
        c.flow(1)
        assert c.expect("message").command.message_id.partition == 2


def made_by_admin(endpoint: Endpoint, topic: str, count: int) -> None:
    status, answer = admin(endpoint, "PUT", path_of(topic, "partitions"), count)
    assert status == 204, answer


def test_an_administrator_makes_partitions_that_are_there_at_once(endpoint: Endpoint, topic: str) -> None:
    made_by_admin(endpoint, topic, 5)
    assert admin(endpoint, "PUT", path_of(topic, "partitions"), 5)[0] == 409
    names = [f"{topic}-partition-{index}" for index in range(5)]
    with line(endpoint) as c:
        assert partitions(c, topic) == 5
        answer = c.expect(
            "getTopicsOfNamespaceResponse",
            request_id=c.request("getTopicsOfNamespace", namespace="public/default"),
        )
        assert set(names) <= set(answer.command.topics)


def test_a_subscription_misses_nothing_of_partitions_that_a_topic_grows(
    endpoint: Endpoint, topic: str
) -> None:
    made_by_admin(endpoint, topic, 2)
    with line(endpoint) as c:
        for index in range(2):
            c.subscribe(f"{topic}-partition-{index}", "all", consumer_id=index)
        assert admin(endpoint, "POST", path_of(topic, "partitions"), 1)[0] == 422
        status, answer = admin(endpoint, "POST", path_of(topic, "partitions"), 3)
        assert status == 204, answer
        assert partitions(c, topic) == 3
        c.open_producer(f"{topic}-partition-2")
        c.publish(*numbered(4))
        # Only now does its consumer look for new partitions; it would begin at the latest message.
        c.subscribe(f"{topic}-partition-2", "all", consumer_id=2, initialPosition="Latest")
        c.flow(10, consumer_id=2)
        assert payloads(c.expect_messages(4)) == numbered(4)


def test_a_partitioned_topic_in_use_goes_only_by_force_and_then_whole(endpoint: Endpoint, topic: str) -> None:
    made_by_admin(endpoint, topic, 3)
    with line(endpoint) as c:
        c.open_producer(f"{topic}-partition-1")
        c.publish(b"x")
        status, answer = admin(endpoint, "DELETE", path_of(topic, "partitions"))
        assert status == 412, answer
        assert partitions(c, topic) == 3
        c.publish(b"y", first=1)
        status, answer = admin(endpoint, "DELETE", path_of(topic, "partitions") + "?force=true")
        assert status == 204, answer
        c.expect("close_producer", producer_id=1)
        answer = ask(c, topic, metadata_auto_creation_enabled=False)
        assert pb.ServerError.Name(answer.error) == "TopicNotFound"
        assert partitions(c, topic) == 3, "made anew, by policy"
        c.open_producer(f"{topic}-partition-1")
        c.subscribe(f"{topic}-partition-1")
        c.flow(1)
        c.expect_quiet()
