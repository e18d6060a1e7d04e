"""Parquet's split block Bloom filters: a few bytes tell that a row group lacks a key.

pyarrow writes these filters and tells where they are, but does not ask them. The rules come from
BloomFilter.md of the Parquet format, and from the specification of XXH64.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

BLOCK_BYTES: Final = 32
HEADER_BYTES_MAX: Final = 19
"""A field with the number of bytes (at most 6 bytes) and the three unions below."""

_NUM_BYTES_FIELD: Final = 0x15
_KNOWN_KIND: Final = bytes.fromhex("1c1c0000" * 3 + "00")
"""Block algorithm, XXH64, uncompressed, in Thrift's compact protocol."""

_SALTS: Final = (
    0x47B6137B,
    0x44974D91,
    0x8824AD5B,
    0xA2B7289D,
    0x705495C7,
    0x2DF1424B,
    0x9EFC4947,
    0x5C6BFB31,
)
_PRIME_1: Final = 0x9E3779B185EBCA87
_PRIME_2: Final = 0xC2B2AE3D27D4EB4F
_PRIME_3: Final = 0x165667B19E3779F9
_PRIME_4: Final = 0x85EBCA77C2B2AE63
_PRIME_5: Final = 0x27D4EB2F165667C5
_MASK: Final = 2**64 - 1


def may_contain(read: Callable[[int, int], bytes], hashes: tuple[int, ...]) -> bool:
    """Returns false only if none of the hashed values is in the filter.

    `read(offset, length)` returns bytes of the filter, offset 0 being its header; two reads of a few bytes
    answer. A filter of an unknown kind may contain anything.
    """
    header = read(0, HEADER_BYTES_MAX)
    found = _header(header)
    if found is None:
        return True
    start, byte_length = found
    blocks = byte_length // BLOCK_BYTES
    for value in dict.fromkeys(hashes):
        block = (value >> 32) * blocks >> 32
        data = read(start + block * BLOCK_BYTES, BLOCK_BYTES)
        if len(data) != BLOCK_BYTES or _has(data, value & 0xFFFFFFFF):
            return True
    return False


def _header(data: bytes) -> tuple[int, int] | None:
    """Returns (bytes of the header, bytes of the blocks); None for an unknown kind."""
    if data[:1] != bytes([_NUM_BYTES_FIELD]):
        return None
    number = shift = 0
    for at in range(1, min(len(data), 6)):
        number |= (data[at] & 0x7F) << shift
        shift += 7
        if data[at] < 0x80:
            break
    else:
        return None
    byte_length = number >> 1  # Zigzag of a positive number.
    end = at + 1 + len(_KNOWN_KIND)
    if number & 1 or byte_length < BLOCK_BYTES or data[at + 1 : end] != _KNOWN_KIND:
        return None
    return end, byte_length


def _has(block: bytes, key: int) -> bool:
    for number, salt in enumerate(_SALTS):
        word = int.from_bytes(block[4 * number : 4 * number + 4], "little")
        if not word >> ((key * salt & 0xFFFFFFFF) >> 27) & 1:
            return False
    return True


def xxh64(data: bytes) -> int:
    """Returns XXH64 of bytes with seed 0, the hash of Parquet's Bloom filters."""
    size, at = len(data), 0
    if size >= 32:
        lanes = [_PRIME_1 + _PRIME_2 & _MASK, _PRIME_2, 0, -_PRIME_1 & _MASK]
        while at <= size - 32:
            for lane in range(4):
                lanes[lane] = _round(lanes[lane], int.from_bytes(data[at : at + 8], "little"))
                at += 8
        value = sum(_rotated(lane, by) for lane, by in zip(lanes, (1, 7, 12, 18), strict=True)) & _MASK
        for lane_value in lanes:
            value = ((value ^ _round(0, lane_value)) * _PRIME_1 + _PRIME_4) & _MASK
    else:
        value = _PRIME_5
    value = value + size & _MASK
    while at <= size - 8:
        value ^= _round(0, int.from_bytes(data[at : at + 8], "little"))
        value = (_rotated(value, 27) * _PRIME_1 + _PRIME_4) & _MASK
        at += 8
    if at <= size - 4:
        value ^= int.from_bytes(data[at : at + 4], "little") * _PRIME_1 & _MASK
        value = (_rotated(value, 23) * _PRIME_2 + _PRIME_3) & _MASK
        at += 4
    for byte in data[at:]:
        value = _rotated(value ^ (byte * _PRIME_5 & _MASK), 11) * _PRIME_1 & _MASK
    value = (value ^ value >> 33) * _PRIME_2 & _MASK
    value = (value ^ value >> 29) * _PRIME_3 & _MASK
    return value ^ value >> 32


def _round(lane: int, number: int) -> int:
    return _rotated(lane + number * _PRIME_2 & _MASK, 31) * _PRIME_1 & _MASK


def _rotated(value: int, by: int) -> int:
    return (value << by | value >> 64 - by) & _MASK
