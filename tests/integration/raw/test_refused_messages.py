"""After a refused message nothing of its producer is stored until the producer is opened anew."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from magnetar.broker.topics.publish.refused_producers import FAILS_AT, FIRST_DELAY_S
from magnetar.common.wire import pulsar_pb2 as pb

from tests.integration.admin_calls import set_policy
from tests.integration.counters import counter
from tests.integration.harness import Endpoint
from tests.integration.raw.transcript import (
    Frame,
    Line,
    batch_payload,
    line,
    numbered,
    payload_frame,
    payloads,
)

BYTES_MAX = 1_000
BIG = bytes(BYTES_MAX + 1)

pytestmark = pytest.mark.usefixtures("our_contract")


def errors_of(frames: list[Frame]) -> list[tuple[str, int]]:
    """Codes and sequence ids of SendErrors, and names of what else came."""
    return [
        (pb.ServerError.Name(frame.command.error), frame.command.sequence_id)
        if frame.name == "send_error"
        else (frame.name, frame.command.producer_id)
        for frame in frames
    ]


def stored(endpoint: Endpoint, topic: str, count: int) -> list[bytes]:
    """The messages of a topic, which are so many and no more."""
    with line(endpoint) as c:
        c.subscribe(topic, "look", durable=False)
        c.flow(1_000)
        messages = payloads(c.expect_messages(count))
        c.expect_quiet()
        return messages


def send(c: Line, *messages: bytes, first: int = 0, producer_id: int = 1) -> None:
    c.send_bytes(b"".join(payload_frame(producer_id, first + n, each) for n, each in enumerate(messages)))


@pytest.fixture
def limited(endpoint: Endpoint, topic: str) -> str:
    """A topic with a limit on the size of messages."""
    with line(endpoint) as c:
        c.open_producer(topic)
    set_policy(endpoint, topic, "maxMessageSize", BYTES_MAX)
    return topic


@contextmanager
def client(endpoint: Endpoint, client_version: str) -> Iterator[Line]:
    """A connected line that says what it is."""
    c = Line(endpoint)
    try:
        c.connect(client_version=client_version)
        yield c
    finally:
        c.close()


def test_nothing_behind_a_refused_message_is_stored_however_often_all_is_sent_again(
    endpoint: Endpoint, limited: str
) -> None:
    ignored = counter(endpoint, "magnetar_ignored_messages_total")
    closed = counter(endpoint, "magnetar_refused_producers_total", cause="message")
    for _ in range(3):
        with line(endpoint) as c:
            c.open_producer(limited, producer_name="p")
            send(c, BIG, b"small")
            c.expect("send_error", sequence_id=0)
            c.expect("close_producer", producer_id=1)
            send(c, b"late", first=2)
            c.expect_quiet()
    with line(endpoint) as c:
        c.open_producer(limited, producer_name="p")
        c.publish(b"small", first=1)
    assert stored(endpoint, limited, 1) == [b"small"]
    assert counter(endpoint, "magnetar_ignored_messages_total") >= ignored + 3
    assert counter(endpoint, "magnetar_refused_producers_total", cause="message") == closed + 3


def test_a_refused_message_is_answered_behind_those_before_it_and_then_the_producer_is_closed(
    endpoint: Endpoint, limited: str
) -> None:
    with line(endpoint) as c:
        c.open_producer(limited)
        send(c, *numbered(50), BIG, BIG, b"behind", BIG)
        for number in range(50):
            c.expect("send_receipt", sequence_id=number)
        last = [c.receive() for _ in range(3)]
        assert errors_of(last) == [("NotAllowedError", 50), ("NotAllowedError", 51), ("close_producer", 1)]
        c.expect_quiet()
        c.open_producer(limited, epoch=1)
        c.publish(b"behind", first=52)
    assert stored(endpoint, limited, 51) == [*numbered(50), b"behind"]


def test_a_producer_opened_anew_at_once_hears_of_its_former_self_first(
    endpoint: Endpoint, limited: str
) -> None:
    with line(endpoint) as c:
        c.open_producer(limited)
        send(c, b"0", BIG, b"2")
        again = c.ask_producer(limited, epoch=1)
        names = [c.receive().name for _ in range(3)]
        assert names == ["send_receipt", "send_error", "close_producer"]
        c.expect("producer_success", request_id=again)
        c.publish(b"2", first=2)
        c.expect_quiet()
    assert stored(endpoint, limited, 2) == [b"0", b"2"]


def test_others_on_the_connection_and_on_the_topic_notice_nothing(endpoint: Endpoint, limited: str) -> None:
    with line(endpoint) as c, line(endpoint) as other:
        other.open_producer(limited, producer_name="elsewhere")
        c.open_producer(limited, 1, producer_name="a")
        c.open_producer(limited, 2, producer_name="b")
        beside = b"".join(payload_frame(2, n, each) for n, each in enumerate(numbered(20)))
        c.send_bytes(beside + payload_frame(1, 0, BIG) + payload_frame(2, 20, b"20"))
        frames = [c.receive() for _ in range(23)]
        receipts = [frame.command.sequence_id for frame in frames if frame.name == "send_receipt"]
        assert receipts == [*range(21)]
        rest = [frame for frame in frames if frame.name != "send_receipt"]
        assert errors_of(rest) == [("NotAllowedError", 0), ("close_producer", 1)]
        other.publish(b"elsewhere")
    assert stored(endpoint, limited, 22) == [*numbered(21), b"elsewhere"]


@pytest.mark.parametrize(
    ("version", "heard"),
    [
        ("Pulsar-CPP-v4.2.0", [("ChecksumError", 1), ("close_producer", 1)]),
        ("Pulsar-Java-v4.0.7", [("NotAllowedError", 1), ("close_producer", 1)]),
        ("pulsar-rs-v6.9.1", [("NotAllowedError", 1), ("close_producer", 1)]),
        ("anything", [("NotAllowedError", 1), ("close_producer", 1)]),
    ],
)
def test_each_client_hears_what_makes_it_fail_one_message(
    endpoint: Endpoint, limited: str, version: str, heard: list[tuple[str, int]]
) -> None:
    with client(endpoint, version) as c:
        c.open_producer(limited)
        send(c, b"0", BIG, b"2")
        c.expect("send_receipt", sequence_id=0)
        assert errors_of([c.receive(), c.receive()]) == heard
        c.open_producer(limited, epoch=1)
        c.publish(b"2", first=2)


def test_a_client_that_cannot_fail_one_message_fails_all_when_it_opens_the_producer_anew(
    endpoint: Endpoint, limited: str
) -> None:
    with client(endpoint, "Pulsar-Go-v0.19.0") as c:
        name = c.open_producer(limited).command.producer_name
        send(c, b"0", BIG, b"2")
        c.expect("send_receipt", sequence_id=0)
        c.expect("close_producer", producer_id=1)
        again = c.ask_producer(limited, producer_name=name, epoch=1)
        assert "exceeds the topic's maximum of 1000" in c.expect_error(
            again, "ProducerBlockedQuotaExceededException"
        )
        c.open_producer(limited, producer_name=name, epoch=2)
        c.publish(b"3", first=3)
    assert stored(endpoint, limited, 2) == [b"0", b"3"]


@pytest.mark.full
def test_a_client_that_sends_a_refused_message_again_and_again_is_slowed_down_and_then_told(
    endpoint: Endpoint, limited: str
) -> None:
    began = time.monotonic()
    for _ in range(FAILS_AT):
        with line(endpoint) as c:
            c.open_producer(limited, producer_name="again")
            send(c, BIG, b"small")
            c.expect("send_error", sequence_id=0)
    assert time.monotonic() - began >= FIRST_DELAY_S + 2 * FIRST_DELAY_S
    with line(endpoint) as c:
        c.open_producer(limited, 2, producer_name="another")
        request_id = c.ask_producer(limited, producer_name="again")
        assert f"{FAILS_AT} times in a row" in c.expect_error(
            request_id, "ProducerBlockedQuotaExceededException"
        )
        c.open_producer(limited, producer_name="again")
        c.publish(b"small", first=1)
    assert stored(endpoint, limited, 1) == [b"small"]


def test_a_producer_that_is_held_can_be_closed_meanwhile(endpoint: Endpoint, limited: str) -> None:
    for _ in range(2):
        with line(endpoint) as c:
            c.open_producer(limited, producer_name="p")
            send(c, BIG)
            c.expect("send_error")
    with line(endpoint) as c:
        c.ask_producer(limited, producer_name="p")
        c.expect("success", request_id=c.request("close_producer", producer_id=1))
        c.expect_quiet(2 * FIRST_DELAY_S)


@pytest.mark.parametrize("domain", ["persistent", "non-persistent"])
def test_a_delay_over_the_cap_is_refused_in_the_same_way(endpoint: Endpoint, topic: str, domain: str) -> None:
    topic = topic.replace("persistent", domain, 1)
    with line(endpoint) as c, line(endpoint) as reader:
        c.open_producer(topic)
        reader.subscribe(topic)
        reader.flow(100)
        cap = {"active": True, "tickTime": 1000, "maxDeliveryDelayInMillis": 1000}
        set_policy(endpoint, topic, "delayedDelivery", cap)
        late = metadata(0, deliver_at_time=int(time.time() * 1000) + 3_600_000)
        c.send_bytes(payload_frame(1, 0, b"late", late) + payload_frame(1, 1, b"behind"))
        assert errors_of([c.receive(), c.receive()]) == [("NotAllowedError", 0), ("close_producer", 1)]
        c.open_producer(topic, epoch=1)
        c.publish(b"behind", first=1)
        assert reader.expect("message").payload == b"behind"
        reader.expect_quiet()


def test_deduplication_does_not_change_the_rule(endpoint: Endpoint, limited: str) -> None:
    set_policy(endpoint, limited, "deduplicationEnabled", True)
    with line(endpoint) as c:
        c.open_producer(limited, producer_name="p")
        send(c, b"0", b"0", BIG, b"2")
        c.send_bytes(payload_frame(1, 3, b"3"))
        names = [c.receive().name for _ in range(4)]
        assert names == ["send_receipt", "send_receipt", "send_error", "close_producer"]
        assert c.open_producer(limited, producer_name="p", epoch=1).command.last_sequence_id == 1
        c.publish(b"2", b"3", first=3)
    assert stored(endpoint, limited, 4) == [b"0", b"0", b"2", b"3"]


def test_a_damaged_message_is_not_overtaken_by_those_behind_it(endpoint: Endpoint, topic: str) -> None:
    with line(endpoint) as c:
        c.open_producer(topic)
        damaged = payload_frame(1, 1, b"1", checksum_xor=1)
        c.send_bytes(payload_frame(1, 0, b"0") + damaged + payload_frame(1, 2, b"2"))
        c.expect("send_receipt", sequence_id=0)
        assert errors_of([c.receive(), c.receive()]) == [("ChecksumError", 1), ("close_producer", 1)]
        c.open_producer(topic, epoch=1)
        c.publish(b"1", b"2", first=1)
    assert stored(endpoint, topic, 3) == numbered(3)


def test_a_refused_batch_is_named_by_its_last_id(endpoint: Endpoint, limited: str) -> None:
    batch = batch_payload([bytes(BYTES_MAX // 4)] * 5)
    said = metadata(3, num_messages_in_batch=5, highest_sequence_id=7)
    with line(endpoint) as c:
        c.open_producer(limited)
        c.send_bytes(payload_frame(1, 3, batch, said, num_messages=5, highest_sequence_id=7))
        c.expect("send_error", sequence_id=7)


def metadata(sequence_id: int, **fields: Any) -> pb.MessageMetadata:
    now_ms = int(time.time() * 1000)
    return pb.MessageMetadata(producer_name="raw", sequence_id=sequence_id, publish_time=now_ms, **fields)
