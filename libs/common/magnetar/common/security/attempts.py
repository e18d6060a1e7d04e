"""Failed attempts to authenticate, counted per address and per user name: guessing is refused for a while."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Final

FAILURES_MAX: Final = 10
WINDOW_S: Final = 60.0
"""So many failures within so many seconds lead to refusals without a check."""

REFUSED_S: Final = 60.0
"""Seconds for which attempts are refused."""

SUBJECTS_MAX: Final = 10_000
"""Addresses and names that are remembered; the one that failed longest ago is forgotten first."""


class _Failures:
    __slots__ = ("count", "refused_until", "since")

    def __init__(self, now: float) -> None:
        self.since = now
        self.count = 0
        self.refused_until = float("-inf")


class Attempts:
    """Counts failures of subjects, which are addresses and names in any form."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._failures: OrderedDict[str, _Failures] = OrderedDict()

    def __len__(self) -> int:
        return len(self._failures)

    def are_refused(self, subjects: Iterable[str]) -> bool:
        """Return whether one of the subjects failed too often."""
        now = self._monotonic()
        known = (self._failures.get(subject) for subject in subjects)
        return any(found is not None and now < found.refused_until for found in known)

    def note_failure(self, subjects: Iterable[str]) -> None:
        """Count a failure for each of the subjects."""
        now = self._monotonic()
        for subject in subjects:
            found = self._failures.get(subject)
            if found is None or now - found.since >= WINDOW_S:
                refused_until = float("-inf") if found is None else found.refused_until
                found = self._failures[subject] = _Failures(now)
                found.refused_until = refused_until
            found.count += 1
            if found.count >= FAILURES_MAX:
                found.refused_until = now + REFUSED_S
                found.since, found.count = now, 0
            self._failures.move_to_end(subject)
        while len(self._failures) > SUBJECTS_MAX:
            self._failures.popitem(last=False)
