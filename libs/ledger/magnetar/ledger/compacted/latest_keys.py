"""The latest message of each key among new messages, in bounded memory without an object per key.

Hashes and values are appended to 1,024 partitions. A partition that doubled is folded: one dictionary, in the
order of arrival, keeps the last value of each hash. So a key costs 20 to 40 bytes, a message about half a
microsecond, and no step takes longer than folding one partition.

A value is the ordinal of a message, doubled, plus one if it deletes its key.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from struct import iter_unpack
from typing import Final

from magnetar.ledger.compacted.page import HASH_BYTES

PARTITIONS: Final = 1024
ORDINAL_MAX: Final = 2**31 - 1
"""Highest ordinal; messages beyond it need another table."""

_FOLD_MIN: Final = 64
_RECORD_BYTES: Final = HASH_BYTES + 4


class LatestKeys:
    """The last value of each hash."""

    __slots__ = ("_fold_at", "_hashes", "_records", "_values")

    def __init__(self) -> None:
        self._hashes = [bytearray() for _ in range(PARTITIONS)]
        self._values = [array("I") for _ in range(PARTITIONS)]
        self._fold_at = [_FOLD_MIN] * PARTITIONS
        self._records = 0

    @property
    def byte_length(self) -> int:
        """Bytes in use, about."""
        return self._records * _RECORD_BYTES

    def add(self, key_hash: bytes, ordinal: int, deletes: bool) -> None:
        """Adds a message that is later than all before it."""
        at = key_hash[0] | (key_hash[1] & 3) << 8
        values = self._values[at]
        values.append(ordinal << 1 | deletes)
        self._hashes[at] += key_hash
        self._records += 1
        if len(values) >= self._fold_at[at]:
            self._fold(at)

    def _fold(self, at: int) -> dict[bytes, int]:
        hashes, values = self._hashes[at], self._values[at]
        latest = dict(zip(_hashes_in(hashes), values, strict=True))
        if len(latest) < len(values):
            self._records -= len(values) - len(latest)
            # A key that came again keeps its place in the dictionary, so both columns stay aligned.
            self._hashes[at] = bytearray(b"".join(latest))
            self._values[at] = array("I", latest.values())
        self._fold_at[at] = max(_FOLD_MIN, 2 * len(latest))
        return latest

    def partitions(self) -> Iterator[dict[bytes, int]]:
        """Yields the hashes of one partition after the other, with their last value."""
        for at in range(PARTITIONS):
            yield self._fold(at)


def _hashes_in(data: bytes | bytearray) -> Iterator[bytes]:
    return (key_hash for (key_hash,) in iter_unpack(f"{HASH_BYTES}s", data))


def split_hashes(data: bytes) -> list[bytes]:
    """Returns hashes that stand one after the other."""
    return list(_hashes_in(data))
