"""Having a bundle owned: the leader says by whom; who cannot reach it takes the bundle itself.

An assignment without the leader may be worse than the leader's, but never waits for one to be elected: the
leader's death costs no topic anything.
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
"""For how long a leader is waited for that does not answer."""


class Assigning:
    """An `Assigner` for this broker's own lookups, and the answer to those who call it to assign."""

    def __init__(self, cluster: Cluster, leader: LoadLeader, client: ControlClient) -> None:
        self._presence = cluster.presence
        self._ownership = cluster.ownership
        self._directory = cluster.directory
        self._leader = leader
        self._client = client
        self._silent = SilentBrokers()

    async def assign(self, namespace: NamespaceName, bundle: BundleRange) -> str:
        """Have the bundle owned; returns by which broker. Raises as `Assigner.assign`."""
        request = AssignRequest(namespace=str(namespace), bundle=str(bundle))
        return (await self.answer(request)).broker_id

    async def answer(self, request: AssignRequest) -> AssignResponse:
        """Decide, where this broker leads or was taken for the leader, or ask who leads.

        Raises InvalidName, NamespaceNotFound, ServiceNotReady (NobodyLeads, when the request is to choose
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
                log.warning("the leader cannot be asked", leader=leader.broker_id, reason=str(error))
        if request.choose_only:
            raise NobodyLeads("no broker leads now, so none says who is to be next; ask again")
        owned = await self._ownership.take(namespace, bundle)
        return AssignResponse(broker_id=owned.broker_id, run=owned.run)

    def _other_leader(self) -> BrokerRegistration | None:
        """The broker that leads, if that is another one which can be called and answers."""
        leader = self._directory.leader
        found = None if leader is None else self._directory.get(leader.id)
        if found is None or not found.control_address or self._presence.is_run(found.broker_id, found.run):
            return None
        return None if found in self._silent else found
