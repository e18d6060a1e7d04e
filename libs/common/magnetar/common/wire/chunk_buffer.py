"""Buffers the chunks of an incomplete frame.

Chunks are joined once, when the frame is complete: growing one buffer chunk by chunk would copy a large frame
repeatedly (measured: 38 ms against 2.7 ms for 5 MB).
"""

from __future__ import annotations

from typing import Final

_PIECES_MAX: Final = 1024


class ChunkBuffer:
    """The beginning of a byte stream that is divided into frames.

    Memory: the announced length of one frame, plus about a thousand pieces and one more for each thousand
    bytes, however small the peer's chunks are.
    """

    __slots__ = ("_chunks", "_merged", "_needed", "_size")

    def __init__(self) -> None:
        self._chunks: list[bytes] = []
        self._merged = 0
        self._size = 0
        self._needed = 0

    @property
    def size(self) -> int:
        """Number of buffered bytes."""
        return self._size

    def add(self, data: bytes) -> bytes:
        """Adds a chunk; returns the bytes from a frame's beginning on, or b"" while that frame is incomplete.

        The caller returns unused bytes with `keep`.
        """
        chunks = self._chunks
        if not chunks:
            return data
        chunks.append(data)
        self._size += len(data)
        if self._size < self._needed:
            if len(chunks) - self._merged >= _PIECES_MAX:
                chunks[self._merged :] = [b"".join(chunks[self._merged :])]
                self._merged += 1
            return b""
        buffer = b"".join(chunks)
        self._clear()
        return buffer

    def keep(self, rest: bytes, needed: int) -> None:
        """Buffers `rest`, the beginning of a frame, until `needed` bytes of it have arrived."""
        if rest:
            self._chunks = [rest]
            self._size = len(rest)
            self._needed = needed

    def _clear(self) -> None:
        self._chunks = []
        self._merged = 0
        self._size = 0
        self._needed = 0
