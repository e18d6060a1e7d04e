"""Load shedding: which bundles move from one broker to another. Pure; time is a parameter.

Rules against bundles that move in circles:

- A broker is overloaded or underloaded only beyond a threshold around the average, at several
  consecutive comparisons, on smoothed figures.
- A broker that shed or received bundles rests, and a moved bundle rests longer.
- A move has to improve the balance by more than figures vary: the receiving broker must not end up where
  the shedding one was, so a bundle whose load is the whole difference stays.
- The number of shedding brokers and of bundles per broker is limited after each comparison.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Final

from magnetar.broker.load.cluster_load import BrokerLoad, BundleShare
from magnetar.broker.load.config import LoadConfig
from magnetar.common.cluster.bundle_owners import Bundle

BUNDLES_MAX: Final = 10
"""Maximum number of bundles that one broker sheds after one comparison."""

RESTING_MAX: Final = 100_000
"""Maximum number of moved bundles that are remembered."""


@dataclass(frozen=True, slots=True)
class Move:
    """A planned handover of a bundle."""

    bundle: Bundle
    share: float
    """Its share of its broker's load, in percentage points."""
    from_broker: str
    to_broker: str


class Shedder:
    """Plans moves, and remembers earlier ones. One per leader term."""

    def __init__(self, config: LoadConfig) -> None:
        self._config = config.shedding
        self._placement = config.placement
        self._high: dict[str, int] = {}
        self._low: dict[str, int] = {}
        self._broker_moved: dict[str, float] = {}
        self._bundle_moved: dict[Bundle, float] = {}

    def moves(
        self, brokers: Sequence[BrokerLoad], now: float, allowed: Callable[[Bundle, str], bool]
    ) -> list[Move]:
        """Compares all brokers once; the returned moves count as done.

        `allowed` says whether a bundle may move to a broker at all.
        """
        self._forget_rested(now)
        active = {each.broker_id: each for each in brokers if not each.draining}
        load = {broker_id: each.steady for broker_id, each in active.items()}
        if len(load) < 2:
            self._high, self._low = {}, {}
            return []
        average = sum(load.values()) / len(load)
        self._count(load, average)
        plan = _Plan(load, average, self._config.threshold_percent, allowed)
        resting = self._broker_moved.keys()
        plan.takers = [each for each in load if each not in resting]
        found: list[Move] = []
        for givers in (self._with_too_much(load, average), self._above_average(load, average)):
            gave = 0
            for broker_id, goal in givers:
                movable = [each for each in active[broker_id].shares if each.bundle not in self._bundle_moved]
                moves = plan.moves_from(broker_id, goal, movable)
                found += moves
                gave += bool(moves)
                if gave == self._config.brokers_max:
                    break
            if found:
                break
        for move in found:
            self._broker_moved[move.from_broker] = self._broker_moved[move.to_broker] = now
            if len(self._bundle_moved) < RESTING_MAX:
                self._bundle_moved[move.bundle] = now
            self._high.pop(move.from_broker, None)
            self._low.pop(move.to_broker, None)
        return found

    def limit(self, load: Collection[float]) -> float | None:
        """Returns the load in percent above which one of these brokers has too much: beyond the average, or
        overloaded and beyond the least loaded one; None for less than two brokers.
        """
        if len(load) < 2:
            return None
        threshold = self._config.threshold_percent
        overloaded = max(self._placement.overloaded_percent, min(load) + threshold)
        return min(sum(load) / len(load) + threshold, overloaded)

    def rests_s(self, bundle: Bundle, broker_id: str, now: float) -> float:
        """Returns for how many seconds neither the bundle nor bundles of the broker are moved."""
        never = float("-inf")
        broker = self._broker_moved.get(broker_id, never) + self._config.broker_rest_s
        moved = self._bundle_moved.get(bundle, never) + self._config.bundle_rest_min * 60
        return max(0.0, broker - now, moved - now)

    def _count(self, load: dict[str, float], average: float) -> None:
        threshold, limit = self._config.threshold_percent, self.limit(load.values())
        high = {each for each, percent in load.items() if limit is not None and percent > limit}
        low = {each for each, percent in load.items() if percent < average - threshold}
        self._high = {each: self._high.get(each, 0) + 1 for each in high}
        self._low = {each: self._low.get(each, 0) + 1 for each in low}

    def _with_too_much(self, load: dict[str, float], average: float) -> list[tuple[str, float]]:
        """Returns the overloaded brokers, most loaded first, and how much load each has to shed."""
        hits, worth = self._config.hits, self._config.threshold_percent / 2
        return [
            (each, max(load[each] - average, worth))
            for each in self._rested(load)
            if self._high.get(each, 0) >= hits
        ]

    def _above_average(self, load: dict[str, float], average: float) -> list[tuple[str, float]]:
        """Returns the brokers that can relieve an underloaded one, most loaded first, and by how much.

        None gives more than leaves it near the average; otherwise it would be underloaded next.
        """
        hits, margin = self._config.hits, self._config.threshold_percent / 2
        rested = self._rested(load)
        if not any(self._low.get(each, 0) >= hits for each in rested):
            return []
        return [(each, load[each] - average + margin) for each in rested if load[each] > average]

    def _rested(self, load: dict[str, float]) -> list[str]:
        rested = (each for each in load if each not in self._broker_moved)
        return sorted(rested, key=lambda each: (-load[each], each))

    def _forget_rested(self, now: float) -> None:
        broker_rest_s, bundle_rest_s = self._config.broker_rest_s, self._config.bundle_rest_min * 60
        self._broker_moved = {each: at for each, at in self._broker_moved.items() if now - at < broker_rest_s}
        self._bundle_moved = {each: at for each, at in self._bundle_moved.items() if now - at < bundle_rest_s}


class _Plan:
    """The projected load of all brokers while moves are chosen."""

    def __init__(
        self,
        load: dict[str, float],
        average: float,
        threshold: float,
        allowed: Callable[[Bundle, str], bool],
    ) -> None:
        self.takers: list[str] = []
        self._load = dict(load)
        self._average = average
        self._threshold = threshold
        self._allowed = allowed

    def moves_from(self, giver: str, goal: float, movable: Sequence[BundleShare]) -> list[Move]:
        """Returns moves that take about `goal` off the giver; none for a negligible amount."""
        found: list[Move] = []
        before = dict(self._load)
        left = goal
        for each in sorted(movable, key=lambda one: (-one.share, one.bundle)):
            if len(found) < BUNDLES_MAX and 0 < each.share <= left:
                to = self._taker(giver, each)
                if to is not None:
                    found.append(self._move(giver, to, each))
                    left -= each.share
        if goal - left >= self._worth:
            return found
        self._load = before
        return self._single(giver, movable)

    def _single(self, giver: str, movable: Sequence[BundleShare]) -> list[Move]:
        """Returns the smallest bundle above the goal whose move improves the balance, as a list."""
        for each in sorted(movable, key=lambda one: (one.share, one.bundle)):
            if each.share < self._worth:
                continue
            to = self._taker(giver, each)
            if to is not None and self._load[to] + each.share <= self._average + self._threshold:
                return [self._move(giver, to, each)]
        return []

    @property
    def _worth(self) -> float:
        """The minimum improvement, in percentage points, that justifies moves."""
        return self._threshold / 2

    def _taker(self, giver: str, each: BundleShare) -> str | None:
        """Returns the least loaded broker that does not end up as loaded as the giver is now."""
        limit = self._load[giver] - self._worth
        able = [
            broker_id
            for broker_id in self.takers
            if broker_id != giver
            and self._load[broker_id] + each.share <= limit
            and self._allowed(each.bundle, broker_id)
        ]
        return min(able, key=lambda broker_id: (self._load[broker_id], broker_id), default=None)

    def _move(self, giver: str, to: str, each: BundleShare) -> Move:
        self._load[giver] -= each.share
        self._load[to] += each.share
        return Move(each.bundle, each.share, giver, to)
