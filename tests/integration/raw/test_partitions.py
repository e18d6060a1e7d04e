"""Partitioned topics on the wire, where the configuration says that topics are created so."""

from __future__ import annotations

from typing import Any

import pytest
from magnetar.common.wire import pulsar_pb2 as pb

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
