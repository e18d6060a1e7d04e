"""Messages are recognized by their shape, and their ids go back as they came."""

from __future__ import annotations

import pytest
from magnetar.common.wire import pulsar_pb2 as pb
from magnetar.common.wire.messages import MessageFramer

from bench.frames import FIRST_SEQUENCE_ID, SendTemplate
from bench.interleaved import FIRST_ID
from bench.messages import (
    AckFrames,
    MessageSplitter,
    consumer_id_of,
    grouped_acks,
    last_message_id,
    message_id_of,
)

TEMPLATE = SendTemplate(100)
SEND = TEMPLATE.burst(FIRST_SEQUENCE_ID, 1)
ENTRY = SEND[SEND.index(TEMPLATE.message_mark) :]
"""Magic, checksum, metadata and payload of one entry, after the sizes and the command of its Send."""


def messages(first: int, count: int, *, consumer_id: int = 1, partition: int = -1) -> bytes:
    out: list[bytes] = []
    MessageFramer(consumer_id, partition).frames(out, 70_000, first, [ENTRY] * count)
    return b"".join(out)


@pytest.mark.parametrize("step", [1, 13, 100, 1_000_000])
def test_every_message_is_found_however_the_stream_is_cut(step: int) -> None:
    stream = messages(120, 20)
    splitter = MessageSplitter()
    commands = [
        command for at in range(0, len(stream), step) for command in splitter.feed(stream[at : at + step])
    ]
    ids = [pb.MessageIdData.FromString(message_id_of(command)) for command in commands]
    assert [(one.ledgerId, one.entryId) for one in ids] == [(70_000, entry) for entry in range(120, 140)]


def test_consumer_ids_of_two_bytes_are_read_from_the_message() -> None:
    for consumer_id in (FIRST_ID, 1_000, (1 << 14) - 1):
        (command,) = MessageSplitter().feed(messages(5, 1, consumer_id=consumer_id))
        assert consumer_id_of(command) == consumer_id
        assert pb.MessageIdData.FromString(message_id_of(command, 2)).entryId == 5


@pytest.mark.parametrize("cumulative", [False, True])
@pytest.mark.parametrize("partition", [-1, 3])
def test_an_acknowledgement_names_the_message_it_was_made_from(cumulative: bool, partition: int) -> None:
    frames = AckFrames(cumulative=cumulative)
    for first in (126, 127, 128, 129):  # the id grows by a byte
        (command,) = MessageSplitter().feed(messages(first, 1, partition=partition))
        frame = frames.frame(message_id_of(command))
        ack = pb.BaseCommand.FromString(frame[8:]).ack
        assert int.from_bytes(frame[:4], "big") == len(frame) - 4
        assert ack.consumer_id == 1
        assert ack.ack_type == (pb.CommandAck.Cumulative if cumulative else pb.CommandAck.Individual)
        assert [(one.ledgerId, one.entryId, one.partition) for one in ack.message_id] == [
            (70_000, first, partition)
        ]


def test_the_last_message_of_a_chunk_is_found_by_its_entry() -> None:
    stream = messages(0, 3)
    found = last_message_id(stream, TEMPLATE.message_mark)
    assert found is not None
    assert pb.MessageIdData.FromString(found).entryId == 2
    cut = len(stream) - len(ENTRY)  # the third command came, its entry did not
    found = last_message_id(stream[:cut], TEMPLATE.message_mark)
    assert found is not None
    assert pb.MessageIdData.FromString(found).entryId == 1
    assert last_message_id(b"", TEMPLATE.message_mark) is None


def test_a_group_of_acknowledgements_has_every_id_and_asks_for_one_receipt() -> None:
    ids = [message_id_of(command) for command in MessageSplitter().feed(messages(5, 300))]
    frame = grouped_acks(ids, 7)
    ack = pb.BaseCommand.FromString(frame[8:]).ack
    assert [one.entryId for one in ack.message_id] == [*range(5, 305)]
    assert ack.request_id == 7
    assert ack.ack_type == pb.CommandAck.Individual


def test_whole_messages_end_with_their_payload() -> None:
    stream = messages(5, 3)
    found = MessageSplitter(whole=True).feed(stream)
    assert all(one.endswith(ENTRY) for one in found)
    assert [message_id_of(one) for one in found] == [
        message_id_of(one) for one in MessageSplitter().feed(stream)
    ]
