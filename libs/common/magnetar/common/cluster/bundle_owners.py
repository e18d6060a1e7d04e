"""Which broker owns which bundle, by what metadata says. What nobody owns has no entry.

An owner counts only while its run is up (BrokerDirectory.is_current): the key of a run that is gone may
outlive it by the rest of its lease.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

from magnetar.common.cluster.mirror import Mirror
from magnetar.common.metadata.keys import Keys
from magnetar.common.metadata.store import MetadataStore
from magnetar.common.metadata.values import BundleOwner, decode
from magnetar.common.naming.bundle_range import BundleRange
from magnetar.common.naming.namespace_name import NamespaceName

Bundle: TypeAlias = tuple[NamespaceName, BundleRange]


@dataclass(frozen=True, slots=True)
class Owned:
    """A bundle's owner. `version` is that of its key: the epoch of the ownership."""

    broker_id: str
    run: int
    version: int
    since_ms: int


class BundleOwners:
    """Follows the owners' keys. `start`, then ask; all calls on one loop."""

    def __init__(self, metadata: MetadataStore, keys: Keys) -> None:
        self._mirror = Mirror[Bundle, Owned](
            metadata, keys.bundle_owners_prefix, "owners of bundles", keys.bundle_of_owner, read_owner
        )

    def __len__(self) -> int:
        """How many bundles are owned."""
        return len(self._mirror.items)

    async def start(self) -> None:
        """Follow from now on; returns once the owners are known. Waits while metadata is away."""
        await self._mirror.start()

    async def close(self) -> None:
        """Follow no more; what is known stays. Idempotent."""
        await self._mirror.close()

    def owner_of(self, namespace: NamespaceName, bundle: BundleRange) -> Owned | None:
        """The bundle's owner, which may be a run that is gone; None when there is none."""
        return self._mirror.items.get((namespace, bundle))

    def of_broker(self, broker_id: str, run: int) -> list[Bundle]:
        """The bundles that a run of a broker owns; looks at every owned bundle."""
        return [
            bundle
            for bundle, owned in self._mirror.items.items()
            if owned.run == run and owned.broker_id == broker_id
        ]

    def all(self) -> Iterator[tuple[NamespaceName, BundleRange, Owned]]:
        """Every owned bundle. Not to be used across an await."""
        for (namespace, bundle), owned in self._mirror.items.items():
            yield namespace, bundle, owned

    def on_change(self, listener: Callable[[NamespaceName, BundleRange, Owned | None], None]) -> None:
        """Call `listener`, a plain call on the loop, for each bundle with a new owner, or none."""
        self._mirror.on_change(lambda bundle, owned: listener(*bundle, owned))

    def note(self, namespace: NamespaceName, bundle: BundleRange, owned: Owned) -> None:
        """This process has just written or read it: no need to wait for the watch."""
        self._mirror.note((namespace, bundle), owned)

    def note_gone(self, namespace: NamespaceName, bundle: BundleRange, version: int) -> None:
        """This process has just seen that no owner's key up to `version` is there any more."""
        self._mirror.note_removed((namespace, bundle), version)


def read_owner(data: bytes, version: int) -> Owned:
    """An owner's key as stored. Raises DataCorruption, UnsupportedFormat."""
    value = decode(BundleOwner, data)
    return Owned(sys.intern(value.broker_id), value.run, version, value.since_ms)
