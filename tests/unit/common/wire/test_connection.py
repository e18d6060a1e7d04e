from __future__ import annotations

import struct

import pytest
from magnetar.common.errors import FrameTooLarge, MalformedFrame, UnknownCommand
from magnetar.common.wire.connection import ServerConnection
from magnetar.common.wire.events import Command, Event, SendRun

from tests.unit.common.wire import frames

PING = frames.simple(ping={})
FLOW = frames.simple(flow={"consumer_id": 4, "messagePermits": 500})


def test_events_come_in_the_order_of_the_wire() -> None:
    data = PING + frames.send(1, 1) + frames.send(1, 2) + FLOW + frames.send(1, 3)
    ping, first, flow, second = ServerConnection().receive_data(data)
    assert isinstance(ping, Command)
    assert ping.base_command.HasField("ping")
    assert isinstance(first, SendRun)
    assert first.sequence_ids() == [1, 2]
    assert isinstance(flow, Command)
    assert flow.base_command.flow.messagePermits == 500
    assert isinstance(second, SendRun)
    assert second.sequence_ids() == [3]


def test_a_send_that_does_not_begin_as_one_joins_the_run_all_the_same() -> None:
    turned = frames.send_command(1, 2)[2:] + b"\x08\x06"
    data = frames.send(1, 1) + frames.send_frame(turned, frames.entry()) + frames.send(1, 3)
    (run,) = ServerConnection().receive_data(data)
    assert isinstance(run, SendRun)
    assert run.sequence_ids() == [1, 2, 3]


def test_a_frame_in_pieces_comes_with_its_last_piece() -> None:
    connection = ServerConnection()
    data = frames.send(1, 1, bytes(100_000))
    assert list(connection.receive_data(data[:5])) == []
    assert list(connection.receive_data(data[5:60_000])) == []
    assert connection.buffered_bytes == 60_000
    (run,) = connection.receive_data(data[60_000:] + PING[:3])
    assert isinstance(run, SendRun)
    assert run.entries == [frames.entry(bytes(100_000))]
    assert connection.buffered_bytes == 3
    assert len(list(connection.receive_data(PING[3:]))) == 1


def test_commands_before_a_violation_are_delivered_first() -> None:
    connection = ServerConnection()
    seen: list[Event] = []
    with pytest.raises(UnknownCommand):
        seen.extend(connection.receive_data(PING + FLOW + frames.simple_bytes(b"\x08\x63") + PING))
    assert len(seen) == 2
    with pytest.raises(UnknownCommand):
        list(connection.receive_data(PING))


def test_the_frame_limit_is_the_message_limit_and_the_padding() -> None:
    limit = 1_000 + 10_240
    assert list(ServerConnection(1_000).receive_data(struct.pack(">II", limit - 4, 100))) == []
    for start in (b"", frames.send(1, 1)):
        with pytest.raises(FrameTooLarge):
            list(ServerConnection(1_000).receive_data(start + struct.pack(">II", limit - 3, 100)))


def test_a_hostile_length_is_refused_before_anything_of_the_frame_is_kept() -> None:
    connection = ServerConnection()
    with pytest.raises(FrameTooLarge, match="4294967299 bytes, at most 5253120"):
        list(connection.receive_data(b"\xff" * 8))
    assert connection.buffered_bytes == 0


@pytest.mark.parametrize("sizes", [(0, 0), (3, 0), (4, 0), (8, 5), (9, 0)], ids=str)
def test_sizes_that_contradict_each_other_are_malformed(sizes: tuple[int, int]) -> None:
    with pytest.raises(MalformedFrame):
        list(ServerConnection().receive_data(struct.pack(">II", *sizes) + bytes(16)))


def test_bytes_after_a_command_without_payload_are_ignored() -> None:
    encoded = PING[8:]
    padded = struct.pack(">II", 4 + len(encoded) + 3, len(encoded)) + encoded + b"abc"
    assert len(list(ServerConnection().receive_data(padded + PING))) == 2
