"""Detection of lost bookies: known bookies that have been down for longer than a delay."""

from __future__ import annotations

from collections.abc import Iterable


class LostBookies:
    """Tracks known and running bookies; times are monotonic seconds."""

    def __init__(self, delay_s: float) -> None:
        self._delay_s = delay_s
        self._lost_at: dict[str, float] = {}

    def update(self, known: Iterable[str], up: Iterable[str], now: float) -> None:
        """Updates the known bookies and those that are up. A bookie that came back is no longer lost."""
        away = sorted(set(known).difference(up))
        self._lost_at = {bookie: self._lost_at.get(bookie, now + self._delay_s) for bookie in away}

    def lost(self, now: float) -> frozenset[str]:
        """Returns the bookies that were away for the whole delay."""
        return frozenset(bookie for bookie, lost_at in self._lost_at.items() if lost_at <= now)

    def next_loss(self, now: float) -> float | None:
        """Returns when the next bookie counts as lost unless it comes back; None: no other bookie is away."""
        return min((lost_at for lost_at in self._lost_at.values() if lost_at > now), default=None)
