"""Table of the bundles that this broker owns: plain state, read for every topic that is opened."""

from __future__ import annotations

import asyncio
from bisect import bisect_right, insort
from collections.abc import Iterator
from dataclasses import dataclass

from magnetar.common.naming.bundle_range import BundleRange
from magnetar.common.naming.namespace_name import NamespaceName
from magnetar.common.naming.topic_name import TopicName


@dataclass(slots=True, eq=False)
class OwnBundle:
    """A bundle owned by this broker."""

    namespace: NamespaceName
    range: BundleRange
    version: int
    """Version of the owner's key: the epoch of this ownership."""
    since_ms: int
    given: asyncio.Event | None = None
    """Set when a handover in progress ends; None without one. During a handover, no topic of the bundle is
    opened.
    """

    @property
    def giving(self) -> bool:
        """Whether a handover to another broker is in progress."""
        return self.given is not None


class OwnBundles:
    """Bundles owned by this broker, per namespace and in hash-range order; they never overlap."""

    def __init__(self) -> None:
        self._of: dict[NamespaceName, list[OwnBundle]] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[OwnBundle]:
        return (own for owned in list(self._of.values()) for own in list(owned))

    def of(self, namespace: NamespaceName) -> list[OwnBundle]:
        """Returns the owned bundles of a namespace, in order."""
        return list(self._of.get(namespace, ()))

    def get(self, namespace: NamespaceName, bundle: BundleRange) -> OwnBundle | None:
        """Returns the owned bundle with exactly this range; None when it is not owned."""
        found = self._at(namespace, bundle.lower)
        return found if found is not None and found.range == bundle else None

    def of_topic(self, name: TopicName) -> OwnBundle | None:
        """Returns the owned bundle that contains the topic."""
        if name.namespace not in self._of:
            return None
        ring_hash = name.hash
        found = self._at(name.namespace, ring_hash)
        return found if found is not None and ring_hash in found.range else None

    def overlapping(self, namespace: NamespaceName, bundle: BundleRange) -> list[OwnBundle]:
        """Returns the owned bundles that share a hash with the given one."""
        return [own for own in self._of.get(namespace, ()) if own.range.overlaps(bundle)]

    def add(self, own: OwnBundle) -> None:
        """Adds a bundle, which must not overlap with another."""
        overlapping = self.overlapping(own.namespace, own.range)
        assert not overlapping, (
            f"{own.range} and {overlapping[0].range} of {own.namespace} overlap and are both owned"
        )
        insort(self._of.setdefault(own.namespace, []), own, key=_lower)
        self._count += 1

    def remove(self, own: OwnBundle) -> bool:
        """Removes a bundle; returns False when it was not owned."""
        owned = self._of.get(own.namespace, [])
        if own not in owned:
            return False
        owned.remove(own)
        if not owned:
            del self._of[own.namespace]
        self._count -= 1
        return True

    def clear(self) -> None:
        self._of.clear()
        self._count = 0

    def _at(self, namespace: NamespaceName, ring_hash: int) -> OwnBundle | None:
        """Returns the last owned bundle that begins at or below the hash."""
        owned = self._of.get(namespace)
        if owned is None:
            return None
        at = bisect_right(owned, ring_hash, key=_lower) - 1
        return owned[at] if at >= 0 else None


def _lower(own: OwnBundle) -> int:
    return own.range.lower
