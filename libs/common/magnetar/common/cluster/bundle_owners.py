"""Bundle ownership, read from metadata. A bundle without an owner has no entry.

An owner counts only while its run is registered (BrokerDirectory.is_current): the ownership key of a dead run
can remain until its lease expires.
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
    """A bundle's owner. `version` is the version of its ownership key, which is the ownership epoch."""

    broker_id: str
    run: int
    version: int
    since_ms: int


class BundleOwners:
    """Follows the ownership keys. Call `start` before any query; use it on one event loop."""

    def __init__(self, metadata: MetadataStore, keys: Keys) -> None:
        self._mirror = Mirror[Bundle, Owned](
            metadata, keys.bundle_owners_prefix, "owners of bundles", keys.bundle_of_owner, read_owner
        )

    def __len__(self) -> int:
        """Returns the number of owned bundles."""
        return len(self._mirror.items)

    async def start(self) -> None:
        """Starts following and returns once the owners are loaded. Waits while metadata is unavailable."""
        await self._mirror.start()

    async def close(self) -> None:
        """Stops following; the owners read so far stay. Idempotent."""
        await self._mirror.close()

    def owner_of(self, namespace: NamespaceName, bundle: BundleRange) -> Owned | None:
        """Returns the bundle's owner, which may be a dead run; None if the bundle has no owner."""
        return self._mirror.items.get((namespace, bundle))

    def of_broker(self, broker_id: str, run: int) -> list[Bundle]:
        """Returns the bundles owned by one run of a broker. Scans every owned bundle."""
        return [
            bundle
            for bundle, owned in self._mirror.items.items()
            if owned.run == run and owned.broker_id == broker_id
        ]

    def all(self) -> Iterator[tuple[NamespaceName, BundleRange, Owned]]:
        """Iterates over every owned bundle. Do not hold the iterator across an await."""
        for (namespace, bundle), owned in self._mirror.items.items():
            yield namespace, bundle, owned

    def on_change(self, listener: Callable[[NamespaceName, BundleRange, Owned | None], None]) -> None:
        """Calls `listener` on the loop with each bundle that gains or loses an owner."""
        self._mirror.on_change(lambda bundle, owned: listener(*bundle, owned))

    def note(self, namespace: NamespaceName, bundle: BundleRange, owned: Owned) -> None:
        """Records an owner that this process wrote or read, without waiting for the watch."""
        self._mirror.note((namespace, bundle), owned)

    def note_gone(self, namespace: NamespaceName, bundle: BundleRange, version: int) -> None:
        """Records that this process found no ownership key with a version up to `version`."""
        self._mirror.note_removed((namespace, bundle), version)


def read_owner(data: bytes, version: int) -> Owned:
    """Parses the stored value of an ownership key. Raises DataCorruption, UnsupportedFormat."""
    value = decode(BundleOwner, data)
    return Owned(sys.intern(value.broker_id), value.run, version, value.since_ms)
