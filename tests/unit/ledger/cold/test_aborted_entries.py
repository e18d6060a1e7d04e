"""Aborted entries on their way from owners to readers."""

from __future__ import annotations

import pytest
from magnetar.common.errors import DataCorruption
from magnetar.ledger.cold.aborted_entries import AbortedEntries, decode_aborted, encode_aborted


@pytest.mark.parametrize("entry_ids", [[], [0], [3, 70_000, 2**32 - 1]])
def test_entries_arrive_as_they_were_sent(entry_ids: list[int]) -> None:
    assert list(decode_aborted(encode_aborted(AbortedEntries(entry_ids)))) == entry_ids


def test_the_bytes_are_those_of_the_portable_format() -> None:
    assert encode_aborted(AbortedEntries([1, 5])).hex() == "3a300000010000000000010010000000" + "01000500"


def test_what_is_no_bitmap_is_refused() -> None:
    with pytest.raises(DataCorruption, match="no bitmap"):
        decode_aborted(b"garbage")
