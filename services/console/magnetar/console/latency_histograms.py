"""Histograms of Prometheus pages: read, subtracted, added up over processes, and their quantiles. Pure."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from typing import Final, TypeAlias

Buckets: TypeAlias = Mapping[float, float]
"""Cumulative counts by upper bound in seconds; the last bound is infinite."""

BUCKETS_MAX: Final = 200
"""Most buckets read of a histogram."""

_SAMPLE: Final = re.compile(r"^(\w+)_bucket\{([^}]*)\} (\S+)$", re.MULTILINE)
_BOUND: Final = re.compile(r'(?:^|,)le="([^"]+)"')


def read_histograms(page: str, names: Iterable[str]) -> dict[str, Buckets]:
    """Return the histograms with these names; samples with other labels than `le` are added up."""
    found: dict[str, dict[float, float]] = {name: {} for name in names}
    for name, labels, text in _SAMPLE.findall(page):
        buckets, bound = found.get(name), _BOUND.search(labels)
        if buckets is None or bound is None or len(buckets) >= BUCKETS_MAX:
            continue
        try:
            upper, count = float(bound[1]), float(text)
        except ValueError:
            continue
        buckets[upper] = buckets.get(upper, 0.0) + count
    return {name: buckets for name, buckets in found.items() if buckets}


def since(now: Buckets, before: Buckets) -> Buckets:
    """Return what was counted between two pages; all of the later one after a restart of its process."""
    if any(now.get(bound, 0.0) < count for bound, count in before.items()):
        return now
    return {bound: count - before.get(bound, 0.0) for bound, count in now.items()}


def added(histograms: Iterable[Buckets]) -> Buckets:
    """Return the sum of histograms with the same bounds."""
    total: dict[float, float] = {}
    for each in histograms:
        for bound, count in each.items():
            total[bound] = total.get(bound, 0.0) + count
    return total


def quantile(part: float, buckets: Buckets) -> float | None:
    """Return a quantile in seconds as Prometheus' histogram_quantile does: linear within a bucket, and the
    highest finite bound beyond it. None without counts.
    """
    bounds = sorted(buckets)
    if not bounds or buckets[bounds[-1]] <= 0:
        return None
    rank = part * buckets[bounds[-1]]
    lower, below = 0.0, 0.0
    for bound in bounds:
        count = buckets[bound]
        if count >= rank:
            if math.isinf(bound):
                return lower
            return bound if count == below else lower + (bound - lower) * (rank - below) / (count - below)
        lower, below = bound, count
    return lower
