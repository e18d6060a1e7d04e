"""Division of a namespace's hash ring into bundles, and splits and merges of bundles. Pure functions.

A new namespace has bundles of equal size. Splits and merges move no topic: its hash decides which bundle
contains it. Range ends are those of Pulsar's REST paths (messaging contract, lookup and bundles).
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
"""Name that selects the bundle with the most topics, instead of a range."""


def bundles_of(namespace: Namespace) -> list[BundleRange]:
    """Returns the bundles of a namespace in ring order."""
    if namespace.bundle_boundaries:
        return cut_ring(namespace.bundle_boundaries)
    return split_ring(namespace.bundle_count)


def bundle_at(bundles: Sequence[BundleRange], ring_hash: int) -> int:
    """Returns the bundle that contains this hash; `bundles` must cover the ring."""
    return bisect_right(bundles, ring_hash, key=lambda bundle: bundle.lower) - 1


def cut(namespace: Namespace, boundaries: Sequence[int]) -> None:
    """Replaces the ring's boundaries. Raises InvalidName, also if there are too many bundles."""
    bundles = cut_ring(boundaries)
    namespace.bundle_count = len(bundles)
    namespace.bundle_boundaries[:] = [] if bundles == split_ring(len(bundles)) else boundaries


def split(namespace: Namespace, bundle: BundleRange, boundaries: Iterable[int]) -> None:
    """Splits one bundle of the namespace at `boundaries`, all strictly within it.

    Load statistics of the bundle are dropped. Raises InvalidName if the namespace would exceed its bundle
    limit.
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
    """Returns the bundles that make up a range, in order. Raises InvalidName unless both ends of the range
    are bundle boundaries.
    """
    found = [each for each in bundles if asked.lower <= each.lower and each.upper <= asked.upper]
    if asked.lower not in (each.lower for each in found):
        raise InvalidName(f"invalid bundle range {asked}: no bundle begins at 0x{asked.lower:08x}")
    if asked.upper not in (each.upper for each in found):
        raise InvalidName(f"invalid bundle range {asked}: no bundle ends at 0x{asked.upper:08x}")
    return found


def merge(namespace: Namespace, merged: BundleRange) -> None:
    """Merges the bundles of a range into one; no change if the range is one bundle.

    Load statistics of the merged bundles are dropped. Raises as `within`.
    """
    bundles = bundles_of(namespace)
    parts = within(bundles, merged)
    if len(parts) > 1:
        cut(namespace, [each.lower for each in bundles[1:] if not merged.lower < each.lower < merged.upper])
        for part in parts:
            namespace.resource_quotas.pop(str(part), None)


def parts_of(bundle: BundleRange, boundaries: Iterable[int]) -> list[BundleRange]:
    """Returns the parts of a bundle split at `boundaries`, in order. Raises InvalidName unless at least one
    boundary is given and all are strictly within the bundle.
    """
    inner = sorted(set(boundaries))
    if not inner or not bundle.lower < inner[0] <= inner[-1] < bundle.upper:
        raise InvalidName(
            f"invalid boundaries of bundle {bundle}: give one or more hashes strictly within it"
        )
    edges = [bundle.lower, *inner, bundle.upper]
    return [BundleRange(lower, upper) for lower, upper in pairwise(edges)]


def halves(bundle: BundleRange) -> list[int]:
    """Returns the boundary that halves a bundle; empty if the bundle holds one hash only."""
    middle = bundle.lower + (bundle.upper - bundle.lower) // 2
    return [middle] if middle > bundle.lower else []


def by_topic_count(bundle: BundleRange, hashes: Iterable[int]) -> list[int]:
    """Returns the boundary that divides the topics most evenly; empty if there is none."""
    ordered = sorted(hashes)
    gaps = [index for index in range(1, len(ordered)) if ordered[index - 1] < ordered[index]]
    if not gaps:
        return []
    index = min(gaps, key=lambda each: abs(each - len(ordered) // 2))
    middle = (ordered[index - 1] + ordered[index] + 1) // 2
    return [middle] if middle < bundle.upper else []
