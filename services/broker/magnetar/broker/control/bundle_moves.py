"""Moving, splitting and merging bundles for operators, wherever they are: their owners are asked."""

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
"""How often a merge is tried when owners change meanwhile."""

MERGE_PAUSE_S: Final = 0.5
"""Before it is tried again."""


class BundleMoves:
    """What the admin API asks for."""

    def __init__(self, cluster: Cluster, mover: Mover, client: ControlClient) -> None:
        self._presence = cluster.presence
        self._ownership = cluster.ownership
        self._finder = cluster.ownership.finder
        self._mover = mover
        self._client = client

    async def unload(self, namespace: NamespaceName, bundle: BundleRange, to: str = "") -> None:
        """Hand a bundle to another broker, `to` or whom the leader says. Nobody's: only where it is to go to.

        Raises ServiceNotReady, NotAllowed when it is at `to` already, MetadataError.
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
        """Have the owner cut a bundle, which is assigned first where it is nobody's, at the boundaries or,
        without any, where the algorithm says; with `unload` the parts go to other brokers.

        Raises InvalidName, NotAllowed when it cannot be cut so, ServiceNotReady, BeingChanged, MetadataError.
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
        """Have the bundles that make up this range become one: the broker with most of them is given the
        others first, so no topic of those that it has is closed. Nothing to do when it is one.

        Raises InvalidName when no bundle begins or ends there, NamespaceNotFound, ServiceNotReady when one
        broker could not have them all, BeingChanged, MetadataError; it may be asked for again then.
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
                with suppress(NotAllowed):  # Somebody else has moved it there meanwhile.
                    await self.unload(namespace, part, target.broker_id)
        if self._is_this(target):
            await self._mover.merge(namespace, bundle)
            return
        await self._client.call(target, MERGE, MergeRequest(namespace=str(namespace), bundle=str(bundle)))

    async def _have_taken(
        self, namespace: NamespaceName, bundle: BundleRange, broker: BrokerRegistration
    ) -> None:
        """Nobody's until now; whoever is quicker has it."""
        if self._is_this(broker):
            await self._ownership.take(namespace, bundle)
            return
        await self._client.call(broker, TAKE, TakeRequest(namespace=str(namespace), bundle=str(bundle)))

    def _is_this(self, broker: BrokerRegistration) -> bool:
        return self._presence.is_run(broker.broker_id, broker.run)
