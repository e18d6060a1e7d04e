"""A file interface of an object: each read is one request to the store."""

from __future__ import annotations

import io
from collections.abc import Callable


class ObjectFile(io.RawIOBase):
    """Reads an object of known size through `read(path, offset, length)`; raises the same errors."""

    def __init__(self, read: Callable[[str, int, int], bytes], path: str, size: int) -> None:
        super().__init__()
        self._read = read
        self._path = path
        self._size = size
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        self._position = max(0, start + offset)
        return self._position

    def read(self, size: int | None = -1, /) -> bytes:
        """Reads bytes; fewer only at the end."""
        left = self._size - self._position
        length = left if size is None or size < 0 else min(size, left)
        if length <= 0:
            return b""
        data = self._read(self._path, self._position, length)
        self._position += len(data)
        return data

    def readall(self) -> bytes:
        return self.read()
