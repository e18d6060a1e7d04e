"""Plan of the parts into which a ledger is cut: arithmetic only.

A part is one Parquet file and one task, and parts should have about equal bytes. The distribution of entry
sizes in a ledger is unknown, so evenly spaced entries are measured first; each represents its neighbors.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

PART_BYTES: Final = 128 << 20
"""Bytes of entries in one part: small enough for several tasks a ledger, large enough for few objects."""

PARTS_MAX: Final = 10_000
"""Parts of one ledger: the manifest's list is bounded."""

SAMPLES_A_PART: Final = 64
SAMPLES_MAX: Final = 1_024
SAMPLE_BYTES: Final = 16 << 20
SAMPLE_SHARE: Final = 16
"""Looking takes not much more than SAMPLE_BYTES, or one SAMPLE_SHAREth of a ledger that is larger."""


@dataclass(frozen=True, slots=True)
class PartRange:
    """The entries of one part, both inclusive."""

    number: int
    first_entry_id: int
    last_entry_id: int

    @property
    def entries(self) -> int:
        return self.last_entry_id - self.first_entry_id + 1


def entries_to_measure(last_entry_id: int, byte_length: int, part_bytes: int = PART_BYTES) -> list[int]:
    """Return the entries whose sizes `plan_parts` needs, in order; empty if they would not change the
    plan.
    """
    entries = last_entry_id + 1
    parts = _count(entries, byte_length, part_bytes)
    if parts <= 1 or parts == entries:
        return []
    affordable = max(SAMPLE_BYTES, byte_length // SAMPLE_SHARE) * entries // byte_length
    wanted = min(SAMPLES_A_PART * parts, SAMPLES_MAX)
    count = max(1, min(wanted, affordable, entries))
    return [(first + end) // 2 for first, end in _strata(entries, count)]


def plan_parts(
    last_entry_id: int, byte_length: int, part_bytes: int = PART_BYTES, sizes: Sequence[int] = ()
) -> list[PartRange]:
    """The parts of a ledger of entries 0 to `last_entry_id`, in order and without gaps; none of an empty one.

    `byte_length` is of all its entries together, `sizes` are those of `entries_to_measure`; without them
    entries are taken to be equally large. Fewer parts where one entry has the bytes of several. Raises
    ValueError unless `part_bytes` is positive.
    """
    entries = last_entry_id + 1
    count = _count(entries, byte_length, part_bytes)
    ends = sorted({*_cuts(entries, count, sizes or (1,)), entries}) if count else []
    return [
        PartRange(number, first, end - 1)
        for number, (first, end) in enumerate(zip([0, *ends], ends, strict=False))
    ]


def _count(entries: int, byte_length: int, part_bytes: int) -> int:
    if part_bytes <= 0:
        raise ValueError(f"part_bytes is {part_bytes}: it has to be above 0")
    wanted = -(-byte_length // part_bytes)
    return max(1, min(wanted, entries, PARTS_MAX)) if entries > 0 else 0


def _strata(entries: int, count: int) -> Iterator[tuple[int, int]]:
    """(first, behind the last) of `count` ranges of equally many entries."""
    for number in range(count):
        yield entries * number // count, entries * (number + 1) // count


def _cuts(entries: int, count: int, sizes: Sequence[int]) -> Iterator[int]:
    """Yield the entries after which about one, two ... of `count` equal shares of all bytes lie."""
    strata = [
        (first, end, max(size, 1))
        for (first, end), size in zip(_strata(entries, len(sizes)), sizes, strict=True)
    ]
    total = sum((end - first) * size for first, end, size in strata)
    before, part = 0, 1
    for first, end, size in strata:
        behind = before + (end - first) * size
        while part < count and behind * count >= total * part:
            yield first + -(-(total * part - before * count) // (size * count))
            part += 1
        before = behind
