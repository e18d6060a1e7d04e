"""Producer access modes on the wire: who gets a topic, who waits, who is fenced, and what epoch says so."""

from __future__ import annotations

from typing import Any

import pytest

from tests.integration.harness import Endpoint, StandaloneServer
from tests.integration.raw.transcript import Frame, Line, line, payload_frame

EXCLUSIVE: dict[str, Any] = {"producer_access_mode": "Exclusive"}
FENCING: dict[str, Any] = {"producer_access_mode": "ExclusiveWithFencing"}
WAITING: dict[str, Any] = {"producer_access_mode": "WaitForExclusive"}


def ask(c: Line, topic: str, producer_id: int = 1, **fields: Any) -> int:
    """Producer, leaving the answer to the caller."""
    return c.ask_producer(topic, producer_id, **fields)


def refused(c: Line, topic: str, error: str, producer_id: int = 9, **fields: Any) -> None:
    c.expect_error(ask(c, topic, producer_id, **fields), error)


def close(c: Line, producer_id: int = 1) -> None:
    c.expect("success", request_id=c.request("close_producer", producer_id=producer_id))


def queued(c: Line, topic: str, producer_id: int = 1, **fields: Any) -> int:
    request_id = ask(c, topic, producer_id, **{**WAITING, **fields})
    c.expect("producer_success", request_id=request_id, producer_ready=False)
    return request_id


def epoch_of(frame: Frame) -> int:
    assert frame.command.HasField("topic_epoch")
    return int(frame.command.topic_epoch)


@pytest.fixture(params=["persistent", "non-persistent"])
def any_topic(request: pytest.FixtureRequest, topic: str, volatile_topic: str) -> str:
    return topic if request.param == "persistent" else volatile_topic


def test_an_exclusive_producer_keeps_all_others_out(endpoint: Endpoint, any_topic: str) -> None:
    with line(endpoint) as holder, line(endpoint) as c:
        first = epoch_of(holder.open_producer(any_topic, **EXCLUSIVE))
        refused(c, any_topic, "ProducerBusy")
        refused(c, any_topic, "ProducerFenced", **EXCLUSIVE)
        holder.publish(b"alone")
        close(holder)
        shared = c.open_producer(any_topic, 2)
        assert epoch_of(shared) == first, "it does not go up for a shared one"
        refused(holder, any_topic, "ProducerFenced", **EXCLUSIVE)
        close(c, 2)
        assert epoch_of(holder.open_producer(any_topic, 3, **EXCLUSIVE)) == first + 1


def test_topic_without_an_exclusive_producer_has_no_epoch(endpoint: Endpoint, topic: str) -> None:
    with line(endpoint) as c:
        assert not c.open_producer(topic).command.HasField("topic_epoch")


def test_fencing_closes_those_who_are_there_and_refuses_those_who_wait(
    endpoint: Endpoint, any_topic: str
) -> None:
    with line(endpoint) as shared, line(endpoint) as waits, line(endpoint) as c:
        shared.open_producer(any_topic)
        request_id = queued(waits, any_topic)
        c.open_producer(any_topic, **FENCING)
        shared.expect("close_producer", producer_id=1)
        waits.expect_error(request_id, "ProducerFenced")
        refused(shared, any_topic, "ProducerBusy")
        c.publish(b"mine")


@pytest.mark.usefixtures("our_contract")
def test_messages_of_a_fenced_producer_are_not_stored(endpoint: Endpoint, topic: str) -> None:
    """Apache Pulsar 4.0 hangs up on it; here its other producers live on."""
    with line(endpoint) as old, line(endpoint) as c:
        old.open_producer(topic, **EXCLUSIVE)
        old.publish(b"before")
        c.open_producer(topic, **FENCING)
        old.send_bytes(payload_frame(1, 1, b"behind the epoch"))
        c.publish(b"after")
        old.expect("close_producer", producer_id=1)
        old.expect_quiet()
        c.subscribe(topic)
        c.flow(10)
        assert [frame.payload for frame in c.expect_messages(2)] == [b"before", b"after"]
        c.expect_quiet()


def test_waiting_producers_are_served_in_order(endpoint: Endpoint, any_topic: str) -> None:
    with line(endpoint) as holder, line(endpoint) as c:
        first = epoch_of(holder.open_producer(any_topic, **EXCLUSIVE))
        requests = [queued(c, any_topic, producer_id) for producer_id in (1, 2, 3)]
        refused(holder, any_topic, "ProducerBusy")
        close(c, 2)
        c.expect_quiet()
        close(holder)
        ready = c.expect("producer_success", request_id=requests[0], producer_ready=True)
        assert epoch_of(ready) == first + 1
        c.expect_quiet()
        c.publish(b"promoted")
        c.request("close_producer", producer_id=1)
        answers = {frame.name: frame for frame in (c.receive(), c.receive())}
        ready = answers.pop("producer_success")
        assert (ready.command.request_id, ready.command.producer_ready) == (requests[2], True)
        assert epoch_of(ready) == first + 2
        assert set(answers) == {"success"}


def test_a_free_topic_is_there_at_once_for_who_would_wait(endpoint: Endpoint, any_topic: str) -> None:
    with line(endpoint) as c:
        assert c.open_producer(any_topic, **WAITING).command.producer_ready
        c.publish(b"no wait")


def test_a_client_that_is_gone_does_not_wait(endpoint: Endpoint, any_topic: str) -> None:
    with line(endpoint) as holder, line(endpoint) as c:
        holder.open_producer(any_topic, **EXCLUSIVE)
        with line(endpoint) as gone:
            queued(gone, any_topic)
        request_id = queued(c, any_topic)
        gone_too = c.request("producer", topic=any_topic, producer_id=7)
        c.expect_error(gone_too, "ProducerBusy")
        holder.close()
        c.expect("producer_success", request_id=request_id, producer_ready=True)
        c.publish(b"the next")


def test_a_send_before_the_promotion_closes_the_connection(endpoint: Endpoint, topic: str) -> None:
    with line(endpoint) as holder, line(endpoint) as c:
        holder.open_producer(topic, **EXCLUSIVE)
        queued(c, topic)
        c.send_bytes(payload_frame(1, 0, b"too early"))
        c.expect_closed()
        holder.publish(b"not disturbed")


def test_an_epoch_that_passed_is_fenced_for_ever_and_the_latest_takes_the_topic_back(
    endpoint: Endpoint, any_topic: str
) -> None:
    with line(endpoint) as c:
        first = epoch_of(c.open_producer(any_topic, **EXCLUSIVE))
        close(c)
        assert epoch_of(c.open_producer(any_topic, 2, topic_epoch=first, **EXCLUSIVE)) == first
        close(c, 2)
        assert epoch_of(c.open_producer(any_topic, 3, **EXCLUSIVE)) == first + 1
        close(c, 3)
        for mode in (EXCLUSIVE, WAITING, FENCING):
            refused(c, any_topic, "ProducerFenced", topic_epoch=first, **mode)
        assert epoch_of(c.open_producer(any_topic, 4, topic_epoch=first + 5, **FENCING)) == first + 5
        close(c, 4)
        refused(c, any_topic, "NotAllowedError", topic_epoch=2**64 - 1, **EXCLUSIVE)


@pytest.mark.parametrize("crash", [False, True])
def test_the_epoch_survives_a_restart(server: StandaloneServer, topic: str, crash: bool) -> None:
    with line(server.endpoint) as c:
        epochs = []
        for producer_id in (1, 2):
            epochs.append(epoch_of(c.open_producer(topic, producer_id, **EXCLUSIVE)))
            close(c, producer_id)
    if crash:
        server.kill_and_start()
    else:
        server.restart()
    with line(server.endpoint) as c:
        refused(c, topic, "ProducerFenced", topic_epoch=epochs[0], **EXCLUSIVE)
        assert epoch_of(c.open_producer(topic, 3, topic_epoch=epochs[1], **EXCLUSIVE)) == epochs[1]
        close(c, 3)
        assert epoch_of(c.open_producer(topic, 4, **EXCLUSIVE)) == epochs[1] + 1


def test_a_producer_that_is_closed_while_it_is_created_never_has_the_topic(
    endpoint: Endpoint, topic: str
) -> None:
    with line(endpoint) as c:
        ask(c, topic, 1, **FENCING)
        close(c)
        assert epoch_of(c.open_producer(topic, 2, **EXCLUSIVE)) == 0
