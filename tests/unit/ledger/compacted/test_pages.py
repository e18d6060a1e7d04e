"""The bytes of pages: round trips, damage, and the golden files of version 1."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st
from magnetar.common.errors import DataCorruption, UnsupportedFormat
from magnetar.common.naming.position import Position
from magnetar.ledger.compacted import page as pages
from magnetar.ledger.compacted.page import EntriesLine, KeysLine, SegmentEnd, StoredEntry

GOLDEN = Path(__file__).parents[3] / "golden" / "compacted" / "v1"
"""Written once by version 1, never regenerated."""

HASHES = bytes(range(48))

ENTRIES = [
    StoredEntry(Position(7, 3), 1_600_000_000_000, 20, 1, 0, b"first", HASHES[:16], (-1,)),
    StoredEntry(
        Position(7, 9), 1_600_000_000_001, 40, 3, pages.BATCH | pages.PARTIAL, b"", HASHES[16:], (0, 2)
    ),
    StoredEntry(Position(12, 0), 1_599_999_999_999, 2**40, 5, pages.OPAQUE | pages.UNKEYED, b"last", b"", ()),
]

END = SegmentEnd(4, 1, 0xDEADBEEF, 3, 3, 1, 9, Position(7, 3), Position(12, 0), 4)

PAGES = {
    "entries": pages.encode_entries(ENTRIES),
    "keys": pages.encode_keys(HASHES),
    "index": pages.encode_index(
        [EntriesLine(0, Position(7, 3), 1_600_000_000_001, 0, 0), EntriesLine(2, Position(9, 0), 5, 3, 3)],
        [KeysLine(1, 0)],
    ),
    "dead": pages.encode_dead(1, b"bitmap"),
    "end": pages.encode_end(END),
}

DECODERS: dict[str, Callable[[bytes], object]] = {
    "entries": pages.decode_entries,
    "keys": pages.decode_keys,
    "index": pages.decode_index,
    "dead": lambda data: pages.decode_dead(data, 1),
    "end": pages.decode_end,
}


@pytest.mark.parametrize("name", PAGES)
def test_version_1_is_written_and_read_as_ever(name: str) -> None:
    golden = (GOLDEN / f"{name}.bin").read_bytes()
    assert PAGES[name] == golden
    DECODERS[name](golden)


def test_a_page_of_entries_comes_back() -> None:
    page = pages.decode_entries(PAGES["entries"])
    assert page.positions == [entry.position for entry in ENTRIES]
    assert list(page.publish_times_ms) == [entry.publish_time_ms for entry in ENTRIES]
    assert list(page.first_indexes) == [entry.first_index for entry in ENTRIES]
    assert list(page.messages) == [1, 3, 5]
    assert list(page.keyed) == [1, 2, 0]
    assert page.batch_indexes == (-1, 0, 2)
    assert [page.entry(number) for number in range(3)] == [b"first", b"", b"last"]
    assert pages.decode_end(PAGES["end"]) == END
    assert pages.decode_keys(PAGES["keys"]) == HASHES
    assert pages.decode_dead(PAGES["dead"], 1) == b"bitmap"


@pytest.mark.parametrize("name", PAGES)
def test_any_flipped_bit_and_any_cut_is_noticed(name: str) -> None:
    rng = random.Random(name)
    for _ in range(100):
        data = bytearray(PAGES[name])
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        with pytest.raises((DataCorruption, UnsupportedFormat)):
            DECODERS[name](bytes(data))
    for end in range(len(PAGES[name])):
        with pytest.raises(DataCorruption):
            DECODERS[name](PAGES[name][:end])


def test_a_page_of_a_later_release_or_of_another_kind_is_refused() -> None:
    for at, expected in ((8, UnsupportedFormat), (12, UnsupportedFormat), (10, DataCorruption)):
        data = bytearray(PAGES["keys"])
        data[at] += 1
        data[20:24] = crc32c(bytes(data[24:]), crc32c(bytes(data[:20]))).to_bytes(4, "little")
        with pytest.raises(expected):
            pages.decode_keys(bytes(data))
    with pytest.raises(DataCorruption, match="part 1"):
        pages.decode_dead(PAGES["dead"], 0)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 9), st.binary(max_size=40)), min_size=1))
def test_any_entries_come_back(items: list[tuple[int, int, bytes]]) -> None:
    entries, at = [], Position(0, 0)
    for ledgers, gap, data in items:
        at = Position(at.ledger_id + ledgers, at.entry_id + gap)
        indexes = tuple(range(len(data) % 4))
        entries.append(StoredEntry(at, len(data), gap, gap, ledgers, data, bytes(16 * len(indexes)), indexes))
    page = pages.decode_entries(pages.encode_entries(entries))
    assert page.positions == [entry.position for entry in entries]
    assert [page.entry(number) for number in range(len(entries))] == [entry.data for entry in entries]
    assert page.batch_indexes == tuple(index for entry in entries for index in entry.batch_indexes)
