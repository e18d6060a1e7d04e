"""Bundle counts per broker, in total and per namespace, including bundles on their way.

Follows the owner keys; an assigned bundle counts for its new owner at once, so that consecutive decisions
take each other into account. An expectation that is not fulfilled expires.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from magnetar.common.cluster.bundle_owners import Bundle
from magnetar.common.naming.namespace_name import NamespaceName

EXPECTED_S: Final = 60.0
"""Seconds for which an expected bundle counts for its future owner."""

Run: TypeAlias = tuple[str, int]
"""A broker id and its run."""

_NOBODY: Final[Mapping[Run, int]] = {}


@dataclass(frozen=True, slots=True)
class _Expected:
    actual: Run | None
    at: float


class OwnerCounts:
    """Counts of owned and expected bundles; synchronous, time is a parameter."""

    def __init__(self) -> None:
        self._owner: dict[Bundle, Run] = {}
        self._bundles: Counter[Run] = Counter()
        self._of_namespace: dict[NamespaceName, Counter[Run]] = {}
        self._expected: dict[Bundle, _Expected] = {}
        self._changed: set[Run] = set()

    def bundles(self, run: Run) -> int:
        """Returns the number of bundles of a broker run."""
        return self._bundles[run]

    def take_changed(self) -> set[Run]:
        """Returns the broker runs whose counts have changed since the last call."""
        changed, self._changed = self._changed, set()
        return changed

    def of_namespace(self, namespace: NamespaceName) -> Mapping[Run, int]:
        """Returns the number of bundles of a namespace per broker run, without zeros."""
        return self._of_namespace.get(namespace, _NOBODY)

    def changed(self, bundle: Bundle, owner: Run | None) -> None:
        """Records the owner in metadata (None: no owner), which replaces any expectation."""
        self._expected.pop(bundle, None)
        self._set(bundle, owner)

    def expect(self, bundle: Bundle, owner: Run, now: float) -> None:
        """Expects the bundle at this owner."""
        earlier = self._expected.pop(bundle, None)
        actual = self._owner.get(bundle) if earlier is None else earlier.actual
        self._expected[bundle] = _Expected(actual, now)
        self._set(bundle, owner)

    def expect_no_more(self, bundle: Bundle) -> None:
        """Withdraws an expectation."""
        expected = self._expected.pop(bundle, None)
        if expected is not None:
            self._set(bundle, expected.actual)

    def forget_expected(self, now: float) -> None:
        """Expires old expectations."""
        for bundle, expected in list(self._expected.items()):
            if now - expected.at < EXPECTED_S:
                return  # ordered by time
            self.expect_no_more(bundle)

    def _set(self, bundle: Bundle, owner: Run | None) -> None:
        before = self._owner.pop(bundle, None)
        namespace = bundle[0]
        if before is not None:
            self._changed.add(before)
            _subtract(self._bundles, before)
            of_namespace = self._of_namespace[namespace]
            _subtract(of_namespace, before)
            if not of_namespace:
                del self._of_namespace[namespace]
        if owner is not None:
            self._changed.add(owner)
            self._owner[bundle] = owner
            self._bundles[owner] += 1
            self._of_namespace.setdefault(namespace, Counter())[owner] += 1


def _subtract(counts: Counter[Run], run: Run) -> None:
    counts[run] -= 1
    if not counts[run]:
        del counts[run]
