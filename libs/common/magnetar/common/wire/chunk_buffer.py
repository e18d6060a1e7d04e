"""Collects the chunks of a frame that has not wholly arrived yet.

Chunks are kept as they came and joined once, when the frame is complete: growing one buffer chunk by chunk
copies a large frame over and over (measured: 38 ms against 2.7 ms for 5 MB).
"""

from __future__ import annotations

from typing import Final

_PIECES_MAX: Final = 1024


class ChunkBuffer:
    """The front of a byte stream that is cut into frames.

    Memory: what one frame announced, and at most about a thousand pieces more than its bytes over a thousand,
    however small the chunks are in which a peer sends it.
    """

    __slots__ = ("_chunks", "_merged", "_needed", "_size")

    def __init__(self) -> None:
        self._chunks: list[bytes] = []
        self._merged = 0
        self._size = 0
        self._needed = 0

    @property
    def size(self) -> int:
        """Bytes held back."""
        return self._size

    def add(self, data: bytes) -> bytes:
        """Bytes from a frame's first on, or b"" while that frame is not complete.

        The caller hands back with `keep` what it cannot use yet.
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
        """Hold `rest` back, the beginning of a frame, until `needed` bytes of it are there."""
        if rest:
            self._chunks = [rest]
            self._size = len(rest)
            self._needed = needed

    def _clear(self) -> None:
        self._chunks = []
        self._merged = 0
        self._size = 0
        self._needed = 0
