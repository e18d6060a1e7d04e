"""Consumers on the wire: permits to the letter, redelivery, closing, seeking and what a consumer may ask."""

from __future__ import annotations

import time

import pytest
from magnetar.common.wire import pulsar_pb2 as pb

from tests.integration.harness import Endpoint
from tests.integration.raw.transcript import Frame, Line, batch_messages, line, payload_frame


def payloads(frames: list[Frame]) -> list[bytes]:
    return [frame.payload for frame in frames]


def numbered(count: int, first: int = 0) -> list[bytes]:
    return [b"%d" % n for n in range(first, first + count)]


def message_id(position: tuple[int, int]) -> dict[str, int]:
    return {"ledgerId": position[0], "entryId": position[1]}


# --- permits


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


# --- subscribing


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


def test_another_type_is_refused_while_somebody_is_connected(endpoint: Endpoint, topic: str) -> None:
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
        c.expect_error(request_id, "NotAllowedError")


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


# --- dispatch to several consumers


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


def test_a_lower_priority_gets_messages_only_when_nobody_better_can(endpoint: Endpoint, topic: str) -> None:
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


def test_what_a_leaver_held_goes_to_the_others_oldest_first_without_counting(
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


# --- acknowledgement


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


def test_a_cumulative_acknowledgement_on_a_shared_subscription_changes_nothing(
    endpoint: Endpoint, topic: str
) -> None:
    with line(endpoint) as c:
        c.open_producer(topic)
        c.subscribe(topic, subType="Shared")
        positions = c.publish(*numbered(3))
        c.flow(3)
        c.expect_messages(3)
        c.ack(positions[2], cumulative=True)
        c.expect("success", request_id=c.request("close_consumer", consumer_id=1))
        c.subscribe(topic, subType="Shared")
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


# --- redelivery


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


# --- seek, last message id, statistics, unsubscribe


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
        c.expect_error(request_id, "MetadataError")


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
        assert answer.consumer_mark_delete_position.ledgerId <= single[0]
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


def test_a_consumer_of_a_closed_connection_leaves_its_place(endpoint: Endpoint, topic: str) -> None:
    with line(endpoint) as first:
        first.subscribe(topic)
    deadline = time.monotonic() + 10
    with line(endpoint) as c:
        while True:
            c.ask_subscribe(topic)
            answer = c.receive()
            if answer.name == "success":
                break
            assert time.monotonic() < deadline, f"still busy: {answer.command}"
            time.sleep(0.05)


def test_a_stalled_consumer_holds_up_nobody_else(endpoint: Endpoint, topic: str) -> None:
    """It grants permits for far more than its socket takes, and never reads."""
    with line(endpoint) as stalled, line(endpoint) as c:
        stalled.subscribe(topic, "stalled")
        c.subscribe(topic, "moving")
        c.open_producer(topic)
        stalled.flow(100_000)
        c.flow(1_000)
        big = b"x" * 500_000
        for n in range(40):
            assert_next(c, n, big)


def assert_next(c: Line, n: int, payload: bytes) -> None:
    c.send_bytes(payload_frame(1, n, payload))
    assert {c.receive().name, c.receive().name} == {"send_receipt", "message"}
