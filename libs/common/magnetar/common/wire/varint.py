"""Protobuf's variable-length integers, for hand-built encodings.

Seven bits per byte, lowest first; the high bit of each byte but the last is set. The ids of a run of entries
are consecutive, so their varints are slices of two tables: `SHORT` holds whole varints, and above that an id
is a two-byte prefix from `LOW` (its lowest 14 bits) followed by the varint of the rest, which is the same for
16,384 ids in a row.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import Final

UINT64_MAX: Final = 2**64 - 1
BLOCK_BITS: Final = 14
BLOCK: Final = 1 << BLOCK_BITS


# Each server makes both tables at its start: joining parts takes 1 ms, encoding each number 15 ms.
_LAST: Final = [bytes((byte,)) for byte in range(0x80)]
_MORE: Final = [bytes((byte | 0x80,)) for byte in range(0x80)]

SHORT: Final[list[bytes]] = _LAST + [low + high for high in _LAST[1:] for low in _MORE]
"""The varints of 0 to 16,383."""

LOW: Final[list[bytes]] = [low + high for high in _MORE for low in _MORE]
"""The first two bytes of the varint of any larger number, by its lowest 14 bits."""


def encode_varint(value: int) -> bytes:
    """Encodes an unsigned 64-bit number; negative numbers count as two's complement, as in protobuf."""
    value &= UINT64_MAX
    if value < BLOCK:
        return SHORT[value]
    return LOW[value & BLOCK - 1] + encode_varint(value >> BLOCK_BITS)


def decode_varint(varint: bytes) -> int:
    """Decodes one whole varint as an unsigned 64-bit number."""
    value = 0
    for byte in reversed(varint):
        value = value << 7 | byte & 0x7F
    return value & UINT64_MAX


def consecutive(first: int, count: int) -> Iterator[tuple[list[bytes], bytes]]:
    """Yields the varints of `count` consecutive numbers, split where their length or upper part changes.

    Yields (heads, tail): each varint is one of the heads followed by the tail. Ids beyond 2^64 are a caller
    error.
    """
    while count > 0:
        low = first & BLOCK - 1
        if first < 128:
            taken = min(count, 128 - first)
            yield SHORT[first : first + taken], b""
        elif first < BLOCK:
            taken = min(count, BLOCK - first)
            yield SHORT[first : first + taken], b""
        else:
            taken = min(count, BLOCK - low)
            yield LOW[low : low + taken], encode_varint(first >> BLOCK_BITS)
        first += taken
        count -= taken


def ascending(numbers: Sequence[int]) -> Iterator[tuple[list[bytes], bytes]]:
    """Yields the same for numbers that ascend with gaps."""
    start = 0
    while start < len(numbers):
        first = numbers[start]
        if first < BLOCK:
            end = bisect_left(numbers, 128 if first < 128 else BLOCK, start)
            yield [SHORT[number] for number in numbers[start:end]], b""
        else:
            end = bisect_left(numbers, (first | BLOCK - 1) + 1, start)
            mask = BLOCK - 1
            yield [LOW[number & mask] for number in numbers[start:end]], encode_varint(first >> BLOCK_BITS)
        start = end
