"""The bytes of cursor ledgers: round trips, bounds, damage, and the golden files of version 1."""

from __future__ import annotations

import random
import struct
from pathlib import Path

import pytest
from crc32c import crc32c
from magnetar.common.errors import CursorLedgerMissing, DataCorruption, UnsupportedFormat
from magnetar.common.naming.position import Position
from magnetar.ledger.ledger_store import LedgerRef
from magnetar.ledger.managed_ledger import cursor_ledger_pb2 as pb
from magnetar.ledger.managed_ledger.ack_state import AckDelta
from magnetar.ledger.managed_ledger.cursor import Cursor
from magnetar.ledger.managed_ledger.cursor_loader import CursorLoader
from magnetar.ledger.managed_ledger.cursor_records import (
    ENTRY_BYTES_MAX,
    CursorSnapshot,
    ack_changes,
    change_entries,
    create_change,
    decode_entry,
    delete_change,
    encode_entry,
    reset_change,
    snapshot_entries,
)
from magnetar.ledger.managed_ledger.ledger_list import LedgerSpan, LedgerSpans
from pyroaring import BitMap

GOLDEN = Path(__file__).parents[3] / "golden" / "cursor" / "v1"

ENTRIES = 3_000_000


def spans() -> LedgerSpans:
    result = LedgerSpans()
    for ledger_id in (3, 7):
        result.add(LedgerSpan(LedgerRef(ledger_id, 0), entries=ENTRIES))
    return result


def load(entries: list[bytes]) -> tuple[dict[str, Cursor], int]:
    loader = CursorLoader("topic", 1, spans())
    for entry_id, data in enumerate(entries):
        loader.feed(entry_id, data)
    return loader.finish()


def small() -> list[CursorSnapshot]:
    """Two cursors with one of everything."""
    acks = AckDelta(
        Position(3, 4),
        {3: BitMap([6, 7, 9]), 7: BitMap([0, 70_000])},
        {3: {11: (0b101, 3)}, 7: {5: (1 << 99, 100)}},
        {7: {1: 2, 3: 1}},
    )
    return [
        CursorSnapshot(1, 4, "sub", {"key": "value"}, acks),
        CursorSnapshot(5, 1, "other/ü", {}, AckDelta(Position(-1, -1))),
    ]


def assert_small(cursors: dict[str, Cursor]) -> None:
    assert sorted(cursors) == ["other/ü", "sub"]
    cursor = cursors["sub"]
    assert (cursor.cursor_id, cursor.sequence, cursor.properties) == (1, 4, {"key": "value"})
    assert cursor.mark_delete == cursor.durable_mark == Position(3, 4)
    assert [entry for entry in range(13) if cursor.is_acked(3, entry)] == [0, 1, 2, 3, 4, 6, 7, 9]
    assert cursor.is_acked(7, 0)
    assert cursor.is_acked(7, 70_000)
    assert cursor.batch_acked(3, 11) == 0b101
    assert cursor.batch_acked(7, 5) == 1 << 99
    assert (cursor.delivery_count(7, 1), cursor.delivery_count(7, 3)) == (2, 1)
    assert cursor.backlog() == 2 * ENTRIES - 5 - 5
    assert cursors["other/ü"].mark_delete == Position(-1, -1)


def test_a_snapshot_comes_back_as_it_was() -> None:
    cursors, next_cursor_id = load(snapshot_entries(small(), snapshot_id=1, next_cursor_id=6))
    assert next_cursor_id == 6
    assert_small(cursors)


def test_changes_come_back_as_they_were() -> None:
    entries = snapshot_entries(small()[1:], snapshot_id=1, next_cursor_id=6)
    new = CursorSnapshot(6, 1, "new", {"a": "b"}, AckDelta(Position(3, 9)))
    delta = AckDelta(Position(3, 11), {7: BitMap([5])}, {7: {8: (1, 2)}}, {7: {9: 3}})
    entries += change_entries(
        [create_change(new), reset_change(5, 2, Position(7, 1)), *ack_changes(6, 2, delta)]
    )
    cursors, next_cursor_id = load(entries)
    assert next_cursor_id == 7
    cursor = cursors["new"]
    assert (cursor.sequence, cursor.mark_delete, cursor.properties) == (2, Position(3, 11), {"a": "b"})
    assert cursor.is_acked(7, 5)
    assert cursor.batch_acked(7, 8) == 1
    assert cursor.delivery_count(7, 9) == 3
    assert cursors["other/ü"].mark_delete == Position(7, 1)
    cursors, _ = load([*entries, *change_entries([delete_change(6, 3)])])
    assert sorted(cursors) == ["other/ü"]


@pytest.mark.full
def test_a_million_holes_are_cut_into_bounded_entries_and_come_back() -> None:
    rng = random.Random(1)
    acked = {7: BitMap(rng.sample(range(ENTRIES), 1_000_000))}
    counts = {entry: 1 + entry % 3 for entry in range(0, 50_000, 2)}
    acked[3] = BitMap(range(0, 100_000, 2))
    snapshot = CursorSnapshot(1, 9, "sub", {}, AckDelta(Position(3, -1), acked, {}, {7: counts}))
    entries = snapshot_entries([snapshot], snapshot_id=1, next_cursor_id=2)
    assert max(map(len, entries)) < 2 * ENTRY_BYTES_MAX
    assert len(entries) > 3
    assert sum(map(len, entries)) < 700_000
    cursor = load(entries)[0]["sub"]
    assert cursor.backlog() == 2 * ENTRIES - 1_000_000 - 50_000
    assert all(cursor.is_acked(7, entry) for entry in list(acked[7])[::1000])
    changes = ack_changes(1, 10, snapshot.acks)
    assert [change.sequence for change in changes] == list(range(10, 10 + len(changes)))
    assert max(map(len, change_entries(changes))) < 2 * ENTRY_BYTES_MAX


def test_half_a_snapshot_is_ignored() -> None:
    before = snapshot_entries(small(), snapshot_id=1, next_cursor_id=6)
    many = [
        CursorSnapshot(number, 1, f"sub-{number}", {"long": "x" * 9_000}, AckDelta(Position(3, 0)))
        for number in range(10, 30)
    ]
    second = snapshot_entries(many, snapshot_id=2, next_cursor_id=99)
    assert len(second) > 3
    assert_small(load([*before, *second[:-1]])[0])
    assert_small(load([*before, *second[1:]])[0])
    assert_small(load([*before, *second[:1], *second[2:]])[0])
    assert len(load([*before, *second])[0]) == 20


def test_a_cursor_ledger_without_a_whole_snapshot_is_missing_its_cursors() -> None:
    entries = snapshot_entries(small(), snapshot_id=1, next_cursor_id=6)
    for partial in ([], entries[:-1], entries[1:]):
        with pytest.raises(CursorLedgerMissing):
            load(partial)


@pytest.mark.parametrize("at", [0, 1, 2, 3, 4, 7, 8, 20, -1])
def test_a_flipped_bit_is_refused_unless_a_later_snapshot_covers_it(at: int) -> None:
    snapshot = snapshot_entries(small(), snapshot_id=1, next_cursor_id=6)
    change = change_entries([reset_change(5, 2, Position(7, 1))])[0]
    damaged = bytearray(change)
    damaged[at] ^= 0x10
    with pytest.raises(DataCorruption, match="entry 2"):
        load([*snapshot, bytes(damaged)])
    assert_small(load([*snapshot, bytes(damaged), *snapshot])[0])


def test_a_missing_change_is_noticed() -> None:
    snapshot = snapshot_entries(small(), snapshot_id=1, next_cursor_id=6)
    for sequence in (1, 3):
        with pytest.raises(DataCorruption, match="missing"):
            load([*snapshot, *change_entries([reset_change(5, sequence, Position(7, 1))])])
    with pytest.raises(DataCorruption, match="does not exist"):
        load([*snapshot, *change_entries([delete_change(4, 1)])])


def test_record_of_a_later_release_is_refused_by_name() -> None:
    body = encode_entry(pb.Entry())[8:]
    for version, features in ((2, 0), (1, 1)):
        prefix = struct.pack(">HBB", 0x4D43, version, features)
        data = prefix + struct.pack(">I", crc32c(body, crc32c(prefix))) + body
        with pytest.raises(UnsupportedFormat, match="newer"):
            decode_entry(data)
    with pytest.raises(UnsupportedFormat):
        load([encode_entry(pb.Entry())])
    for data in (b"", b"MC\x01", bytes(40)):
        with pytest.raises(DataCorruption):
            decode_entry(data)


def golden_entries() -> dict[str, list[bytes]]:
    delta = AckDelta(Position(3, 11), {7: BitMap([5])}, {7: {8: (1, 2)}}, {7: {9: 3}})
    return {
        "snapshot": snapshot_entries(small(), snapshot_id=1, next_cursor_id=6),
        "changes": change_entries(
            [
                create_change(CursorSnapshot(6, 1, "new", {"a": "b"}, AckDelta(Position(3, 9)))),
                reset_change(5, 2, Position(7, 1)),
                *ack_changes(6, 2, delta),
                delete_change(1, 5),
            ]
        ),
    }


@pytest.mark.parametrize("name", ["snapshot", "changes"])
def test_version_1_is_written_as_in_the_golden_files(name: str) -> None:
    for number, data in enumerate(golden_entries()[name]):
        assert data == (GOLDEN / f"{name}-{number}.bin").read_bytes(), "the format changed: add a version"


def test_version_1_is_read_from_the_golden_files() -> None:
    snapshot = [path.read_bytes() for path in sorted(GOLDEN.glob("snapshot-*.bin"))]
    assert_small(load(snapshot)[0])
    cursors, next_cursor_id = load(
        [*snapshot, *(p.read_bytes() for p in sorted(GOLDEN.glob("changes-*.bin")))]
    )
    assert sorted(cursors) == ["new", "other/ü"]
    assert next_cursor_id == 7
    assert cursors["new"].mark_delete == Position(3, 11)
