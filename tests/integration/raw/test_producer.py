"""Producers on the wire: names, closing, and Sends that nobody opened a producer for."""

from __future__ import annotations

import re
import time

import pytest
from magnetar.common.wire import pulsar_pb2 as pb

from tests.integration.harness import Endpoint
from tests.integration.raw.transcript import line, payload_frame


def test_generated_names_count_up_and_are_unique(endpoint: Endpoint, topic: str) -> None:
    with line(endpoint) as c:
        names = [c.open_producer(topic, producer_id).command.producer_name for producer_id in range(1, 4)]
    parts = [re.fullmatch(r"(.+)-(\d+)-(\d+)", name) for name in names]
    assert all(parts), names
    assert len(set(names)) == 3
    assert len({(part[1], part[2]) for part in parts if part}) == 1, "cluster and instance stay"


def test_a_producer_starts_before_its_first_message(endpoint: Endpoint, topic: str) -> None:
    with line(endpoint) as c:
        success = c.open_producer(topic, producer_name="mine-" + topic[-8:]).command
        assert success.producer_name == "mine-" + topic[-8:]
        assert success.last_sequence_id == -1
        assert success.producer_ready


def test_a_producer_without_schema_is_told_the_empty_version(endpoint: Endpoint, topic: str) -> None:
    """Apache's Java client closes the connection where the field is absent."""
    with line(endpoint) as c:
        success = c.open_producer(topic).command
        assert success.HasField("schema_version")
        assert success.schema_version == b""


def test_receipts_come_in_order_with_rising_positions(endpoint: Endpoint, topic: str) -> None:
    with line(endpoint) as c:
        c.open_producer(topic)
        positions = c.publish(*[b"%d" % n for n in range(500)])
        assert positions == sorted(set(positions))


def test_a_receipt_of_a_batch_names_its_highest_sequence_id(endpoint: Endpoint, topic: str) -> None:
    with line(endpoint) as c:
        c.open_producer(topic)
        c.subscribe(topic)
        c.publish_batch([b"a", b"b", b"c"], first=7)
        c.flow(10)
        message = c.expect("message")
        assert message.metadata is not None
        assert message.metadata.num_messages_in_batch == 3
        assert message.metadata.highest_sequence_id == 9


def test_metadata_is_delivered_as_it_came(endpoint: Endpoint, topic: str) -> None:
    metadata = pb.MessageMetadata(
        producer_name="somebody-else",
        sequence_id=42,
        publish_time=1_000,
        partition_key="key",
        ordering_key=b"\x00\xff",
        event_time=77,
        properties=[{"key": "k", "value": "v"}],  # type: ignore[list-item]
        schema_version=b"\x00\x01",
    )
    with line(endpoint) as c:
        c.open_producer(topic)
        c.subscribe(topic)
        c.send_bytes(payload_frame(1, 42, b"payload", metadata))
        c.expect("send_receipt", sequence_id=42)
        c.flow(1)
        message = c.expect("message")
        assert (message.metadata, message.payload) == (metadata, b"payload")


def test_a_send_without_producer_closes_the_connection(endpoint: Endpoint, topic: str) -> None:
    with line(endpoint) as other, line(endpoint) as c:
        c.send_bytes(payload_frame(5, 0, b"nobody opened 5"))
        c.expect_closed()
        other.open_producer(topic)
        other.publish(b"fine")


@pytest.mark.usefixtures("our_contract")
def test_a_send_after_close_is_ignored(endpoint: Endpoint, topic: str) -> None:
    """Apache Pulsar 4.0.7 was seen to answer SendError while the close runs, and to hang up after it."""
    with line(endpoint) as c:
        c.subscribe(topic)
        c.flow(10)
        c.open_producer(topic)
        c.send_bytes(payload_frame(1, 0, b"before the close"))
        close_id = c.request("close_producer", producer_id=1)
        c.send_bytes(payload_frame(1, 1, b"while it closes"))
        got = {frame.name: frame for frame in (c.receive(), c.receive(), c.receive())}
        assert set(got) == {"send_receipt", "message", "success"}
        assert got["success"].command.request_id == close_id
        assert got["message"].payload == b"before the close"
        c.send_bytes(payload_frame(1, 2, b"after the close"))
        c.expect_quiet()


def test_close_answers_only_after_every_pending_message_is_persisted(endpoint: Endpoint, topic: str) -> None:
    with line(endpoint) as c:
        c.open_producer(topic)
        c.send_bytes(b"".join(payload_frame(1, n, b"x" * 1_000) for n in range(200)))
        close_id = c.request("close_producer", producer_id=1)
        for n in range(200):
            c.expect("send_receipt", sequence_id=n)
        c.expect("success", request_id=close_id)


def test_the_same_id_opens_again_after_an_unanswered_close(endpoint: Endpoint, topic: str) -> None:
    """What a client does whose Producer request timed out: close, and try again without waiting."""
    with line(endpoint) as c:
        first_id = c.request("producer", topic=topic, producer_id=1)
        close_id = c.request("close_producer", producer_id=1)
        second_id = c.request("producer", topic=topic, producer_id=1)
        answers = {}
        while second_id not in answers:
            frame = c.receive()
            answers[frame.command.request_id] = frame
        assert close_id in answers
        assert first_id in answers or close_id in answers
        if answers[second_id].name == "error":
            # The first creation was still running; the id is free once it ended.
            time.sleep(0.2)
            second_id = c.request("producer", topic=topic, producer_id=1)
            c.expect("producer_success", request_id=second_id)
        c.publish(b"works")


def test_a_name_in_use_is_refused_and_free_after_close(endpoint: Endpoint, topic: str) -> None:
    name = "taken-" + topic[-8:]
    with line(endpoint) as holder, line(endpoint) as c:
        holder.open_producer(topic, producer_name=name)
        c.request("producer", topic=topic, producer_id=1, producer_name=name)
        # The holder is asked whether it lives before anybody is refused.
        holder.answer_pings = False
        holder.expect("ping")
        holder.send("pong")
        error = c.expect("error").command
        assert pb.ServerError.Name(error.error) == "ProducerBusy"
        holder.expect("success", request_id=holder.request("close_producer", producer_id=1))
        c.open_producer(topic, producer_name=name)


def test_the_same_producer_with_a_higher_epoch_replaces_itself(endpoint: Endpoint, topic: str) -> None:
    name = "again-" + topic[-8:]
    with line(endpoint) as old, line(endpoint) as c:
        c.open_producer(topic, producer_name=name, epoch=0, user_provided_producer_name=False)
        c.open_producer(topic, producer_name=name, epoch=1, user_provided_producer_name=False)
        c.publish(b"one producer")
        old.send("ping")
        old.expect("pong")


@pytest.mark.full
def test_a_dead_holder_of_a_name_is_replaced(endpoint: Endpoint, topic: str) -> None:
    """A client that comes back after a network cut gets its name although the old connection still stands."""
    name = "ghost-" + topic[-8:]
    with line(endpoint) as ghost, line(endpoint) as c:
        ghost.open_producer(topic, producer_name=name)
        ghost.answer_pings = False
        request_id = c.request("producer", topic=topic, producer_id=1, producer_name=name)
        c.expect("producer_success", request_id=request_id, producer_name=name)
        ghost.expect("ping")
        ghost.expect_closed()
        c.publish(b"back again")


def test_a_malformed_topic_name_is_refused(endpoint: Endpoint) -> None:
    with line(endpoint) as c:
        request_id = c.request("producer", topic="nonsense://a/b/c", producer_id=1)
        c.expect_error(request_id, "InvalidTopicName")


def test_an_initial_subscription_exists_before_the_first_message(endpoint: Endpoint, topic: str) -> None:
    with line(endpoint) as c:
        c.open_producer(topic, initial_subscription_name="early")
        c.publish(b"kept")
        c.subscribe(topic, "early", initialPosition="Latest")
        c.flow(1)
        assert c.expect("message").payload == b"kept"


def test_a_non_persistent_send_is_confirmed_at_once_with_zeros(
    endpoint: Endpoint, volatile_topic: str
) -> None:
    with line(endpoint) as c:
        c.open_producer(volatile_topic)
        assert c.publish(b"a", b"b") == [(0, 0), (0, 0)]
