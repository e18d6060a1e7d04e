"""How the hash ring of a namespace is cut into bundles, and cut again: pure, on what metadata keeps of it.

A namespace begins with equal parts. Splitting a bundle moves no topic: its hash belongs to one of the halves
from then on; nor does merging neighbors. Ends are those of Pulsar's REST paths (messaging contract, lookup
and bundles).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Final

from magnetar.common.errors import InvalidName
from magnetar.common.metadata.values import Namespace
from magnetar.common.naming.bundle_range import BUNDLES_MAX, BundleRange, cut_ring, split_ring

EQUAL_RANGES: Final = "range_equally_divide"
BY_TOPIC_COUNT: Final = "topic_count_equally_divide"
AT_POSITIONS: Final = "specified_positions_divide"
BY_LOAD: Final = "flow_or_qps_equally_divide"
ALGORITHMS: Final = (EQUAL_RANGES, BY_TOPIC_COUNT, AT_POSITIONS, BY_LOAD)

LARGEST: Final = "LARGEST"
"""In place of a range: the bundle with most topics."""


def bundles_of(namespace: Namespace) -> list[BundleRange]:
    """The bundles of a namespace, in the order of the ring."""
    if namespace.bundle_boundaries:
        return cut_ring(namespace.bundle_boundaries)
    return split_ring(namespace.bundle_count)


def bundle_at(bundles: Sequence[BundleRange], ring_hash: int) -> int:
    """Which of all bundles of a ring has this hash."""
    return bisect_right(bundles, ring_hash, key=lambda bundle: bundle.lower) - 1


def cut(namespace: Namespace, boundaries: Sequence[int]) -> None:
    """Have the ring cut at exactly these. Raises InvalidName, also when there are too many."""
    bundles = cut_ring(boundaries)
    namespace.bundle_count = len(bundles)
    namespace.bundle_boundaries[:] = [] if bundles == split_ring(len(bundles)) else boundaries


def split(namespace: Namespace, bundle: BundleRange, boundaries: Iterable[int]) -> None:
    """Cut one bundle of the namespace at `boundaries`, all strictly within it.

    What was said of the bundle's load holds for none of its parts. Raises InvalidName when there would be
    more bundles than a namespace may have.
    """
    inner = [each.upper for each in bundles_of(namespace)[:-1]]
    wanted = sorted({*inner, *boundaries})
    if len(wanted) >= BUNDLES_MAX:
        raise InvalidName(
            f"a namespace has at most {BUNDLES_MAX} bundles, and this would make {len(wanted) + 1}"
        )
    cut(namespace, wanted)
    namespace.resource_quotas.pop(str(bundle), None)


def within(bundles: Sequence[BundleRange], asked: BundleRange) -> list[BundleRange]:
    """Those of all bundles of a ring that make up the range, in order. Raises InvalidName unless one begins
    where it begins, and one ends where it ends.
    """
    found = [each for each in bundles if asked.lower <= each.lower and each.upper <= asked.upper]
    if asked.lower not in (each.lower for each in found):
        raise InvalidName(f"no bundle begins at 0x{asked.lower:08x}, where {asked} does")
    if asked.upper not in (each.upper for each in found):
        raise InvalidName(f"no bundle ends at 0x{asked.upper:08x}, where {asked} does")
    return found


def merge(namespace: Namespace, merged: BundleRange) -> None:
    """Make one bundle of those that make up this range; nothing to do when it is one.

    What was said of their load does not hold for it. Raises as `within`.
    """
    bundles = bundles_of(namespace)
    parts = within(bundles, merged)
    if len(parts) > 1:
        cut(namespace, [each.lower for each in bundles[1:] if not merged.lower < each.lower < merged.upper])
        for part in parts:
            namespace.resource_quotas.pop(str(part), None)


def parts_of(bundle: BundleRange, boundaries: Iterable[int]) -> list[BundleRange]:
    """The parts of a bundle split at `boundaries`, in order. Raises InvalidName unless there are some, and
    all are strictly within it.
    """
    inner = sorted(set(boundaries))
    if not inner or not bundle.lower < inner[0] <= inner[-1] < bundle.upper:
        raise InvalidName(f"bundle {bundle} is cut at hashes strictly within it, at one or more")
    edges = [bundle.lower, *inner, bundle.upper]
    return [BundleRange(lower, upper) for lower, upper in pairwise(edges)]


def halves(bundle: BundleRange) -> list[int]:
    """Where to cut a bundle into equal parts; nowhere when it has one hash only."""
    middle = bundle.lower + (bundle.upper - bundle.lower) // 2
    return [middle] if middle > bundle.lower else []


def by_topic_count(bundle: BundleRange, hashes: Iterable[int]) -> list[int]:
    """Where to cut a bundle so that as many topics are on either side; nowhere when that cannot be."""
    ordered = sorted(hashes)
    gaps = [index for index in range(1, len(ordered)) if ordered[index - 1] < ordered[index]]
    if not gaps:
        return []
    index = min(gaps, key=lambda each: abs(each - len(ordered) // 2))
    middle = (ordered[index - 1] + ordered[index] + 1) // 2
    return [middle] if middle < bundle.upper else []
