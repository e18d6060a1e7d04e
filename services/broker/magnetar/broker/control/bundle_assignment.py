"""Bundle assignment: the leader chooses the owner; a broker that cannot reach the leader takes the bundle
itself.

An assignment without the leader may be worse balanced, but it never waits for an election: the leader's
failure makes no topic unavailable.
"""

from __future__ import annotations

from typing import Final

from magnetar.broker.load.leader import LoadLeader
from magnetar.broker.ownership.cluster import Cluster
from magnetar.common.control.control_client import ControlClient
from magnetar.common.control.control_errors import (
    AnotherRun,
    BrokerUnreachable,
    NobodyLeads,
    NotInteroperable,
)
from magnetar.common.control.control_pb2 import AssignRequest, AssignResponse
from magnetar.common.control.methods import ASSIGN
from magnetar.common.control.unresponsive_brokers import SilentBrokers
from magnetar.common.errors import NotSupportedYet
from magnetar.common.metadata.values import BrokerRegistration
from magnetar.common.naming.bundle_range import BundleRange
from magnetar.common.naming.namespace_name import NamespaceName
from magnetar.common.obs.logs import get_logger

log = get_logger(__name__)

LEADER_DEADLINE_S: Final = 3.0
"""Timeout of a call to the leader, in seconds."""


class Assigning:
    """Implements `Assigner` for local lookups, and answers other brokers' Assign calls."""

    def __init__(self, cluster: Cluster, leader: LoadLeader, client: ControlClient) -> None:
        self._presence = cluster.presence
        self._ownership = cluster.ownership
        self._directory = cluster.directory
        self._leader = leader
        self._client = client
        self._silent = SilentBrokers()

    async def assign(self, namespace: NamespaceName, bundle: BundleRange) -> str:
        """Assigns the bundle and returns the owner's broker id. Raises as `Assigner.assign`."""
        request = AssignRequest(namespace=str(namespace), bundle=str(bundle))
        return (await self.answer(request)).broker_id

    async def answer(self, request: AssignRequest) -> AssignResponse:
        """Assigns the bundle if this broker leads or was called as the leader; otherwise ask the leader.

        Raises InvalidName, NamespaceNotFound, ServiceNotReady (NobodyLeads when the request is to choose
        only), TooManyRequests, MetadataError.
        """
        namespace, bundle = NamespaceName.parse(request.namespace), BundleRange.parse(request.bundle)
        if self._leader.leads:
            if request.choose_only:
                run = self._leader.choose((namespace, bundle), request.except_broker_ids)
            else:
                run = await self._leader.assign((namespace, bundle))
            return AssignResponse(broker_id=run[0], run=run[1])
        leader = None if request.passed_on else self._other_leader()
        if leader is not None:
            passed_on = AssignRequest()
            passed_on.CopyFrom(request)
            passed_on.passed_on = True
            try:
                return await self._client.call(leader, ASSIGN, passed_on, deadline_s=LEADER_DEADLINE_S)
            except (BrokerUnreachable, AnotherRun, NobodyLeads, NotInteroperable, NotSupportedYet) as error:
                if isinstance(error, BrokerUnreachable):
                    self._silent.note(leader)
                log.warning("leader unreachable", leader=leader.broker_id, reason=str(error))
        if request.choose_only:
            raise NobodyLeads("there is no leader to choose the next owner; retry")
        owned = await self._ownership.take(namespace, bundle)
        return AssignResponse(broker_id=owned.broker_id, run=owned.run)

    def _other_leader(self) -> BrokerRegistration | None:
        """Returns the leader if it is another broker that can be called and responds."""
        leader = self._directory.leader
        found = None if leader is None else self._directory.get(leader.id)
        if found is None or not found.control_address or self._presence.is_run(found.broker_id, found.run):
            return None
        return None if found in self._silent else found
