"""Partitions of rows, chosen as Pulsar's clients choose them, so that keys stay together."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Final

from magnetar.client.routing import java_string_hash

_KEYS_KEPT: Final = 65_536

SPREAD_ROWS: Final = 1_000
"""Rows without a key that go to one partition before the next is taken, so that batches fill."""

_MASK: Final = 0xFFFF_FFFF
_C1: Final = 0xCC9E_2D51
_C2: Final = 0x1B87_3593


def _mixed(block: int) -> int:
    block = block * _C1 & _MASK
    return (block << 15 | block >> 17) * _C2 & _MASK


def murmur3_hash(text: str) -> int:
    """murmur3-32 with seed 0 of the text's UTF-8, without its sign."""
    data = text.encode()
    value = 0
    whole = len(data) & ~3
    for at in range(0, whole, 4):
        value ^= _mixed(int.from_bytes(data[at : at + 4], "little"))
        value = ((value << 13 | value >> 19) * 5 + 0xE654_6B64) & _MASK
    if len(data) > whole:
        value ^= _mixed(int.from_bytes(data[whole:], "little"))
    value ^= len(data)
    value = (value ^ value >> 16) * 0x85EB_CA6B & _MASK
    value = (value ^ value >> 13) * 0xC2B2_AE35 & _MASK
    return (value ^ value >> 16) & 0x7FFF_FFFF


HASHES: Final[dict[str, Callable[[str], int]]] = {
    "java": lru_cache(_KEYS_KEPT)(java_string_hash),
    "murmur3": lru_cache(_KEYS_KEPT)(murmur3_hash),
}
"""By the value of the option `hashing`: JavaStringHash, which clients of Java and Go take unless told
otherwise, and Murmur3_32Hash."""


def partition_of(
    key: str | None, row: int, start: int, partitions: int, key_hash: Callable[[str], int]
) -> int:
    """The index of the partition of a row: by its key, or by its number, the first rows at `start`."""
    if key is not None:
        return key_hash(key) % partitions
    return (start + row // SPREAD_ROWS) % partitions
