"""Seeking, and what a consumer may ask about its subscription."""

from __future__ import annotations

import pytest
from magnetar.common.wire import pulsar_pb2 as pb

from tests.integration.harness import Endpoint
from tests.integration.raw.transcript import (
    line,
    message_id,
    numbered,
    payloads,
)


def test_seek_closes_the_consumer_and_then_succeeds(endpoint: Endpoint, topic: str) -> None:
    with line(endpoint) as c:
        c.open_producer(topic)
        c.subscribe(topic)
        positions = c.publish(*numbered(10))
        c.flow(10)
        c.expect_messages(10)
        c.ack(positions[9], cumulative=True)
        request_id = c.request("seek", consumer_id=1, message_id=message_id(positions[4]))
        c.expect("close_consumer", consumer_id=1)
        c.expect("success", request_id=request_id)
        c.subscribe(topic)
        c.flow(100)
        assert payloads(c.expect_messages(6)) == numbered(6, 4)
        c.expect_quiet()


def test_seek_closes_every_consumer_of_a_shared_subscription(endpoint: Endpoint, topic: str) -> None:
    with line(endpoint) as one, line(endpoint) as two:
        one.subscribe(topic, subType="Shared")
        two.subscribe(topic, subType="Shared", consumer_id=5)
        one.open_producer(topic)
        one.publish(*numbered(3))
        request_id = one.request("seek", consumer_id=1, message_publish_time=0)
        one.expect("close_consumer", consumer_id=1)
        one.expect("success", request_id=request_id)
        two.expect("close_consumer", consumer_id=5)
        two.subscribe(topic, subType="Shared", consumer_id=5)
        two.flow(10, consumer_id=5)
        assert payloads(two.expect_messages(3)) == numbered(3)


def test_seek_of_an_unknown_consumer_is_an_error(endpoint: Endpoint) -> None:
    with line(endpoint) as c:
        request_id = c.request("seek", consumer_id=77, message_publish_time=0)
        error = c.expect("error", request_id=request_id).command.error
        assert pb.ServerError.Name(error) in {"ConsumerNotFound", "MetadataError"}


def test_the_last_message_id_of_an_empty_topic_is_before_every_entry(endpoint: Endpoint, topic: str) -> None:
    with line(endpoint) as c:
        c.subscribe(topic)
        request_id = c.request("getLastMessageId", consumer_id=1)
        answer = c.expect("getLastMessageIdResponse", request_id=request_id).command
        assert answer.last_message_id.entryId == (1 << 64) - 1


def test_the_last_message_id_names_entry_and_batch_index(endpoint: Endpoint, topic: str) -> None:
    with line(endpoint) as c:
        c.open_producer(topic)
        c.subscribe(topic)
        (single,) = c.publish(b"single")
        answer = c.expect(
            "getLastMessageIdResponse", request_id=c.request("getLastMessageId", consumer_id=1)
        ).command
        assert (answer.last_message_id.ledgerId, answer.last_message_id.entryId) == single
        assert answer.last_message_id.batch_index == -1
        assert signed(answer.consumer_mark_delete_position.ledgerId) <= single[0]
        batch = c.publish_batch(numbered(4), first=1)
        answer = c.expect(
            "getLastMessageIdResponse", request_id=c.request("getLastMessageId", consumer_id=1)
        ).command
        assert (answer.last_message_id.ledgerId, answer.last_message_id.entryId) == batch
        assert answer.last_message_id.batch_index == 3
        c.ack(batch, cumulative=True)
        answer = c.expect(
            "getLastMessageIdResponse", request_id=c.request("getLastMessageId", consumer_id=1)
        ).command
        marked = answer.consumer_mark_delete_position
        assert (marked.ledgerId, marked.entryId) == batch


def signed(value: int) -> int:
    """Positions before the first entry hold -1, which travels unsigned."""
    return value - (1 << 64) if value >> 63 else value


def test_consumer_stats_count_what_was_pushed(endpoint: Endpoint, topic: str) -> None:
    with line(endpoint) as c:
        c.open_producer(topic)
        c.subscribe(topic, subType="Shared", consumer_name="counted")
        positions = c.publish(*numbered(10))
        c.flow(6)
        c.expect_messages(6)
        c.ack(positions[0], positions[1])
        request_id = c.request("consumerStats", consumer_id=1)
        stats = c.expect("consumerStatsResponse", request_id=request_id).command
        assert not stats.HasField("error_code")
        assert stats.consumerName == "counted"
        assert stats.type == "Shared"
        assert stats.availablePermits == 0
        assert stats.unackedMessages == 4
        assert stats.msgBacklog == 8


@pytest.mark.usefixtures("our_contract")
def test_stats_of_an_unknown_consumer_are_a_response_with_an_error(endpoint: Endpoint) -> None:
    """Apache Pulsar 4.0.7 hangs up here (it trips over its own null)."""
    with line(endpoint) as c:
        request_id = c.request("consumerStats", consumer_id=77)
        stats = c.expect("consumerStatsResponse", request_id=request_id).command
        assert stats.error_code == pb.ConsumerNotFound
        assert stats.error_message


def test_unsubscribe_is_for_the_only_consumer(endpoint: Endpoint, topic: str) -> None:
    with line(endpoint) as c, line(endpoint) as other:
        c.subscribe(topic, subType="Shared")
        other.subscribe(topic, subType="Shared")
        c.expect_error(c.request("unsubscribe", consumer_id=1), "MetadataError")
        other.expect("success", request_id=other.request("close_consumer", consumer_id=1))
        c.expect("success", request_id=c.request("unsubscribe", consumer_id=1))
        c.open_producer(topic)
        c.publish(b"nobody waits for it")
        c.subscribe(topic, initialPosition="Latest", subType="Exclusive")
        c.flow(1)
        c.expect_quiet()
