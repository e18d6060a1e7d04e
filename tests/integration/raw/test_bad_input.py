"""What clients should not send: each has its answer, nobody else notices, the topic lives; it is counted."""

from __future__ import annotations

import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import crc32c
import pytest
from magnetar.common.wire import pulsar_pb2 as pb

from tests.integration.counters import counter
from tests.integration.harness import Endpoint
from tests.integration.raw.transcript import (
    Frame,
    Line,
    batch_payload,
    line,
    message_id,
    numbered,
    payload_frame,
    payloads,
    simple_frame,
)

BIG = 2**64 - 1


@contextmanager
def bystander(endpoint: Endpoint, topic: str) -> Iterator[None]:
    """Somebody else publishes to the topic and consumes from it before and after, and notices nothing."""
    with line(endpoint) as sender, line(endpoint) as c:
        sender.open_producer(topic)
        c.subscribe(topic, "bystander", 77)
        c.flow(1_000, 77)
        sender.publish(b"before")
        assert c.expect("message").payload == b"before"
        yield
        sender.publish(b"after", first=1)
        while (frame := c.expect("message")).payload != b"after":
            pass  # what else the test published
        c.ack(frame.position, consumer_id=77)
        c.send("ping")
        c.expect("pong")


def closed_with(c: Line, error: str) -> str:
    """The connection is told why and closed; returns the reason."""
    answers = [frame for frame in c.expect_closed() if frame.name == "error"]
    assert [pb.ServerError.Name(answer.command.error) for answer in answers] == [error]
    return str(answers[0].command.message)


def with_unknown(name: str, field: int, without: str = "", **fields: Any) -> bytes:
    """A command in which enum field number `field` has a value that nobody knows."""
    base = pb.BaseCommand.FromString(simple_frame(name, **fields)[8:])
    command = getattr(base, name)
    if without:
        command.ClearField(without)
    inner: bytes = command.SerializePartialToString() + bytes([field << 3, 77])
    number = next(each.number for each in base.DESCRIPTOR.fields if each.name == name)
    body = bytes([0x08, base.type, number << 3 | 2, len(inner)]) + inner
    return struct.pack(">II", len(body) + 4, len(body)) + body


# Names

BAD_NAMES = [
    "",
    "persistent://public/default/",
    "persistent://public/default",
    "kafka://public/default/t",
    "persistent://public/default/a/b",
    "persistent://pub lic/default/t",
    "persistent://public/default/" + "x" * 5_000,
]


@pytest.mark.parametrize("name", BAD_NAMES, ids=lambda name: name[:40] or "empty")
def test_a_name_that_cannot_be_is_refused_everywhere(endpoint: Endpoint, name: str) -> None:
    refused = {"command": "PRODUCER", "code": "InvalidTopicName"}
    before = counter(endpoint, "magnetar_refused_commands_total", **refused)
    with line(endpoint) as c:
        c.expect_error(c.request("producer", topic=name, producer_id=1), "InvalidTopicName")
        c.expect_error(c.ask_subscribe(name), "InvalidTopicName")
        for command, response in [
            ("lookupTopic", "lookupTopicResponse"),
            ("partitionMetadata", "partitionMetadataResponse"),
            ("getSchema", "getSchemaResponse"),
        ]:
            answer = c.expect(response, request_id=c.request(command, topic=name)).command
            code = answer.error_code if command == "getSchema" else answer.error
            assert pb.ServerError.Name(code) == "InvalidTopicName"
        c.expect_error(c.request("getTopicsOfNamespace", namespace="public"), "InvalidTopicName")
    assert counter(endpoint, "magnetar_refused_commands_total", **refused) == before + 1


def test_names_and_properties_have_a_longest_length(endpoint: Endpoint, topic: str) -> None:
    long, large = "n" * 4_097, [{"key": "k", "value": "v" * 65_536}]
    with line(endpoint) as c, bystander(endpoint, topic):
        ask = c.request
        c.expect_error(c.ask_subscribe(topic, long), "InvalidTopicName")
        c.expect_error(c.ask_subscribe(topic, consumer_name=long), "InvalidTopicName")
        c.expect_error(c.ask_subscribe(topic, metadata=large), "NotAllowedError")
        c.expect_error(c.ask_subscribe(topic, subscription_properties=large), "NotAllowedError")
        refused: list[tuple[dict[str, Any], str]] = [
            ({"producer_name": long}, "InvalidTopicName"),
            ({"initial_subscription_name": long}, "InvalidTopicName"),
            ({"metadata": large}, "NotAllowedError"),
        ]
        for fields, error in refused:
            c.expect_error(ask("producer", topic=topic, producer_id=1, **fields), error)
        c.open_producer(topic, producer_name="n" * 4_096)
        c.subscribe(topic, "s" * 4_096, consumer_name="c" * 4_096)


@pytest.mark.parametrize("reserved", ["public/default/__change_events", "pulsar/system/t"])
def test_names_of_the_system_cannot_be_created(endpoint: Endpoint, reserved: str) -> None:
    with line(endpoint) as c:
        c.expect_error(c.request("producer", topic=reserved, producer_id=1), "NotAllowedError")
        c.expect_error(c.ask_subscribe(reserved), "NotAllowedError")


# Ids


def test_commands_for_unknown_ids_are_ignored_or_refused(endpoint: Endpoint, topic: str) -> None:
    before = counter(endpoint, "magnetar_ignored_acks_total", reason="unknown consumer")
    with line(endpoint) as c, bystander(endpoint, topic):
        c.flow(5, consumer_id=9)
        c.ack((1, 1), consumer_id=9, receipt=False)
        c.send("redeliverUnacknowledgedMessages", consumer_id=9)
        c.send("ack", consumer_id=9, ack_type="Cumulative", message_id=[{"ledgerId": 1, "entryId": 1}])
        c.expect_quiet()
        for name in ("unsubscribe", "seek", "getLastMessageId"):
            c.expect_error(c.request(name, consumer_id=9), "MetadataError")
        asked = c.request("ack", consumer_id=9, ack_type="Cumulative", message_id=[message_id((1, 1))])
        answer = c.expect("ackResponse", request_id=asked).command
        assert pb.ServerError.Name(answer.error) == "ServiceNotReady", "it may be moving"
        answer = c.expect(
            "consumerStatsResponse", request_id=c.request("consumerStats", consumer_id=9)
        ).command
        assert pb.ServerError.Name(answer.error_code) == "ConsumerNotFound"
        for name, ids in (("close_consumer", {"consumer_id": 9}), ("close_producer", {"producer_id": 9})):
            c.expect("success", request_id=c.request(name, **ids))
        c.send("ping")
        c.expect("pong")
    assert counter(endpoint, "magnetar_ignored_acks_total", reason="unknown consumer") == before + 3


def test_subscribing_twice_with_one_id_is_one_consumer(endpoint: Endpoint, topic: str) -> None:
    with line(endpoint) as c, bystander(endpoint, topic):
        c.subscribe(topic)
        c.subscribe(topic)
        c.subscribe(topic, "another")
        c.open_producer(topic)
        c.publish(b"x")
        c.flow(10)
        assert payloads(c.expect_messages(2)) == [b"before", b"x"]
        c.expect_quiet()


def test_an_id_that_is_being_opened_is_not_opened_twice(endpoint: Endpoint, topic: str) -> None:
    """One of the two has its answer, the other is told to come back; neither hangs."""
    with line(endpoint) as c, bystander(endpoint, topic):
        ids = [c.ask_subscribe(topic), c.ask_subscribe(topic)]
        frames = [c.receive(), c.receive()]
        assert sorted(frame.command.request_id for frame in frames) == ids
        assert {frame.name for frame in frames} <= {"success", "error"}
        assert "success" in {frame.name for frame in frames}
        producers = [c.request("producer", topic=topic, producer_id=1) for _ in range(2)]
        frames = [c.receive(), c.receive()]
        assert sorted(frame.command.request_id for frame in frames) == producers
        for frame in frames:
            if frame.name == "error":
                assert pb.ServerError.Name(frame.command.error) == "ServiceNotReady"
        assert "producer_success" in {frame.name for frame in frames}


# Permits


@pytest.mark.parametrize("permits", [0, 2**32 - 1, 2**31])
def test_permits_that_are_none_or_fewer_close_the_connection(
    endpoint: Endpoint, topic: str, permits: int
) -> None:
    before = counter(endpoint, "magnetar_protocol_errors_total")
    with line(endpoint) as c, bystander(endpoint, topic):
        c.subscribe(topic)
        c.flow(permits)
        assert "permits" in closed_with(c, "NotAllowedError")
    assert counter(endpoint, "magnetar_protocol_errors_total") == before + 1


def test_many_permits_are_no_overflow(endpoint: Endpoint, topic: str) -> None:
    with line(endpoint) as c:
        c.open_producer(topic)
        c.subscribe(topic)
        for _ in range(5):
            c.flow(2**31 - 1)
        c.publish(*numbered(3))
        assert payloads(c.expect_messages(3)) == numbered(3)


# Sends


@pytest.mark.parametrize("when", ["never opened", "still opening"])
def test_a_send_on_a_producer_that_is_not_open_closes_the_connection(
    endpoint: Endpoint, topic: str, when: str
) -> None:
    with line(endpoint) as c, bystander(endpoint, topic):
        opening = simple_frame("producer", topic=topic, producer_id=5, request_id=50)
        c.send_bytes((opening if when == "still opening" else b"") + payload_frame(5, 0, b"x"))
        frames = c.expect_closed()
        assert "send_receipt" not in {frame.name for frame in frames}


def test_sends_to_a_producer_that_was_closed_are_ignored_even_with_lies(
    endpoint: Endpoint, topic: str
) -> None:
    with line(endpoint) as c, bystander(endpoint, topic):
        c.open_producer(topic)
        close = simple_frame("close_producer", producer_id=1, request_id=90)
        late = payload_frame(1, 0, b"x") + payload_frame(1, 1, b"x", num_messages=9)
        before = counter(endpoint, "magnetar_ignored_messages_total")
        c.send_bytes(close + late + payload_frame(1, 2, b"x", checksum_xor=1))
        c.expect("success", request_id=90)
        c.expect_quiet()
        assert counter(endpoint, "magnetar_ignored_messages_total") == before + 3


@pytest.mark.parametrize("count", [0, -1, -(2**31)])
def test_a_send_of_no_messages_closes_the_connection(endpoint: Endpoint, topic: str, count: int) -> None:
    with line(endpoint) as c, bystander(endpoint, topic):
        c.open_producer(topic)
        c.send_bytes(payload_frame(1, 0, b"x", num_messages=count))
        closed_with(c, "NotAllowedError")


def batch_metadata(sequence_id: int, count: int) -> pb.MessageMetadata:
    return pb.MessageMetadata(
        producer_name="raw",
        sequence_id=sequence_id,
        publish_time=int(time.time() * 1000),
        num_messages_in_batch=count,
    )


@pytest.mark.parametrize("count", [0, -5, 2**31 - 1, 1_000_000])
def test_a_batch_that_cannot_have_so_many_messages_is_refused(
    endpoint: Endpoint, topic: str, count: int
) -> None:
    before = counter(endpoint, "magnetar_refused_messages_total", code="NotAllowedError")
    lie = payload_frame(1, 1, batch_payload(numbered(3)), batch_metadata(1, count), num_messages=3)
    with line(endpoint) as c, bystander(endpoint, topic):
        c.open_producer(topic)
        c.send_bytes(payload_frame(1, 0, b"good") + lie + payload_frame(1, 2, b"good too"))
        c.expect("send_receipt", sequence_id=0)
        error = c.expect("send_error", sequence_id=1).command
        c.expect("close_producer", producer_id=1)
        c.expect_quiet()
        assert pb.ServerError.Name(error.error) == "NotAllowedError"
        assert "batch" in error.message
    assert counter(endpoint, "magnetar_refused_messages_total", code="NotAllowedError") == before + 1


@pytest.mark.parametrize("kind", ["Exclusive", "Shared", "Key_Shared"])
@pytest.mark.parametrize("claimed", [2, 100_000])
def test_permits_are_counted_by_what_a_batch_holds_and_not_by_what_its_sender_says(
    endpoint: Endpoint, topic: str, kind: str, claimed: int
) -> None:
    with line(endpoint) as c, line(endpoint) as sender:
        c.subscribe(topic, subType=kind)
        sender.open_producer(topic)
        c.flow(7)
        for n in range(3):
            metadata = batch_metadata(n * 3, 3)
            sender.send_bytes(
                payload_frame(1, n * 3, batch_payload(numbered(3)), metadata, num_messages=claimed)
            )
            sender.expect("send_receipt", sequence_id=n * 3)
        c.expect_messages(3)  # 3 and 3, and the third one makes it -2
        c.expect_quiet()
        sender.publish(b"next", first=9)
        c.flow(2)
        c.expect_quiet()
        c.flow(1)
        assert c.expect("message").payload == b"next"


@pytest.mark.parametrize("kind", ["Exclusive", "Failover", "Shared", "Key_Shared"])
@pytest.mark.parametrize("chunk", [False, True])
def test_unreadable_metadata_stops_no_subscription(
    endpoint: Endpoint, topic: str, kind: str, chunk: bool
) -> None:
    """Its checksum is right, so it is stored; what it is, its readers find out."""
    garbage = pb.MessageMetadata(producer_name="raw", sequence_id=0, publish_time=1)
    with line(endpoint) as c:
        c.open_producer(topic)
        for consumer_id in (1, 2) if kind in ("Shared", "Key_Shared") else (1,):
            request_id = c.ask_subscribe(
                topic, subType=kind, consumer_id=consumer_id, consumer_name=f"c{consumer_id}"
            )
            c.expect("success", request_id=request_id)
            c.flow(100, consumer_id=consumer_id)
        frame = payload_frame(1, 0, b"garbage", garbage, is_chunk=chunk)
        header = garbage.SerializeToString()
        c.send_bytes(_with_metadata(frame, header, b"\xff" * len(header)))
        c.send_bytes(payload_frame(1, 1, b"good"))
        frames: list[Frame] = []
        while len([frame for frame in frames if frame.name == "send_receipt"]) < 2:
            frames.append(c.receive())
        got = {frame.command.message_id.entryId for frame in frames if frame.name == "message"}
        while len(got) < 2:
            data = _message_entry(c)
            if data is not None:
                got.add(data)


def _with_metadata(frame: bytes, old: bytes, new: bytes) -> bytes:
    """The frame with other metadata of the same length, and the checksum that fits."""
    changed = frame.replace(old, new, 1)
    at = changed.index(b"\x0e\x01")
    checksum = crc32c.crc32c(changed[at + 6 :])
    return changed[: at + 2] + struct.pack(">I", checksum) + changed[at + 6 :]


def _message_entry(c: Line) -> int | None:
    """The entry id of the next frame, if that is a Message; its metadata may be anything."""
    while (body := c._take()) is None:
        c._fill(time.monotonic() + 10)
    (size,) = struct.unpack_from(">I", body)
    base = pb.BaseCommand.FromString(body[4 : 4 + size])
    return base.message.message_id.entryId if base.type == pb.BaseCommand.MESSAGE else None


# Acknowledgements

POSITIONS = [(0, 0), (BIG, BIG), (2**62, 2**62), (1, 2**63), (2**63, 1), (1, 1_000_000_000_000)]


@pytest.mark.parametrize("kind", ["Exclusive", "Shared", "Key_Shared"])
def test_acknowledging_what_never_existed_changes_nothing(endpoint: Endpoint, topic: str, kind: str) -> None:
    with line(endpoint) as c, bystander(endpoint, topic):
        c.open_producer(topic)
        c.subscribe(topic, subType=kind)
        ledger, entry = c.publish(b"x", b"y")[0]
        c.flow(1)
        got = c.expect("message")
        beyond = [(ledger, entry + 1_000), (ledger, BIG), (ledger + 1_000, 0), (ledger, 2**40)]
        for position in POSITIONS + beyond:
            c.ack(position)
            c.ack(position, ack_set=[1])
            c.ack(position, receipt=False)
            if kind != "Exclusive":
                c.send("redeliverUnacknowledgedMessages", consumer_id=1, message_ids=[message_id(position)])
        c.ack(*(POSITIONS + beyond) * 20)
        c.expect_quiet()
        stats = c.expect(
            "consumerStatsResponse", request_id=c.request("consumerStats", consumer_id=1)
        ).command
        assert stats.msgBacklog in (2, 3), "nothing was acknowledged"
        assert got.payload in (b"before", b"x")


def test_acknowledging_everything_up_to_what_never_existed_stops_at_the_end(
    endpoint: Endpoint, topic: str
) -> None:
    with line(endpoint) as c:
        c.open_producer(topic)
        c.subscribe(topic)
        c.publish(*numbered(3))
        c.ack((2**62, 5), cumulative=True)
        c.flow(10)
        c.expect_quiet()
        c.publish(b"new", first=3)
        assert c.expect("message").payload == b"new", "what comes later is not acknowledged in advance"


@pytest.mark.parametrize("kind", ["Exclusive", "Shared", "Key_Shared"])
def test_a_batch_acknowledged_with_a_size_that_it_has_not_costs_its_own_consumer_only(
    endpoint: Endpoint, topic: str, kind: str
) -> None:
    with line(endpoint) as c, bystander(endpoint, topic):
        c.open_producer(topic)
        position = c.publish_batch(numbered(4))
        c.subscribe(topic, subType=kind, initialPosition="Latest")
        position = c.publish_batch(numbered(4), first=4)
        c.flow(4)
        c.expect("message")
        for size in (1_000_000, 2, -7):
            ids = [
                {
                    "ledgerId": position[0],
                    "entryId": position[1],
                    "ack_set": [1 << 40],
                    "batch_size": size,
                }
            ]
            if size < 0:
                c.send("ack", consumer_id=1, ack_type="Individual", message_id=ids)
                break
            request_id = c.request("ack", consumer_id=1, ack_type="Individual", message_id=ids)
            c.expect("ackResponse", request_id=request_id)
            answer = c.request("consumerStats", consumer_id=1)
            stats = c.expect("consumerStatsResponse", request_id=answer).command
            assert 0 <= stats.unackedMessages <= 4
            assert 0 <= stats.availablePermits <= 4


# Commands


def test_an_unknown_value_of_what_must_be_given_closes_the_connection(endpoint: Endpoint, topic: str) -> None:
    subscribe: dict[str, Any] = {
        "topic": topic,
        "subscription": "s",
        "consumer_id": 1,
        "request_id": 1,
        "subType": "Shared",
    }
    ack: dict[str, Any] = {
        "consumer_id": 1,
        "message_id": [{"ledgerId": 1, "entryId": 1}],
        "ack_type": "Individual",
    }
    for frame in (
        with_unknown("subscribe", 3, "subType", **subscribe),
        with_unknown("ack", 2, "ack_type", **ack),
    ):
        with line(endpoint) as c, bystander(endpoint, topic):
            c.send_bytes(frame)
            closed_with(c, "NotAllowedError")


def test_an_unknown_value_of_what_may_be_left_out_counts_as_left_out(endpoint: Endpoint, topic: str) -> None:
    subscribe: dict[str, Any] = {
        "topic": topic,
        "subscription": "s",
        "consumer_id": 1,
        "request_id": 44,
        "subType": "Shared",
    }
    with line(endpoint) as c:
        c.open_producer(topic)
        c.publish(b"before")
        c.send_bytes(with_unknown("subscribe", 13, **subscribe))
        c.expect("success", request_id=44)
        c.flow(5)
        c.expect_quiet()
        c.publish(b"after", first=1)
        assert c.expect("message").payload == b"after", "the default position is the latest"
