"""Which bookies count as lost: those that are known, are not up, and have not been for a while."""

from __future__ import annotations

from collections.abc import Iterable


class LostBookies:
    """Fed with what is known and what is up; times are monotonic seconds."""

    def __init__(self, delay_s: float) -> None:
        self._delay_s = delay_s
        self._lost_at: dict[str, float] = {}

    def update(self, known: Iterable[str], up: Iterable[str], now: float) -> None:
        """Existing bookies and those up. A returned bookie is not lost, however long it was away."""
        away = sorted(set(known).difference(up))
        self._lost_at = {bookie: self._lost_at.get(bookie, now + self._delay_s) for bookie in away}

    def lost(self, now: float) -> frozenset[str]:
        """Those away for the whole delay."""
        return frozenset(bookie for bookie, lost_at in self._lost_at.items() if lost_at <= now)

    def next_loss(self, now: float) -> float | None:
        """When the next one will be lost unless it comes back; None: nobody else is away."""
        return min((lost_at for lost_at in self._lost_at.values() if lost_at > now), default=None)
