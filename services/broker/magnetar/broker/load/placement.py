"""Placement of a bundle on a broker: pure, on plain figures of the running brokers.

Hard rules come first (a draining broker takes nothing, isolation policies), then preferences, each applied
only if some broker satisfies it (not overloaded, apart from its anti-affinity group, bundles of a namespace
spread evenly). Of the remaining brokers, the least loaded one is chosen. Loads that differ by less than a
measurement error count as equal; then the number of bundles decides.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Final

from magnetar.broker.load.config import PlacementConfig

EQUAL_PERCENT: Final = 5.0
"""Percentage points within which two loads count as equal."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A candidate owner of a bundle of a certain namespace."""

    broker_id: str
    usage: float = 0.0
    """Load in percent, including bundles that were assigned and are not yet reported."""
    topics: int = 0
    bundles: int = 0
    of_namespace: int = 0
    """Number of its bundles in the same namespace."""
    draining: bool = False
    of_group: int = 0
    """Number of its other namespaces in the same anti-affinity group."""
    domain: str = ""
    """Failure domain; empty: a domain of its own."""


def choose(
    candidates: Sequence[Candidate],
    config: PlacementConfig,
    allowed: Callable[[Candidate], bool] | None = None,
) -> str | None:
    """Returns the broker that should own the bundle; None when no broker may serve it.

    `allowed` applies isolation policies; without it, every broker may. The result depends on nothing else,
    not even on the order of candidates.
    """
    left = [each for each in candidates if not each.draining and (allowed is None or allowed(each))]
    if not left:
        return None
    topics_max, usage_max = config.topics_max, config.overloaded_percent
    left = [each for each in left if each.topics < topics_max] or left
    left = [each for each in left if each.usage < usage_max] or left
    if config.failure_domains:
        left = _fewest(left, lambda each: _of_group_in_domain(each, candidates))
    left = _fewest(left, _OF_GROUP)
    if config.evenly:
        left = _fewest(left, _OF_NAMESPACE)
    equal = min(map(_USAGE, left)) + EQUAL_PERCENT
    left = _fewest([each for each in left if each.usage <= equal], _BUNDLES)
    return min(left, key=lambda each: (each.topics, each.usage, each.broker_id)).broker_id


_OF_GROUP: Final[Callable[[Candidate], int]] = attrgetter("of_group")
_OF_NAMESPACE: Final[Callable[[Candidate], int]] = attrgetter("of_namespace")
_BUNDLES: Final[Callable[[Candidate], int]] = attrgetter("bundles")
_USAGE: Final[Callable[[Candidate], float]] = attrgetter("usage")


def _fewest(left: list[Candidate], count: Callable[[Candidate], int]) -> list[Candidate]:
    counts = list(map(count, left))
    fewest = min(counts)
    return [each for each, found in zip(left, counts, strict=True) if found == fewest]


def _of_group_in_domain(candidate: Candidate, candidates: Sequence[Candidate]) -> int:
    if not candidate.domain:
        return candidate.of_group
    return sum(each.of_group for each in candidates if each.domain == candidate.domain)
