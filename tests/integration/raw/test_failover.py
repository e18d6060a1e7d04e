"""Failover on the wire: who is active, who hears of it, and what the next active consumer gets."""

from __future__ import annotations

from typing import Any

from tests.integration.harness import Endpoint
from tests.integration.raw.transcript import Line, line, numbered, payloads

SERVER_SETTINGS = {"activeConsumerFailoverDelayTimeMillis": "200"}


def join(c: Line, topic: str, consumer_id: int = 1, permits: int = 100, **fields: Any) -> None:
    c.subscribe(topic, consumer_id=consumer_id, subType="Failover", **fields)
    c.flow(permits, consumer_id=consumer_id)


def expect_active(c: Line, active: bool, consumer_id: int = 1) -> None:
    c.expect("active_consumer_change", consumer_id=consumer_id, is_active=active)


def test_the_first_consumer_hears_that_it_is_active_and_gets_everything(
    endpoint: Endpoint, topic: str
) -> None:
    with line(endpoint) as c:
        c.open_producer(topic)
        join(c, topic)
        expect_active(c, True)
        c.publish(b"first")
        assert c.expect("message").payload == b"first"


def test_a_newcomer_that_does_not_become_active_hears_so_and_gets_nothing(
    endpoint: Endpoint, topic: str
) -> None:
    with line(endpoint) as active, line(endpoint) as newcomer:
        join(active, topic)
        expect_active(active, True)
        join(newcomer, topic, priority_level=1)
        expect_active(newcomer, False)
        active.open_producer(topic)
        active.send("redeliverUnacknowledgedMessages", consumer_id=1)
        active.publish(*numbered(5))
        assert payloads(active.expect_messages(5)) == numbered(5)
        newcomer.expect_quiet()


def test_a_better_newcomer_takes_over_with_everything_unacknowledged_in_order(
    endpoint: Endpoint, topic: str
) -> None:
    with line(endpoint) as first, line(endpoint) as better, line(endpoint) as producer:
        producer.open_producer(topic)
        join(first, topic, priority_level=1)
        expect_active(first, True)
        positions = producer.publish(*numbered(6))
        first.expect_messages(6)
        first.ack(positions[0], positions[3])
        join(better, topic, priority_level=0)
        expect_active(better, True)
        expect_active(first, False)
        got = better.expect_messages(4)
        assert payloads(got) == [b"1", b"2", b"4", b"5"]
        assert {frame.command.redelivery_count for frame in got} == {0}
        producer.publish(b"new", first=6)
        assert better.expect("message").payload == b"new"
        first.expect_quiet()


def test_an_acknowledgement_that_arrives_before_the_switch_counts(endpoint: Endpoint, topic: str) -> None:
    with line(endpoint) as first, line(endpoint) as better:
        first.open_producer(topic)
        join(first, topic, priority_level=1)
        expect_active(first, True)
        positions = first.publish(*numbered(5))
        first.expect_messages(5)
        join(better, topic, priority_level=0)
        first.ack(positions[3], cumulative=True)
        expect_active(better, True)
        assert better.expect("message").payload == b"4"
        better.expect_quiet()


def test_when_the_active_consumer_leaves_the_next_one_goes_on(endpoint: Endpoint, topic: str) -> None:
    with line(endpoint) as next_one:
        next_one.open_producer(topic)
        with line(endpoint) as active:
            join(active, topic)
            expect_active(active, True)
            join(next_one, topic, priority_level=1)
            expect_active(next_one, False)
            positions = next_one.publish(*numbered(5))
            active.expect_messages(5)
            active.ack(positions[1], cumulative=True)
        expect_active(next_one, True)
        assert payloads(next_one.expect_messages(3)) == numbered(3, 2)
        next_one.expect_quiet()


def test_consumers_that_start_together_cause_one_switch(endpoint: Endpoint, topic: str) -> None:
    with line(endpoint) as c:
        c.open_producer(topic)
        c.publish(*numbered(3))
        for consumer_id, level in ((1, 2), (2, 1), (3, 0)):
            join(c, topic, consumer_id, priority_level=level)
        for consumer_id in (3, 2, 1):
            expect_active(c, consumer_id == 3, consumer_id)
        got = c.expect_messages(3)
        assert payloads(got) == numbered(3)
        assert {frame.command.consumer_id for frame in got} == {3}
        c.expect_quiet()


def test_nothing_is_sent_twice_when_the_active_consumer_stays(endpoint: Endpoint, topic: str) -> None:
    """A better one came and went before the switch."""
    with line(endpoint) as c:
        c.open_producer(topic)
        join(c, topic, priority_level=1)
        expect_active(c, True)
        c.publish(*numbered(3))
        c.expect_messages(3)
        join(c, topic, 2, priority_level=0)
        c.expect("success", request_id=c.request("close_consumer", consumer_id=2))
        expect_active(c, True)
        c.publish(b"3", first=3)
        assert c.expect("message").payload == b"3"
        c.expect_quiet()


def test_only_the_active_consumer_may_ask_for_redelivery_and_then_gets_everything(
    endpoint: Endpoint, topic: str
) -> None:
    with line(endpoint) as active, line(endpoint) as other:
        active.open_producer(topic)
        join(active, topic, consumer_epoch=0)
        expect_active(active, True)
        join(other, topic, priority_level=1)
        expect_active(other, False)
        positions = active.publish(*numbered(4))
        active.expect_messages(4)
        active.ack(positions[2])
        other.send("redeliverUnacknowledgedMessages", consumer_id=1, consumer_epoch=5)
        active.expect_quiet()
        ids = [{"ledgerId": positions[1][0], "entryId": positions[1][1]}]
        active.send("redeliverUnacknowledgedMessages", consumer_id=1, message_ids=ids, consumer_epoch=1)
        got = active.expect_messages(3)
        assert payloads(got) == [b"0", b"1", b"3"]
        assert {(each.command.consumer_epoch, each.command.redelivery_count) for each in got} == {(1, 0)}
        other.expect_quiet()


def test_a_partition_chooses_by_its_number_among_the_names(endpoint: Endpoint, topic: str) -> None:
    for partition, chosen in ((0, "A"), (1, "B"), (2, "C"), (4, "B")):
        name = f"{topic}-{partition}-partition-{partition}"
        with line(endpoint) as producer, line(endpoint) as a, line(endpoint) as b, line(endpoint) as c:
            consumers = {"C": c, "A": a, "B": b}
            for consumer_name, consumer in consumers.items():
                consumer.subscribe(name, subType="Failover", consumer_name=consumer_name)
                consumer.flow(10)
            producer.open_producer(name)
            producer.publish(b"for one")
            for consumer_name, consumer in consumers.items():
                if consumer_name == chosen:
                    frames = [consumer.receive()]
                    while frames[-1].name != "message":
                        frames.append(consumer.receive())
                    assert frames[-2].command.is_active
                    assert frames[-1].payload == b"for one"


def test_a_client_of_an_old_protocol_hears_nothing(endpoint: Endpoint, topic: str) -> None:
    with line(endpoint, connected=False) as old:
        old.connect(protocol_version=11)
        old.open_producer(topic)
        join(old, topic)
        old.publish(b"first")
        assert old.expect("message").payload == b"first"


def test_another_type_is_refused_while_failover_consumers_are_connected(
    endpoint: Endpoint, topic: str
) -> None:
    with line(endpoint) as c, line(endpoint) as other:
        join(c, topic)
        for kind in ("Exclusive", "Shared"):
            assert "different type" in other.expect_error(
                other.ask_subscribe(topic, subType=kind), "ConsumerBusy"
            )


def test_on_a_non_persistent_topic_the_change_is_immediate(endpoint: Endpoint, volatile_topic: str) -> None:
    with line(endpoint) as first, line(endpoint) as better:
        first.open_producer(volatile_topic)
        join(first, volatile_topic, priority_level=1)
        expect_active(first, True)
        join(better, volatile_topic, priority_level=0)
        expect_active(better, True)
        expect_active(first, False)
        first.publish(b"for the better one")
        assert better.expect("message").payload == b"for the better one"
        better.expect("success", request_id=better.request("close_consumer", consumer_id=1))
        expect_active(first, True)
