"""Which ledgers garbage collection has found gone, remembered over restarts.

Only the guard against lost metadata needs it: bytes of a ledger that was already judged gone may lie in
segment files for long, and must not look like one more ledger that is missing. The file also keeps the
highest metadata revision seen, so that metadata restored from an older copy is noticed, and the restoration
that was believed last, so that it does not vouch for another such copy. Losing the file makes the guard more
careful and nothing else.

    condemned:  0 8 magic "MGNTRGCS"   8 2 format version (1)   10 2 0   12 4 incompatible feature bits
               16 8 metadata revision   24 4 count   28 .. by ledger: id (8), key (8)
               then 16 id of the restoration, left out without one
               then 4 CRC32-C of everything before it
"""

from __future__ import annotations

import struct
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Final

from crc32c import crc32c
from magnetar.common.errors import DataCorruption
from magnetar.common.runtime.disk import Disk
from magnetar.ledger.ledger_store import LedgerRef
from magnetar.ledger.segment_log.codec_v1 import FORMAT_VERSION, check_format

CONDEMNED: Final = "condemned"
_NEW: Final = "condemned.new"
_MAGIC: Final = b"MGNTRGCS"
_HEADER = struct.Struct("<8sHHIQI")
_REF = struct.Struct("<qQ")
_CRC = struct.Struct("<I")
_RESTORATION_BYTES: Final = 16


@dataclass(frozen=True, slots=True)
class Remembered:
    """The content of the file."""

    revision: int = 0
    """The highest metadata revision seen."""
    refs: Collection[LedgerRef] = field(default_factory=frozenset)
    """Ledgers found deleted."""
    restoration_id: bytes = b""
    """The last restoration whose metadata was accepted; 16 bytes, empty without one."""


def encode_condemned(what: Remembered) -> bytes:
    """Encodes the whole file."""
    if len(what.restoration_id) not in (0, _RESTORATION_BYTES):
        raise ValueError("the id of a restoration has 16 bytes")
    data = _HEADER.pack(_MAGIC, FORMAT_VERSION, 0, 0, what.revision, len(what.refs))
    ordered = sorted(what.refs, key=lambda ref: (ref.id, ref.key))
    data += b"".join(_REF.pack(ref.id, ref.key) for ref in ordered)
    data += what.restoration_id
    return data + _CRC.pack(crc32c(data))


def decode_condemned(data: bytes) -> Remembered:
    """Decodes the file. Raises UnsupportedFormat, or DataCorruption."""
    if len(data) < _HEADER.size + _CRC.size or data[:8] != _MAGIC:
        raise DataCorruption("the list of condemned ledgers is none")
    _, version, _, features, revision, count = _HEADER.unpack_from(data)
    check_format(version, features, "the list of condemned ledgers")
    refs_end = _HEADER.size + count * _REF.size
    end = len(data) - _CRC.size
    if end - refs_end not in (0, _RESTORATION_BYTES) or _CRC.unpack_from(data, end)[0] != crc32c(data[:end]):
        raise DataCorruption("the list of condemned ledgers is damaged")
    refs = frozenset(LedgerRef(*fields) for fields in _REF.iter_unpack(data[_HEADER.size : refs_end]))
    return Remembered(revision, refs, data[refs_end:end])


def load_condemned(disk: Disk) -> Remembered:
    """Loads the state saved last; empty without one. Blocks. Raises as `decode_condemned`."""
    if CONDEMNED not in disk.listdir(""):
        return Remembered()
    file = disk.open(CONDEMNED, writable=False)
    try:
        return decode_condemned(file.pread(file.size(), 0))
    finally:
        file.close()


def save_condemned(disk: Disk, what: Remembered) -> None:
    """Replaces the saved state, durably. Blocks; raises OSError."""
    if _NEW in disk.listdir(""):
        disk.unlink(_NEW)
    file = disk.open(_NEW, create=True)
    try:
        file.pwritev([encode_condemned(what)], 0)
        file.fdatasync()
    finally:
        file.close()
    disk.rename(_NEW, CONDEMNED)
    disk.sync_dir("")
