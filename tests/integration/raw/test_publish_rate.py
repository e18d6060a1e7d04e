"""Publish rates: what comes too fast waits in the socket, nothing is refused and nothing lost."""

from __future__ import annotations

import time

import pytest

from tests.integration.harness import Endpoint, StandaloneServer
from tests.integration.raw.transcript import line, numbered, payloads, seconds_at_rate

SERVER_SETTINGS = {
    "maxPublishRatePerTopicInMessages": "50",
    "keepAliveIntervalSeconds": "1",
}

pytestmark = pytest.mark.usefixtures("server")


@pytest.mark.parametrize("domain", ["persistent", "non-persistent"])
def test_a_producer_gets_the_rate_and_no_more(endpoint: Endpoint, topic: str, domain: str) -> None:
    name = topic.replace("persistent", domain, 1)
    with line(endpoint) as c:
        c.open_producer(name)
        began = time.monotonic()
        for number in range(120):
            c.publish(b"m", first=number)
        assert time.monotonic() - began >= seconds_at_rate(120, 50)


def test_a_burst_is_taken_whole_and_the_connection_lives_through_its_wait(
    endpoint: Endpoint, topic: str
) -> None:
    """The line waits for longer than two keep-alive intervals, and another one is not concerned."""
    with line(endpoint) as c, line(endpoint) as other:
        c.subscribe(topic)
        c.open_producer(topic)
        other.open_producer(topic + "-other")
        began = time.monotonic()
        c.publish(*numbered(200))
        c.send("ping")
        other.publish(b"at once")
        assert c.expect("pong").name == "pong"
        assert time.monotonic() - began >= seconds_at_rate(200, 50)
        c.flow(1_000)
        assert payloads(c.expect_messages(200)) == numbered(200)


@pytest.mark.full
def test_the_rate_of_the_broker_is_shared_by_its_topics(server: StandaloneServer, topic: str) -> None:
    server.stop()
    topic_rate = server.settings.pop("maxPublishRatePerTopicInMessages")
    server.settings["brokerPublisherThrottlingMaxMessageRate"] = "50"
    try:
        server.start()
        with line(server.endpoint) as one, line(server.endpoint) as other:
            for number, c in enumerate((one, other)):
                c.open_producer(f"{topic}-{number}")
            began = time.monotonic()
            for number in range(60):
                for c in (one, other):
                    c.publish(b"m", first=number)
            assert time.monotonic() - began >= seconds_at_rate(120, 50)
    finally:
        del server.settings["brokerPublisherThrottlingMaxMessageRate"]
        server.settings["maxPublishRatePerTopicInMessages"] = topic_rate
        server.restart()
