"""Grouping of acknowledgements; what they mean to a broker is in tests/property/client."""

from __future__ import annotations

import itertools

import pytest
from magnetar.client.consumer.acknowledgements import Acknowledgements, encode_positions
from magnetar.client.errors import ClientError
from magnetar.client.messages import EntryLeft
from magnetar.common.wire.pulsar_pb2 import CommandAck


def ids(command: CommandAck) -> list[tuple[int, int]]:
    return [(each.ledgerId, each.entryId) for each in command.message_id]


def ack(tracker: Acknowledgements, entry: int) -> bool:
    return tracker.individual(-1, EntryLeft([(1, entry)], 0))


def test_a_group_is_one_command_and_the_next_one_begins_empty() -> None:
    tracker = Acknowledgements(group_max=2)
    assert not tracker.is_pending
    assert [ack(tracker, entry) for entry in range(3)] == [False, True, True]
    assert tracker.is_pending
    assert [ids(each) for each in tracker.commands(1)] == [[(1, 0), (1, 1), (1, 2)]]
    assert not tracker.is_pending
    assert tracker.commands(1) == []


def test_what_waited_for_a_connection_is_cut_into_commands_of_a_thousand() -> None:
    tracker = Acknowledgements()
    for entry in range(2_500):
        ack(tracker, entry)
    commands = tracker.commands(1)
    assert [len(each.message_id) for each in commands] == [1_000, 1_000, 500]
    assert list(itertools.chain(*map(ids, commands))) == [(1, entry) for entry in range(2_500)]


def test_ids_encoded_by_hand_are_those_of_protobuf() -> None:
    positions = [
        (ledger, entry) for ledger in (0, 5, 2**40) for entry in (0, 127, 128, 16_383, 16_384, 2**33)
    ]
    command = CommandAck(consumer_id=1, ack_type=CommandAck.Individual)
    command.MergeFromString(encode_positions(positions[::-1]))
    assert sorted(ids(command)) == positions
    for ledger, entry in positions:
        command.message_id.add(ledgerId=ledger, entryId=entry)
    assert len(command.message_id) == 2 * len(positions)


def test_all_chunks_of_a_message_are_acknowledged() -> None:
    tracker = Acknowledgements()
    tracker.individual(-1, EntryLeft([(1, 2), (1, 4), (1, 6)], 0))
    assert ids(tracker.commands(1)[0]) == [(1, 2), (1, 4), (1, 6)]


def test_a_cumulative_acknowledgement_of_a_chunked_message_ends_at_its_last_chunk() -> None:
    tracker = Acknowledgements()
    tracker.cumulative(-1, EntryLeft([(1, 2), (1, 6)], 0))
    (command,) = tracker.commands(1)
    assert command.ack_type == CommandAck.Cumulative
    assert ids(command) == [(1, 6)]
    assert tracker.is_acknowledged((1, 5))
    assert not tracker.is_acknowledged((1, 7))


def test_part_of_a_ledgers_first_batch_waits_for_the_rest() -> None:
    tracker = Acknowledgements()
    batch = EntryLeft([(2, 0)], 2)
    tracker.cumulative(0, batch)
    assert tracker.commands(1) == []
    tracker.cumulative(1, batch)
    assert ids(tracker.commands(1)[0]) == [(2, 0)]


def test_an_earlier_cumulative_acknowledgement_sends_nothing() -> None:
    tracker = Acknowledgements()
    tracker.cumulative(-1, EntryLeft([(1, 6)], 0))
    tracker.commands(1)
    tracker.cumulative(-1, EntryLeft([(1, 5)], 0))
    assert tracker.commands(1) == []


def test_a_shared_subscription_refuses_a_cumulative_acknowledgement() -> None:
    with pytest.raises(ClientError, match="acknowledge each message"):
        Acknowledgements(shared=True).cumulative(-1, EntryLeft([(1, 0)], 0))


def test_a_seek_forgets_what_is_pending() -> None:
    tracker = Acknowledgements()
    ack(tracker, 3)
    tracker.cumulative(-1, EntryLeft([(1, 2)], 0))
    tracker.reset()
    assert tracker.commands(1) == []
    assert not tracker.is_acknowledged((1, 1))
    assert not tracker.is_pending
