"""Commands one at a time, for who carries connections on."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from magnetar.common.errors import FrameTooLarge, MalformedFrame
from magnetar.common.wire import pulsar_pb2 as pb
from magnetar.common.wire.command_stream import CommandStream
from magnetar.common.wire.frame import SIZES, FrameDecoder, encode_command, encode_payload_command

from tests.unit.common.wire import frames

PING = pb.BaseCommand(type=pb.BaseCommand.PING, ping=pb.CommandPing())
LOOKUP = frames.command(lookupTopic={"topic": "t", "request_id": 7})
MESSAGE = frames.command(message={"consumer_id": 1, "message_id": {"ledgerId": 2, "entryId": 3}})


def commands_in(stream: CommandStream, data: bytes) -> list[pb.BaseCommand]:
    """Every command that is complete once `data` has arrived."""
    stream.receive_data(data)
    found = []
    while (command := stream.next_command()) is not None:
        found.append(command)
    return found


@given(st.lists(st.sampled_from([PING, LOOKUP, MESSAGE])), st.lists(st.integers(1, 30)))
def test_the_same_commands_come_out_wherever_the_bytes_are_cut(
    sent: list[pb.BaseCommand], cuts: list[int]
) -> None:
    data = b"".join(
        encode_payload_command(each, frames.entry()) if each is MESSAGE else encode_command(each)
        for each in sent
    )
    stream = CommandStream(1 << 16)
    found = []
    for cut in cuts:
        found += commands_in(stream, data[:cut])
        data = data[cut:]
    found += commands_in(stream, data)
    assert found == sent


def test_payloads_are_skipped_whatever_they_are() -> None:
    broken = encode_payload_command(MESSAGE, b"\x0e\x01" + b"x" * 20)
    assert commands_in(CommandStream(1 << 16), broken + encode_command(PING)) == [MESSAGE, PING]
    with pytest.raises(Exception, match="CRC32-C"):
        FrameDecoder().receive_data(broken)


def test_bytes_after_a_command_are_returned_unchanged() -> None:
    stream = CommandStream(1 << 16)
    data = encode_command(LOOKUP)
    stream.receive_data(data[:10])
    assert stream.next_command() is None
    stream.receive_data(data[10:] + b"anything at all")
    assert stream.next_command() == LOOKUP
    assert stream.rest() == b"anything at all"


def test_a_frame_is_refused_by_its_first_bytes() -> None:
    stream = CommandStream(1_000)
    stream.receive_data(SIZES.pack(997, 5))
    with pytest.raises(FrameTooLarge):
        stream.next_command()
    stream = CommandStream(1_000)
    stream.receive_data(SIZES.pack(8, 5))
    with pytest.raises(MalformedFrame):
        stream.next_command()
