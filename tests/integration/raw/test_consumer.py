"""Consumers on the wire: permits to the letter, who may subscribe, and who gets what."""

from __future__ import annotations

import time

import pytest

from tests.integration.harness import Endpoint
from tests.integration.raw.transcript import (
    batch_messages,
    line,
    message_id,
    numbered,
    payload_frame,
    payloads,
)


def test_nothing_is_pushed_without_permits(endpoint: Endpoint, topic: str) -> None:
    with line(endpoint) as c:
        c.open_producer(topic)
        c.subscribe(topic)
        c.publish(*numbered(5))
        c.expect_quiet()
        c.flow(1)
        assert c.expect("message").payload == b"0"
        c.expect_quiet()


@pytest.mark.parametrize("kind", ["Exclusive", "Shared"])
def test_permits_are_respected_exactly(endpoint: Endpoint, topic: str, kind: str) -> None:
    with line(endpoint) as c:
        c.open_producer(topic)
        c.subscribe(topic, subType=kind)
        c.publish(*numbered(40))
        seen = 0
        for permits in (3, 1, 10, 7):
            c.flow(permits)
            assert payloads(c.expect_messages(permits)) == numbered(permits, seen)
            c.expect_quiet()
            seen += permits


def test_permits_add_up(endpoint: Endpoint, topic: str) -> None:
    with line(endpoint) as c:
        c.open_producer(topic)
        c.subscribe(topic)
        c.flow(2)
        c.flow(3)
        c.publish(*numbered(10))
        assert payloads(c.expect_messages(5)) == numbered(5)
        c.expect_quiet()


@pytest.mark.parametrize("kind", ["Exclusive", "Shared"])
@pytest.mark.usefixtures("our_contract")
def test_a_batch_costs_a_permit_for_each_message_and_is_never_split(
    endpoint: Endpoint, topic: str, kind: str
) -> None:
    """Apache Pulsar 4.0 goes further below zero: what one read brought is sent as a whole."""
    with line(endpoint) as c:
        c.open_producer(topic)
        c.subscribe(topic, subType=kind)
        for first in (0, 10, 20):
            c.publish_batch(numbered(10, first), first=first)
        c.flow(11)  # 10 for the first batch, 1 left sends the second: 9 below zero now
        for first in (0, 10):
            assert batch_messages(c.expect("message").payload) == numbered(10, first)
        c.expect_quiet()
        c.flow(9)
        c.expect_quiet()
        c.flow(1)
        assert batch_messages(c.expect("message").payload) == numbered(10, 20)


def test_a_flow_of_zero_closes_the_connection(endpoint: Endpoint, topic: str) -> None:
    with line(endpoint) as c:
        c.subscribe(topic)
        c.flow(0)
        c.expect_closed()


def test_a_flow_or_ack_of_an_unknown_consumer_is_ignored(endpoint: Endpoint) -> None:
    with line(endpoint) as c:
        c.flow(10, consumer_id=77)
        c.ack((1, 1), consumer_id=77, receipt=False)
        c.send("redeliverUnacknowledgedMessages", consumer_id=77)
        c.expect_quiet()


def test_a_second_exclusive_consumer_is_refused_when_the_first_one_lives(
    endpoint: Endpoint, topic: str
) -> None:
    with line(endpoint) as holder, line(endpoint) as c:
        holder.subscribe(topic)
        request_id = c.ask_subscribe(topic)
        holder.answer_pings = False
        holder.expect("ping")
        holder.send("pong")
        c.expect_error(request_id, "ConsumerBusy")
        holder.send("ping")
        holder.expect("pong")


def test_a_dead_exclusive_holder_gives_way(endpoint: Endpoint, topic: str) -> None:
    with line(endpoint) as ghost, line(endpoint) as c:
        ghost.subscribe(topic)
        ghost.answer_pings = False
        c.expect("success", request_id=c.ask_subscribe(topic))
        ghost.expect("ping")
        ghost.expect_closed()
        c.open_producer(topic)
        c.flow(1)
        c.publish(b"for the living")
        assert c.expect("message").payload == b"for the living"


def test_another_subscription_type_is_refused_while_consumers_are_connected(
    endpoint: Endpoint, topic: str
) -> None:
    with line(endpoint) as c, line(endpoint) as other:
        c.subscribe(topic, subType="Shared")
        assert "different type" in other.expect_error(other.ask_subscribe(topic), "ConsumerBusy")
        c.expect("success", request_id=c.request("close_consumer", consumer_id=1))
        other.subscribe(topic)


def test_a_subscription_without_name_is_refused(endpoint: Endpoint, topic: str) -> None:
    with line(endpoint) as c:
        request_id = c.ask_subscribe(topic, subscription="")
        frame = c.expect("error", request_id=request_id)
        assert frame.command.message


def test_a_durable_and_a_non_durable_subscription_do_not_share_a_name(endpoint: Endpoint, topic: str) -> None:
    with line(endpoint) as c:
        c.subscribe(topic, "durable", 1)
        c.expect("success", request_id=c.request("close_consumer", consumer_id=1))
        request_id = c.ask_subscribe(topic, "durable", 2, durable=False)
        reason = "Durable subscription with the same name already exists."
        assert c.expect_error(request_id, "NotAllowedError") == reason
        c.subscribe(topic, "volatile", 3, durable=False)
        reason = "NonDurable subscription with the same name already exists."
        assert c.expect_error(c.ask_subscribe(topic, "volatile", 4), "NotAllowedError") == reason
        c.expect("success", request_id=c.request("close_consumer", consumer_id=3))
        c.subscribe(topic, "volatile", 4)


def test_a_non_durable_subscription_starts_at_its_message_id(endpoint: Endpoint, topic: str) -> None:
    with line(endpoint) as c:
        c.open_producer(topic)
        c.subscribe(topic, "keeper", 1)
        positions = c.publish(*numbered(10))
        c.subscribe(topic, "reader", 2, durable=False, start_message_id=message_id(positions[6]))
        c.flow(100, consumer_id=2)
        assert payloads(c.expect_messages(4)) == numbered(4, 6)
        c.expect_quiet()


def test_a_non_durable_subscription_is_forgotten_with_its_consumer(endpoint: Endpoint, topic: str) -> None:
    with line(endpoint) as c:
        c.open_producer(topic)
        c.subscribe(topic, "keeper", 1)
        for _ in range(2):
            c.subscribe(topic, "reader", 2, durable=False)
            c.expect("success", request_id=c.request("close_consumer", consumer_id=2))
            c.publish(*numbered(3))
        c.subscribe(topic, "reader", 2, durable=False, initialPosition="Latest")
        c.flow(100, consumer_id=2)
        c.expect_quiet()
        c.publish(b"new")
        assert c.expect("message", consumer_id=2).payload == b"new"


def test_closing_a_consumer_twice_is_harmless(endpoint: Endpoint, topic: str) -> None:
    with line(endpoint) as c:
        c.subscribe(topic)
        for _ in range(2):
            c.expect("success", request_id=c.request("close_consumer", consumer_id=1))


def test_the_same_consumer_id_subscribes_again_after_its_close(endpoint: Endpoint, topic: str) -> None:
    with line(endpoint) as c:
        c.open_producer(topic)
        c.subscribe(topic)
        c.publish(*numbered(3))
        c.flow(2)
        c.expect_messages(2)
        c.expect("success", request_id=c.request("close_consumer", consumer_id=1))
        c.subscribe(topic)
        c.flow(10)
        assert payloads(c.expect_messages(3)) == numbered(3)


def test_shared_consumers_each_get_their_permits_worth(endpoint: Endpoint, topic: str) -> None:
    with line(endpoint) as one, line(endpoint) as two:
        one.subscribe(topic, subType="Shared")
        two.subscribe(topic, subType="Shared")
        one.open_producer(topic)
        one.publish(*numbered(30))
        one.flow(10)
        two.flow(20)
        got = payloads(one.expect_messages(10)) + payloads(two.expect_messages(20))
        assert sorted(got) == sorted(numbered(30))
        one.expect_quiet()
        two.expect_quiet()


def test_lower_priority_gets_messages_only_when_higher_has_no_permits(endpoint: Endpoint, topic: str) -> None:
    with line(endpoint) as first, line(endpoint) as second:
        first.subscribe(topic, subType="Shared", priority_level=0)
        second.subscribe(topic, subType="Shared", priority_level=1)
        first.open_producer(topic)
        second.flow(100)
        first.flow(10)
        first.publish(b"settle")
        assert first.expect("message").payload == b"settle"
        first.publish(*numbered(20), first=1)
        assert payloads(first.expect_messages(9)) == numbered(9)
        assert payloads(second.expect_messages(11)) == numbered(11, 9)


def test_messages_of_a_closed_consumer_go_to_the_others_oldest_first_uncounted(
    endpoint: Endpoint, topic: str
) -> None:
    with line(endpoint) as stayer:
        stayer.open_producer(topic)
        with line(endpoint) as leaver:
            leaver.subscribe(topic, subType="Shared")
            stayer.subscribe(topic, subType="Shared")
            leaver.flow(5)
            stayer.publish(*numbered(8))
            leaver.expect_messages(5)
        stayer.flow(100)
        got = stayer.expect_messages(8)
        assert payloads(got) == numbered(8)
        assert {frame.command.redelivery_count for frame in got} == {0}


def test_a_consumer_of_a_closed_connection_leaves_its_place(endpoint: Endpoint, topic: str) -> None:
    with line(endpoint) as first:
        first.subscribe(topic)
    deadline = time.monotonic() + 30
    with line(endpoint) as c:
        while True:
            c.ask_subscribe(topic)
            answer = c.receive()
            if answer.name == "success":
                break
            assert time.monotonic() < deadline, f"still busy: {answer.command}"
            time.sleep(0.05)


def test_stalled_consumer_delays_no_other_consumer(endpoint: Endpoint, topic: str) -> None:
    """It grants permits for far more than its socket takes, and never reads."""
    with line(endpoint) as stalled, line(endpoint) as c:
        stalled.subscribe(topic, "stalled")
        c.subscribe(topic, "moving")
        c.open_producer(topic)
        stalled.flow(100_000)
        c.flow(1_000)
        big = b"x" * 500_000
        for n in range(40):
            c.send_bytes(payload_frame(1, n, big))
            assert {c.receive().name, c.receive().name} == {"send_receipt", "message"}
