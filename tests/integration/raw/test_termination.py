"""Termination on the wire: what producers are answered, and when consumers hear of the end of the topic."""

from __future__ import annotations

import pytest

from tests.integration.admin_calls import admin, path_of
from tests.integration.harness import Endpoint, StandaloneServer
from tests.integration.raw.transcript import Line, line, numbered, payload_frame


def terminate(endpoint: Endpoint, topic: str) -> tuple[int, int]:
    """Returns the position of the last message."""
    status, answer = admin(endpoint, "POST", path_of(topic, "terminate"))
    assert status == 200, answer
    return answer["ledgerId"], answer["entryId"]


def refuse_producer(c: Line, topic: str) -> None:
    c.expect_error(c.ask_producer(topic, 9), "TopicTerminatedError")


def test_producers_are_disconnected_and_refused_for_ever(server: StandaloneServer, topic: str) -> None:
    with line(server.endpoint) as c:
        c.open_producer(topic)
        last = c.publish(*numbered(5))[-1]
        assert terminate(server.endpoint, topic) == last
        c.expect("close_producer", producer_id=1)
        c.send_bytes(payload_frame(1, 5, b"on its way"))
        c.expect_quiet()
        refuse_producer(c, topic)
        assert terminate(server.endpoint, topic) == last
    for start in (server.restart, server.kill_and_start):
        start()
        with line(server.endpoint) as c:
            refuse_producer(c, topic)
            assert terminate(server.endpoint, topic) == last
            c.subscribe(topic, "after")
            c.flow(100)
            c.expect_messages(5)
            c.expect_quiet()


@pytest.mark.parametrize("sub_type", ["Exclusive", "Shared", "Failover"])
def test_a_consumer_drains_the_topic_and_then_hears_of_its_end(
    endpoint: Endpoint, topic: str, sub_type: str
) -> None:
    with line(endpoint) as c:
        c.subscribe(topic, subType=sub_type)
        c.open_producer(topic)
        positions = c.publish(*numbered(3))
        terminate(endpoint, topic)
        c.expect("close_producer")
        c.flow(100)
        frames = [frame for frame in (c.receive() for _ in range(3)) if frame.name == "message"]
        while len(frames) < 3:
            frames.append(c.receive())
        c.ack(positions[0])
        c.ack(positions[1])
        c.expect_quiet()
        c.ack(positions[2], receipt=False)
        c.expect("reachedEndOfTopic", consumer_id=1)
        c.expect_quiet()


def test_a_consumer_that_has_everything_hears_of_the_end_at_once(endpoint: Endpoint, topic: str) -> None:
    with line(endpoint) as c, line(endpoint) as late:
        c.subscribe(topic)
        c.open_producer(topic)
        position = c.publish(b"one")[0]
        c.flow(10)
        c.expect("message")
        c.ack(position, cumulative=True)
        terminate(endpoint, topic)
        assert {c.receive().name, c.receive().name} == {"close_producer", "reachedEndOfTopic"}
        c.expect("success", request_id=c.request("close_consumer", consumer_id=1))
        late.subscribe(topic)
        late.expect("reachedEndOfTopic", consumer_id=1)


@pytest.mark.parametrize("version", [8, 9])
def test_a_client_hears_of_the_end_if_its_version_has_the_command(
    endpoint: Endpoint, topic: str, version: int
) -> None:
    with line(endpoint) as c, line(endpoint, connected=False) as old:
        c.open_producer(topic)
        terminate(endpoint, topic)
        old.connect(protocol_version=version)
        old.subscribe(topic)
        if version == 9:
            old.expect("reachedEndOfTopic", consumer_id=1)
        old.expect_quiet()


@pytest.mark.parametrize("version", [4, 5])
def test_a_client_that_knows_no_close_loses_its_connection_in_its_place(
    endpoint: Endpoint, topic: str, version: int
) -> None:
    with line(endpoint, connected=False) as old, line(endpoint) as c:
        old.connect(protocol_version=version)
        old.open_producer(topic)
        old.subscribe(topic, subType="Shared")
        old.subscribe(topic, consumer_id=2, subType="Shared")
        c.subscribe(topic, consumer_id=3, subType="Shared")
        c.request("seek", consumer_id=3, message_publish_time=1)
        if version == 5:
            closed = {old.expect("close_consumer").command.consumer_id for _ in range(2)}
            assert closed == {1, 2}
            old.expect_quiet()
        else:
            assert [frame.name for frame in old.expect_closed()] == []
        c.expect("close_consumer", consumer_id=3)
        c.expect("success")


def test_a_non_persistent_topic_is_not_terminated(endpoint: Endpoint, volatile_topic: str) -> None:
    with line(endpoint) as c:
        c.open_producer(volatile_topic)
        status, _ = admin(endpoint, "POST", path_of(volatile_topic, "terminate"))
        assert status in (405, 406)
        c.publish(b"goes on")
