"""How many producers, consumers, subscriptions and topics there may be, on the wire."""

from __future__ import annotations

import pytest

from tests.integration.harness import Endpoint
from tests.integration.raw.transcript import line

SERVER_SETTINGS = {
    "maxProducersPerTopic": "2",
    "maxConsumersPerTopic": "3",
    "maxConsumersPerSubscription": "2",
    "maxSubscriptionsPerTopic": "2",
    "maxTopicsPerNamespace": "40",
    "allowAutoSubscriptionCreation": "true",
}

pytestmark = pytest.mark.usefixtures("server")


@pytest.fixture
def topic(namespace: str) -> str:
    """In a namespace of the test's own: over bookies public/default has the topics of other modules."""
    return f"persistent://{namespace}/limited"


def test_producer_beyond_the_limit_is_busy_until_another_closes(endpoint: Endpoint, topic: str) -> None:
    with line(endpoint) as c:
        c.open_producer(topic, 1)
        c.open_producer(topic, 2)
        message = c.expect_error(c.request("producer", topic=topic, producer_id=3), "ProducerBusy")
        assert "max producers limit" in message
        c.expect("success", request_id=c.request("close_producer", producer_id=1))
        c.open_producer(topic, 3)


def test_consumer_beyond_the_limit_is_busy_and_others_stay(endpoint: Endpoint, topic: str) -> None:
    with line(endpoint) as quiet, line(endpoint) as c:
        quiet.answer_pings = False
        quiet.subscribe(topic, "a", 1, subType="Shared")
        quiet.subscribe(topic, "a", 2, subType="Shared")
        assert "subscription a" in c.expect_error(
            c.ask_subscribe(topic, "a", 1, subType="Shared"), "ConsumerBusy"
        )
        c.subscribe(topic, "b", 2, subType="Shared")
        assert "topic" in c.expect_error(c.ask_subscribe(topic, "b", 3, subType="Shared"), "ConsumerBusy")
        c.expect("success", request_id=c.request("close_consumer", consumer_id=2))
        c.subscribe(topic, "b", 3, subType="Shared")
        quiet.send("ping")
        quiet.expect("pong")


def test_subscription_beyond_the_limit_is_not_allowed(endpoint: Endpoint, topic: str) -> None:
    with line(endpoint) as c:
        c.subscribe(topic, "a", 1)
        c.subscribe(topic, "b", 2, durable=False)
        c.expect_error(c.ask_subscribe(topic, "c", 3), "NotAllowedError")
        request_id = c.request("producer", topic=topic, producer_id=1, initial_subscription_name="c")
        c.expect_error(request_id, "NotAllowedError")
        c.expect("success", request_id=c.request("unsubscribe", consumer_id=1))
        c.subscribe(topic, "c", 3)


def test_topic_beyond_the_limit_is_not_allowed(endpoint: Endpoint, topic: str) -> None:
    with line(endpoint) as c:
        for number in range(41):
            request_id = c.request("producer", topic=f"{topic}-{number}", producer_id=number)
            answer = c.receive()
            if answer.name == "error":
                assert answer.command.request_id == request_id
                break
        else:
            raise AssertionError("as many topics as one likes")
        c.expect_error(c.request("producer", topic=topic, producer_id=99), "NotAllowedError")
        c.open_producer(f"{topic}-0", 100)
