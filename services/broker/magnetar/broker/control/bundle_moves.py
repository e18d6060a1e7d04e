"""Unload, split and merge of bundles for operators, forwarded to the owner."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from magnetar.broker.control.broker_calls import Mover
from magnetar.broker.ownership.cluster import Cluster
from magnetar.broker.ownership.split_merge import parts_to_merge
from magnetar.common.control.control_client import ControlClient
from magnetar.common.control.control_pb2 import MergeRequest, SplitRequest, TakeRequest, UnloadRequest
from magnetar.common.control.methods import MERGE, SPLIT, TAKE, UNLOAD
from magnetar.common.errors import BeingChanged, NotAllowed, ServiceNotReady
from magnetar.common.metadata.values import BrokerRegistration
from magnetar.common.naming.bundle_range import BundleRange
from magnetar.common.naming.namespace_name import NamespaceName

MERGES_MAX: Final = 3
"""Attempts of a merge when owners change meanwhile."""

MERGE_PAUSE_S: Final = 0.5
"""Seconds between two attempts."""


class BundleMoves:
    """Bundle operations of the admin API."""

    def __init__(self, cluster: Cluster, mover: Mover, client: ControlClient) -> None:
        self._presence = cluster.presence
        self._ownership = cluster.ownership
        self._finder = cluster.ownership.finder
        self._mover = mover
        self._client = client

    async def unload(self, namespace: NamespaceName, bundle: BundleRange, to: str = "") -> None:
        """Hands a bundle to the broker `to`, or to the one that the leader chooses; assigns it if it has no
        owner.

        Raises ServiceNotReady, NotAllowed when `to` already owns it, MetadataError.
        """
        owner = self._finder.owner(namespace, bundle)
        if owner is None:
            if not to:
                return
            owner = await self._finder.assigned(namespace, bundle)
            if owner.broker_id == to:
                return
        if self._is_this(owner):
            await self._mover.unload(namespace, bundle, to)
            return
        request = UnloadRequest(namespace=str(namespace), bundle=str(bundle), to_broker_id=to)
        await self._client.call(owner, UNLOAD, request)

    async def split(
        self,
        namespace: NamespaceName,
        bundle: BundleRange,
        boundaries: Sequence[int],
        *,
        algorithm: str = "",
        unload: bool,
    ) -> None:
        """Has the owner split a bundle at the boundaries or, without any, at the points that the algorithm
        chooses.

        A bundle without an owner is assigned first. With `unload`, the parts go to other brokers. Raises
        InvalidName, NotAllowed when it cannot be split so, ServiceNotReady, BeingChanged, MetadataError.
        """
        owner = self._finder.owner(namespace, bundle) or await self._finder.assigned(namespace, bundle)
        if self._is_this(owner):
            await self._mover.split(namespace, bundle, boundaries, algorithm=algorithm, unload=unload)
            return
        request = SplitRequest(
            namespace=str(namespace),
            bundle=str(bundle),
            boundaries=boundaries,
            algorithm=algorithm,
            unload=unload,
        )
        await self._client.call(owner, SPLIT, request)

    async def merge(self, namespace: NamespaceName, bundle: BundleRange) -> None:
        """Merges the bundles that make up this range; does nothing if it is already one bundle.

        The broker that owns most of them receives the others first, so none of its own topics is closed.
        Raises InvalidName when no bundle begins or ends there, NamespaceNotFound, ServiceNotReady when one
        broker could not receive them all, BeingChanged, MetadataError; the request may be repeated then.
        """
        for attempt in range(1, MERGES_MAX + 1):
            parts = parts_to_merge(await self._finder.rings.load(namespace), bundle)
            if len(parts) == 1:
                return
            try:
                await self._merge(namespace, bundle, parts)
                return
            except (ServiceNotReady, BeingChanged):
                if attempt == MERGES_MAX:
                    raise
                await asyncio.sleep(MERGE_PAUSE_S)

    # -- inside

    async def _merge(
        self, namespace: NamespaceName, bundle: BundleRange, parts: Sequence[BundleRange]
    ) -> None:
        owners = [self._finder.owner(namespace, part) for part in parts]
        staying = {each.broker_id: each for each in owners if each is not None and not each.draining}
        counts = Counter(each.broker_id for each in owners if each is not None)
        if staying:
            target = max(staying.values(), key=lambda each: counts[each.broker_id])
        else:
            target = await self._finder.assigned(namespace, parts[0])
        for part, owner in zip(parts, owners, strict=True):
            if owner is None:
                await self._have_taken(namespace, part, target)
            elif owner.broker_id != target.broker_id:
                with suppress(NotAllowed):  # another request moved it there meanwhile
                    await self.unload(namespace, part, target.broker_id)
        if self._is_this(target):
            await self._mover.merge(namespace, bundle)
            return
        await self._client.call(target, MERGE, MergeRequest(namespace=str(namespace), bundle=str(bundle)))

    async def _have_taken(
        self, namespace: NamespaceName, bundle: BundleRange, broker: BrokerRegistration
    ) -> None:
        """Has the broker take a bundle that had no owner; the first taker wins."""
        if self._is_this(broker):
            await self._ownership.take(namespace, bundle)
            return
        await self._client.call(broker, TAKE, TakeRequest(namespace=str(namespace), bundle=str(bundle)))

    def _is_this(self, broker: BrokerRegistration) -> bool:
        return self._presence.is_run(broker.broker_id, broker.run)
