"""Sends by hand: what becomes a run, and what is left to protobuf."""

from __future__ import annotations

from typing import Any

import pytest
from crc32c import crc32c
from magnetar.common.errors import FrameTooLarge, MalformedFrame
from magnetar.common.wire import pulsar_pb2 as pb
from magnetar.common.wire import send_parser
from magnetar.common.wire.events import (
    Event,
    SendRejected,
    SendRun,
    SendUnsupported,
    TransactionalSends,
)
from magnetar.common.wire.frame import BATCH_MESSAGES_MAX
from magnetar.common.wire.pulsar_pb2 import ServerError
from magnetar.common.wire.send_parser import RUN_BYTES_MAX, RUN_ENTRIES_MAX, parse_sends

from tests.unit.common.wire import frames

MESSAGE_MAX = 1 << 20


def parse(data: bytes, message_bytes_max: int = MESSAGE_MAX) -> tuple[list[Event], int]:
    events: list[Event] = []
    end = parse_sends(data, 0, len(data), message_bytes_max, message_bytes_max + 10_240, events)
    return events, end


def runs_of(data: bytes) -> list[SendRun]:
    events, end = parse(data)
    assert end == len(data)
    runs = [event for event in events if isinstance(event, SendRun)]
    assert len(runs) == len(events)
    return runs


def test_consecutive_sends_of_a_producer_become_one_run_of_entries_as_they_are_stored() -> None:
    payloads = [bytes([index]) * index for index in range(50)]
    sends = [frames.send(3, 100 + index, payload) for index, payload in enumerate(payloads)]
    (run,) = runs_of(b"".join(sends))
    assert run.producer_id == 3
    assert run.entries == [frames.entry(payload) for payload in payloads]
    assert run.sequence_ids() == list(range(100, 150))
    assert (run.message_counts, run.highest_varints, run.is_chunk, run.marker) == (None, None, False, False)
    assert run.byte_length == sum(map(len, run.entries))


@pytest.mark.parametrize("edge", [2**7, 2**14, 2**21, 2**28, 2**35, 2**42, 2**49, 2**56, 2**63])
def test_a_run_goes_on_where_the_sequence_id_grows_by_a_byte(edge: int) -> None:
    (run,) = runs_of(b"".join(frames.send(1, sequence_id) for sequence_id in range(edge - 5, edge + 5)))
    assert run.sequence_ids() == list(range(edge - 5, edge + 5))


def test_another_producer_a_chunk_and_a_marker_begin_runs_of_their_own() -> None:
    data = [
        frames.send(1, 1),
        frames.send(1, 2),
        frames.send(2, 7),
        frames.send(1, 3),
        frames.send(1, 4, is_chunk=True),
        frames.send(1, 4, is_chunk=True),
        frames.send(1, 5, marker=True),
        frames.send(1, 6),
    ]
    runs = runs_of(b"".join(data))
    assert [(run.producer_id, run.sequence_ids()) for run in runs] == [
        (1, [1, 2]),
        (2, [7]),
        (1, [3]),
        (1, [4, 4]),
        (1, [5]),
        (1, [6]),
    ]
    assert [run.is_chunk for run in runs] == [False, False, False, True, False, False]
    assert [run.marker for run in runs] == [False, False, False, False, True, False]


def test_counts_and_highest_ids_are_kept_only_once_a_batch_gives_them() -> None:
    sends = [
        frames.send(1, 1),
        frames.send(1, 2, num_messages=10, highest_sequence_id=11),
        frames.send(1, 12),
        frames.send(1, 13),
    ]
    (run,) = runs_of(b"".join(sends))
    assert run.message_counts == [1, 10, 1, 1]
    assert [run.highest_sequence_id(index) for index in range(4)] == [1, 11, 12, 13]
    assert run.sequence_ids() == [1, 2, 12, 13]


def test_parsing_stops_at_an_incomplete_frame_and_at_another_command() -> None:
    first, second = frames.send(1, 1), frames.send(1, 2)
    for rest in (second[:-1], second[:3], b"", frames.simple(ping={})):
        events, end = parse(first + rest)
        assert end == len(first)
        assert len(events) == 1


def test_a_run_is_bounded_by_entries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(send_parser, "RUN_ENTRIES_MAX", 10)
    runs = runs_of(b"".join(frames.send(1, index) for index in range(25)))
    assert [len(run.entries) for run in runs] == [10, 10, 5]
    assert RUN_ENTRIES_MAX == 5_000


def test_a_run_is_bounded_by_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(send_parser, "RUN_BYTES_MAX", 2_000)
    runs = runs_of(b"".join(frames.send(1, index, bytes(300)) for index in range(25)))
    assert [sequence for run in runs for sequence in run.sequence_ids()] == list(range(25))
    assert len(runs) > 3
    assert all(2_000 - 400 <= run.byte_length <= 2_000 + 400 for run in runs[:-1])
    assert RUN_BYTES_MAX == 4 << 20


@pytest.mark.parametrize("fields", [{}, {"num_messages": 2}], ids=["same shape", "one by one"])
@pytest.mark.parametrize("size", [10, 10_000])
def test_a_wrong_checksum_rejects_that_send_alone(fields: dict[str, Any], size: int) -> None:
    data = [frames.send(1, index, bytes(size), **fields) for index in range(5)]
    broken = bytearray(data[2])
    broken[-1] ^= 1
    events, end = parse(b"".join([*data[:2], bytes(broken), *data[3:]]))
    assert end == sum(map(len, data))
    before, rejected, after = events
    assert isinstance(before, SendRun)
    assert isinstance(after, SendRun)
    assert (before.sequence_ids(), after.sequence_ids()) == ([0, 1], [3, 4])
    assert isinstance(rejected, SendRejected)
    assert (rejected.producer_id, rejected.sequence_id) == (1, 2)
    assert rejected.error == ServerError.ChecksumError


def test_a_checksum_is_added_when_the_client_sent_none() -> None:
    sends = [frames.send_frame(frames.send_command(1, index), frames.body(b"abc")) for index in range(3)]
    (run,) = runs_of(b"".join(sends))
    assert run.entries == [frames.entry(b"abc")] * 3


def test_broker_entry_metadata_of_a_client_is_cut_off() -> None:
    data = frames.send_frame(frames.send_command(1, 1), frames.with_entry_metadata(frames.entry(b"abc")))
    (run,) = runs_of(data + frames.send(1, 2, b"def"))
    assert run.entries == [frames.entry(b"abc"), frames.entry(b"def")]


@pytest.mark.parametrize(
    "fields",
    [
        {"txnid_least_bits": 0},
        {"txnid_most_bits": 5},
        {"message_id": {"ledgerId": 1, "entryId": 1}},
        {"num_messages": BATCH_MESSAGES_MAX + 1},
        {"num_messages": 2**31 - 1},
    ],
)
def test_unknown_send_fields_are_refused(
    fields: dict[str, Any],
) -> None:
    data = frames.send(1, 1) + frames.send(1, 2, **fields) + frames.send(1, 3)
    before, refused, after = parse(data)[0]
    assert isinstance(refused, SendUnsupported)
    assert (refused.producer_id, refused.sequence_id, refused.error) == (1, 2, ServerError.NotAllowedError)
    assert isinstance(before, SendRun)
    assert isinstance(after, SendRun)


def test_a_message_over_the_limit_in_a_frame_below_it_is_not_allowed() -> None:
    fits, too_large = frames.send(1, 1, bytes(1000)), frames.send(1, 2, bytes(1001))
    taken, refused = parse(fits + too_large, message_bytes_max=1000)[0]
    assert isinstance(taken, SendRun)
    assert isinstance(refused, SendRejected)
    assert (refused.sequence_id, refused.error) == (2, ServerError.NotAllowedError)
    assert "1001 bytes, at most 1000" in refused.message


def test_a_frame_over_the_limit_raises_after_the_sends_before_it() -> None:
    events: list[Event] = []
    data = frames.send(1, 1) + frames.send(1, 2, bytes(20_000))
    with pytest.raises(FrameTooLarge):
        parse_sends(data, 0, len(data), 1000, 11_240, events)
    assert len(events) == 1


@pytest.mark.parametrize("count", [0, -1])
def test_a_send_of_no_messages_is_malformed(count: int) -> None:
    with pytest.raises(MalformedFrame, match=f"Send of {count} messages"):
        parse(frames.send(1, 1, num_messages=count))


@pytest.mark.parametrize(
    "entry",
    [b"", b"\x0e\x01", frames.entry()[:9], b"\x0e\x01" + bytes(8)[:7]],
    ids=["no entry", "magic only", "cut in the header", "cut header of zeros"],
)
def test_a_send_without_a_whole_entry_is_malformed_also_after_others_of_its_shape(entry: bytes) -> None:
    broken = frames.send_frame(frames.send_command(1, 130), entry)
    for before in (b"", frames.send(1, 128) + frames.send(1, 129)):
        with pytest.raises(MalformedFrame):
            parse(before + broken + frames.send(1, 131))


def test_fields_in_another_order_and_long_varints_are_read_by_protobuf() -> None:
    backwards = b"\x08\x06\x32\x04" + b"\x10\x07" + b"\x08\x01"
    padded = b"\x08\x06\x32\x06" + b"\x08\x81\x00" + b"\x10\x88\x00"
    unknown = b"\x08\x06\x32\x07" + b"\x08\x01\x10\x09" + b"\xf8\x01\x05"
    data = b"".join(frames.send_frame(command, frames.entry()) for command in (backwards, padded, unknown))
    (run,) = runs_of(data)
    assert run.sequence_ids() == [7, 8, 9]


def test_a_header_of_the_same_length_with_other_fields_is_not_taken_for_a_sequence_id() -> None:
    plain, batch = frames.send(1, 100_000), frames.send(1, 5, num_messages=2)
    assert len(plain) == len(batch)
    (run,) = runs_of(plain + plain + batch + plain)
    assert run.sequence_ids() == [100_000, 100_000, 5, 100_000]
    assert run.message_counts == [1, 1, 2, 1]


def test_a_matching_checksum_does_not_excuse_a_wrong_magic_or_metadata_size() -> None:
    checked = b"\x00\x00\x01\x00" + bytes(255)
    lying = b"\x0e\x01" + crc32c(checked).to_bytes(4, "big") + checked
    wrong_magic = b"\x7f\x01" + frames.entry()[2:]
    for entry in (lying, wrong_magic):
        with pytest.raises(MalformedFrame):
            parse(frames.send(1, 1) + frames.send(1, 2) + frames.send_frame(frames.send_command(1, 3), entry))


def test_a_length_that_does_not_match_the_command_is_not_guessed_around() -> None:
    command = bytearray(frames.send_command(1, 1))
    command[3] -= 1
    with pytest.raises(MalformedFrame):
        parse(frames.send_frame(bytes(command), frames.entry()))


def test_the_last_of_two_send_fields_wins_as_in_protobuf() -> None:
    two = frames.send_command(1, 1) + frames.send_command(1, 5)[2:]
    assert pb.BaseCommand.FromString(two).send.sequence_id == 5
    (run,) = runs_of(frames.send_frame(two, frames.entry()))
    assert run.sequence_ids() == [5]


def in_txn(most: int, least: int, sequence_id: int, **fields: Any) -> bytes:
    return frames.send(1, sequence_id, txnid_least_bits=least, txnid_most_bits=most, **fields)


def test_sends_of_one_transaction_become_one_run_and_other_ones_do_not_join_it() -> None:
    data = [
        frames.send(1, 1),
        in_txn(0, 0, 2),
        in_txn(0, 0, 3),
        in_txn(0, 0, 4, num_messages=5, highest_sequence_id=8),
        in_txn(0, 1, 9),
        in_txn(1, 1, 10),
        frames.send(1, 11),
        in_txn(1, 1, 12),
        in_txn(1, 1, 13, is_chunk=True),
    ]
    events, end = parse(b"".join(data))
    assert end == sum(map(len, data))
    assert [
        (event.txn, event.sends.sequence_ids())
        if isinstance(event, TransactionalSends)
        else isinstance(event, SendRun) and event.sequence_ids()
        for event in events
    ] == [[1], ((0, 0), [2, 3, 4]), ((0, 1), [9]), ((1, 1), [10]), [11], ((1, 1), [12]), ((1, 1), [13])]
    batched = events[1]
    assert isinstance(batched, TransactionalSends)
    assert batched.sends.message_counts == [1, 1, 5]
    assert batched.sends.highest_sequence_id(2) == 8


def test_a_transaction_id_of_64_bits_is_read_whole() -> None:
    (event,) = parse(in_txn(2**64 - 1, 2**63, 1) + in_txn(2**64 - 1, 2**63, 2))[0]
    assert isinstance(event, TransactionalSends)
    assert event.txn == (2**64 - 1, 2**63)
    assert event.sends.sequence_ids() == [1, 2]


def test_sends_of_a_transaction_are_cut_up_by_their_shape(monkeypatch: pytest.MonkeyPatch) -> None:
    data = b"".join(in_txn(3, 70, sequence_id) for sequence_id in range(1000, 1010))
    parsed: list[None] = []
    of_buffer = send_parser._parse_send

    def counted(buffer: bytes, start: int, end: int) -> send_parser.Send:
        parsed.append(None)
        return of_buffer(buffer, start, end)

    monkeypatch.setattr(send_parser, "_parse_send", counted)
    (event,) = parse(data)[0]
    assert isinstance(event, TransactionalSends)
    assert event.sends.sequence_ids() == list(range(1000, 1010))
    assert len(parsed) == 1


def test_the_first_transaction_of_the_first_coordinator_is_one_in_an_unusual_send_as_well() -> None:
    send = pb.CommandSend(producer_id=1, sequence_id=0, txnid_most_bits=0, txnid_least_bits=0)
    assert send_parser.send_of(send).txn == (0, 0)
