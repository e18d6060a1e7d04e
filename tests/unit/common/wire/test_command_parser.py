from __future__ import annotations

from typing import Any

import pytest
from magnetar.common.errors import MalformedFrame, UnknownCommand
from magnetar.common.wire import pulsar_pb2 as pb
from magnetar.common.wire.command_parser import command_field, parse_command

from tests.unit.common.wire import frames

SUBSCRIBE: dict[str, Any] = {
    "topic": "t",
    "subscription": "s",
    "subType": pb.CommandSubscribe.Shared,
    "consumer_id": 1,
    "request_id": 2,
}


def encoded(**command: Any) -> bytes:
    return frames.command(**command).SerializePartialToString()


def test_a_sound_command_is_returned_as_it_is() -> None:
    command = parse_command(encoded(subscribe=SUBSCRIBE))
    assert command_field(command) == "subscribe"
    assert command.subscribe.topic == "t"


@pytest.mark.parametrize("raw", [b"", b"\x08\x63", b"\x08\x01\x12\x00"])
def test_a_type_that_is_not_in_the_protocol_is_unknown_rather_than_malformed(raw: bytes) -> None:
    with pytest.raises(UnknownCommand):
        parse_command(raw)


@pytest.mark.parametrize("raw", [b"\x08", b"\xff\xff", b"\x08\x04\x22\x7f", bytes(5)])
def test_bytes_that_are_no_protobuf_message_are_malformed(raw: bytes) -> None:
    with pytest.raises(MalformedFrame):
        parse_command(raw)


def test_the_command_that_the_type_names_must_be_there() -> None:
    with pytest.raises(MalformedFrame, match="'subscribe'"):
        parse_command(b"\x08\x04" + encoded(ping={})[2:])


def test_a_missing_required_field_is_named() -> None:
    with pytest.raises(MalformedFrame, match=r"subscribe\.topic"):
        parse_command(encoded(subscribe={**SUBSCRIBE, "topic": None}))


def test_a_required_enum_of_unknown_value_is_missing() -> None:
    raw = encoded(subscribe=SUBSCRIBE).replace(b"\x18\x01\x20", b"\x18\x09\x20")
    with pytest.raises(MalformedFrame, match=r"subscribe\.subType"):
        parse_command(raw)


@pytest.mark.parametrize(
    "command",
    [
        {"subscribe": {**SUBSCRIBE, "topic": "?!"}},
        {"subscribe": {**SUBSCRIBE, "metadata": [{"key": "k", "value": "?!"}]}},
        {"subscribe": {**SUBSCRIBE, "schema": {"name": "?!", "schema_data": b"", "type": 1}}},
        {"addPartitionToTxn": {"request_id": 1, "partitions": ["fine", "?!"]}},
    ],
    ids=["its own", "in a repeated message", "in a message", "repeated"],
)
def test_text_that_is_not_utf_8_is_malformed_wherever_it_is(command: dict[str, Any]) -> None:
    raw = encoded(**command)
    assert parse_command(raw)
    with pytest.raises(MalformedFrame, match="UTF-8"):
        parse_command(raw.replace(b"?!", b"\xff\xfe"))
