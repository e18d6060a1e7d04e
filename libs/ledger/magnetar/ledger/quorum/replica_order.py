"""Which replica of an entry is read first: a healthy one, a near one, and for a ledger mostly the same one.

A ledger's reads stay with one bookie, whose caches then serve them; which one it is differs from ledger to
ledger, so that the load is spread.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from magnetar.common.runtime.clock import Clock

AVOIDED_S: Final = 5.0
"""How long a bookie that did not answer a read is asked last."""

BOOKIES_MAX: Final = 10_000
"""Bookies remembered; the one that failed longest ago is forgotten first."""


class ReplicaOrder:
    """Remembers who did not answer lately. One per process."""

    __slots__ = ("_clock", "_failed_until", "_is_near")

    def __init__(self, clock: Clock, is_near: Callable[[str], bool] | None = None) -> None:
        """`is_near` tells of bookies in the reader's own rack or zone."""
        self._clock = clock
        self._is_near = is_near
        self._failed_until: dict[str, float] = {}

    def failed(self, bookie_id: str) -> None:
        """It did not answer, or not in time."""
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
        """Best first; `bookie_ids` is the write set in the order of the ensemble."""
        near, count = self._is_near, len(bookie_ids)
        start = ledger_id % count
        turned = [bookie_ids[(start + i) % count] for i in range(count)]
        return sorted(
            turned,
            key=lambda bookie_id: (self.is_avoided(bookie_id), near is not None and not near(bookie_id)),
        )
