"""How the rings of all namespaces are cut, by what metadata says: which bundle a topic is in."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from magnetar.common.cluster.bundles import bundle_at
from magnetar.common.cluster.mirror import Mirror
from magnetar.common.errors import NamespaceNotFound
from magnetar.common.metadata.keys import Keys
from magnetar.common.metadata.store import MetadataStore
from magnetar.common.metadata.values import Namespace, decode
from magnetar.common.naming.bundle_range import BundleRange, cut_ring, split_ring
from magnetar.common.naming.namespace_name import NamespaceName
from magnetar.common.naming.topic_name import TopicName


@dataclass(frozen=True, slots=True)
class Ring:
    """The bundles of a namespace, in order. `version` is that of its key, which policies move, too."""

    bundles: Sequence[BundleRange]
    version: int

    def bundle_of(self, topic: TopicName) -> BundleRange:
        """The bundle of a topic of this namespace."""
        return self.bundles[bundle_at(self.bundles, topic.hash)]


class Rings:
    """Follows the namespaces. `start`, then ask; all calls on one loop."""

    def __init__(self, metadata: MetadataStore, keys: Keys) -> None:
        self._metadata = metadata
        self._keys = keys
        self._mirror = Mirror[NamespaceName, Ring](
            metadata, keys.namespaces_prefix(), "rings of namespaces", keys.namespace_of, read_ring
        )

    @property
    def all(self) -> Mapping[NamespaceName, Ring]:
        """Every namespace's ring; a live view."""
        return self._mirror.items

    async def start(self) -> None:
        """Follow from now on; returns once the rings are known. Waits while metadata is away."""
        await self._mirror.start()

    async def close(self) -> None:
        """Follow no more; what is known stays. Idempotent."""
        await self._mirror.close()

    def get(self, namespace: NamespaceName) -> Ring | None:
        """The ring, when the namespace is known."""
        return self._mirror.items.get(namespace)

    def bundle_of(self, topic: TopicName) -> BundleRange | None:
        """The topic's bundle, when its namespace is known."""
        ring = self._mirror.items.get(topic.namespace)
        return None if ring is None else ring.bundle_of(topic)

    async def load(self, namespace: NamespaceName) -> Ring:
        """The ring as metadata has it now. Raises NamespaceNotFound, MetadataError."""
        key = self._keys.namespace(namespace)
        before = self._mirror.items.get(namespace)
        found = await self._metadata.get(key)
        if found is None:
            if before is not None:
                self._mirror.note_removed(namespace, before.version)
            raise NamespaceNotFound(f"namespace {namespace} does not exist; create it first")
        ring = read_ring(found.value, found.version)
        self._mirror.note(namespace, ring)
        return ring

    def note(self, namespace: NamespaceName, ring: Ring) -> None:
        """This process has just written it: no need to wait for the watch."""
        self._mirror.note(namespace, ring)

    def on_change(self, listener: Callable[[NamespaceName, Ring | None], None]) -> None:
        """Call `listener`, a plain call on the loop, for each namespace that was written, or removed."""
        self._mirror.on_change(listener)


def read_ring(data: bytes, version: int) -> Ring:
    """The ring of a namespace as stored. Raises DataCorruption, UnsupportedFormat, InvalidName."""
    namespace = decode(Namespace, data)
    if namespace.bundle_boundaries:
        return Ring(_cut(tuple(namespace.bundle_boundaries)), version)
    return Ring(_equal(namespace.bundle_count), version)


@lru_cache(maxsize=256)
def _equal(count: int) -> tuple[BundleRange, ...]:
    """Most namespaces are cut alike, so they share it."""
    return tuple(split_ring(count))


@lru_cache(maxsize=256)
def _cut(boundaries: tuple[int, ...]) -> tuple[BundleRange, ...]:
    return tuple(cut_ring(boundaries))
