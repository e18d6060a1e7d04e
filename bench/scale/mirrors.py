"""Mirrors of metadata that many simulated processes share, so that a thousand of them fit into memory.

Each process of a real cluster has mirrors of its own. Here, changes are told to the brokers that they
concern: the bundle's owner before and after, and every broker that reads all owners, which a leader does.
What etcd sends to all the others is counted by the weights of `etcd_model`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import cast

from magnetar.common.cluster.broker_directory import BrokerDirectory
from magnetar.common.cluster.bundle_owners import Bundle, BundleOwners, Owned
from magnetar.common.cluster.rings import Rings
from magnetar.common.metadata.keys import Keys
from magnetar.common.metadata.store import MetadataStore
from magnetar.common.naming.bundle_range import BundleRange
from magnetar.common.naming.namespace_name import NamespaceName

Listener = Callable[[NamespaceName, BundleRange, Owned | None], None]


class Mirrors:
    """One copy of rings, owners and brokers."""

    def __init__(self, metadata: MetadataStore, keys: Keys) -> None:
        self.rings = Rings(metadata, keys)
        self.directory = BrokerDirectory(metadata, keys)
        self.owners = BundleOwners(metadata, keys)

    async def start(self) -> None:
        await self.rings.start()
        await self.directory.start()
        await self.owners.start()

    async def close(self) -> None:
        await self.rings.close()
        await self.directory.close()
        await self.owners.close()


class SharedOwners:
    """The owners, as one broker of many sees them."""

    def __init__(self, board: Board, broker_id: str) -> None:
        self._board = board
        self._broker_id = broker_id
        owners = board.mirrors.owners
        self.owner_of = owners.owner_of
        self.note = owners.note
        self.note_gone = owners.note_gone

    def on_change(self, listener: Listener) -> None:
        self._board.listeners.setdefault(self._broker_id, []).append(listener)

    def all(self) -> Iterator[tuple[NamespaceName, BundleRange, Owned]]:
        self._board.readers.add(self._broker_id)
        return self._board.mirrors.owners.all()


class Board:
    """Tells changes of owners to the brokers that they concern."""

    def __init__(self, mirrors: Mirrors) -> None:
        self.mirrors = mirrors
        self.listeners: dict[str, list[Listener]] = {}
        self.readers: set[str] = set()
        self._last: dict[Bundle, str] = {}
        mirrors.owners.on_change(self._changed)

    def owners(self, broker_id: str) -> BundleOwners:
        """Returns the owners for a new run of a broker, which forgets the listeners of its last one."""
        self.listeners.pop(broker_id, None)
        self.readers.discard(broker_id)
        return cast("BundleOwners", SharedOwners(self, broker_id))

    def _changed(self, namespace: NamespaceName, bundle: BundleRange, owned: Owned | None) -> None:
        concerned = set(self.readers)
        if (before := self._last.pop((namespace, bundle), None)) is not None:
            concerned.add(before)
        if owned is not None:
            self._last[namespace, bundle] = owned.broker_id
            concerned.add(owned.broker_id)
        for broker_id in concerned:
            for listener in self.listeners.get(broker_id, ()):
                listener(namespace, bundle, owned)
