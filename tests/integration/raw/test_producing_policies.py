"""What policies change for clients that are connected: deduplication, sizes, limits, rates, encryption."""

from __future__ import annotations

import time
import uuid
from typing import Any

import pytest
from magnetar.common.wire import pulsar_pb2 as pb

from tests.integration.admin_calls import admin, set_policy
from tests.integration.harness import Endpoint, StandaloneServer
from tests.integration.raw.transcript import (
    line,
    numbered,
    payload_frame,
    payloads,
    seconds_at_rate,
)

DUPLICATE = (2**64 - 1, 2**64 - 1)


def call(endpoint: Endpoint, method: str, path: str, body: Any = None) -> None:
    """A call of the admin API that succeeds; what it set holds on return."""
    status, answer = admin(endpoint, method, path, body)
    assert status in (200, 204), f"{method} {path}: {status} {answer}"


@pytest.fixture
def namespace(endpoint: Endpoint) -> str:
    """A namespace for one test."""
    name = f"public/{uuid.uuid4().hex[:8]}"
    call(endpoint, "PUT", f"namespaces/{name}")
    return name


@pytest.mark.full
def test_deduplication_is_switched_by_a_topics_policy(server: StandaloneServer, topic: str) -> None:
    with line(server.endpoint) as c:
        c.open_producer(topic, producer_name="raw")
        assert DUPLICATE not in c.publish(*numbered(3)) + c.publish(*numbered(3))
        set_policy(server.endpoint, topic, "deduplicationEnabled", True)
        assert DUPLICATE not in c.publish(*numbered(3))
        assert c.publish(*numbered(4))[:3] == [DUPLICATE] * 3
    for start, known in ((server.restart, 3), (server.kill_and_start, 4)):
        start()
        with line(server.endpoint) as c:
            assert c.open_producer(topic, producer_name="raw").command.last_sequence_id == known
            again, new = c.publish(*numbered(2, known), first=known)
            assert (again == DUPLICATE, new == DUPLICATE) == (True, False)
    with line(server.endpoint) as c:
        c.open_producer(topic, producer_name="raw")
        set_policy(server.endpoint, topic, "deduplicationEnabled", False)
        assert DUPLICATE not in c.publish(*numbered(4))


def test_deduplication_of_a_namespace_holds_where_a_topic_says_nothing(
    endpoint: Endpoint, namespace: str
) -> None:
    base = f"persistent://{namespace}/t"
    with line(endpoint) as c:
        c.open_producer(base, 1, producer_name="p")
        c.open_producer(base + "-off", 2, producer_name="p")
        set_policy(endpoint, base + "-off", "deduplicationEnabled", False)
        call(endpoint, "POST", f"namespaces/{namespace}/deduplication", True)
        c.open_producer(base + "-new", 3, producer_name="p")
        for producer_id, again in ((1, True), (2, False), (3, True)):
            c.publish(b"m", producer_id=producer_id)
            assert (c.publish(b"m", producer_id=producer_id) == [DUPLICATE]) is again


def test_a_message_over_a_topics_own_size_is_refused_and_the_next_producer_goes_on(
    endpoint: Endpoint, topic: str
) -> None:
    with line(endpoint) as c:
        c.subscribe(topic)
        c.flow(100)
        c.open_producer(topic)
        c.publish(bytes(2_000))
        set_policy(endpoint, topic, "maxMessageSize", 1_000)
        c.send_bytes(
            payload_frame(1, 1, b"small") + payload_frame(1, 2, bytes(1_001)) + payload_frame(1, 3, b"too")
        )
        frames = [c.receive() for _ in range(5)]
        stored = [frame.payload for frame in frames if frame.name == "message"]
        answers = [frame for frame in frames if frame.name != "message"]
        assert [frame.name for frame in answers] == ["send_receipt", "send_error", "close_producer"]
        assert pb.ServerError.Name(answers[1].command.error) == "NotAllowedError"
        assert stored == [bytes(2_000), b"small"]
        c.open_producer(topic, 2)
        c.send_bytes(payload_frame(2, 3, b"too"))
        assert {c.receive().name, c.receive().name} == {"send_receipt", "message"}


def test_limits_hold_from_the_moment_they_are_set(endpoint: Endpoint, topic: str) -> None:
    with line(endpoint) as c:
        for producer_id in (1, 2):
            c.open_producer(topic, producer_id)
        c.subscribe(topic, "a", 1, subType="Shared")
        set_policy(endpoint, topic, "maxProducers", 2)
        set_policy(endpoint, topic, "maxConsumers", 1)
        set_policy(endpoint, topic, "maxSubscriptionsPerTopic", 1)
        c.expect_error(c.request("producer", topic=topic, producer_id=3), "ProducerBusy")
        c.expect_error(c.ask_subscribe(topic, "a", 2, subType="Shared"), "ConsumerBusy")
        set_policy(endpoint, topic, "maxConsumers", 0)
        c.expect_error(c.ask_subscribe(topic, "b", 2), "NotAllowedError")
        c.subscribe(topic, "a", 3, subType="Shared")
        set_policy(endpoint, topic, "maxConsumersPerSubscription", 2)
        c.expect_error(c.ask_subscribe(topic, "a", 4, subType="Shared"), "ConsumerBusy")
        set_policy(endpoint, topic, "maxProducers", 0)
        c.open_producer(topic, 3)


def test_subscriptions_are_not_made_where_a_policy_says_so(endpoint: Endpoint, topic: str) -> None:
    with line(endpoint) as c:
        c.subscribe(topic, "a", 1)
        set_policy(endpoint, topic, "autoSubscriptionCreation", {"allowAutoSubscriptionCreation": False})
        c.expect_error(c.ask_subscribe(topic, "b", 2), "SubscriptionNotFound")
        c.subscribe(topic, "reader", 3, durable=False)


def test_a_publish_rate_holds_from_the_moment_it_is_set_until_it_is_taken_away(
    endpoint: Endpoint, topic: str
) -> None:
    with line(endpoint) as c:
        c.subscribe(topic)
        c.open_producer(topic)
        c.publish(*numbered(500))
        rate = {"publishThrottlingRateInMsg": 20, "publishThrottlingRateInByte": -1}
        set_policy(endpoint, topic, "publishRate", rate)
        began = time.monotonic()
        c.publish(*numbered(50, 500), first=500)
        c.publish(b"550", first=550)
        assert time.monotonic() - began >= seconds_at_rate(50, 20)
        set_policy(endpoint, topic, "publishRate", {**rate, "publishThrottlingRateInMsg": -1})
        began = time.monotonic()
        c.publish(*numbered(500, 551), first=551)
        c.publish(*numbered(500, 1_051), first=1_051)
        assert time.monotonic() - began < 1_000 / 20
        c.flow(10_000)
        assert payloads(c.expect_messages(1_551)) == numbered(1_551)


def test_requiring_encryption_closes_plain_producers(endpoint: Endpoint, namespace: str) -> None:
    topic = f"persistent://{namespace}/t"
    with line(endpoint) as c:
        c.open_producer(topic, 1)
        c.open_producer(topic, 2, encrypted=True)
        c.publish(b"plain")
        call(endpoint, "POST", f"namespaces/{namespace}/encryptionRequired", True)
        c.expect("close_producer", producer_id=1)
        c.expect_error(c.request("producer", topic=topic, producer_id=3), "MetadataError")
        c.send_bytes(payload_frame(2, 0, b"says that it encrypts, and does not"))
        assert pb.ServerError.Name(c.expect("send_error", sequence_id=0).command.error) == "MetadataError"
        c.expect("close_producer", producer_id=2)
        call(endpoint, "POST", f"namespaces/{namespace}/encryptionRequired", False)
        c.open_producer(topic, 3)
        c.publish(b"plain again", producer_id=3)
