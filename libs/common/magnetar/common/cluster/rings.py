"""Bundle boundaries of every namespace, read from metadata."""

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
    """The bundles of a namespace, in ring order. `version` is the version of its key; policy changes advance
    it too.
    """

    bundles: Sequence[BundleRange]
    version: int

    def bundle_of(self, topic: TopicName) -> BundleRange:
        """Returns the bundle that contains a topic of this namespace."""
        return self.bundles[bundle_at(self.bundles, topic.hash)]


class Rings:
    """Follows the namespaces. Call `start` before any query; use it on one event loop."""

    def __init__(self, metadata: MetadataStore, keys: Keys) -> None:
        self._metadata = metadata
        self._keys = keys
        self._mirror = Mirror[NamespaceName, Ring](
            metadata, keys.namespaces_prefix(), "rings of namespaces", keys.namespace_of, read_ring
        )

    @property
    def all(self) -> Mapping[NamespaceName, Ring]:
        """Returns every namespace's ring; a live view."""
        return self._mirror.items

    async def start(self) -> None:
        """Starts following and returns once the rings are loaded. Waits while metadata is unavailable."""
        await self._mirror.start()

    async def close(self) -> None:
        """Stops following; the rings read so far stay. Idempotent."""
        await self._mirror.close()

    def get(self, namespace: NamespaceName) -> Ring | None:
        """Returns the namespace's ring; None if the namespace is unknown."""
        return self._mirror.items.get(namespace)

    def bundle_of(self, topic: TopicName) -> BundleRange | None:
        """Returns the topic's bundle; None if its namespace is unknown."""
        ring = self._mirror.items.get(topic.namespace)
        return None if ring is None else ring.bundle_of(topic)

    async def load(self, namespace: NamespaceName) -> Ring:
        """Reads the ring from metadata. Raises NamespaceNotFound, MetadataError."""
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
        """Records a ring that this process wrote, without waiting for the watch."""
        self._mirror.note(namespace, ring)

    def on_change(self, listener: Callable[[NamespaceName, Ring | None], None]) -> None:
        """Calls `listener` on the loop with each namespace written or removed."""
        self._mirror.on_change(listener)


def read_ring(data: bytes, version: int) -> Ring:
    """Parses the stored value of a namespace. Raises DataCorruption, UnsupportedFormat, InvalidName."""
    namespace = decode(Namespace, data)
    if namespace.bundle_boundaries:
        return Ring(_cut(tuple(namespace.bundle_boundaries)), version)
    return Ring(_equal(namespace.bundle_count), version)


@lru_cache(maxsize=256)
def _equal(count: int) -> tuple[BundleRange, ...]:
    """Returns the ring of `count` equal bundles. Cached, because most namespaces share one division."""
    return tuple(split_ring(count))


@lru_cache(maxsize=256)
def _cut(boundaries: tuple[int, ...]) -> tuple[BundleRange, ...]:
    return tuple(cut_ring(boundaries))
