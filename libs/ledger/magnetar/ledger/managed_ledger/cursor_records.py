"""The entries of a cursor ledger as bytes: proto/storage/v1/cursor_ledger.proto with a checksummed header.

Entries are bounded (`ENTRY_BYTES_MAX`, about): large states are cut by ledger and by ranges of entry ids. The
same cutting serves snapshots and change records, since a change is just a small state.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from magnetar.common.errors import DataCorruption
from magnetar.common.naming.position import Position
from magnetar.ledger.managed_ledger import cursor_ledger_pb2 as pb
from magnetar.ledger.managed_ledger.ack_state import AckDelta
from magnetar.ledger.managed_ledger.record_header import RecordFormat, cut_by_size
from pyroaring import BitMap

FORMAT: Final = RecordFormat("cursor record", magic=0x4D43, version=1)

ENTRY_BYTES_MAX: Final = 64 * 1024
"""Approximate maximum size of an entry in bytes; exceeded by at most one part of a state."""

_PIECE_BYTES_MAX: Final = 16 * 1024
_CONTAINER_IDS: Final = 65_536
_ITEMS_MAX: Final = 2_000


@dataclass(slots=True)
class CursorSnapshot:
    """One cursor's content in a snapshot."""

    cursor_id: int
    sequence: int
    name: str
    properties: dict[str, str]
    acks: AckDelta = field(default_factory=lambda: AckDelta(Position(-1, -1)))


def encode_entry(entry: pb.Entry) -> bytes:
    """Encodes an entry with its header."""
    return FORMAT.encode(entry)


def decode_entry(data: bytes) -> pb.Entry:
    """Decodes an entry. Raises DataCorruption, or UnsupportedFormat for an entry of a later release."""
    return FORMAT.decode(data, pb.Entry)


def create_change(snapshot: CursorSnapshot) -> pb.Change:
    """Returns the first record of a cursor."""
    change = pb.Change(cursor_id=snapshot.cursor_id, sequence=snapshot.sequence)
    change.create.name = snapshot.name
    change.create.properties.update(snapshot.properties)
    change.create.mark_delete.CopyFrom(position_message(snapshot.acks.mark_delete))
    return change


def reset_change(cursor_id: int, sequence: int, mark_delete: Position) -> pb.Change:
    change = pb.Change(cursor_id=cursor_id, sequence=sequence)
    change.reset.mark_delete.CopyFrom(position_message(mark_delete))
    return change


def properties_change(cursor_id: int, sequence: int, properties: Mapping[str, str]) -> pb.Change:
    change = pb.Change(cursor_id=cursor_id, sequence=sequence)
    change.properties.SetInParent()
    change.properties.properties.update(properties)
    return change


def delete_change(cursor_id: int, sequence: int) -> pb.Change:
    change = pb.Change(cursor_id=cursor_id, sequence=sequence)
    change.delete.SetInParent()
    return change


def ack_changes(cursor_id: int, sequence: int, delta: AckDelta) -> list[pb.Change]:
    """Encodes a cursor's delta as one or more records, numbered from this sequence."""
    return [
        pb.Change(cursor_id=cursor_id, sequence=sequence + number, acks=state)
        for number, state in enumerate(_cut(delta))
    ]


def change_entries(changes: Iterable[pb.Change]) -> list[bytes]:
    """Encodes change records as entries, in order."""
    batches = cut_by_size(changes, ENTRY_BYTES_MAX)
    return [encode_entry(pb.Entry(changes=pb.Changes(changes=batch))) for batch in batches]


def snapshot_entries(
    cursors: Iterable[CursorSnapshot],
    *,
    snapshot_id: int,
    next_cursor_id: int,
    deduplication: Sequence[bytes] = (),
    transactions: Sequence[bytes] = (),
) -> list[bytes]:
    """Encodes a whole snapshot: chunks of cursors, deduplication and transactions, then the end mark."""
    entries = []
    chunk = pb.SnapshotChunk(snapshot_id=snapshot_id)
    size = count = 0
    for cursor in cursors:
        count += 1
        for number, state in enumerate(_cut(cursor.acks)):
            part = pb.CursorPart(cursor_id=cursor.cursor_id, sequence=cursor.sequence, acks=state)
            if number == 0:
                part.name = cursor.name
                part.properties.update(cursor.properties)
            chunk.parts.append(part)
            size += part.ByteSize()
            if size >= ENTRY_BYTES_MAX:
                entries.append(encode_entry(pb.Entry(snapshot_chunk=chunk)))
                chunk = pb.SnapshotChunk(snapshot_id=snapshot_id, index=len(entries))
                size = 0
    if size:
        entries.append(encode_entry(pb.Entry(snapshot_chunk=chunk)))
    end = pb.SnapshotEnd(
        snapshot_id=snapshot_id,
        chunks=len(entries),
        cursors=count,
        next_cursor_id=next_cursor_id,
        deduplication_chunks=len(deduplication),
        transaction_chunks=len(transactions),
    )
    entries += deduplication
    entries += transactions
    entries.append(encode_entry(pb.Entry(snapshot_end=end)))
    return entries


def read_position(position: pb.Position) -> Position:
    return Position(position.ledger_id, position.entry_id)


def read_bitmap(data: bytes) -> BitMap:
    """Decodes a bitmap of entry ids. Raises DataCorruption."""
    try:
        return BitMap.deserialize(data)
    except ValueError as error:
        raise DataCorruption(f"a cursor record holds no roaring bitmap: {error}") from error


def acked_entries(ledger_id: int, entry_ids: BitMap) -> Iterator[pb.AckedEntries]:
    """Encodes entries of a ledger in parts of limited size."""
    for serialized in _bitmap_pieces(entry_ids):
        yield pb.AckedEntries(ledger_id=ledger_id, entry_ids=serialized)


def read_acks(state: pb.AckState) -> AckDelta:
    """Decodes a part of a state. Raises DataCorruption for an invalid bitmap."""
    delta = AckDelta(read_position(state.mark_delete))
    for acked in state.acked:
        delta.acked.setdefault(acked.ledger_id, BitMap()).update(read_bitmap(acked.entry_ids))
    for batch in state.partial:
        bits = int.from_bytes(batch.acked, "little")
        delta.partial.setdefault(batch.ledger_id, {})[batch.entry_id] = (bits, batch.batch_size)
    for counts in state.delivery_counts:
        kept = delta.deliveries.setdefault(counts.ledger_id, {})
        kept.update(zip(counts.entry_ids, counts.counts, strict=True))
    return delta


def position_message(position: Position) -> pb.Position:
    """Encodes a position."""
    return pb.Position(ledger_id=position.ledger_id, entry_id=position.entry_id)


def _cut(delta: AckDelta) -> Iterator[pb.AckState]:
    """Splits a state into parts of limited size, at least one; each carries the mark-delete position."""
    state = pb.AckState(mark_delete=position_message(delta.mark_delete))
    size = 0
    for piece in _pieces(delta):
        if isinstance(piece, pb.AckedEntries):
            state.acked.append(piece)
        elif isinstance(piece, pb.PartialBatch):
            state.partial.append(piece)
        else:
            state.delivery_counts.append(piece)
        size += piece.ByteSize()
        if size >= ENTRY_BYTES_MAX // 2:
            yield state
            state = pb.AckState(mark_delete=position_message(delta.mark_delete))
            size = 0
    if size or not (delta.acked or delta.partial or delta.deliveries):
        yield state


def _pieces(delta: AckDelta) -> Iterator[pb.AckedEntries | pb.PartialBatch | pb.DeliveryCounts]:
    for ledger_id, bitmap in delta.acked.items():
        yield from acked_entries(ledger_id, bitmap)
    for ledger_id, batches in delta.partial.items():
        for batch_entry_id, (bits, batch_size) in batches.items():
            yield pb.PartialBatch(
                ledger_id=ledger_id,
                entry_id=batch_entry_id,
                batch_size=batch_size,
                acked=bits.to_bytes((batch_size + 7) // 8, "little"),
            )
    for ledger_id, counts in delta.deliveries.items():
        items = list(counts.items())
        for start in range(0, len(items), _ITEMS_MAX):
            entry_ids, values = zip(*items[start : start + _ITEMS_MAX], strict=True)
            yield pb.DeliveryCounts(ledger_id=ledger_id, entry_ids=entry_ids, counts=values)


def _bitmap_pieces(bitmap: BitMap) -> Iterator[bytes]:
    """Serializes a bitmap in ranges of entry ids, each of limited size."""
    if not bitmap:
        return
    whole = bitmap.copy()
    whole.run_optimize()
    data: bytes = whole.serialize()
    if len(data) <= _PIECE_BYTES_MAX:
        yield data
        return
    # Halve by containers: one takes at most 8 KiB, so there are at least two, and halving ends.
    low, high = whole.min() // _CONTAINER_IDS * _CONTAINER_IDS, whole.max() + 1
    middle = low + max(1, (high - low) // 2 // _CONTAINER_IDS) * _CONTAINER_IDS
    for start, stop in ((low, middle), (middle, high)):
        half = whole.copy()
        half.remove_range(0, start)
        half.remove_range(stop, 1 << 32)
        yield from _bitmap_pieces(half)
