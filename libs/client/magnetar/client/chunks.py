"""Reassembly of chunked messages."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from magnetar.common.wire.pulsar_pb2 import MessageMetadata

MESSAGES_MAX: Final = 10
"""Maximum number of messages reassembled at a time; a further one drops the oldest, which the broker
redelivers.
"""


@dataclass(slots=True)
class _Parts:
    payloads: list[bytes] = field(default_factory=list)
    ids: list[tuple[int, int]] = field(default_factory=list)


class Chunks:
    """Reassembles the chunked messages of one consumer."""

    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        self._waiting: dict[str, _Parts] = {}

    def add(
        self, metadata: MessageMetadata, entry_id: tuple[int, int], payload: bytes
    ) -> tuple[bytes, list[tuple[int, int]]] | None:
        """Adds a chunk; returns (whole payload, ids of all chunks) with the last chunk, else None."""
        if metadata.chunk_id == 0:
            self._waiting.pop(metadata.uuid, None)
            while len(self._waiting) >= MESSAGES_MAX:
                del self._waiting[next(iter(self._waiting))]
            self._waiting[metadata.uuid] = _Parts()
        parts = self._waiting.get(metadata.uuid)
        if parts is None or metadata.chunk_id != len(parts.payloads):
            return None
        parts.payloads.append(payload)
        parts.ids.append(entry_id)
        if len(parts.payloads) < metadata.num_chunks_from_msg:
            return None
        del self._waiting[metadata.uuid]
        return b"".join(parts.payloads), parts.ids

    def clear(self) -> None:
        self._waiting.clear()
