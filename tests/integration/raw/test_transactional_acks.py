"""Acknowledgements in transactions on the wire: many at once, in batches, cumulative, repeated."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from tests.integration.harness import Endpoint, StandaloneServer
from tests.integration.raw.transaction_line import Ids, ask, begin, end, error_of
from tests.integration.raw.transcript import Frame, Line, line, message_id, numbered, payloads, simple_frame
from tests.integration.rest import Rest

SERVER_SETTINGS = {"transactionCoordinatorEnabled": "true"}

Place = tuple[int, int]


@pytest.fixture
def c(endpoint: Endpoint) -> Iterator[Line]:
    """A line that is connected to the coordinator."""
    with line(endpoint) as c:
        request_id = c.request("tcClientConnectRequest", tc_id=0)
        c.expect("tcClientConnectResponse", request_id=request_id)
        yield c


def begin_with(c: Line, topic: str) -> Ids:
    """Begins a transaction in which subscription `sub` takes part."""
    txn = begin(c)
    assert not error_of(
        ask(c, "addSubscriptionToTxn", subscription=[{"topic": topic, "subscription": "sub"}], **txn)
    )
    return txn


def consume(c: Line, topic: str, count: int, sub_type: str = "Shared") -> list[Place]:
    """Publishes and receives so many messages."""
    c.subscribe(topic, subType=sub_type)
    c.open_producer(topic)
    c.publish(*numbered(count))
    c.flow(count + 100)
    return [frame.position for frame in c.expect_messages(count)]


def acknowledge(c: Line, txn: Ids, *ids: dict[str, Any], cumulative: bool = False) -> str:
    """Acknowledges in a transaction; returns the name of the error, "" without."""
    ack_type = "Cumulative" if cumulative else "Individual"
    request_id = c.request("ack", consumer_id=1, ack_type=ack_type, message_id=ids, **txn)
    answer = c.expect("ackResponse", request_id=request_id, consumer_id=1).command
    assert {name: getattr(answer, name) for name in txn} == txn
    return error_of(answer)


def acknowledge_at_once(c: Line, txn: Ids, places: Sequence[Place]) -> list[str]:
    """Sends a command for each message in one piece of bytes; returns the error of each."""
    first = 10_000
    c.send_bytes(
        b"".join(
            simple_frame(
                "ack",
                consumer_id=1,
                ack_type="Individual",
                message_id=[message_id(place)],
                request_id=first + number,
                **txn,
            )
            for number, place in enumerate(places)
        )
    )
    found: dict[int, str] = {}
    while len(found) < len(places):
        answer = c.expect("ackResponse", consumer_id=1).command
        found[answer.request_id - first] = error_of(answer)
    return [found[number] for number in range(len(places))]


def abort(c: Line, txn: Ids, count: int) -> list[Frame]:
    """Aborts a transaction; returns the messages that come again, before the answer or after it."""
    request_id = c.request("endTxn", txn_action="ABORT", **txn)
    frames = [c.receive() for _ in range(count + 1)]
    (answer,) = [frame.command for frame in frames if frame.name == "endTxnResponse"]
    assert answer.request_id == request_id
    assert error_of(answer) == ""
    return [frame for frame in frames if frame.name == "message"]


def backlog(endpoint: Endpoint, topic: str) -> int:
    found = Rest(endpoint).get(f"/{topic.replace('://', '/')}/stats")["subscriptions"]["sub"]
    return int(found["msgBacklog"])


def test_acknowledgements_take_effect_with_the_commit(endpoint: Endpoint, topic: str, c: Line) -> None:
    places = consume(c, topic, 200)
    txn = begin_with(c, topic)
    assert acknowledge_at_once(c, txn, places[:150]) == [""] * 150
    assert backlog(endpoint, topic) == 200
    assert end(c, txn, "COMMIT") == ""
    assert backlog(endpoint, topic) == 50


def test_aborted_acknowledgements_are_delivered_again(endpoint: Endpoint, topic: str, c: Line) -> None:
    places = consume(c, topic, 6)
    txn = begin_with(c, topic)
    assert acknowledge_at_once(c, txn, places[1:4]) == [""] * 3
    c.expect_quiet()
    assert sorted(payloads(abort(c, txn, 3))) == numbered(3, 1)
    assert backlog(endpoint, topic) == 6


def test_each_command_of_many_conflicts_by_itself(endpoint: Endpoint, topic: str, c: Line) -> None:
    places = consume(c, topic, 5)
    first, second = begin_with(c, topic), begin_with(c, topic)
    assert acknowledge(c, first, message_id(places[1])) == ""
    c.ack(places[3])
    errors = acknowledge_at_once(c, second, [places[0], places[1], places[2], places[3], places[4]])
    assert errors == ["", "TransactionConflict", "", "TransactionConflict", ""]
    assert payloads(abort(c, first, 1)) == numbered(1, 1)
    assert end(c, second, "COMMIT") == ""
    assert backlog(endpoint, topic) == 1


def test_a_repetition_succeeds_and_a_finished_transaction_acknowledges_nothing(topic: str, c: Line) -> None:
    places = consume(c, topic, 3)
    txn = begin_with(c, topic)
    assert acknowledge_at_once(c, txn, [places[0], places[0], places[1]]) == [""] * 3
    assert acknowledge(c, txn, message_id(places[0]), message_id(places[1])) == ""
    assert end(c, txn, "COMMIT") == ""
    assert acknowledge_at_once(c, txn, [places[2], places[2]]) == ["NotAllowedError"] * 2


def test_parts_of_a_batch_are_acknowledged_by_several_transactions(
    endpoint: Endpoint, topic: str, c: Line
) -> None:
    c.subscribe(topic, subType="Shared")
    c.open_producer(topic)
    place = c.publish_batch(numbered(4))
    c.flow(100)
    c.expect_messages(1)
    first, second = begin_with(c, topic), begin_with(c, topic)
    part = {**message_id(place), "batch_size": 4}
    assert acknowledge(c, first, {**part, "ack_set": [0b1110]}) == ""
    assert acknowledge(c, second, {**part, "ack_set": [0b1100]}) == "TransactionConflict"
    assert acknowledge(c, second, {**part, "ack_set": [0b1011]}) == ""
    assert end(c, first, "COMMIT") == ""
    (again,) = abort(c, second, 1)
    assert list(again.command.ack_set) == [0b1110]
    last = begin_with(c, topic)
    assert acknowledge(c, last, {**part, "ack_set": [0b0001]}) == ""
    assert end(c, last, "COMMIT") == ""
    assert backlog(endpoint, topic) == 0


def test_one_transaction_at_a_time_acknowledges_cumulatively(endpoint: Endpoint, topic: str, c: Line) -> None:
    places = consume(c, topic, 6, "Exclusive")
    first, second = begin_with(c, topic), begin_with(c, topic)
    assert acknowledge(c, first, message_id(places[2]), cumulative=True) == ""
    assert acknowledge(c, second, message_id(places[4]), cumulative=True) == "TransactionConflict"
    assert acknowledge(c, first, message_id(places[1]), cumulative=True) == "TransactionConflict"
    assert acknowledge(c, first, message_id(places[3]), cumulative=True) == ""
    assert end(c, first, "COMMIT") == ""
    assert backlog(endpoint, topic) == 2
    assert acknowledge(c, second, message_id(places[4]), cumulative=True) == ""
    assert end(c, second, "ABORT") == ""
    assert backlog(endpoint, topic) == 2


def test_a_shared_subscription_has_no_cumulative_acknowledgement(topic: str, c: Line) -> None:
    places = consume(c, topic, 2)
    assert acknowledge(c, begin_with(c, topic), message_id(places[1]), cumulative=True) == "NotAllowedError"


def test_pending_acknowledgements_outlive_the_server(server: StandaloneServer, topic: str) -> None:
    with line(server.endpoint) as c:
        c.request("tcClientConnectRequest", tc_id=0)
        c.expect("tcClientConnectResponse")
        places = consume(c, topic, 7, "Exclusive")
        single, cumulative = begin_with(c, topic), begin_with(c, topic)
        assert acknowledge(c, single, message_id(places[5])) == ""
        assert acknowledge(c, cumulative, message_id(places[2]), cumulative=True) == ""
    server.kill_and_start()
    with line(server.endpoint) as c:
        c.request("tcClientConnectRequest", tc_id=0)
        c.expect("tcClientConnectResponse")
        c.subscribe(topic)
        assert backlog(server.endpoint, topic) == 7
        assert acknowledge(c, begin_with(c, topic), message_id(places[5])) == "TransactionConflict"
        assert end(c, cumulative, "COMMIT") == ""
        assert backlog(server.endpoint, topic) == 4
        assert end(c, single, "COMMIT") == ""
        assert backlog(server.endpoint, topic) == 3
