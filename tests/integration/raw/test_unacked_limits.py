"""Limits on unacknowledged messages of a consumer, a subscription and the broker, on Shared subscriptions."""

from __future__ import annotations

import pytest

from tests.integration.harness import Endpoint
from tests.integration.raw.transcript import Line, line, numbered, payload_frame, payloads

SERVER_SETTINGS = {
    "maxUnackedMessagesPerConsumer": "10",
    "maxUnackedMessagesPerSubscription": "16",
    "maxUnackedMessagesPerBroker": "40",
    "maxUnackedMessagesPerSubscriptionOnBrokerBlocked": "0.1",
}

pytestmark = pytest.mark.usefixtures("server")


def join(c: Line, topic: str, consumer_id: int = 1, permits: int = 100) -> None:
    c.subscribe(topic, consumer_id=consumer_id, subType="Shared")
    c.flow(permits, consumer_id=consumer_id)


def redeliver(c: Line, *positions: tuple[int, int], consumer_id: int = 1) -> None:
    ids = [{"ledgerId": ledger, "entryId": entry} for ledger, entry in positions]
    c.send("redeliverUnacknowledgedMessages", consumer_id=consumer_id, message_ids=ids)


def test_a_consumer_stops_at_its_limit_and_resumes_at_half(endpoint: Endpoint, topic: str) -> None:
    with line(endpoint) as c:
        c.open_producer(topic)
        join(c, topic)
        positions = c.publish(*numbered(30))
        assert payloads(c.expect_messages(10)) == numbered(10)
        c.expect_quiet()
        c.ack(*positions[:4], receipt=False)
        c.expect_quiet()
        c.ack(positions[4], receipt=False)
        assert payloads(c.expect_messages(5)) == numbered(5, 10)
        c.expect_quiet()


def test_permits_that_come_while_a_consumer_is_blocked_are_kept(endpoint: Endpoint, topic: str) -> None:
    with line(endpoint) as c:
        c.open_producer(topic)
        join(c, topic, permits=10)
        positions = c.publish(*numbered(30))
        c.expect_messages(10)
        c.flow(3)
        c.flow(4)
        c.expect_quiet()
        c.ack(*positions[:10], receipt=False)
        assert payloads(c.expect_messages(7)) == numbered(7, 10)
        c.expect_quiet()


def test_a_request_for_redelivery_frees_a_blocked_consumer(endpoint: Endpoint, topic: str) -> None:
    with line(endpoint) as c:
        c.open_producer(topic)
        join(c, topic)
        positions = c.publish(*numbered(30))
        c.expect_messages(10)
        redeliver(c, positions[3])
        again = c.expect("message")
        assert (again.payload, again.command.redelivery_count) == (b"3", 1)
        c.expect_quiet()


def test_an_acknowledgement_by_another_consumer_frees_the_one_that_holds_the_message(
    endpoint: Endpoint, topic: str
) -> None:
    with line(endpoint) as c, line(endpoint) as other:
        c.open_producer(topic)
        join(c, topic)
        join(other, topic, permits=1)
        positions = c.publish(*numbered(15))
        held = [frame.position for frame in c.expect_messages(10)]
        other.expect_messages(1)
        c.expect_quiet()
        other.ack(*held[:5], receipt=False)
        assert len(c.expect_messages(4)) == 4
        assert set(held) <= set(positions)


def test_a_subscription_stops_at_its_limit_and_resumes_at_half(endpoint: Endpoint, topic: str) -> None:
    with line(endpoint) as c:
        c.open_producer(topic)
        join(c, topic, 1)
        join(c, topic, 2)
        c.publish(*numbered(40))
        held: dict[int, list[tuple[int, int]]] = {1: [], 2: []}
        for frame in c.expect_messages(16):
            held[frame.command.consumer_id].append(frame.position)
        c.expect_quiet()
        assert sum(map(len, held.values())) == 16
        c.ack(*held[1][:4], consumer_id=1, receipt=False)
        c.ack(*held[2][:3], consumer_id=2, receipt=False)
        c.expect_quiet()
        c.ack(held[2][3], consumer_id=2, receipt=False)
        c.expect_messages(8)
        c.expect_quiet()


def test_redelivery_continues_at_the_subscriptions_unacked_limit(endpoint: Endpoint, topic: str) -> None:
    with line(endpoint) as c:
        c.open_producer(topic)
        join(c, topic, 1)
        join(c, topic, 2)
        c.publish(*numbered(40))
        held = {frame.position: frame.command.consumer_id for frame in c.expect_messages(16)}
        c.expect_quiet()
        position, consumer_id = next(iter(held.items()))
        redeliver(c, position, consumer_id=consumer_id)
        again = c.expect("message")
        assert (again.position, again.command.redelivery_count) == (position, 1)
        c.expect_quiet()


def test_when_a_consumer_leaves_a_subscription_at_its_limit_the_others_get_what_it_held(
    endpoint: Endpoint, topic: str
) -> None:
    with line(endpoint) as stayer:
        stayer.open_producer(topic)
        with line(endpoint) as leaver:
            join(leaver, topic)
            positions = stayer.publish(*numbered(40))
            leaver.expect_messages(10)
            join(stayer, topic)
            assert payloads(stayer.expect_messages(6)) == numbered(6, 10)
            stayer.expect_quiet()
        assert payloads(stayer.expect_messages(4)) == numbered(4)
        stayer.ack(*positions[10:16], receipt=False)
        assert payloads(stayer.expect_messages(6)) == numbered(6, 4)


def test_when_the_broker_is_at_its_limit_subscriptions_with_more_than_their_part_wait(
    endpoint: Endpoint, topic: str
) -> None:
    with line(endpoint) as c:
        names = [f"{topic}-{n}" for n in range(5)]
        for consumer_id, name in enumerate(names):
            c.open_producer(name, consumer_id)
            join(c, name, consumer_id, permits=10 if consumer_id < 4 else 3)
        held = [publish_and_take(c, producer_id, 12) for producer_id in range(4)]
        # 40 are unacknowledged now. The last subscription has none: it goes on until it has more than 4.
        publish_and_take(c, 4, 12, expected=3)
        c.flow(1, consumer_id=4)
        c.expect_messages(1)
        c.flow(1, consumer_id=4)
        c.expect_messages(1)
        c.flow(5, consumer_id=4)
        c.expect_quiet()
        # The first one, below half of its own part, goes on while the broker is at its limit.
        c.flow(1, consumer_id=0)
        c.ack(*held[0][:8], consumer_id=0, receipt=False)
        c.expect_quiet()
        c.ack(held[0][8], consumer_id=0, receipt=False)
        assert c.expect("message").command.consumer_id == 0
        # Below half of the broker's limit everybody goes on.
        c.ack(*held[1], consumer_id=1, receipt=False)
        c.ack(*held[2][:4], consumer_id=2, receipt=False)
        c.expect_quiet()
        c.ack(*held[2][4:], consumer_id=2, receipt=False)
        assert {frame.command.consumer_id for frame in c.expect_messages(5)} == {4}
        c.expect_quiet()


def publish_and_take(c: Line, producer_id: int, count: int, expected: int = 10) -> list[tuple[int, int]]:
    """Publish and take what the consumer of the same number gets; returns the positions of that."""
    c.send_bytes(b"".join(payload_frame(producer_id, n, b"x") for n in range(count)))
    frames = [c.receive() for _ in range(count + expected)]
    return [frame.position for frame in frames if frame.name == "message"]


def test_the_limits_are_not_for_ordered_types(endpoint: Endpoint, topic: str) -> None:
    with line(endpoint) as c:
        c.open_producer(topic)
        c.subscribe(topic)
        c.flow(100)
        c.publish(*numbered(60))
        assert payloads(c.expect_messages(60)) == numbered(60)
