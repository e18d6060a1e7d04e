from __future__ import annotations

import pytest
from magnetar.common.errors import MalformedFrame
from magnetar.common.wire.ack_set import acked_bits_to_words, words_to_acked_bits


def test_on_the_wire_a_bit_says_unacknowledged_and_here_it_says_acked() -> None:
    assert words_to_acked_bits([0b1011], 4) == 0b0100
    assert acked_bits_to_words(0b0100, 4) == [0b1011]


def test_no_words_say_that_all_is_acked() -> None:
    assert words_to_acked_bits([], 10) == (1 << 10) - 1


def test_words_cut_off_at_the_end_hold_no_bit() -> None:
    assert words_to_acked_bits([-1], 100) == ((1 << 36) - 1) << 64


def test_the_first_word_holds_the_lowest_indexes_and_words_are_signed() -> None:
    only_70_acked = 1 << 70
    assert acked_bits_to_words(only_70_acked, 128) == [-1, ~(1 << 6)]
    assert words_to_acked_bits([-1, ~(1 << 6)], 128) == only_70_acked
    assert acked_bits_to_words(0, 64) == [-1]


def test_bits_and_words_beyond_the_batch_mean_nothing() -> None:
    assert words_to_acked_bits([-1, -1, 7], 3) == 0
    assert acked_bits_to_words(0b111_000, 3) == [0b111]


@pytest.mark.parametrize("batch_size", [-1, -(2**31), (1 << 20) + 1, 2**31 - 1])
def test_a_batch_size_that_no_batch_has_is_the_peer_s_fault(batch_size: int) -> None:
    with pytest.raises(MalformedFrame):
        words_to_acked_bits([-1], batch_size)


def test_words_beyond_the_batch_mean_nothing_however_many_they_are() -> None:
    assert words_to_acked_bits([-1] * 1_000_000, 10) == 0


@pytest.mark.parametrize("batch_size", [0, 1, 63, 64, 65, 128, 1000])
def test_a_fresh_batch_has_one_word_for_each_64_messages_begun(batch_size: int) -> None:
    words = acked_bits_to_words(0, batch_size)
    assert len(words) == (batch_size + 63) // 64
    assert words_to_acked_bits(words, batch_size) == 0
