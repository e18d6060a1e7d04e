from __future__ import annotations

import random
from pathlib import Path

import pytest
from magnetar.common.errors import DataCorruption
from magnetar.ledger.ledger_store import LedgerRef
from magnetar.ledger.managed_ledger import cursor_ledger_pb2 as pb
from magnetar.ledger.managed_ledger.cursor_loader import CursorLoader
from magnetar.ledger.managed_ledger.cursor_records import (
    ENTRY_BYTES_MAX,
    CursorSnapshot,
    encode_entry,
    snapshot_entries,
)
from magnetar.ledger.managed_ledger.delayed_chunks import (
    CHUNK_ENTRIES,
    chunks_ahead,
    decode_chunk,
    encode_chunk,
    pack,
    position_of,
    time_of,
)
from magnetar.ledger.managed_ledger.ledger_list import LedgerSpan, LedgerSpans

GOLDEN = Path(__file__).parents[3] / "golden" / "cursor" / "v1"

NOW = 1_795_000_000_000
KEYS = [pack(NOW, 7, 4_000_000_000), pack(NOW, 9, 0), pack(NOW + 5, 7, 3), pack(NOW + 90_000_000, 8, 1)]


def test_keys_sort_by_time_then_by_position() -> None:
    entries = [(5, 1, 0), (4, 2**63, 9), (5, 1, 2**32 - 1), (5, 2, 0), (4, 2, 2**32 - 1)]
    assert sorted(pack(*entry) for entry in entries) == [pack(*entry) for entry in sorted(entries)]
    for entry in entries:
        assert (time_of(pack(*entry)), *position_of(pack(*entry))) == entry


def test_a_chunk_comes_back_whatever_its_ledgers_and_order() -> None:
    rng = random.Random(1)
    for ledgers in ([3], [3, 2**62], list(range(1, 2_000))):
        keys = [
            pack(NOW + rng.randrange(10**9), rng.choice(ledgers), rng.randrange(2**32))
            for _ in range(CHUNK_ENTRIES)
        ]
        keys.sort()
        data = encode_chunk(keys)
        assert decode_chunk(data).keys() == keys
        assert len(data) < ENTRY_BYTES_MAX


def test_entries_with_the_same_delay_take_two_bytes_each() -> None:
    assert len(encode_chunk([pack(NOW + n // 10, 3, n) for n in range(CHUNK_ENTRIES)])) < 2.1 * CHUNK_ENTRIES


@pytest.mark.parametrize(
    "chunk",
    [
        pb.DelayedChunk(),
        pb.DelayedChunk(later_ms=[NOW], entry_steps=[1]),
        pb.DelayedChunk(later_ms=[NOW, 1], entry_steps=[1], ledger_ids=[1]),
        pb.DelayedChunk(later_ms=[NOW], entry_steps=[1], ledgers=[1], ledger_ids=[1]),
        pb.DelayedChunk(later_ms=[NOW], entry_steps=[-1], ledger_ids=[1]),
        pb.DelayedChunk(later_ms=[NOW], entry_steps=[2**32], ledger_ids=[1]),
    ],
)
def test_a_chunk_whose_parts_do_not_fit_is_damage(chunk: pb.DelayedChunk) -> None:
    with pytest.raises(DataCorruption):
        decode_chunk(encode_entry(pb.Entry(delayed_chunk=chunk)))


def test_version_1_is_written_and_read_as_in_the_golden_files() -> None:
    chunk = (GOLDEN / "delayed-chunk.bin").read_bytes()
    assert encode_chunk(KEYS) == chunk, "the format changed: add a version"
    assert chunks_ahead(3) == (GOLDEN / "delayed-chunks-ahead.bin").read_bytes()
    assert decode_chunk(chunk).keys() == KEYS


def loader_of(*entries: bytes | None) -> CursorLoader:
    """A cursor ledger with one cursor and these entries, None for one that cannot be read."""
    spans = LedgerSpans()
    for ledger_id in (7, 9):
        spans.add(LedgerSpan(LedgerRef(ledger_id, 1), entries=4, closed=True))
    loader = CursorLoader("t", 1, spans, NOW + 1)
    snapshot = snapshot_entries([CursorSnapshot(1, 1, "s", {})], snapshot_id=1, next_cursor_id=2)
    for entry_id, data in enumerate([*snapshot, *entries]):
        if data is None:
            loader.damaged(entry_id, "for a test")
        else:
            loader.feed(entry_id, data)
    return loader


def test_undue_entries_are_known_after_a_load_in_existing_ledgers() -> None:
    loader = loader_of(chunks_ahead(1), encode_chunk(KEYS))
    assert list(loader.finish()[0]) == ["s"]
    assert loader.delayed is not None
    assert {each: list(loader.delayed.entries_of(each) or ()) for each in (7, 8, 9)} == {7: [3], 8: [], 9: []}
    assert loader_of(chunks_ahead(1)).delayed is None


@pytest.mark.parametrize("broken", [None, b"", b"\x00" * 20, encode_chunk(KEYS)[:-1]])
def test_a_damaged_chunk_costs_no_cursor(broken: bytes | None) -> None:
    loader = loader_of(chunks_ahead(2), broken, encode_chunk(KEYS))
    assert list(loader.finish()[0]) == ["s"]
    assert loader.delayed is not None
    assert loader.delayed.count == 1
    with pytest.raises(DataCorruption):
        loader_of(chunks_ahead(1), encode_chunk(KEYS), broken).finish()


def test_chunks_may_come_before_and_between_snapshots() -> None:
    end = snapshot_entries([CursorSnapshot(1, 1, "s", {})], snapshot_id=2, next_cursor_id=2)
    loader = loader_of(chunks_ahead(1), encode_chunk(KEYS[:3]), *end, chunks_ahead(1), encode_chunk(KEYS[3:]))
    assert list(loader.finish()[0]) == ["s"]
    assert loader.delayed is not None
    assert loader.delayed.count == 1
