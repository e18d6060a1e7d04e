"""Streams of frames, cut and damaged anywhere."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from magnetar.common.errors import MalformedFrame, ProtocolError
from magnetar.common.wire.connection import ServerConnection
from magnetar.common.wire.events import Event, SendRun
from magnetar.common.wire.frame import FrameDecoder

from tests.examples import examples
from tests.property.wire.reference import flatten, read
from tests.property.wire.strategies import STREAMS, cut, send_series

CUTS = st.lists(st.integers(0, 20_000), max_size=12)


def events_of(pieces: list[bytes]) -> tuple[list[Event], ProtocolError | None]:
    connection = ServerConnection(100_000)
    events: list[Event] = []
    try:
        for piece in pieces:
            events.extend(each for each in connection.receive_data(piece))
    except ProtocolError as error:
        return events, error
    return events, None


@settings(max_examples=examples(150))
@given(STREAMS)
def test_the_hand_parser_reads_what_protobuf_reads(data: bytes) -> None:
    assert flatten(ServerConnection().receive_data(data)) == read(data)


@settings(max_examples=examples(300))
@given(STREAMS, CUTS)
def test_frames_cut_anywhere_give_the_same_events(data: bytes, cuts: list[int]) -> None:
    events, error = events_of(cut(data, cuts))
    assert error is None
    assert flatten(events) == read(data)


@settings(max_examples=30)
@given(STREAMS.filter(lambda data: len(data) < 3_000))
def test_frames_that_come_byte_by_byte_give_the_same_events(data: bytes) -> None:
    events, error = events_of([data[index : index + 1] for index in range(len(data))])
    assert error is None
    assert flatten(events) == read(data)


@settings(max_examples=examples(100))
@given(send_series())
def test_consecutive_sends_of_a_producer_in_one_chunk_are_one_run(data: bytes) -> None:
    (run,) = ServerConnection().receive_data(data)
    assert isinstance(run, SendRun)


@settings(max_examples=examples(300))
@given(send_series(), st.data())
def test_a_flipped_bit_in_an_entry_never_gets_through(data: bytes, choice: st.DataObject) -> None:
    entries = [flat[-1] for flat in read(data)]
    entry = choice.draw(st.sampled_from(entries))
    at = data.index(entry) + choice.draw(st.integers(2, len(entry) - 1))
    damaged = bytearray(data)
    damaged[at] ^= 1 << choice.draw(st.integers(0, 7))
    events, _ = events_of([bytes(damaged)])
    sends = [flat for flat in flatten(events) if flat[0] == "send"]
    assert len(sends) == len(entries) - 1
    assert {flat[-1] for flat in sends} <= set(entries)


@settings(max_examples=examples(400))
@given(st.one_of(st.binary(max_size=200), STREAMS), st.data())
def test_garbage_raises_nothing_but_a_protocol_error(data: bytes, choice: st.DataObject) -> None:
    damaged = bytearray(data)
    for _ in range(choice.draw(st.integers(0, 4))):
        if damaged:
            damaged[choice.draw(st.integers(0, len(damaged) - 1))] = choice.draw(st.integers(0, 255))
    pieces = cut(bytes(damaged), choice.draw(CUTS))
    _, error = events_of(pieces)
    whole, whole_error = events_of([bytes(damaged)])
    assert type(error) is type(whole_error)
    assert flatten(whole) == flatten(events_of(pieces)[0])


@settings(max_examples=examples(200))
@given(st.one_of(st.binary(max_size=200), STREAMS), CUTS)
def test_the_decoder_of_clients_raises_nothing_but_a_protocol_error_either(
    data: bytes, cuts: list[int]
) -> None:
    decoder = FrameDecoder(100_000)
    try:
        for piece in cut(data, cuts):
            decoder.receive_data(piece)
    except ProtocolError:
        pass


@settings(max_examples=examples(200))
@given(send_series(), st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1))
def test_lengths_that_lie_are_refused_or_wait_for_more_within_the_limit(
    data: bytes, total_size: int, command_size: int
) -> None:
    connection = ServerConnection(100_000)
    lie = total_size.to_bytes(4, "big") + command_size.to_bytes(4, "big")
    try:
        list(connection.receive_data(data + lie))
    except MalformedFrame:
        assert command_size == 0 or command_size + 4 > total_size
    except ProtocolError:
        assert total_size + 4 > 110_240
    else:
        assert total_size + 4 <= 110_240
        assert connection.buffered_bytes == 8
