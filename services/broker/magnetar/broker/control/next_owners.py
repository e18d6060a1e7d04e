"""Selection of the next owner of a bundle, and the call that makes it take the bundle: an `OtherBrokers`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection

from magnetar.broker.control.bundle_assignment import Assigning
from magnetar.broker.ownership.cluster import Cluster
from magnetar.common.control.control_client import ControlClient
from magnetar.common.control.control_errors import NobodyLeads
from magnetar.common.control.control_pb2 import AssignRequest, TakeRequest, TakeResponse
from magnetar.common.control.methods import TAKE
from magnetar.common.errors import ServiceNotReady
from magnetar.common.metadata.values import BrokerRegistration
from magnetar.common.naming.bundle_range import BundleRange
from magnetar.common.naming.namespace_name import NamespaceName


class NextOwners:
    """The leader chooses; without a leader, the broker with the fewest bundles."""

    def __init__(self, cluster: Cluster, assigning: Assigning, client: ControlClient) -> None:
        self._directory = cluster.directory
        self._owners = cluster.owners
        self._assigning = assigning
        self._client = client

    async def next_owner(
        self, namespace: NamespaceName, bundle: BundleRange, excepted: Collection[str]
    ) -> BrokerRegistration:
        request = AssignRequest(
            namespace=str(namespace), bundle=str(bundle), choose_only=True, except_broker_ids=sorted(excepted)
        )
        try:
            chosen = await self._assigning.answer(request)
        except NobodyLeads:
            return self._without_leader(namespace, bundle, excepted)
        found = self._directory.get(chosen.broker_id)
        if found is None or found.run != chosen.run or found.broker_id in excepted:
            raise ServiceNotReady(f"broker {chosen.broker_id}, the chosen owner of {bundle}, has stopped")
        return found

    async def prepare(self, broker: BrokerRegistration) -> None:
        await self._client.version(broker)

    async def take(self, broker: BrokerRegistration, request: TakeRequest) -> TakeResponse:
        return await self._client.call(broker, TAKE, request)

    def _without_leader(
        self, namespace: NamespaceName, bundle: BundleRange, excepted: Collection[str]
    ) -> BrokerRegistration:
        candidates = [
            each
            for each in self._directory.all()
            if each.control_address and not each.draining and each.broker_id not in excepted
        ]
        if not candidates:
            raise ServiceNotReady(f"no other running broker may own bundle {bundle} of {namespace}")
        counts = Counter(owned.broker_id for _, _, owned in self._owners.all())
        return min(candidates, key=lambda each: (counts[each.broker_id], each.broker_id))
