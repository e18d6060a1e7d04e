"""Contents of messages that were sent in chunks, joined at the position of the last one."""

from __future__ import annotations

from typing import Any, Final

from magnetar.common.errors import DataCorruption
from magnetar.common.wire.pulsar_pb2 import NONE, MessageMetadata
from magnetar.ledger.cold.entry_envelope import decode_envelope
from magnetar.ledger.payload_codecs import decompress

BYTES_MAX: Final = 64 << 20
"""Bytes of all incomplete messages together; the oldest ones are dropped for new ones."""


class ChunkContents:
    """Collects chunks of one topic in its order; they must come with their rows' other columns."""

    def __init__(self, bytes_max: int = BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._waiting: dict[tuple[str | None, str], dict[int, bytes]] = {}
        self._bytes = 0

    def add(self, row: dict[str, Any]) -> tuple[bytes, str] | None:
        """Returns (content, reason why it is not known) with the last chunk of a message; None before it."""
        key = (row["producer_name"], row["chunk_uuid"])
        number, total, piece = row["chunk_id"], row["chunk_total"], row["payload"] or b""
        if number == 0:
            self._forget(key)  # An interrupted producer sends all chunks again.
        pieces = self._waiting.setdefault(key, {})
        if number not in pieces:
            pieces[number] = piece
            self._bytes += len(piece)
        if number != total - 1:
            while self._bytes > self._bytes_max:
                self._forget(next(iter(self._waiting)))
            return None
        self._forget(key)
        if len(pieces) < total:
            return b"", f"chunk: {total - len(pieces)} of {total} chunks were not read"
        try:
            return _uncompressed(b"".join(pieces[each] for each in range(total)), row["entry_metadata"]), ""
        except DataCorruption as error:
            return b"", f"chunk: {error}"

    def _forget(self, key: tuple[str | None, str]) -> None:
        self._bytes -= sum(map(len, self._waiting.pop(key, {}).values()))


def _uncompressed(joined: bytes, envelope: bytes) -> bytes:
    metadata = MessageMetadata()
    metadata.MergeFromString(decode_envelope(envelope).metadata)
    if metadata.compression == NONE:
        return joined
    return decompress(metadata.compression, joined, metadata.uncompressed_size)
