"""A store's data directory: one process at a time, and only the one it belongs to.

`LOCK` is held while the store is open. The cookie names the instance whose metadata describes the ledgers: an
identity is never an address or a path.

    cookie:   0 8 magic "MGNTRCOK"   8 2 format version (1)   10 2 0   12 4 incompatible feature bits
             16 2 length of the instance id   18 .. instance id   then 4 CRC32-C of everything before it
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Final, TypeVar

from crc32c import crc32c
from magnetar.common.errors import DataCorruption, StorageError
from magnetar.common.runtime.disk import Disk, DiskFile, replace_file
from magnetar.ledger.segment_log.codec_v1 import FORMAT_VERSION, check_format
from magnetar.ledger.segment_log.unreadable_blocks import is_unreadable

LOCK: Final = "LOCK"
COOKIE: Final = "cookie"
_MAGIC: Final = b"MGNTRCOK"
_HEADER = struct.Struct("<8sHHIH")
_CRC = struct.Struct("<I")
_COOKIE_LOST: Final = (
    "put the file back from a copy of this directory of any age, since it never changes, and start again"
)

T = TypeVar("T")


class WrongDataDirectory(StorageError):
    """The data directory belongs to another instance, or is in use."""


def lock_data_directory(disk: Disk) -> DiskFile:
    """Locks the directory until the returned file is closed. Raises WrongDataDirectory if it is locked."""
    try:
        return disk.lock(LOCK)
    except BlockingIOError as error:
        raise WrongDataDirectory("another process is using this data directory (its LOCK is held)") from error


def check_cookie(disk: Disk, instance_id: bytes, *, has_data: bool) -> None:
    """Writes the cookie into a new directory, or checks that it names this instance.

    Raises WrongDataDirectory on a mismatch, or if there is data without a cookie; DataCorruption.
    """
    names = disk.listdir("")
    if COOKIE in names:
        found = read_identity(disk, COOKIE, _decode, _COOKIE_LOST)
        if found != instance_id:
            raise WrongDataDirectory(
                f"the data directory belongs to instance {found.hex()}, the metadata is of instance "
                f"{instance_id.hex()}: they must be kept, moved and restored together"
            )
        return
    if has_data:
        raise WrongDataDirectory(
            "the data directory holds segments but no cookie: it was not copied as a whole"
        )
    replace_file(disk, COOKIE, _encode(instance_id))


def read_identity(disk: Disk, name: str, decode_file: Callable[[bytes], T], advice: str) -> T:
    """Reads the owner of this directory from its file.

    Raises DataCorruption with `advice` when the file is damaged or the disk cannot read it,
    UnsupportedFormat, OSError.
    """
    file = disk.open(name, writable=False)
    try:
        return decode_file(file.pread(file.size(), 0))
    except DataCorruption as error:
        raise DataCorruption(f"{error}: {advice}") from error
    except OSError as error:
        if not is_unreadable(error):
            raise
        raise DataCorruption(f"the disk cannot read {name} in the data directory: {advice}") from error
    finally:
        file.close()


def _encode(instance_id: bytes) -> bytes:
    data = _HEADER.pack(_MAGIC, FORMAT_VERSION, 0, 0, len(instance_id)) + instance_id
    return data + _CRC.pack(crc32c(data))


def _decode(data: bytes) -> bytes:
    if len(data) < _HEADER.size + _CRC.size or data[:8] != _MAGIC:
        raise DataCorruption("the data directory's cookie is no cookie")
    _, version, _, features, length = _HEADER.unpack_from(data)
    check_format(version, features, "the data directory")
    end = _HEADER.size + length
    if len(data) != end + _CRC.size or _CRC.unpack_from(data, end)[0] != crc32c(data[:end]):
        raise DataCorruption("the data directory's cookie is damaged")
    return data[_HEADER.size : end]
