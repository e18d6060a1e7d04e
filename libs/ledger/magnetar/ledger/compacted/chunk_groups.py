"""Chunked messages among new entries: each group counts as one message at the position of its last chunk.

A chunk that is not the next one of its group is useless to clients, and dropped; chunk 0 begins its group
anew. Groups without their last chunk are pending: their chunks are kept, and a later run decides.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from magnetar.common.naming.position import Position

GROUPS_MAX: Final = 1_000
"""Pending groups; the oldest one is given up beyond that."""

PENDING_CHUNKS_MAX: Final = 10_000
"""Chunks of the groups that stay pending after a run; the oldest groups are given up beyond that."""

CHUNK_BYTES: Final = 64
"""Memory of one chunk's place, about."""


@dataclass(slots=True)
class ChunkGroup:
    """A chunked message."""

    group_hash: bytes
    """Hash of its uuid."""
    key_hash: bytes
    stored: list[Position] = field(default_factory=list)
    """Chunks in earlier segments."""
    fresh: list[int] = field(default_factory=list)
    """Ordinals of chunks among the new entries."""

    @property
    def chunks(self) -> int:
        """Number of chunks that were found."""
        return len(self.stored) + len(self.fresh)


class ChunkGroups:
    """The groups of one part of a run."""

    __slots__ = ("abandoned", "complete", "count", "orphans", "pending")

    def __init__(self, pending: list[ChunkGroup]) -> None:
        """Takes over the groups that earlier runs left pending, oldest first."""
        self.pending = {group.group_hash: group for group in pending}
        self.complete: dict[int, ChunkGroup] = {}
        """Complete groups by the ordinal of their last chunk."""
        self.abandoned: list[Position] = []
        """Chunks in earlier segments that no message needs any more."""
        self.count = 0
        """Number of chunks added."""
        self.orphans = 0
        """Chunks of groups whose beginning was not among the entries."""

    def add(self, group_hash: bytes, chunk_id: int, chunks: int, key_hash: bytes, ordinal: int) -> bool:
        """Adds a chunk; returns whether it completes its group."""
        group = self.pending.get(group_hash)
        if chunk_id == 0:
            if group is not None:
                self._abandon(group)
            elif len(self.pending) >= GROUPS_MAX:
                self._abandon(next(iter(self.pending.values())))
            group = self.pending[group_hash] = ChunkGroup(group_hash, key_hash)
        elif group is None or chunk_id != group.chunks:
            self.orphans += group is None
            return False
        group.fresh.append(ordinal)
        self.count += 1
        if chunk_id + 1 < chunks:
            return False
        del self.pending[group_hash]
        group.key_hash = key_hash
        self.complete[ordinal] = group
        return True

    def limit_pending(self) -> None:
        """Gives up the oldest groups above the limit."""
        chunks = sum(group.chunks for group in self.pending.values())
        for group in list(self.pending.values()):
            if chunks <= PENDING_CHUNKS_MAX:
                break
            chunks -= group.chunks
            self._abandon(group)

    def _abandon(self, group: ChunkGroup) -> None:
        del self.pending[group.group_hash]
        self.abandoned += group.stored
