"""Which broker is given a bundle: pure, on plain figures of the brokers that there are.

First what must be (a broker that drains takes nothing, isolation policies), then what should be, as far as a
broker is left that fits (not overloaded, apart from its anti-affinity group, bundles of a namespace spread
evenly), and of those that are left the one with the least load. Loads that differ by less than a measurement
does count as equal: then the number of bundles decides.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from magnetar.broker.load.config import PlacementConfig

EQUAL_PERCENT: Final = 5.0
"""Percentage points within which two brokers are equally loaded."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A broker that could be given a bundle of a certain namespace."""

    broker_id: str
    usage: float = 0.0
    """Load in percent, with what it was given and has not yet reported."""
    topics: int = 0
    bundles: int = 0
    of_namespace: int = 0
    """Bundles of the same namespace."""
    draining: bool = False
    of_group: int = 0
    """Other namespaces of the same anti-affinity group that it serves."""
    domain: str = ""
    """Its failure domain; empty: a domain of its own."""


def choose(
    candidates: Sequence[Candidate], config: PlacementConfig, allowed: Callable[[Candidate], bool]
) -> str | None:
    """The broker to be given the bundle; None when there is none that may serve it.

    `allowed` says what isolation policies do. The answer depends on nothing else, nor on the order.
    """
    left = [each for each in candidates if not each.draining and allowed(each)]
    if not left:
        return None
    left = _preferred(left, lambda each: each.topics < config.topics_max)
    left = _preferred(left, lambda each: each.usage < config.overloaded_percent)
    if config.failure_domains:
        left = _fewest(left, lambda each: _of_group_in_domain(each, candidates))
    left = _fewest(left, lambda each: each.of_group)
    if config.evenly:
        left = _fewest(left, lambda each: each.of_namespace)
    lowest = min(each.usage for each in left)
    left = [each for each in left if each.usage <= lowest + EQUAL_PERCENT]
    return min(left, key=lambda each: (each.bundles, each.topics, each.usage, each.broker_id)).broker_id


def _preferred(left: list[Candidate], fits: Callable[[Candidate], bool]) -> list[Candidate]:
    return [each for each in left if fits(each)] or left


def _fewest(left: list[Candidate], count: Callable[[Candidate], int]) -> list[Candidate]:
    fewest = min(map(count, left))
    return [each for each in left if count(each) == fewest]


def _of_group_in_domain(candidate: Candidate, candidates: Sequence[Candidate]) -> int:
    if not candidate.domain:
        return candidate.of_group
    return sum(each.of_group for each in candidates if each.domain == candidate.domain)
