"""Into which parts a ledger is cut: arithmetic only.

A part is one Parquet file and one task. Entries of a ledger have about the same size, so it is cut into
ranges of equally many; how large a part really is, is known when it is written.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

PART_BYTES: Final = 128 << 20
"""Of entries, in one part: small enough for several tasks a ledger, large enough for few objects."""

PARTS_MAX: Final = 10_000
"""Of one ledger: what its manifest lists has a bound."""


@dataclass(frozen=True, slots=True)
class PartRange:
    """The entries of one part, both inclusive."""

    number: int
    first_entry_id: int
    last_entry_id: int

    @property
    def entries(self) -> int:
        return self.last_entry_id - self.first_entry_id + 1


def plan_parts(last_entry_id: int, byte_length: int, part_bytes: int = PART_BYTES) -> list[PartRange]:
    """The parts of a ledger of entries 0 to `last_entry_id`, in order and without gaps; none of an empty one.

    `byte_length` is of all its entries together. Raises ValueError unless `part_bytes` is positive.
    """
    if part_bytes <= 0:
        raise ValueError(f"part_bytes is {part_bytes}: it has to be above 0")
    return list(_ranges(last_entry_id + 1, byte_length, part_bytes))


def _ranges(entries: int, byte_length: int, part_bytes: int) -> Iterator[PartRange]:
    wanted = -(-byte_length // part_bytes)
    count = max(1, min(wanted, entries, PARTS_MAX)) if entries > 0 else 0
    first = 0
    for number in range(count):
        end = entries * (number + 1) // count
        yield PartRange(number, first, end - 1)
        first = end
