"""Bundles: ranges of a namespace's 32-bit hash ring, the unit of ownership."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from magnetar.common.errors import InvalidName

DEFAULT_BUNDLES: Final = 4
BUNDLES_MAX: Final = 128
RING_END: Final = 0xFFFF_FFFF
"""The highest hash; as a bundle's upper end it is inclusive."""

_TEXT: Final = re.compile(r"0x([0-9a-f]{8})_0x([0-9a-f]{8})", re.ASCII)


@dataclass(frozen=True, slots=True, order=True)
class BundleRange:
    """Hashes from `lower` inclusive to `upper` exclusive, the ring's end inclusive.

    Text form, as in Pulsar's REST paths: `0x40000000_0x80000000`.
    """

    lower: int
    upper: int

    @staticmethod
    def parse(text: str) -> BundleRange:
        """Parse the text form; raises InvalidName."""
        found = _TEXT.fullmatch(text)
        if found is None:
            raise InvalidName(f"{text!r} is not a bundle; it has the form 0x00000000_0x40000000")
        lower, upper = int(found[1], 16), int(found[2], 16)
        if lower >= upper:
            raise InvalidName(f"bundle {text!r} is empty: its lower end is not below its upper end")
        return BundleRange(lower, upper)

    def __contains__(self, ring_hash: int) -> bool:
        return self.lower <= ring_hash < self.upper or ring_hash == self.upper == RING_END

    def overlaps(self, other: BundleRange) -> bool:
        """Returns whether the ranges share a hash."""
        return self.lower < other.upper and other.lower < self.upper

    def __str__(self) -> str:
        return f"0x{self.lower:08x}_0x{self.upper:08x}"


def split_ring(count: int = DEFAULT_BUNDLES) -> list[BundleRange]:
    """Divides the ring into `count` bundles of equal size (the last takes the remainder), in order."""
    if not 1 <= count <= BUNDLES_MAX:
        raise InvalidName(f"a namespace has 1 to {BUNDLES_MAX} bundles, not {count}")
    size = 2**32 // count
    ends = [index * size for index in range(count)] + [RING_END]
    return [BundleRange(lower, upper) for lower, upper in pairwise(ends)]


def cut_ring(boundaries: Sequence[int]) -> list[BundleRange]:
    """Divides the ring at `boundaries`, which must be ascending and strictly within the ring."""
    edges = [0, *boundaries, RING_END]
    if len(edges) > BUNDLES_MAX + 1:
        raise InvalidName(f"a namespace has 1 to {BUNDLES_MAX} bundles, not {len(edges) - 1}")
    if any(lower >= upper for lower, upper in pairwise(edges)):
        raise InvalidName("bundle boundaries must ascend, each strictly between 0x00000000 and 0xffffffff")
    return [BundleRange(lower, upper) for lower, upper in pairwise(edges)]
