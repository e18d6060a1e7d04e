"""The first pass over new entries: which of their messages survive.

Messages are numbered in the topic's order (ordinals); every entry has at least one ordinal. `feed` yields
control between short steps. `finish` gives the survivors.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple

from magnetar.common.errors import DataCorruption
from magnetar.common.naming.position import Position
from magnetar.common.wire.pulsar_pb2 import MessageMetadata
from magnetar.ledger.compacted.batch_parts import MESSAGES_PER_STEP
from magnetar.ledger.compacted.chunk_groups import CHUNK_BYTES, ChunkGroup, ChunkGroups
from magnetar.ledger.compacted.entry_keys import (
    BATCH_MESSAGES_MAX,
    BatchMessage,
    EntryKind,
    ExaminedEntry,
    batch_messages,
    deletes_key,
    examine,
    key_of,
    parse_single,
)
from magnetar.ledger.compacted.key_hash import KeyHash
from magnetar.ledger.compacted.latest_keys import ORDINAL_MAX, LatestKeys
from magnetar.ledger.ledger_store import RUN_TXN, Run
from pyroaring import BitMap


class Stretch(NamedTuple):
    """Consecutive entries of one ledger."""

    first: Position
    first_number: int
    """Number of the first entry among all that were fed."""


@dataclass(frozen=True, slots=True)
class PendingChunks:
    """A group that stays pending, by position."""

    group_hash: bytes
    key_hash: bytes
    positions: list[Position]


@dataclass(slots=True)
class Survivors:
    """Survivors of the new entries, and the fate of earlier segments' chunks."""

    ordinals: BitMap
    """Surviving messages."""
    dropped: int
    """Messages that did not survive."""
    exempt: list[Position]
    """Chunks in earlier segments that stay alive although their key is among the new ones."""
    abandoned: list[Position]
    """Chunks in earlier segments that die although their key may not be among the new ones."""
    pending: list[PendingChunks]


class TailScan:
    """New entries, fed in order and without gaps inside a run."""

    def __init__(
        self,
        key_hash: KeyHash,
        pending: list[ChunkGroup],
        *,
        retain_null_key: bool,
        is_aborted: Callable[[int, int], bool] | None = None,
    ) -> None:
        self.latest = LatestKeys()
        self.next_ordinal = 0
        self.messages = 0
        """Messages that were not compacted out, including chunks as one each."""
        self._hash = key_hash
        self._retain_null_key = retain_null_key
        self._is_aborted = is_aborted
        self._kept = BitMap()
        self._starts = BitMap()
        self._stretches: list[Stretch] = []
        self._following = Position(-1, -1)
        self._entries = 0
        self._groups = ChunkGroups(pending)

    @property
    def byte_length(self) -> int:
        """Bytes in use, about."""
        return self.latest.byte_length + self._groups.count * CHUNK_BYTES + len(self._stretches) * 200

    @property
    def full(self) -> bool:
        """Whether no further entry can be numbered."""
        return self.next_ordinal > ORDINAL_MAX - BATCH_MESSAGES_MAX

    @property
    def entries(self) -> int:
        """Number of entries fed."""
        return self._entries

    @property
    def orphan_chunks(self) -> int:
        """Number of chunks whose message begins before the first entry, or was abandoned."""
        return self._groups.orphans

    def feed(self, run: Run, bodies: bool = True) -> Iterator[None]:
        """Examines the entries of a run; yields every some dozen messages. `bodies`: see `KeyRun`."""
        if (run.ledger_id, run.first_entry_id) != self._following:
            self._stretches.append(Stretch(Position(run.ledger_id, run.first_entry_id), self._entries))
        self._following = Position(run.ledger_id, run.last_entry_id + 1)
        ordinary = not run.flags & ~RUN_TXN
        is_aborted = self._is_aborted if run.flags & RUN_TXN else None
        metadata = MessageMetadata()
        yield_at = self.next_ordinal + MESSAGES_PER_STEP
        for entry_id, entry in enumerate(run.entries, run.first_entry_id):
            ordinal = self.next_ordinal
            self._starts.add(ordinal)
            if is_aborted is not None and is_aborted(run.ledger_id, entry_id):
                self.next_ordinal = ordinal + 1
                self.messages += 1
            elif ordinary and parse_single(entry, metadata):
                self._add_single(ordinal, entry, metadata)
            else:
                yield from self._examine(ordinal, entry, run.flags, bodies)
            if self.next_ordinal >= yield_at:
                yield_at = self.next_ordinal + MESSAGES_PER_STEP
                yield
        self._entries += len(run.entries)
        yield

    def _add_single(self, ordinal: int, entry: bytes, metadata: MessageMetadata) -> None:
        self.next_ordinal = ordinal + 1
        self.messages += 1
        if not metadata.HasField("partition_key"):
            if self._retain_null_key:
                self._kept.add(ordinal)
            return
        try:
            key_hash = self._hash.of(metadata.partition_key)
        except UnicodeError:
            self._kept.add(ordinal)
            return
        self.latest.add(key_hash, ordinal, deletes_key(metadata, entry))

    def _examine(self, ordinal: int, entry: bytes, run_flags: int, bodies: bool) -> Iterator[None]:
        self.next_ordinal = ordinal + 1
        examined = examine(entry, run_flags)
        metadata = examined.metadata
        if examined.kind is EntryKind.MARKER:
            return
        if examined.kind is EntryKind.OPAQUE or metadata is None:
            self.messages += 1
            self._kept.add(ordinal)
        elif examined.kind is EntryKind.SINGLE:
            self._add_single(ordinal, entry, metadata)
        elif examined.kind is EntryKind.CHUNK:
            self.messages += 1
            self._add_chunk(ordinal, metadata)
        else:
            yield from self._add_batch(ordinal, metadata.num_messages_in_batch, examined, bodies)

    def _add(self, ordinal: int, key: str | None, deletes: bool) -> None:
        if key is not None:
            self.latest.add(self._hash.of(key), ordinal, deletes)
        elif self._retain_null_key:
            self._kept.add(ordinal)

    def _add_chunk(self, ordinal: int, metadata: MessageMetadata) -> None:
        key = key_of(metadata)
        if key is None:
            self._add(ordinal, None, False)
            return
        key_hash = self._hash.of(key)
        if self._groups.add(
            self._hash.of(metadata.uuid), metadata.chunk_id, metadata.num_chunks_from_msg, key_hash, ordinal
        ):
            self.latest.add(key_hash, ordinal, False)

    def _add_batch(self, ordinal: int, count: int, examined: ExaminedEntry, bodies: bool) -> Iterator[None]:
        found: list[BatchMessage] = []
        try:
            for message in batch_messages(examined.payload, count, bodies):
                found.append(message)
                if len(found) % MESSAGES_PER_STEP == 0:
                    yield
        except DataCorruption:
            self.messages += 1
            self._kept.add(ordinal)
            return
        self.messages += len(found)
        self.next_ordinal = ordinal + count
        for number, message in enumerate(found, 1):
            self._add(ordinal + message.batch_index, message.key, message.deletes)
            if number % MESSAGES_PER_STEP == 0:
                yield

    def finish(self) -> Iterator[Survivors | None]:
        """Decides; yields None between short steps, at last the survivors."""
        ordinals = self._kept
        for latest in self.latest.partitions():
            ordinals.update([value >> 1 for value in latest.values() if not value & 1])
            yield None
        exempt: list[Position] = []
        for last, group in self._groups.complete.items():
            if last in ordinals:
                ordinals.update(group.fresh)
                exempt += group.stored
        self._groups.limit_pending()
        pending: list[PendingChunks] = []
        for group in self._groups.pending.values():
            ordinals.update(group.fresh)
            exempt += group.stored
            positions = [*group.stored, *(self.position_of(self.number_of(each)) for each in group.fresh)]
            pending.append(PendingChunks(group.group_hash, group.key_hash, positions))
        yield Survivors(ordinals, self.messages - len(ordinals), exempt, self._groups.abandoned, pending)

    def number_of(self, ordinal: int) -> int:
        """Returns the number of the entry that a message is in."""
        return self._starts.rank(ordinal) - 1

    def ordinals_of(self, number: int) -> tuple[int, int]:
        """Returns (first ordinal of an entry, first one of the next entry)."""
        following = self._starts[number + 1] if number + 1 < self._entries else self.next_ordinal
        return self._starts[number], following

    def starts(self, number: int, count: int) -> list[int]:
        """Returns the first ordinals of `count` entries, then the one after the last of them."""
        found = list(islice(self._starts.iter_equal_or_larger(self._starts[number]), count + 1))
        return found if len(found) > count else [*found, self.next_ordinal]

    def position_of(self, number: int) -> Position:
        """Returns the position of an entry."""
        at = bisect_right(self._stretches, number, key=_first_number) - 1
        stretch = self._stretches[at]
        return Position(stretch.first.ledger_id, stretch.first.entry_id + number - stretch.first_number)

    def number_at(self, position: Position) -> int:
        """Returns the number of an entry that was fed."""
        at = bisect_right(self._stretches, position, key=_first) - 1
        stretch = self._stretches[at]
        return stretch.first_number + position.entry_id - stretch.first.entry_id


def _first_number(stretch: Stretch) -> int:
    return stretch.first_number


def _first(stretch: Stretch) -> Position:
    return stretch.first
