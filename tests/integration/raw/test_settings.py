"""Settings that change what is on the wire: keep-alive, batch index acknowledgement off, unacked limits."""

from __future__ import annotations

from contextlib import ExitStack

import pytest
from magnetar.common.wire.pulsar_pb2 import ServerError

from tests.integration.harness import Endpoint, StandaloneServer, eventually
from tests.integration.raw.transcript import batch_messages, line, numbered, payloads

SERVER_SETTINGS = {
    "keepAliveIntervalSeconds": "1",
    "acknowledgmentAtBatchIndexLevelEnabled": "false",
    "maxUnackedMessagesPerConsumer": "10",
    "brokerMaxConnections": "5",
}

pytestmark = pytest.mark.usefixtures("server")


def test_silent_connection_is_pinged_and_closed_without_a_pong(endpoint: Endpoint) -> None:
    with line(endpoint) as c:
        c.answer_pings = False
        c.expect("ping")
        c.expect_closed()


def test_a_line_that_answers_pings_stays_open(endpoint: Endpoint) -> None:
    with line(endpoint) as c:
        c.answer_pings = False
        for _ in range(3):
            c.expect("ping")
            c.send("pong")
        c.send("ping")
        c.expect("pong")


def test_a_line_without_connect_is_closed(endpoint: Endpoint) -> None:
    with line(endpoint, connected=False) as c:
        c.expect_closed()


def test_connections_beyond_the_most_are_told_so_and_their_place_is_not_taken(endpoint: Endpoint) -> None:
    with ExitStack() as others:
        for _ in range(5):
            others.enter_context(line(endpoint))
        for _ in range(3):
            with line(endpoint, connected=False) as c:
                refused = c.expect("error")
                assert refused.command.error == ServerError.NotAllowedError
                assert "brokerMaxConnections" in refused.command.message
                c.expect_closed()
    for _ in range(3):
        eventually(lambda: _is_let_in(endpoint), "a connection is taken when others have gone")


def _is_let_in(endpoint: Endpoint) -> bool:
    with line(endpoint, connected=False) as c:
        c.send("connect", client_version="raw", protocol_version=19)
        return c.receive().name == "connected"


def test_without_batch_index_acknowledgement_partial_sets_are_forgotten(
    endpoint: Endpoint, topic: str
) -> None:
    with line(endpoint) as c:
        c.open_producer(topic)
        c.subscribe(topic)
        position = c.publish_batch(numbered(5))
        c.flow(5)
        c.expect("message")
        c.ack(position, ack_set=[0b11100])
        c.expect("success", request_id=c.request("close_consumer", consumer_id=1))
        c.subscribe(topic)
        c.flow(5)
        again = c.expect("message")
        assert batch_messages(again.payload) == numbered(5)
        assert not again.command.ack_set
        c.ack(position)  # without a set it is all of the batch
        c.expect("success", request_id=c.request("close_consumer", consumer_id=1))
        c.subscribe(topic)
        c.flow(5)
        c.expect_quiet()


def test_dispatch_stops_at_the_unacked_limit_and_resumes_at_half(endpoint: Endpoint, topic: str) -> None:
    with line(endpoint) as c:
        c.open_producer(topic)
        c.subscribe(topic, subType="Shared")
        positions = c.publish(*numbered(40))
        c.flow(100)
        assert payloads(c.expect_messages(10)) == numbered(10)
        c.expect_quiet()
        c.ack(*positions[:4])  # 6 left: more than half
        c.expect_quiet()
        c.ack(positions[4], receipt=False)  # 5 left
        assert payloads(c.expect_messages(5)) == numbered(5, 10)
        c.expect_quiet()


def test_the_unacked_limit_is_not_for_exclusive_consumers(endpoint: Endpoint, topic: str) -> None:
    with line(endpoint) as c:
        c.open_producer(topic)
        c.subscribe(topic)
        c.publish(*numbered(40))
        c.flow(100)
        assert payloads(c.expect_messages(40)) == numbered(40)


@pytest.mark.full
def test_nothing_is_created_automatically_when_that_is_off(server: StandaloneServer, topic: str) -> None:
    with line(server.endpoint) as c:
        c.open_producer(topic)
        c.subscribe(topic)
        c.publish(b"exists")
    off = {"allowAutoTopicCreation": "false", "allowAutoSubscriptionCreation": "false"}
    server.stop()
    server.settings |= off
    try:
        server.start()
        with line(server.endpoint) as c:
            c.open_producer(topic)
            c.subscribe(topic)
            c.flow(1)
            assert c.expect("message").payload == b"exists"
            c.expect_error(c.ask_subscribe(topic, "another", 2), "SubscriptionNotFound")
            c.expect_error(c.ask_subscribe(topic + "-missing", consumer_id=3), "TopicNotFound")
            request_id = c.request("producer", topic=topic + "-missing", producer_id=4)
            c.expect_error(request_id, "TopicNotFound")
            request_id = c.request(
                "producer", topic=topic, producer_id=5, initial_subscription_name="another"
            )
            c.expect_error(request_id, "NotAllowedError")
    finally:
        for key in off:
            del server.settings[key]
        server.restart()
