"""Which segment files there are: written beside them, so that a file that is missing is noticed.

A segment is on the list before anything in it is confirmed, and off it before its file goes: a file that is
not on the list is one more, and never one too few. Blocks; called in pools, from several threads.

    inventory:  0 8 magic "MGNTRINV"   8 2 format version (1)   10 2 0   12 4 incompatible feature bits
               16 8 group floor   24 4 how many segments   28 .. their sequences, 8 each, ascending
               then 4 CRC32-C of everything before it

The group floor is the highest sequence of a group that may have gone with its segment.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from threading import Lock
from typing import Final

from crc32c import crc32c
from magnetar.common.errors import DataCorruption
from magnetar.common.runtime.disk import Disk, replace_file
from magnetar.ledger.segment_log.codec_v1 import FORMAT_VERSION, check_format

INVENTORY: Final = "inventory"
_MAGIC: Final = b"MGNTRINV"
_HEADER = struct.Struct("<8sHHIQI")
_CRC = struct.Struct("<I")


class SegmentInventory:
    """The list of segments in one data directory."""

    def __init__(self, disk: Disk, sequences: Iterable[int] = (), group_floor: int = 0) -> None:
        self.sequences = set(sequences)
        self.group_floor = group_floor
        self._disk = disk
        self._lock = Lock()

    def replace(self, sequences: Iterable[int], group_floor: int) -> None:
        """Replaces the list at a start. Raises OSError."""
        with self._lock:
            self.sequences = set(sequences)
            self.group_floor = max(self.group_floor, group_floor)
            self._write()

    def add(self, sequence: int) -> None:
        """Adds a segment, which may be used once this returns. Raises OSError."""
        with self._lock:
            self.sequences.add(sequence)
            self._write()

    def remove(self, sequence: int, last_group_sequence: int) -> None:
        """Removes a segment, whose file may be deleted once this returns. Raises OSError."""
        with self._lock:
            if sequence in self.sequences:
                self.sequences.discard(sequence)
                self.group_floor = max(self.group_floor, last_group_sequence)
                self._write()

    def _write(self) -> None:
        replace_file(self._disk, INVENTORY, encode_inventory(self.sequences, self.group_floor))


def encode_inventory(sequences: Iterable[int], group_floor: int) -> bytes:
    """Encodes the whole file."""
    ordered = sorted(sequences)
    data = _HEADER.pack(_MAGIC, FORMAT_VERSION, 0, 0, group_floor, len(ordered))
    data += struct.pack(f"<{len(ordered)}Q", *ordered)
    return data + _CRC.pack(crc32c(data))


def decode_inventory(data: bytes) -> tuple[set[int], int]:
    """Decodes (sequences, group floor). Raises UnsupportedFormat, or DataCorruption."""
    if len(data) < _HEADER.size + _CRC.size or data[:8] != _MAGIC:
        raise DataCorruption(f"{INVENTORY} in the data directory is no list of segments")
    _, version, _, features, group_floor, count = _HEADER.unpack_from(data)
    check_format(version, features, "the data directory's list of segments")
    end = _HEADER.size + 8 * count
    if len(data) != end + _CRC.size or _CRC.unpack_from(data, end)[0] != crc32c(data[:end]):
        raise DataCorruption(f"{INVENTORY} in the data directory is damaged")
    return set(struct.unpack_from(f"<{count}Q", data, _HEADER.size)), group_floor


def read_inventory(disk: Disk) -> SegmentInventory | None:
    """Reads the list in the directory; None without one. Raises UnsupportedFormat, DataCorruption or
    OSError.
    """
    if INVENTORY not in disk.listdir(""):
        return None
    file = disk.open(INVENTORY, writable=False)
    try:
        sequences, group_floor = decode_inventory(file.pread(file.size(), 0))
    finally:
        file.close()
    return SegmentInventory(disk, sequences, group_floor)
