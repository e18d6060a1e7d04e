"""Splits and merges owned bundles, each in one transaction.

The transaction writes the namespace's boundaries, deletes the owner keys of the old bundles and puts owner
keys for the new ones: every reader sees either the old or the new boundaries, and one owner of every hash.
The key of the first new bundle is the guard: after a lost response, it shows whether the transaction was
committed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from magnetar.broker.ownership.own_bundles import OwnBundle
from magnetar.broker.ownership.presence import Presence
from magnetar.common.cluster.bundle_owners import read_owner
from magnetar.common.cluster.bundles import bundles_of, within
from magnetar.common.cluster.rings import Ring, Rings, read_ring
from magnetar.common.errors import (
    BeingChanged,
    InvalidName,
    NamespaceNotFound,
    ServiceNotReady,
    UnknownOutcome,
    VersionMismatch,
)
from magnetar.common.metadata.keys import Keys
from magnetar.common.metadata.store import ABSENT, TXN_OPS_MAX, Delete, MetadataStore, Op, Put
from magnetar.common.metadata.values import Namespace, decode, encode
from magnetar.common.naming.bundle_range import BundleRange
from magnetar.common.naming.namespace_name import NamespaceName

TRIES_MAX: Final = 10
"""Attempts of a change that conflicts with concurrent changes of the namespace."""

PARTS_MAX: Final = TXN_OPS_MAX - 2
"""Into how many parts a bundle is cut at once, and how many become one."""


class Recut:
    """Dependencies of a split or merge. The caller holds the bundles exclusively."""

    def __init__(self, metadata: MetadataStore, keys: Keys, presence: Presence, rings: Rings) -> None:
        self._metadata = metadata
        self._keys = keys
        self._presence = presence
        self._rings = rings

    async def commit(
        self,
        namespace: NamespaceName,
        before: Sequence[OwnBundle],
        after: Sequence[BundleRange],
        data: bytes,
        edit: Callable[[Namespace], None],
    ) -> int:
        """Replaces the owned bundles `before` by `after`; returns the version of their keys, which is the
        epoch.

        `data` is the value of the keys; `edit` changes the boundaries in the namespace, and its errors are
        raised. Raises NamespaceNotFound; ServiceNotReady when the boundaries have changed, or this broker has
        lost one of the bundles; BeingChanged when concurrent changes of the namespace exhaust the attempts;
        MetadataError with an unknown outcome.
        """
        key = self._keys.namespace(namespace)
        for _ in range(TRIES_MAX):
            found = await self._metadata.get(key)
            if found is None:
                raise NamespaceNotFound(f"namespace {namespace} does not exist any more")
            value = decode(Namespace, found.value)
            ring = bundles_of(value)
            missing = next((own.range for own in before if own.range not in ring), None)
            if missing is not None:
                done = await self._done(namespace, before, after[0])
                if done is not None:
                    return done  # our own commit, whose response was lost
                raise ServiceNotReady(f"{namespace} no longer has bundle {missing}")
            edit(value)
            try:
                version = await self._presence.session.commit(
                    self._ops(namespace, before, after, data, Put(key, encode(value), found.version))
                )
            except VersionMismatch as error:
                if error.key == key:
                    continue
                raise ServiceNotReady(
                    f"this broker no longer owns all of {_told(before)} of {namespace}; retry"
                ) from error
            except UnknownOutcome:
                continue  # the next read shows the outcome
            self._rings.note(namespace, read_ring(encode(value), version))
            return version
        raise BeingChanged(
            f"namespace {namespace} is changed by others; retry to split or merge {_told(before)}"
        )

    def _ops(
        self,
        namespace: NamespaceName,
        before: Sequence[OwnBundle],
        after: Sequence[BundleRange],
        data: bytes,
        ring: Put,
    ) -> list[Op]:
        key_of = self._keys.bundle_owner
        return [
            ring,
            *(Delete(key_of(namespace, own.range), own.version) for own in before),
            *(Put(key_of(namespace, each), data, ABSENT, ephemeral=True) for each in after),
        ]

    async def _done(
        self, namespace: NamespaceName, before: Sequence[OwnBundle], mark: BundleRange
    ) -> int | None:
        found = await self._metadata.get(self._keys.bundle_owner(namespace, mark))
        if found is None or found.version <= max(own.version for own in before):
            return None
        owned = read_owner(found.value, found.version)
        return found.version if self._presence.is_run(owned.broker_id, owned.run) else None


def _told(before: Sequence[OwnBundle]) -> str:
    return ", ".join(str(own.range) for own in before[:3]) + (" ..." if len(before) > 3 else "")


def parts_to_merge(ring: Ring, merged: BundleRange) -> list[BundleRange]:
    """Returns the bundles that make up this range. Raises InvalidName when no bundle begins or ends there, or
    there are more than one merge allows.
    """
    parts = within(ring.bundles, merged)
    if len(parts) > PARTS_MAX:
        raise InvalidName(f"{PARTS_MAX} bundles at most can be merged at a time, not {len(parts)}")
    return parts
