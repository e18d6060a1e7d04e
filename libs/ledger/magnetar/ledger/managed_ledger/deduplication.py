"""Durable deduplication state: the highest sequence id of each producer name, up to a position.

Snapshots are records of the topic's cursor ledger. The latest confirmed one limits trimming, since the
entries after its position are replayed when the topic is loaded (storage contract, section 5).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from magnetar.common.errors import DataCorruption
from magnetar.common.naming.position import LATEST, Position
from magnetar.ledger.managed_ledger import cursor_ledger_pb2 as pb
from magnetar.ledger.managed_ledger.cursor_records import (
    ENTRY_BYTES_MAX,
    encode_entry,
    position_message,
    read_position,
)


class ProducerSequence(NamedTuple):
    """State of one producer name."""

    sequence_id: int
    """The highest persisted sequence id."""
    last_active_ms: int
    """When the last of its entries was persisted, ms since 1970 UTC."""


@dataclass(frozen=True, slots=True)
class DeduplicationSnapshot:
    """The state including every entry up to `position`."""

    position: Position
    producers: dict[str, ProducerSequence] = field(default_factory=dict)


Source = Callable[[], DeduplicationSnapshot]
"""Returns the current state."""


class DeduplicationRecord:
    """The persisted deduplication state of a loaded topic.

    `source` provides the state for each snapshot; None removes it from disk. `due` means that the next flush
    includes a snapshot. `durable_mark` is the position of the snapshot known to be on disk, LATEST without
    one: trimming never passes it.
    """

    __slots__ = ("due", "durable_mark", "source")

    def __init__(self, durable_mark: Position, source: Source | None) -> None:
        self.durable_mark = durable_mark
        self.source = source
        self.due = False

    def take(self) -> tuple[list[bytes], Position]:
        """Returns (entries of a change, the position that is durable with them) and clears `due`."""
        if self.source is None:
            self.due = False
            return [encode_entry(pb.Entry(deduplication_chunk=pb.DeduplicationChunk()))], LATEST
        return self.take_for_snapshot(0)

    def take_for_snapshot(self, snapshot_id: int) -> tuple[list[bytes], Position]:
        """Returns the same for a snapshot of the whole cursor ledger; no entries mean no state."""
        self.due = False
        if self.source is None:
            return [], LATEST
        snapshot = self.source()
        return deduplication_entries(snapshot, snapshot_id), snapshot.position


def deduplication_entries(snapshot: DeduplicationSnapshot, snapshot_id: int = 0) -> list[bytes]:
    """Encodes the state in entries of limited size, at least one: a change, or part of a cursor ledger
    snapshot.
    """
    chunks = list(_cut(snapshot))
    for index, chunk in enumerate(chunks):
        chunk.index, chunk.chunks, chunk.snapshot_id = index, len(chunks), snapshot_id
    return [encode_entry(pb.Entry(deduplication_chunk=chunk)) for chunk in chunks]


def _cut(snapshot: DeduplicationSnapshot) -> Iterator[pb.DeduplicationChunk]:
    chunk, size = _chunk(snapshot.position), 0
    for name, producer in snapshot.producers.items():
        chunk.producers.add(
            name=name, sequence_id=producer.sequence_id, last_active_ms=producer.last_active_ms
        )
        size += len(name) + _PRODUCER_BYTES
        if size >= ENTRY_BYTES_MAX:
            yield chunk
            chunk, size = _chunk(snapshot.position), 0
    if size or not snapshot.producers:
        yield chunk


_PRODUCER_BYTES: Final = 24
"""Approximate bytes of a producer besides its name."""


def _chunk(position: Position) -> pb.DeduplicationChunk:
    return pb.DeduplicationChunk(position=position_message(position))


class DeduplicationLoader:
    """Joins the chunks of snapshots; an incomplete snapshot is ignored."""

    def __init__(self) -> None:
        self._half: DeduplicationSnapshot | None = None
        self._chunks = 0

    def feed(self, chunk: pb.DeduplicationChunk) -> DeduplicationSnapshot | None:
        """Adds the next chunk; returns the snapshot that it completes, or None. Raises DataCorruption."""
        if chunk.index == 0:
            self._half, self._chunks = DeduplicationSnapshot(read_position(chunk.position)), 0
        if self._half is None or chunk.index != self._chunks or chunk.index >= chunk.chunks:
            raise DataCorruption(f"chunk {chunk.index} of deduplication state where {self._chunks} was next")
        for producer in chunk.producers:
            self._half.producers[producer.name] = ProducerSequence(
                producer.sequence_id, producer.last_active_ms
            )
        self._chunks += 1
        if self._chunks < chunk.chunks:
            return None
        snapshot, self._half = self._half, None
        return snapshot
