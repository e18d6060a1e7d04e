from __future__ import annotations

import pytest
from magnetar.common.wire import pulsar_pb2 as pb
from magnetar.common.wire.varint import ascending, consecutive, decode_varint, encode_varint

EDGES = sorted(
    {value for bits in range(0, 65, 7) for value in (2**bits - 1, 2**bits, 2**bits + 1)} | {2**64 - 1}
)


@pytest.mark.parametrize("value", [value for value in EDGES if value < 2**64])
def test_varints_are_those_of_protobuf_at_every_change_of_length(value: int) -> None:
    by_protobuf = pb.CommandReachedEndOfTopic(consumer_id=value).SerializeToString()
    assert b"\x08" + encode_varint(value) == by_protobuf
    assert decode_varint(encode_varint(value)) == value


def test_a_negative_number_is_its_two_s_complement() -> None:
    assert encode_varint(-1) == b"\xff" * 9 + b"\x01"
    assert decode_varint(encode_varint(-1)) == 2**64 - 1


@pytest.mark.parametrize("first", [0, 120, 127, 128, 16_380, 16_384, 5 * 16_384 - 3, 2**40 - 2])
def test_consecutive_varints_are_each_number_s_own(first: int) -> None:
    varints = [head + tail for heads, tail in consecutive(first, 300) for head in heads]
    assert varints == [encode_varint(first + index) for index in range(300)]


@pytest.mark.parametrize("first", [100, 16_300, 3 * 16_384 - 100])
def test_the_varints_of_one_part_have_one_length(first: int) -> None:
    for heads, _ in consecutive(first, 300):
        assert len(set(map(len, heads))) == 1


@pytest.mark.parametrize("step", [1, 3, 1_000, 20_000])
@pytest.mark.parametrize("first", [0, 100, 16_300, 3 * 16_384 - 100, 2**40 - 2])
def test_ascending_varints_are_each_number_s_own_and_of_one_length_in_a_part(first: int, step: int) -> None:
    numbers = [first + index * step for index in range(300)]
    parts = list(ascending(numbers))
    assert [head + tail for heads, tail in parts for head in heads] == list(map(encode_varint, numbers))
    for heads, _ in parts:
        assert len(set(map(len, heads))) == 1


def test_no_numbers_make_no_parts() -> None:
    assert list(consecutive(7, 0)) == []
    assert list(ascending([])) == []
