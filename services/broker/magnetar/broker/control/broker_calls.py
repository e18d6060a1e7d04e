"""What other brokers and discovery call this broker for (proto/control)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile
from typing import Final, Protocol

from magnetar.broker.control.bundle_assignment import Assigning
from magnetar.broker.load.leader import LoadLeader
from magnetar.broker.ownership.cluster import Cluster
from magnetar.broker.topics.registry.topic_registry import TopicRegistry
from magnetar.common.cluster.bundle_owners import Owned
from magnetar.common.control.control_pb2 import (
    AssignRequest,
    AssignResponse,
    LoadsRequest,
    LoadsResponse,
    MergeRequest,
    MergeResponse,
    NonPersistentTopicsRequest,
    NonPersistentTopicsResponse,
    ReportRequest,
    ReportResponse,
    SplitRequest,
    SplitResponse,
    TakeRequest,
    TakeResponse,
    UnloadRequest,
    UnloadResponse,
)
from magnetar.common.naming.bundle_range import BundleRange
from magnetar.common.naming.namespace_name import NamespaceName
from magnetar.common.naming.topic_name import TopicName

NAMES_BYTES_MAX: Final = 2 << 20
"""Names of topics in one answer; who asks then asks for those behind the last one."""


class Mover(Protocol):
    """How bundles of this broker become another's, or other ones, topics and clients included."""

    async def unload(self, namespace: NamespaceName, bundle: BundleRange, to: str = "") -> Owned | None:
        """Hand a bundle of ours over, to that broker or ("") whom the leader says; returns who owns it then.

        None: it is nobody's. Raises ServiceNotReady when it is not ours, or nobody takes it.
        """
        ...

    async def split(
        self,
        namespace: NamespaceName,
        bundle: BundleRange,
        boundaries: Sequence[int] = (),
        *,
        algorithm: str = "",
        unload: bool = False,
    ) -> list[BundleRange]:
        """Cut a bundle of ours at boundaries or, without any, where the algorithm says; with `unload` hand
        the parts to other brokers. Raises InvalidName, NotAllowed, ServiceNotReady, MetadataError.
        """
        ...

    async def merge(self, namespace: NamespaceName, bundle: BundleRange) -> Owned:
        """Make one of the bundles of ours that make up this range. Raises InvalidName, NamespaceNotFound,
        ServiceNotReady when not all are ours, MetadataError.
        """
        ...

    def taken(
        self, namespace: NamespaceName, bundle: BundleRange, topics: Sequence[str], written: int = 0
    ) -> None:
        """A bundle became ours; these topics of it are to be loaded at once, the most urgent first. The first
        `written` ones were being written to.
        """
        ...


class BrokerCalls:
    """Implements `BrokerControl`."""

    def __init__(
        self,
        cluster: Cluster,
        assigning: Assigning,
        leader: LoadLeader,
        topics: TopicRegistry,
        mover: Mover,
    ) -> None:
        self._presence = cluster.presence
        self._ownership = cluster.ownership
        self._assigning = assigning
        self._leader = leader
        self._topics = topics
        self._mover = mover

    async def assign(self, request: AssignRequest) -> AssignResponse:
        return await self._assigning.answer(request)

    async def take(self, request: TakeRequest) -> TakeResponse:
        namespace, bundle = _bundle(request.namespace, request.bundle)
        over = None
        if request.from_broker_id:
            over = Owned(request.from_broker_id, request.from_run, request.from_version, 0)
        owned = await self._ownership.take(namespace, bundle, over)
        if request.topics and self._presence.is_run(owned.broker_id, owned.run):
            self._mover.taken(namespace, bundle, list(request.topics), request.written)
        return TakeResponse(version=owned.version, broker_id=owned.broker_id, run=owned.run)

    async def unload(self, request: UnloadRequest) -> UnloadResponse:
        owned = await self._mover.unload(*_bundle(request.namespace, request.bundle), request.to_broker_id)
        if owned is None:
            return UnloadResponse()
        return UnloadResponse(broker_id=owned.broker_id, run=owned.run, version=owned.version)

    async def split(self, request: SplitRequest) -> SplitResponse:
        parts = await self._mover.split(
            *_bundle(request.namespace, request.bundle),
            list(request.boundaries),
            algorithm=request.algorithm,
            unload=request.unload,
        )
        return SplitResponse(bundles=map(str, parts))

    async def merge(self, request: MergeRequest) -> MergeResponse:
        owned = await self._mover.merge(*_bundle(request.namespace, request.bundle))
        return MergeResponse(version=owned.version)

    async def report(self, request: ReportRequest) -> ReportResponse:
        self._leader.report(request.report)
        return ReportResponse()

    async def loads(self, request: LoadsRequest) -> LoadsResponse:
        return LoadsResponse(loads=self._leader.loads())

    async def non_persistent_topics(self, request: NonPersistentTopicsRequest) -> NonPersistentTopicsResponse:
        namespace = NamespaceName.parse(request.namespace)
        bundle = BundleRange.parse(request.bundle) if request.bundle else None
        names = await self._topics.list(namespace, persistent=False, system_too=True)
        wanted = [
            name
            for name in names
            if name > request.after and (bundle is None or TopicName.parse(name).hash in bundle)
        ]
        found = _that_fit(wanted, request.limit or len(wanted))
        return NonPersistentTopicsResponse(topics=found, more=len(found) < len(wanted))


def _that_fit(names: list[str], limit: int) -> list[str]:
    """The first ones, as many as an answer holds."""
    room = NAMES_BYTES_MAX

    def fits(name: str) -> bool:
        nonlocal room
        room -= len(name.encode())
        return room >= 0

    return list(takewhile(fits, names[:limit]))


def _bundle(namespace: str, bundle: str) -> tuple[NamespaceName, BundleRange]:
    """Raises InvalidName."""
    return NamespaceName.parse(namespace), BundleRange.parse(bundle)
