"""Assignment of unowned bundles: requests it from the leader broker, or from another broker."""

from __future__ import annotations

import asyncio
from typing import Final

from magnetar.common.cluster.broker_directory import BrokerDirectory
from magnetar.common.control.control_client import ControlClient
from magnetar.common.control.control_errors import AnotherRun, BrokerUnreachable, NotInteroperable
from magnetar.common.control.control_pb2 import AssignRequest
from magnetar.common.control.methods import ASSIGN
from magnetar.common.control.unresponsive_brokers import SilentBrokers
from magnetar.common.errors import MagnetarError, ServiceNotReady
from magnetar.common.metadata.values import BrokerRegistration
from magnetar.common.naming.bundle_range import BundleRange
from magnetar.common.naming.namespace_name import NamespaceName
from magnetar.common.obs.log_limit import LogLimit
from magnetar.common.obs.logs import get_logger
from magnetar.discovery.live_brokers import LiveBrokers

log = get_logger(__name__)

BROKERS_TRIED: Final = 3
"""Maximum brokers tried before the client must repeat its lookup."""

LEADER_DEADLINE_S: Final = 3.0
DEADLINE_S: Final = 5.0
"""Timeouts of a request to the leader, and to another broker, which may call the leader first."""


class AskingBrokers:
    """Implements `topic_finder.Assigner` over the control plane."""

    def __init__(self, directory: BrokerDirectory, brokers: LiveBrokers, control: ControlClient) -> None:
        self._directory = directory
        self._brokers = brokers
        self._control = control
        self._silent = SilentBrokers()
        self._unreachable = LogLimit()

    async def assign(self, namespace: NamespaceName, bundle: BundleRange) -> str:
        """See `Assigner.assign`. Another broker is tried only after a broker did not answer."""
        why: MagnetarError | str = "no broker with a control address is available"
        request = AssignRequest(namespace=str(namespace), bundle=str(bundle))
        leader = self._leader()
        # The next broker must not wait for an unresponsive leader: it decides itself.
        request.passed_on = leader is not None and leader in self._silent
        for broker in self._asked(leader):
            leads = leader is not None and broker.broker_id == leader.broker_id
            deadline_s = LEADER_DEADLINE_S if leads else DEADLINE_S
            try:
                answer = await self._control.call(broker, ASSIGN, request, deadline_s=deadline_s)
            except (BrokerUnreachable, AnotherRun, NotInteroperable) as error:
                why = error
                self._silent.note(broker)
                request.passed_on |= leads
                if count := self._unreachable.note(asyncio.get_running_loop().time()):
                    log.warning(
                        "request to a broker failed",
                        broker=broker.broker_id,
                        reason=str(error),
                        bundles=count,
                    )
            else:
                return answer.broker_id
        raise ServiceNotReady(f"no broker assigns bundle {namespace}/{bundle}: {why}; look up again")

    def _leader(self) -> BrokerRegistration | None:
        leader = self._directory.leader
        return None if leader is None else self._directory.get(leader.id)

    def _asked(self, leader: BrokerRegistration | None) -> list[BrokerRegistration]:
        """Return the leader, to which others would forward, then others, and recently unresponsive ones
        last.
        """
        others = self._brokers.some(BROKERS_TRIED)
        if leader is not None:
            others = [leader, *(broker for broker in others if broker.broker_id != leader.broker_id)]
        asked = [broker for broker in others if broker.control_address]
        return sorted(asked, key=lambda broker: broker in self._silent)[:BROKERS_TRIED]
