"""Automatic bundle splits: which bundles, and at which hash. Pure, on figures of bundles and topics.

A bundle must exceed a limit at several consecutive checks. It is cut where the measured load of its topics,
of the kinds over their limits, is best balanced. A bundle with a single topic is never cut.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from magnetar.broker.load.config import SplittingConfig
from magnetar.common.cluster.bundle_owners import Bundle
from magnetar.common.control.control_pb2 import Load
from magnetar.common.naming.bundle_range import BundleRange

_MB: Final = 1024 * 1024

_KINDS: Final = ("topics", "sessions", "messages", "bandwidth")


@dataclass(frozen=True, slots=True)
class SplitCandidate:
    """An owned bundle with its load."""

    bundle: Bundle
    load: Load
    namespace_bundles: int
    """Number of bundles of its namespace."""


def share_of_limits(load: Load, config: SplittingConfig, of: Load) -> float:
    """Returns the sum of a load's fractions of the limits, over the kinds that exceed their limit in `of`.

    This is the measure by which a bundle is cut: `load` is a topic's, `of` its bundle's.
    """
    parts = zip(_parts(load, config), _parts(of, config), strict=True)
    return sum(part for part, of_bundle in parts if of_bundle > 1)


def has_too_much(load: Load, config: SplittingConfig) -> bool:
    """Whether a bundle exceeds a limit and a split can help."""
    return load.topics > 1 and max(_parts(load, config)) > 1


def shares_of_each_limit(load: Load, config: SplittingConfig) -> Mapping[str, float]:
    """Returns the load as a fraction of each limit, by the kind of load."""
    return dict(zip(_KINDS, _parts(load, config), strict=True))


def _parts(load: Load, config: SplittingConfig) -> Sequence[float]:
    return (
        load.topics / config.topics_max,
        (load.producers + load.consumers) / config.sessions_max,
        (load.message_rate_in + load.message_rate_out) / config.message_rate_max,
        (load.byte_rate_in + load.byte_rate_out) / (config.bandwidth_max_mb * _MB),
    )


class Splitter:
    """Counts consecutive checks at which each bundle was over a limit. One per broker."""

    def __init__(self, config: SplittingConfig) -> None:
        self._config = config
        self._hits: dict[Bundle, int] = {}

    def due(self, candidates: Iterable[SplitCandidate]) -> list[Bundle]:
        """Checks all owned bundles once; returns those to split now, most loaded first."""
        config, hits = self._config, {}
        ripe: list[SplitCandidate] = []
        for each in candidates:
            if has_too_much(each.load, config) and each.namespace_bundles < config.bundles_max:
                hits[each.bundle] = self._hits.get(each.bundle, 0) + 1
                if hits[each.bundle] >= config.hits:
                    ripe.append(each)
        self._hits = hits
        ripe.sort(key=lambda each: max(_parts(each.load, config)), reverse=True)
        chosen: list[Bundle] = []
        for each in ripe[: config.at_once_max]:
            namespace = each.bundle[0]
            more = sum(other == namespace for other, _ in chosen)
            if each.namespace_bundles + more < config.bundles_max:
                chosen.append(each.bundle)
                del self._hits[each.bundle]
        return chosen


def balanced_cut(bundle: BundleRange, topics: Iterable[tuple[int, float]]) -> list[int]:
    """Returns the cut that best balances the load of the topics, given as (hash, load).

    One boundary strictly within the bundle, with topics on both sides; empty when there is none. Without load
    figures, both sides get the same number of topics.
    """
    at: dict[int, tuple[float, int]] = {}
    for ring_hash, load in topics:
        before, count = at.get(ring_hash, (0.0, 0))
        at[ring_hash] = before + max(load, 0.0), count + 1
    hashes = sorted(at)
    total = sum(load for load, _ in at.values())
    topic_count = sum(count for _, count in at.values())
    best: tuple[float, int, int] | None = None
    left, left_count = 0.0, 0
    for lower, upper in pairwise(hashes):
        left, left_count = left + at[lower][0], left_count + at[lower][1]
        boundary = (lower + upper + 1) // 2
        if not bundle.lower < boundary < bundle.upper:
            continue
        found = abs(2 * left - total), abs(2 * left_count - topic_count), boundary
        if best is None or found < best:
            best = found
    return [] if best is None else [best[2]]
