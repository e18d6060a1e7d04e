"""Reassembly of chunked messages. No I/O; times are seconds of a monotonic clock."""

from __future__ import annotations

from dataclasses import dataclass, field

from magnetar.common.wire.pulsar_pb2 import MessageMetadata

Position = tuple[int, int]
"""The ids of a ledger and of an entry."""


@dataclass(slots=True)
class _Parts:
    began_at: float
    payloads: list[bytes] = field(default_factory=list)
    ids: list[Position] = field(default_factory=list)


class ChunkAssembler:
    """The incomplete messages of one topic. What it drops is in `dropped` and `repeated`, which the caller
    empties.
    """

    __slots__ = ("_expire_s", "_messages_max", "_waiting", "dropped", "repeated")

    def __init__(self, messages_max: int, expire_s: float) -> None:
        """`expire_s` 0: incomplete messages never expire."""
        self._messages_max = messages_max
        self._expire_s = expire_s
        self._waiting: dict[str, _Parts] = {}
        self.dropped: list[Position] = []
        """The chunks of messages that were dropped since they are incomplete."""
        self.repeated: list[Position] = []
        """Chunks in place of which the producer sent others: acknowledged, or they stay in the backlog."""

    def add(
        self, metadata: MessageMetadata, position: Position, payload: bytes, now: float
    ) -> tuple[bytes, list[Position]] | None:
        """Adds a chunk; returns (whole payload, ids of all chunks) with the last chunk, else None.

        A chunk that does not follow the one before is dropped with its message, unless it is one of them
        again.
        """
        self.expire(now)
        waiting, uuid = self._waiting, metadata.uuid
        parts = waiting.get(uuid)
        if metadata.chunk_id == 0:
            if parts is not None:  # The producer sent it again, or it is delivered again.
                del waiting[uuid]
                if position not in parts.ids:
                    self.repeated += parts.ids
            while len(waiting) >= self._messages_max:
                self._drop(next(iter(waiting)))
            parts = waiting[uuid] = _Parts(now)
        if parts is None:
            self.dropped.append(position)
            return None
        if metadata.chunk_id < len(parts.payloads):
            if position not in parts.ids:
                self.repeated.append(position)
            return None
        if metadata.chunk_id > len(parts.payloads):
            parts.ids.append(position)
            self._drop(uuid)
            return None
        parts.payloads.append(payload)
        parts.ids.append(position)
        if len(parts.payloads) < metadata.num_chunks_from_msg:
            return None
        del waiting[uuid]
        return b"".join(parts.payloads), parts.ids

    def expire(self, now: float) -> None:
        """Drops the messages that are incomplete for too long."""
        if not self._expire_s:
            return
        while self._waiting:
            uuid, parts = next(iter(self._waiting.items()))
            if now - parts.began_at < self._expire_s:
                return
            self._drop(uuid)

    def clear(self) -> None:
        """Forgets everything: what is delivered from now on begins anew."""
        self._waiting.clear()
        self.dropped.clear()
        self.repeated.clear()

    def _drop(self, uuid: str) -> None:
        self.dropped += self._waiting.pop(uuid).ids
