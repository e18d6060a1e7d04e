"""Statistics of the measured figures, and what the project asks of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Literal

QUANTILES = (0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 0.995, 0.999, 0.9999, 1.0)
"""Points of a latency curve."""


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that at least `share` of the values do not exceed; 0.0 when there are none."""
    if not values:
        return 0.0
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]


def curve(values: Sequence[float]) -> list[float]:
    """The values at QUANTILES."""
    return [percentile(values, share) for share in QUANTILES]


def histogram_quantile(buckets: Sequence[tuple[float, float]], share: float) -> float:
    """A quantile of a cumulative histogram, (upper bound, count up to it) by rising bounds.

    Interpolated inside its bucket, as Prometheus does; what lies above the last finite bound counts as that
    bound. 0.0 when nothing was observed.
    """
    wanted = share * buckets[-1][1] if buckets else 0.0
    lower, before = 0.0, 0.0
    for bound, count in buckets:
        if count >= wanted > 0:
            if math.isinf(bound):
                return lower
            return lower + (bound - lower) * (wanted - before) / (count - before)
        lower, before = bound, count
    return 0.0


@dataclass(frozen=True, slots=True)
class Spread:
    """The rounds of one figure."""

    median: float
    lowest: float
    highest: float


def spread(values: Sequence[float]) -> Spread:
    return Spread(median(values), min(values), max(values))


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure of a scenario; its floor and aim are for the ratio to the anchor or the value itself."""

    key: str
    unit: str
    better: Literal["higher", "lower"] = "higher"
    floor: float | None = None
    aim: float | None = None
    of: Literal["ratio", "value"] = "ratio"

    def verdict(self, ours: float, anchor: float | None) -> str:
        """The table cell for `ours`; the anchor's value is None when it was not measured."""
        if self.floor is None:
            return ""
        if self.of == "value":
            judged = ours
        elif anchor is None:
            return "not paired"
        else:
            judged = ours / anchor if anchor else math.inf
        if self._meets(judged, self.floor):
            return "aim met" if self.aim is not None and self._meets(judged, self.aim) else "floor met"
        short = self.floor / judged if self.better == "higher" else judged / self.floor
        return f"**floor missed** by {short:.2f} times"

    def _meets(self, judged: float, wanted: float) -> bool:
        return judged >= wanted if self.better == "higher" else judged <= wanted
