"""Acknowledgement and redelivery on the wire: receipts, ack sets of batches, and counts."""

from __future__ import annotations

import pytest

from tests.integration.harness import Endpoint
from tests.integration.raw.transcript import (
    batch_messages,
    line,
    message_id,
    numbered,
    payloads,
)


def test_acknowledgements_are_answered_only_when_asked(endpoint: Endpoint, topic: str) -> None:
    with line(endpoint) as c:
        c.open_producer(topic)
        c.subscribe(topic)
        positions = c.publish(*numbered(4))
        c.flow(4)
        c.expect_messages(4)
        c.ack(positions[0], receipt=False)
        c.expect_quiet()
        c.ack(positions[1], positions[2])
        c.ack(positions[0])  # again: a no-op
        c.ack(positions[3], cumulative=True)


def test_acknowledged_messages_do_not_return(endpoint: Endpoint, topic: str) -> None:
    with line(endpoint) as c:
        c.open_producer(topic)
        c.subscribe(topic)
        positions = c.publish(*numbered(10))
        c.flow(10)
        c.expect_messages(10)
        c.ack(positions[2], cumulative=True)
        c.ack(positions[5], positions[7])
        c.expect("success", request_id=c.request("close_consumer", consumer_id=1))
        c.subscribe(topic)
        c.flow(100)
        assert payloads(c.expect_messages(5)) == [b"3", b"4", b"6", b"8", b"9"]
        c.expect_quiet()


@pytest.mark.parametrize("kind", ["Shared", "Key_Shared"])
def test_a_cumulative_acknowledgement_on_a_shared_subscription_changes_nothing(
    endpoint: Endpoint, topic: str, kind: str
) -> None:
    with line(endpoint) as c:
        c.open_producer(topic)
        c.subscribe(topic, subType=kind)
        positions = c.publish(*numbered(3))
        c.flow(3)
        c.expect_messages(3)
        c.ack(positions[2], cumulative=True)
        c.expect("success", request_id=c.request("close_consumer", consumer_id=1))
        c.subscribe(topic, subType=kind)
        c.flow(3)
        assert payloads(c.expect_messages(3)) == numbered(3)


def words(*unacknowledged: int) -> list[int]:
    """An ack_set: signed 64-bit words, bit set = still unacknowledged."""
    bits = sum(1 << index for index in unacknowledged)
    out = []
    while bits:
        word = bits & (1 << 64) - 1
        out.append(word - (1 << 64) if word >> 63 else word)
        bits >>= 64
    return out


def test_a_partially_acknowledged_batch_returns_with_its_ack_set(endpoint: Endpoint, topic: str) -> None:
    with line(endpoint) as c:
        c.open_producer(topic)
        c.subscribe(topic)
        position = c.publish_batch(numbered(10))
        c.flow(10)
        first = c.expect("message")
        assert list(first.command.ack_set) == []
        everything = set(range(10))
        c.ack(position, ack_set=words(*(everything - {0, 4})))
        c.ack(position, ack_set=words(*(everything - {9})))  # several sets combine by AND
        c.expect("success", request_id=c.request("close_consumer", consumer_id=1))
        c.subscribe(topic)
        c.flow(1)
        again = c.expect("message")
        assert list(again.command.ack_set) == words(*(everything - {0, 4, 9}))
        assert batch_messages(again.payload) == numbered(10)


def test_only_the_messages_left_of_a_batch_cost_permits(endpoint: Endpoint, topic: str) -> None:
    with line(endpoint) as c:
        c.open_producer(topic)
        c.subscribe(topic, subType="Shared")
        position = c.publish_batch(numbered(10))
        c.flow(10)
        c.expect("message")
        c.ack(position, ack_set=words(8, 9))
        c.expect("success", request_id=c.request("close_consumer", consumer_id=1))
        c.subscribe(topic, subType="Shared")
        c.publish(b"a", b"b", b"c", first=20)
        c.flow(4)
        assert list(c.expect("message").command.ack_set) == words(8, 9)
        assert payloads(c.expect_messages(2)) == [b"a", b"b"]
        c.expect_quiet()


def test_a_batch_whose_last_messages_are_acknowledged_is_done(endpoint: Endpoint, topic: str) -> None:
    with line(endpoint) as c:
        c.open_producer(topic)
        c.subscribe(topic)
        position = c.publish_batch(numbered(3))
        c.flow(3)
        c.expect("message")
        for left in ({1, 2}, {0, 2}, {0, 1}):
            c.ack(position, ack_set=words(*left))
        c.expect("success", request_id=c.request("close_consumer", consumer_id=1))
        c.subscribe(topic)
        c.flow(3)
        c.expect_quiet()


def test_a_large_batch_needs_several_words(endpoint: Endpoint, topic: str) -> None:
    with line(endpoint) as c:
        c.open_producer(topic)
        c.subscribe(topic)
        position = c.publish_batch(numbered(200))
        c.flow(200)
        c.expect("message")
        left = set(range(200)) - {0, 63, 64, 127, 150}
        c.ack(position, ack_set=words(*left))
        c.expect("success", request_id=c.request("close_consumer", consumer_id=1))
        c.subscribe(topic)
        c.flow(1)
        assert list(c.expect("message").command.ack_set) == words(*left)


def test_redelivery_counts_rise_by_one_for_those_asked_for(endpoint: Endpoint, topic: str) -> None:
    with line(endpoint) as c:
        c.open_producer(topic)
        c.subscribe(topic, subType="Shared")
        positions = c.publish(*numbered(3))
        c.flow(100)
        assert [f.command.redelivery_count for f in c.expect_messages(3)] == [0, 0, 0]
        for count in (1, 2, 3):
            c.send("redeliverUnacknowledgedMessages", consumer_id=1, message_ids=[message_id(positions[1])])
            again = c.expect("message")
            assert (again.payload, again.command.redelivery_count) == (b"1", count)
        c.send("redeliverUnacknowledgedMessages", consumer_id=1)
        again_all = {f.payload: f.command.redelivery_count for f in c.expect_messages(3)}
        assert again_all == {b"0": 1, b"1": 4, b"2": 1}


def test_redelivery_of_what_is_not_pending_here_is_ignored(endpoint: Endpoint, topic: str) -> None:
    with line(endpoint) as c, line(endpoint) as other:
        c.open_producer(topic)
        c.subscribe(topic, subType="Shared")
        other.subscribe(topic, subType="Shared")
        positions = c.publish(*numbered(2))
        c.flow(2)
        c.expect_messages(2)
        c.ack(positions[0])
        c.flow(10)
        for asker in (c, other):
            ids = [message_id(positions[0])] + ([message_id(positions[1])] if asker is other else [])
            asker.send("redeliverUnacknowledgedMessages", consumer_id=1, message_ids=ids)
        other.flow(10)
        c.expect_quiet()
        other.expect_quiet()


def test_exclusive_redelivery_sends_everything_unacknowledged_in_order(
    endpoint: Endpoint, topic: str
) -> None:
    with line(endpoint) as c:
        c.open_producer(topic)
        c.subscribe(topic)
        positions = c.publish(*numbered(5))
        c.flow(100)
        c.expect_messages(5)
        c.ack(positions[1])
        c.send("redeliverUnacknowledgedMessages", consumer_id=1, message_ids=[message_id(positions[4])])
        assert payloads(c.expect_messages(4)) == [b"0", b"2", b"3", b"4"]
        c.expect_quiet()
