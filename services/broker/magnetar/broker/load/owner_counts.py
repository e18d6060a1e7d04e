"""How many bundles each broker has, of all and of each namespace, with those that are on their way to it.

Follows the owners' keys; a bundle that is about to be a broker's counts as its at once, so that decisions
taken in a row see each other. What was expected and does not come about counts no more after a while.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from magnetar.common.cluster.bundle_owners import Bundle
from magnetar.common.naming.namespace_name import NamespaceName

EXPECTED_S: Final = 60.0
"""For how long a bundle counts as a broker's that is to have it."""

Run: TypeAlias = tuple[str, int]
"""A broker, and which of its runs."""

_NOBODY: Final[Mapping[Run, int]] = {}


@dataclass(frozen=True, slots=True)
class _Expected:
    actual: Run | None
    at: float


class OwnerCounts:
    """Plain calls; time is given."""

    def __init__(self) -> None:
        self._owner: dict[Bundle, Run] = {}
        self._bundles: Counter[Run] = Counter()
        self._of_namespace: dict[NamespaceName, Counter[Run]] = {}
        self._expected: dict[Bundle, _Expected] = {}

    def bundles(self, run: Run) -> int:
        """How many it has."""
        return self._bundles[run]

    def of_namespace(self, namespace: NamespaceName) -> Mapping[Run, int]:
        """How many of a namespace's bundles each has that has any."""
        return self._of_namespace.get(namespace, _NOBODY)

    def changed(self, bundle: Bundle, owner: Run | None) -> None:
        """Metadata says that it is this one's, or nobody's; that is where it is, whatever was expected."""
        self._expected.pop(bundle, None)
        self._set(bundle, owner)

    def expect(self, bundle: Bundle, owner: Run, now: float) -> None:
        """It is about to be this one's."""
        earlier = self._expected.pop(bundle, None)
        actual = self._owner.get(bundle) if earlier is None else earlier.actual
        self._expected[bundle] = _Expected(actual, now)
        self._set(bundle, owner)

    def expect_no_more(self, bundle: Bundle) -> None:
        """It did not come about."""
        expected = self._expected.pop(bundle, None)
        if expected is not None:
            self._set(bundle, expected.actual)

    def forget_expected(self, now: float) -> None:
        """What was expected too long ago is not expected any more."""
        for bundle, expected in list(self._expected.items()):
            if now - expected.at < EXPECTED_S:
                return  # they are in the order of time
            self.expect_no_more(bundle)

    def _set(self, bundle: Bundle, owner: Run | None) -> None:
        before = self._owner.pop(bundle, None)
        namespace = bundle[0]
        if before is not None:
            _subtract(self._bundles, before)
            of_namespace = self._of_namespace[namespace]
            _subtract(of_namespace, before)
            if not of_namespace:
                del self._of_namespace[namespace]
        if owner is not None:
            self._owner[bundle] = owner
            self._bundles[owner] += 1
            self._of_namespace.setdefault(namespace, Counter())[owner] += 1


def _subtract(counts: Counter[Run], run: Run) -> None:
    counts[run] -= 1
    if not counts[run]:
        del counts[run]
