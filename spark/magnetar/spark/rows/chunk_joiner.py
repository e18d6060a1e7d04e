"""Joins messages that were sent in chunks: one row at the position of the last chunk.

Chunks of a message are in order, interleaved with those of other producers; task ranges and stream batches
end anywhere. So the task that reads the last chunk produces the message, and searches entries before its
range for missing chunks. Buffered chunks are bounded. A message beyond the bound, or with missing chunks,
produces only its last chunk, with the cause in `raw_reason`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from magnetar.common.errors import DataCorruption
from magnetar.common.wire.pulsar_pb2 import NONE, CompressionType, MessageMetadata
from magnetar.ledger.cold.entry_envelope import decode_envelope
from magnetar.ledger.payload_codecs import decompress

CHUNKS_MAX: Final = 10_000
"""Chunks of one message."""

WAITING_MAX: Final = 1_000
"""Maximum incomplete messages; the oldest is dropped for a new one."""

INCOMPLETE: Final = "chunk: "
"""Prefix of the reason of a chunk that could not be joined."""


class MessageKey(NamedTuple):
    """The key shared by the chunks of a message."""

    producer_name: str
    uuid: str


class Chunk(NamedTuple):
    """One chunk: a row."""

    producer_name: str
    uuid: str
    number: int
    total: int
    payload: bytes

    @property
    def key(self) -> MessageKey:
        return MessageKey(self.producer_name, self.uuid)


@dataclass(slots=True)
class _Waiting:
    total: int
    pieces: dict[int, bytes] = field(default_factory=dict)
    size: int = 0


class Whole(NamedTuple):
    """The row that replaces a last chunk."""

    payload: bytes
    reason: str | None
    """Reason why only the last chunk is present; None: the message is complete."""


Search = Callable[[MessageKey], Iterable[Chunk]]
"""Chunks of a message before those that are given at the moment, newest first."""


class ChunkJoiner:
    """Joins the chunks of one topic, which have to be given in the topic's order."""

    def __init__(self, bytes_max: int, search: Search) -> None:
        """`bytes_max`: of one message, and of all that wait together."""
        self._bytes_max = bytes_max
        self._search = search
        self._waiting: dict[MessageKey, _Waiting] = {}
        self._bytes = 0

    def add(self, chunk: Chunk, envelope: Callable[[], bytes | None]) -> Whole | None:
        """The message with its last chunk, else None. `envelope` is the row's column `entry_metadata`."""
        key = chunk.key
        if chunk.number == 0:
            self._forget(key)  # A producer that was interrupted sends all of them again.
        waiting = self._waiting.get(key)
        if waiting is None:
            waiting = self._waiting[key] = _Waiting(chunk.total)
        self._keep(waiting, chunk)
        if chunk.number != chunk.total - 1:
            self._make_room(key)
            return None
        if len(waiting.pieces) < chunk.total <= CHUNKS_MAX and 0 not in waiting.pieces:
            self._look_back(key, waiting)
        self._forget(key)
        return self._whole(chunk, waiting, envelope)

    def _keep(self, waiting: _Waiting, chunk: Chunk) -> None:
        if chunk.number in waiting.pieces or chunk.total != waiting.total:
            return
        waiting.pieces[chunk.number] = chunk.payload
        waiting.size += len(chunk.payload)
        self._bytes += len(chunk.payload)

    def _look_back(self, key: MessageKey, waiting: _Waiting) -> None:
        """A chunk that was kept is newer than one of the same number that is found."""
        for chunk in self._search(key):
            self._keep(waiting, chunk)
            if 0 in waiting.pieces or waiting.size > self._bytes_max:
                return

    def _make_room(self, newest: MessageKey) -> None:
        """Drop the oldest incomplete message; its chunks are searched again if its last chunk arrives."""
        while len(self._waiting) > WAITING_MAX or (self._bytes > self._bytes_max and len(self._waiting) > 1):
            oldest = next(key for key in self._waiting if key != newest)
            self._forget(oldest)
        waiting = self._waiting[newest]
        if waiting.size > self._bytes_max:
            # It is too large: its pieces are of no use any more, that there were some is.
            self._bytes -= sum(map(len, waiting.pieces.values()))
            waiting.pieces = dict.fromkeys(waiting.pieces, b"")

    def _forget(self, key: MessageKey) -> None:
        waiting = self._waiting.pop(key, None)
        if waiting is not None:
            self._bytes -= sum(map(len, waiting.pieces.values()))

    def _whole(self, last: Chunk, waiting: _Waiting, envelope: Callable[[], bytes | None]) -> Whole:
        if waiting.size > self._bytes_max:
            return _alone(last, f"the message has more than {self._bytes_max} bytes; raise chunk.bytes.max")
        missing = last.total - len(waiting.pieces)
        if missing or last.total > CHUNKS_MAX:
            return _alone(
                last, f"{missing} of {last.total} chunks are not in the topic, or too far before it"
            )
        joined = b"".join(waiting.pieces[number] for number in range(last.total))
        try:
            return Whole(uncompressed(joined, envelope()), None)
        except DataCorruption as error:
            return _alone(last, str(error))


def _alone(last: Chunk, reason: str) -> Whole:
    return Whole(last.payload, INCOMPLETE + reason)


def uncompressed(joined: bytes, envelope: bytes | None) -> bytes:
    """The joined payload as it was before the client compressed and cut it. Raises DataCorruption."""
    if envelope is None:
        raise DataCorruption("a chunk without its entry's envelope")
    metadata = MessageMetadata()
    metadata.MergeFromString(decode_envelope(envelope).metadata)
    compression: CompressionType.ValueType = metadata.compression
    if compression == NONE:
        return joined
    return decompress(compression, joined, metadata.uncompressed_size)
