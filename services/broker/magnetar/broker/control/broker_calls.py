"""The broker's side of the control plane: calls from other brokers and discovery (proto/control)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile
from typing import Final, Protocol

from magnetar.broker.control.bundle_assignment import Assigning
from magnetar.broker.control.transaction_calls import TransactionCalls
from magnetar.broker.load.leader import LoadLeader
from magnetar.broker.ownership.cluster import Cluster
from magnetar.broker.topics.registry.topic_registry import TopicRegistry
from magnetar.common.cluster.bundle_owners import Owned
from magnetar.common.control.control_pb2 import (
    AssignRequest,
    AssignResponse,
    EndTransactionsRequest,
    EndTransactionsResponse,
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
    TransactionStatusRequest,
    TransactionStatusResponse,
    UnloadRequest,
    UnloadResponse,
)
from magnetar.common.naming.bundle_range import BundleRange
from magnetar.common.naming.namespace_name import NamespaceName
from magnetar.common.naming.topic_name import TopicName

NAMES_BYTES_MAX: Final = 2 << 20
"""Bytes of topic names in one response; the caller pages by the last name it received."""


class Mover(Protocol):
    """Unloads, splits, merges and takes bundles, with their topics and clients."""

    async def unload(self, namespace: NamespaceName, bundle: BundleRange, to: str = "") -> Owned | None:
        """Hands over a bundle owned by this broker, to the broker `to` or ("") to the one that the leader
        chooses.

        Returns the new owner, or None if the bundle has no owner. Raises ServiceNotReady when this broker
        does not own the bundle or no broker takes it.
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
        """Splits an owned bundle at the boundaries or, without any, at the points that the algorithm chooses.

        With `unload`, hand the parts to other brokers. Raises InvalidName, NotAllowed, ServiceNotReady,
        MetadataError.
        """
        ...

    async def merge(self, namespace: NamespaceName, bundle: BundleRange) -> Owned:
        """Merges the owned bundles that make up this range.

        Raises InvalidName, NamespaceNotFound, ServiceNotReady when this broker does not own all of them,
        MetadataError.
        """
        ...

    def taken(
        self, namespace: NamespaceName, bundle: BundleRange, topics: Sequence[str], written: int = 0
    ) -> None:
        """Loads these topics of a bundle that this broker just received, most urgent first.

        The first `written` topics had active publishers.
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
        transactions: TransactionCalls,
    ) -> None:
        self._presence = cluster.presence
        self._ownership = cluster.ownership
        self._assigning = assigning
        self._leader = leader
        self._topics = topics
        self._mover = mover
        self._transactions = transactions

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

    async def end_transactions(self, request: EndTransactionsRequest) -> EndTransactionsResponse:
        return await self._transactions.end(request)

    async def transaction_status(self, request: TransactionStatusRequest) -> TransactionStatusResponse:
        return await self._transactions.status(request)


def _that_fit(names: list[str], limit: int) -> list[str]:
    """Returns the leading names that fit into one response."""
    room = NAMES_BYTES_MAX

    def fits(name: str) -> bool:
        nonlocal room
        room -= len(name.encode())
        return room >= 0

    return list(takewhile(fits, names[:limit]))


def _bundle(namespace: str, bundle: str) -> tuple[NamespaceName, BundleRange]:
    """Raises InvalidName."""
    return NamespaceName.parse(namespace), BundleRange.parse(bundle)
