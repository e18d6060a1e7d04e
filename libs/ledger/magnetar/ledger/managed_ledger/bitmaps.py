"""Ranges in roaring bitmaps, and the memory that bitmaps use."""

from __future__ import annotations

from collections.abc import Iterator

from pyroaring import BitMap


def first_hole(bitmap: BitMap, start: int) -> int:
    """Returns the first number at or after `start` that is not in the bitmap. The search step doubles."""
    low, step = start, 1
    while bitmap.contains_range(low, low + step):
        low += step
        step *= 2
    # The hole is in [low, low + step).
    while step > 1:
        step //= 2
        if bitmap.contains_range(low, low + step):
            low += step
    return low


def last_hole(bitmap: BitMap, end: int) -> int:
    """Returns the last number at or before `end` that is not in the bitmap; -1 without one."""
    # Everything after `at` up to `end` is in the bitmap. The step doubles, then halves.
    at, step = end, 1
    while at >= 0 and bitmap.contains_range(max(at - step + 1, 0), at + 1):
        at -= step
        step *= 2
    while at >= 0 and step > 1:
        step //= 2
        if bitmap.contains_range(max(at - step + 1, 0), at + 1):
            at -= step
    return max(at, -1)


def ranges_in(bitmap: BitMap) -> Iterator[tuple[int, int]]:
    """Yields the ranges of a bitmap as (first, last), ascending. The bitmap must not change meanwhile."""
    if not bitmap:
        return
    first, end = bitmap.min(), bitmap.max()
    while True:
        last = first_hole(bitmap, first) - 1
        yield first, last
        if last >= end:
            return
        first = bitmap.next_set_bit(last + 1)


def count_ranges(bitmap: BitMap) -> int:
    """Counts the ranges; costs about a copy of the bitmap."""
    return len(bitmap) - bitmap.intersection_cardinality(bitmap.shift(1))


def bitmap_bytes(bitmap: BitMap) -> int:
    """Returns the memory of the bitmap's containers in bytes."""
    statistics = bitmap.get_statistics()
    return (
        statistics["n_bytes_array_containers"]
        + statistics["n_bytes_run_containers"]
        + statistics["n_bytes_bitset_containers"]
    )
