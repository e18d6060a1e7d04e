"""Order in which replicas are read: healthy, near, and mostly the same one for a ledger.

A ledger's reads stay with one bookie, whose caches then serve them; the choice differs between ledgers, so
that the load is spread.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from magnetar.common.runtime.clock import Clock

AVOIDED_S: Final = 5.0
"""Time in seconds for which a bookie that failed a read is read last."""

BOOKIES_MAX: Final = 10_000
"""Maximum bookies remembered; the one whose failure is oldest is forgotten first."""


class ReplicaOrder:
    """Remembers bookies with recent failures. One per process."""

    __slots__ = ("_clock", "_failed_until", "_is_near")

    def __init__(self, clock: Clock, is_near: Callable[[str], bool] | None = None) -> None:
        """Creates an order. `is_near` returns whether a bookie is in the reader's rack or zone."""
        self._clock = clock
        self._is_near = is_near
        self._failed_until: dict[str, float] = {}

    def failed(self, bookie_id: str) -> None:
        """Records that the bookie did not answer in time."""
        self._failed_until.pop(bookie_id, None)
        if len(self._failed_until) >= BOOKIES_MAX:
            del self._failed_until[next(iter(self._failed_until))]
        self._failed_until[bookie_id] = self._clock.monotonic() + AVOIDED_S

    def answered(self, bookie_id: str) -> None:
        self._failed_until.pop(bookie_id, None)

    def is_avoided(self, bookie_id: str) -> bool:
        until = self._failed_until.get(bookie_id)
        return until is not None and self._clock.monotonic() < until

    def sort(self, ledger_id: int, bookie_ids: Sequence[str]) -> list[str]:
        """Sorts bookies, best first; `bookie_ids` is the write set in ensemble order."""
        near, count = self._is_near, len(bookie_ids)
        start = ledger_id % count
        turned = [bookie_ids[(start + i) % count] for i in range(count)]
        return sorted(
            turned,
            key=lambda bookie_id: (self.is_avoided(bookie_id), near is not None and not near(bookie_id)),
        )
