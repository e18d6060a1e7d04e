from __future__ import annotations

import random

import pytest
from magnetar.ledger.managed_ledger.delayed_chunks import CHUNK_ENTRIES, decode_chunk
from magnetar.ledger.managed_ledger.delayed_index import (
    HEAP_ENTRIES_MAX,
    LEAD_MS,
    SOON_ENTRIES_MAX,
    SOON_MS,
    DelayedChunk,
    DelayedIndex,
)

NOW = 1_795_000_000_000
HOUR = 3_600_000


class Disk:
    """Where chunks go: their records by place."""

    def __init__(self) -> None:
        self.records: list[bytes] = []

    def write(self, chunks: list[DelayedChunk]) -> None:
        for chunk in chunks:
            chunk.encode()
            assert chunk.data is not None
            chunk.entry_id = len(self.records)
            self.records.append(chunk.data)
            chunk.data = None

    def load(self, index: DelayedIndex, now_ms: int) -> int:
        """Do what the index asks for; returns how many chunks that were."""
        count = 0
        while (chunk := index.chunk_to_load(now_ms)) is not None:
            index.load(chunk, chunk.keys or decode_chunk(self.records[chunk.entry_id]).keys())
            count += 1
        return count

    def restored(self, now_ms: int, existing: set[int]) -> DelayedIndex:
        index = DelayedIndex()
        for number, data in enumerate(self.records):
            index.restore(number, len(data), decode_chunk(data), now_ms, existing)
        return index


def test_nothing_is_due_early_and_what_is_due_comes_by_time_and_then_by_position() -> None:
    index = DelayedIndex()
    for time_ms, ledger_id, entry_id in ((30, 1, 4), (20, 2, 0), (20, 1, 9), (10, 2, 7), (20, 1, 3)):
        assert index.add(NOW + time_ms, ledger_id, entry_id)
    assert index.next_due_ms == index.next_event_ms() == NOW + 10
    assert index.take_due(NOW + 9, 9) == []
    assert index.take_due(NOW + 29, 3) == [(2, 7), (1, 3), (1, 9)]
    assert index.take_due(NOW + 29, 9) == [(2, 0)]
    assert index.count == 1
    assert index.take_due(NOW + 30, 9) == [(1, 4)]
    assert not index
    assert index.next_event_ms() is None


def test_an_entry_is_in_the_index_once() -> None:
    index = DelayedIndex()
    assert index.add(NOW, 1, 5)
    assert not index.add(NOW, 1, 5)
    assert index.count == 1
    assert list(index.entries_of(1) or ()) == [5]
    assert index.entries_of(2) is None
    assert index.take_due(NOW, 9) == [(1, 5)]
    assert index.entries_of(1) is None


def test_entries_due_soon_are_not_written() -> None:
    index = DelayedIndex()
    for entry_id in range(HEAP_ENTRIES_MAX):
        index.add(NOW + entry_id % SOON_MS, 1, entry_id)
    assert index.seal(NOW) == []
    assert index.seal(NOW, everything=True) == []


def test_a_full_heap_becomes_chunks_that_come_back_before_their_time() -> None:
    index, disk = DelayedIndex(), Disk()
    for entry_id in range(HEAP_ENTRIES_MAX):
        index.add(NOW + HOUR + entry_id, 1, entry_id)
    chunks = index.seal(NOW)
    disk.write(chunks)
    assert len(chunks) == HEAP_ENTRIES_MAX // CHUNK_ENTRIES
    assert index.next_event_ms() == NOW + HOUR - LEAD_MS
    assert index.next_due_ms == NOW + HOUR
    assert disk.load(index, NOW + HOUR - LEAD_MS - 1) == 0
    assert disk.load(index, NOW + HOUR - LEAD_MS) == 1
    assert index.take_due(NOW + HOUR, 9) == [(1, 0)]


def test_entries_after_an_unloaded_chunk_wait_for_it() -> None:
    index, disk = DelayedIndex(), Disk()
    index.add(NOW + HOUR, 1, 1)
    disk.write(index.seal(NOW, everything=True))
    index.add(NOW + HOUR + 1, 1, 0)
    assert index.take_due(NOW + 2 * HOUR, 9) == []
    disk.load(index, NOW + 2 * HOUR)
    assert index.take_due(NOW + 2 * HOUR, 9) == [(1, 1), (1, 0)]


def test_any_number_of_entries_due_at_one_instant_comes_back_a_little_at_a_time() -> None:
    index, disk = DelayedIndex(), Disk()
    count, lot = 200_000, 10_000
    for first in range(0, count, lot):
        for entry_id in range(first, first + lot):
            index.add(NOW + HOUR, 1, entry_id)
        disk.write(index.seal(NOW))
    disk.write(index.seal(NOW, everything=True))
    assert len(index._heap) == 0
    due: list[tuple[int, int]] = []
    disk.load(index, NOW + HOUR - LEAD_MS)
    assert index.take_due(NOW + HOUR - 1, 9) == []
    assert index.next_event_ms() == NOW + HOUR, "nothing to be done before: memory is full"
    while index.count:
        disk.load(index, NOW + HOUR)
        assert len(index._heap) < HEAP_ENTRIES_MAX + CHUNK_ENTRIES
        taken = index.take_due(NOW + HOUR, 1_000)
        assert taken, "it never stops before all are out"
        due += taken
    assert due == [(1, entry_id) for entry_id in range(count)]
    assert index.next_event_ms() is None


@pytest.mark.full
def test_however_many_entries_are_due_soon_those_in_memory_are_bounded() -> None:
    index, disk = DelayedIndex(), Disk()
    count, lot = 400_000, 10_000
    for first in range(0, count, lot):
        for entry_id in range(first, first + lot):
            index.add(NOW + entry_id % SOON_MS, 1, entry_id)
        disk.write(index.seal(NOW))
        assert len(index._heap) < 2 * SOON_ENTRIES_MAX + lot
    due: list[tuple[int, int]] = []
    while index.count:
        disk.load(index, NOW + SOON_MS)
        due += index.take_due(NOW + SOON_MS, 1_000)
    assert due == sorted(due, key=lambda position: (position[1] % SOON_MS, position))
    assert len(due) == count


def test_after_a_restart_what_was_written_is_known_and_what_is_due_is_left_to_be_read() -> None:
    index, disk = DelayedIndex(), Disk()
    for entry_id in range(10):
        index.add(NOW + HOUR + entry_id, 1 + entry_id % 2, entry_id)
    disk.write(index.seal(NOW, everything=True))
    again = disk.restored(NOW + HOUR + 3, {2})
    assert again.entries_of(1) is None, "that ledger is gone"
    assert list(again.entries_of(2) or ()) == [5, 7, 9]
    disk.load(again, NOW + 2 * HOUR)
    assert again.take_due(NOW + 2 * HOUR, 9) == [(2, 5), (2, 7), (2, 9)]
    assert not disk.restored(NOW + 2 * HOUR, {1, 2})


def test_an_entry_of_a_full_heap_with_which_a_chunk_begins_does_not_wait_for_that_chunk() -> None:
    disk = Disk()
    expected: list[tuple[int, int]] = []
    records = HEAP_ENTRIES_MAX // CHUNK_ENTRIES + 1
    for number in range(records):
        index = DelayedIndex()
        first = number * CHUNK_ENTRIES
        expected.append((1, first))
        index.add(NOW + SOON_MS + number, 1, first)
        for entry_id in range(first + 1, first + CHUNK_ENTRIES):
            index.add(NOW + HOUR, 1, entry_id)
        disk.write(index.seal(NOW, everything=True))
    # An owner that had loaded a record wrote the rest of it once more: the old record is still there.
    again = DelayedIndex()
    again.add(NOW + HOUR, 1, 1)
    disk.write(again.seal(NOW, everything=True))
    expected += [(1, entry_id) for entry_id in range(records * CHUNK_ENTRIES) if entry_id % CHUNK_ENTRIES]
    index = disk.restored(NOW, {1})
    taken: list[tuple[int, int]] = []
    disk.load(index, NOW + HOUR)
    while due := index.take_due(NOW + HOUR, 1_000):
        taken += due
        disk.load(index, NOW + HOUR)
    assert taken == expected
    assert not index
    assert index.next_event_ms() is None


def test_trimmed_ledgers_leave_nothing_behind() -> None:
    index, disk = DelayedIndex(), Disk()
    for entry_id in range(4):
        index.add(NOW + HOUR, 1, entry_id)
    disk.write(index.seal(NOW, everything=True))
    for entry_id in range(3):
        index.add(NOW + HOUR, 2, entry_id)
    index.trimmed(2)
    assert index.count == 3
    assert not index.chunks()
    assert index.ledger_ids == [2]
    index.trimmed(3)
    assert not index
    assert index.next_event_ms() is None


def test_forgotten_entries_are_told_and_may_be_added_again() -> None:
    index, disk = DelayedIndex(), Disk()
    index.add(NOW + HOUR, 1, 3)
    disk.write(index.seal(NOW, everything=True))
    index.add(NOW + HOUR, 1, 4)
    assert {ledger_id: list(ids) for ledger_id, ids in index.forget().items()} == {1: [3, 4]}
    assert not index
    assert index.add(NOW + HOUR, 1, 3)
    assert index.take_due(NOW + HOUR, 9) == [(1, 3)]


@pytest.mark.full
def test_a_million_delayed_entries_take_less_than_two_bytes_each() -> None:
    index, disk = DelayedIndex(), Disk()
    rng = random.Random(1)
    count = 1_000_000
    for first in range(0, count, 10_000):
        for entry_id in range(first, first + 10_000):
            index.add(NOW + 60_000 + rng.randrange(24 * HOUR), 1, entry_id)
        disk.write(index.seal(NOW))
    assert index.count == count
    assert index.byte_size < 2 * count
    assert sum(map(len, disk.records)) < 5 * count
    again = disk.restored(NOW, {1})
    assert count - HEAP_ENTRIES_MAX < again.count <= count
    assert again.byte_size < count
