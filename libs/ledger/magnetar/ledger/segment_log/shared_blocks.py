"""Blocks of segment files that several readers want at about the same time.

When many topics catch up at once, their entries lie interleaved on the disk: each reader would ask the system
for one record here and one there, and its neighbor for the records beside them. The second to ask for a part
of a file makes all of that block be read, and the others find theirs in it. A reader that is alone pays
nothing.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from magnetar.ledger.segment_log.segment import Segment

BLOCK_BYTES: Final = 64 * 1024
BLOCKS_MAX: Final = 128
"""Blocks kept, the least recently used go first: 8 MiB."""

ASKED_MAX: Final = 1024
"""Blocks that somebody asked for once and that are remembered, as numbers."""

_Key = tuple[Segment, int]


class SharedBlocks:
    """Bytes of sealed and open segments as far as they were durable when they were read. On the loop."""

    __slots__ = ("_asked", "_blocks")

    def __init__(self) -> None:
        self._blocks: OrderedDict[_Key, bytes] = OrderedDict()
        self._asked: OrderedDict[_Key, None] = OrderedDict()

    def find(self, segment: Segment, offset: int, length: int) -> tuple[int, bytes] | None:
        """(its start in the file, the block) that holds `length` bytes at `offset`; None when there is none.

        Reads from the page cache only: what has to come from the device is not worth guessing about. Raises
        OSError.
        """
        number = offset // BLOCK_BYTES
        key, start = (segment, number), number * BLOCK_BYTES
        end = offset + length - start
        block = self._blocks.get(key)
        if block is not None and end <= len(block):
            self._blocks.move_to_end(key)
            return start, block
        if end > BLOCK_BYTES or not self._wanted_again(key):
            return None
        block = segment.file.pread_nowait(min(BLOCK_BYTES, segment.durable_end - start), start)
        if block is None or end > len(block):
            return None
        self._blocks[key] = block
        self._blocks.move_to_end(key)
        if len(self._blocks) > BLOCKS_MAX:
            self._blocks.popitem(last=False)
        return start, block

    def forget(self, segment: Segment) -> None:
        """The segment goes: its file may be removed, or written anew under another name."""
        for held in (self._blocks, self._asked):
            for key in [key for key in held if key[0] is segment]:
                del held[key]

    def _wanted_again(self, key: _Key) -> bool:
        """Whether somebody asked for this block before; notes that somebody did."""
        if key in self._asked:
            return True
        self._asked[key] = None
        if len(self._asked) > ASKED_MAX:
            self._asked.popitem(last=False)
        return False
