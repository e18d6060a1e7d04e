"""The connection itself: who speaks first, keep-alive, and what happens to peers that break the protocol."""

from __future__ import annotations

import struct

import pytest
from magnetar.common.wire import pulsar_pb2 as pb

from tests.integration.harness import Endpoint
from tests.integration.raw.transcript import PROTOCOL_VERSION, Line, line, payload_frame, simple_frame
from tests.integration.rest import Rest

FRAME_BYTES_MAX = 5 * 1024 * 1024 + 10 * 1024


def assert_others_are_served(other: Line, topic: str) -> None:
    """A connection that was open all the time still publishes."""
    other.open_producer(topic + "-other", producer_id=99)
    other.publish(b"still served", producer_id=99)
    other.send("close_producer", producer_id=99, request_id=9_999)
    other.expect("success", request_id=9_999)


def test_connected_names_the_limits_and_the_version(endpoint: Endpoint) -> None:
    with line(endpoint, connected=False) as c:
        connected = c.connect().command
        assert connected.server_version
        assert connected.protocol_version == PROTOCOL_VERSION
        assert connected.max_message_size == 5 * 1024 * 1024


def test_connected_never_exceeds_the_version_of_the_client(endpoint: Endpoint) -> None:
    with line(endpoint, connected=False) as c:
        assert c.connect(protocol_version=15).command.protocol_version == 15


def test_another_first_command_closes_the_connection(endpoint: Endpoint, topic: str) -> None:
    with line(endpoint) as other, line(endpoint, connected=False) as c:
        c.request("lookupTopic", topic=topic)
        c.expect_closed()
        assert_others_are_served(other, topic)


def test_a_ping_is_answered(endpoint: Endpoint) -> None:
    with line(endpoint) as c:
        for _ in range(3):
            c.send("ping")
            c.expect("pong")


def test_frames_may_arrive_in_any_pieces(endpoint: Endpoint, topic: str) -> None:
    with line(endpoint) as c:
        c.open_producer(topic)
        frames = simple_frame("ping") + payload_frame(1, 0, b"payload" * 50) + simple_frame("ping")
        for offset in range(len(frames)):
            c.send_bytes(frames[offset : offset + 1])
        assert sorted(c.receive().name for _ in range(3)) == ["pong", "pong", "send_receipt"]


def test_many_commands_may_arrive_in_one_piece(endpoint: Endpoint) -> None:
    with line(endpoint) as c:
        c.send_bytes(simple_frame("ping") * 500)
        for _ in range(500):
            c.expect("pong")


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(struct.pack(">I", 0xFFFFFFFF) + b"\xff" * 64, id="length-of-4-gigabytes"),
        pytest.param(struct.pack(">I", 0x7FFFFFFF) + b"\0" * 64, id="length-of-2-gigabytes"),
        pytest.param(struct.pack(">II", FRAME_BYTES_MAX + 1, 10) + b"\0" * 64, id="one-byte-over-the-limit"),
        pytest.param(struct.pack(">II", 8, 100) + b"\0" * 4, id="command-larger-than-its-frame"),
        pytest.param(struct.pack(">II", 14, 10) + b"\xff" * 10, id="command-that-does-not-parse"),
        pytest.param(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", id="http"),
    ],
)
def test_garbage_closes_that_connection_and_no_other(endpoint: Endpoint, topic: str, data: bytes) -> None:
    with line(endpoint) as other, line(endpoint) as c:
        c.send_bytes(data)
        c.expect_closed()
        assert_others_are_served(other, topic)


def test_garbage_before_connect_closes_the_connection(endpoint: Endpoint, topic: str) -> None:
    with line(endpoint) as other, line(endpoint, connected=False) as c:
        c.send_bytes(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x5a" * 200)
        c.expect_closed()
        assert_others_are_served(other, topic)


def test_connection_closed_inside_a_frame_disturbs_no_other_client(endpoint: Endpoint, topic: str) -> None:
    with line(endpoint) as other:
        with line(endpoint) as c:
            c.open_producer(topic)
            c.send_bytes(payload_frame(1, 0, b"x" * 10_000)[:5_000])
        assert_others_are_served(other, topic)


def test_an_unknown_command_type_is_an_error_of_that_connection_only(endpoint: Endpoint, topic: str) -> None:
    with line(endpoint) as other, line(endpoint) as c:
        # BaseCommand { type: 999 }: the field is required, and this value names no command.
        command = b"\x08\xe7\x07"
        c.send_bytes(struct.pack(">II", len(command) + 4, len(command)) + command)
        c.expect_closed()
        assert_others_are_served(other, topic)


def test_a_command_that_only_servers_send_is_an_error_of_that_connection_only(
    endpoint: Endpoint, topic: str
) -> None:
    with line(endpoint) as other, line(endpoint) as c:
        c.send("send_receipt", producer_id=1, sequence_id=1)
        c.expect_closed()
        assert_others_are_served(other, topic)


def test_a_damaged_checksum_is_answered_and_the_connection_lives(endpoint: Endpoint, topic: str) -> None:
    with line(endpoint) as c:
        c.open_producer(topic)
        c.subscribe(topic)
        c.flow(10)
        c.send_bytes(payload_frame(1, 0, b"damaged", checksum_xor=1))
        error = c.expect("send_error", producer_id=1, sequence_id=0).command
        assert error.error == pb.ChecksumError
        c.expect("close_producer", producer_id=1)
        c.open_producer(topic, epoch=1)
        c.publish(b"sound", first=1)
        assert c.expect("message").payload == b"sound"
        c.expect_quiet()


@pytest.mark.usefixtures("our_contract")
def test_a_message_over_the_limit_is_refused_and_the_connection_lives(endpoint: Endpoint, topic: str) -> None:
    """Apache Pulsar 4.0 takes anything that fits a frame unless the topic has a limit of its own."""
    with line(endpoint) as c:
        c.open_producer(topic)
        c.send_bytes(payload_frame(1, 0, b"x" * (5 * 1024 * 1024 + 100)))
        error = c.expect("send_error", producer_id=1, sequence_id=0).command
        assert error.error == pb.NotAllowedError
        c.expect("close_producer", producer_id=1)
        c.open_producer(topic, epoch=1)
        c.publish(b"fits", first=1)


def test_the_largest_message_is_stored_and_delivered(endpoint: Endpoint, topic: str) -> None:
    with line(endpoint) as c:
        c.open_producer(topic)
        c.subscribe(topic)
        payload = bytes(range(256)) * (5 * 1024 * 1024 // 256 - 1)
        c.publish(payload)
        c.flow(1)
        assert c.expect("message").payload == payload


def test_unsolicited_authentication_method_is_accepted(endpoint: Endpoint) -> None:
    """Without authentication configured, clients that bring a token are let in like any other."""
    with line(endpoint, connected=False) as c:
        c.connect(auth_method_name="token", auth_data=b"whatever")
        c.send("ping")
        c.expect("pong")


def test_client_version_is_truncated(endpoint: Endpoint, topic: str) -> None:
    with line(endpoint, connected=False) as c:
        c.connect(client_version="v" * 1_000_000)
        c.subscribe(topic)
        path = topic.replace("://", "/", 1)
        shown = Rest(endpoint).get(f"/{path}/stats")["subscriptions"]["sub"]["consumers"][0]
        assert shown["clientVersion"] == "v" * 256
