"""The control plane of a broker: calls between brokers, leader election and load reports, composed."""

from __future__ import annotations

from importlib.metadata import version
from typing import Final

from magnetar.broker.control.broker_calls import BrokerCalls
from magnetar.broker.control.bundle_assignment import Assigning
from magnetar.broker.control.bundle_moves import BundleMoves
from magnetar.broker.control.bundle_unload import Moving
from magnetar.broker.control.local_load import OwnLoad
from magnetar.broker.control.next_owners import NextOwners
from magnetar.broker.control.remote_topics import TopicsElsewhere
from magnetar.broker.control.transaction_calls import TransactionCalls
from magnetar.broker.control.transaction_peers import TransactionPeers
from magnetar.broker.load.config import LoadConfig
from magnetar.broker.load.leader import LoadLeader
from magnetar.broker.load.leader_term import LeaderParts
from magnetar.broker.load.load_report import Usage
from magnetar.broker.load.process_usage import CpuMeter, machine_bytes, resident_bytes
from magnetar.broker.load.reporter import LoadReporter, Reporter
from magnetar.broker.offload.service import OffloadService
from magnetar.broker.ownership.cluster import Cluster
from magnetar.broker.topics.registry.topic_registry import TopicRegistry
from magnetar.broker.transaction_config import TransactionConfig
from magnetar.broker.transactions.transactions import Transactions
from magnetar.common.control.control_client import Caller, ControlClient
from magnetar.common.control.control_pb2 import (
    LoadReport,
    ReportRequest,
    TakeRequest,
    TakeResponse,
    UnloadRequest,
    UnloadResponse,
)
from magnetar.common.control.control_server import ControlServer, Identity
from magnetar.common.control.methods import CALLERS, REPORT, TAKE, UNLOAD
from magnetar.common.control.versions import VERSION
from magnetar.common.errors import MetadataError, ServiceNotReady
from magnetar.common.metadata.keys import Keys
from magnetar.common.metadata.store import MetadataStore
from magnetar.common.metadata.values import BrokerRegistration, Leader
from magnetar.common.obs.logs import get_logger
from magnetar.common.offload.methods import CALLERS as OFFLOAD_CALLERS
from magnetar.common.offload.methods import SERVICE as OFFLOAD_SERVICE
from magnetar.common.rpc.callers import CallerCheck
from magnetar.common.runtime.clock import Clock
from magnetar.common.runtime.task_owner import TaskOwner
from magnetar.common.security.services.credentials import ServiceCredentials

log = get_logger(__name__)

CLOSE_GRACE_S: Final = 1.0
"""Seconds that running calls have to finish when the broker stops."""

TAKE_DEADLINE_S: Final = 1.5
"""Seconds that the leader waits for a broker to take an unowned bundle before it calls another, so that it
answers its own caller in time. If the first broker took the bundle after all, the next one detects that.
"""


class ControlPlane:
    """The control plane of a broker run: `listen`, `fill_registration`, `serve` once registered, `close`."""

    def __init__(
        self,
        cluster: Cluster,
        topics: TopicRegistry,
        metadata: MetadataStore,
        keys: Keys,
        clock: Clock,
        config: LoadConfig,
        transactions: Transactions,
        transaction_config: TransactionConfig,
        *,
        cluster_name: str,
        http_url: str,
        offload: OffloadService | None = None,
        tls: ServiceCredentials | None = None,
    ) -> None:
        """Construct after `cluster` has begun. `offload` is served at the same port.

        `tls`: this broker's certificate, for callers and for other brokers; its holder watches the files.
        """
        presence = cluster.presence
        release = version("magnetar-broker")
        self.client: Final = ControlClient(Caller(presence.broker_id, release, presence.run), tls=tls)
        parts = LeaderParts(
            config,
            metadata,
            keys,
            cluster_name,
            clock,
            cluster.directory,
            cluster.owners,
            self._take,
            self._unload,
        )
        candidate = Leader(id=presence.broker_id, http_url=http_url)
        self.leader: Final = LoadLeader(parts, presence.session, candidate)
        self.assigning: Final = Assigning(cluster, self.leader, self.client)
        others = NextOwners(cluster, self.assigning, self.client)
        self.topics: Final = TopicsElsewhere(cluster, self.client)
        self.moving: Final = Moving(
            cluster,
            topics,
            others,
            clock,
            lambda: config.unload_timeout_ms / 1000,
            transactions.close_bundle,
        )
        self.moves: Final = BundleMoves(cluster, self.moving, self.client)
        self._cluster = cluster
        self.transactions: Final = TransactionPeers(
            cluster,
            self.client,
            transactions.topics,
            transactions,
            requests_max=transaction_config.requests_max,
            timeout_s=transaction_config.request_timeout_ms / 1000,
        )
        self._calls = BrokerCalls(
            cluster,
            self.assigning,
            self.leader,
            topics,
            self.moving,
            TransactionCalls(transactions.topics, transactions),
        )
        self._offload = offload
        also = {} if offload is None else {OFFLOAD_SERVICE: offload.methods()}
        identity = Identity(presence.broker_id, presence.run, release)
        check = CallerCheck(cluster_name, {**CALLERS, **OFFLOAD_CALLERS})
        self._server = ControlServer(
            self._calls,
            identity,
            also=also,
            credentials=None if tls is None else tls.server(),
            guard=None if tls is None else check.guard,
        )
        self._cpu = CpuMeter()
        self.reporter: Final = LoadReporter(
            config,
            clock,
            OwnLoad(cluster, topics, self.moving),
            Reporter(
                cluster_name, presence.broker_id, presence.run, self._known_leader, self._report, self._usage
            ),
        )
        self._tasks = TaskOwner("control plane")
        self._address = ""

    @property
    def leads(self) -> bool:
        """Whether this broker is the leader, to its knowledge."""
        return self.leader.leads

    async def listen(self, host: str, port: int, advertised_host: str) -> int:
        """Listens for calls, which are refused until `serve`; returns the port. Raises OSError."""
        bound = await self._server.start(host, port)
        self._address = f"{advertised_host}:{bound}"
        return bound

    def fill_registration(self, registration: BrokerRegistration) -> None:
        """Adds the address at which other brokers can call this one."""
        registration.control_address = self._address
        registration.control_version = VERSION

    async def serve(self) -> None:
        """Accepts calls, joins the leader election and reports load; lookups of unowned bundles now ask the
        leader.
        """
        await self._server.set_serving(serving=True)
        if self._offload is not None:
            self._offload.serving = True
        self._cluster.ownership.finder.assigner = self.assigning
        self._cpu = CpuMeter()  # start-up CPU is not load: reporting it would attract no bundles
        self._tasks.spawn(self.leader.run(), "leader")
        self._tasks.spawn(self.reporter.run(), "load reporter")

    async def drain(self, timeout_s: float) -> None:
        """Refuses new bundles and hands over the owned ones within this time."""
        try:
            await self._cluster.register(_mark_draining)
        except (MetadataError, ServiceNotReady) as error:
            # Handover needs metadata.
            log.warning("shutting down without draining bundles", error=str(error))
            return
        await self.moving.drain(timeout_s)

    async def close(self) -> None:
        """Gives up leadership and stops calls in both directions. Idempotent."""
        if self._offload is not None:
            self._offload.serving = False
        self._cluster.ownership.finder.assigner = self._cluster.ownership
        await self._tasks.close()
        await self.moving.close()
        await self.transactions.close()
        await self._server.close(CLOSE_GRACE_S)
        await self.client.close()

    # -- callbacks of the leader and the load reporter

    async def _take(self, broker: BrokerRegistration, request: TakeRequest) -> TakeResponse:
        if self._is_this(broker):
            return await self._calls.take(request)
        return await self.client.call(broker, TAKE, request, deadline_s=TAKE_DEADLINE_S)

    async def _unload(self, broker: BrokerRegistration, request: UnloadRequest) -> UnloadResponse:
        if self._is_this(broker):
            return await self._calls.unload(request)
        return await self.client.call(broker, UNLOAD, request)

    def _is_this(self, broker: BrokerRegistration) -> bool:
        return self._cluster.presence.is_run(broker.broker_id, broker.run)

    def _known_leader(self) -> tuple[str, int]:
        leader = self._cluster.directory.leader
        return ("", 0) if leader is None else (leader.id, leader.epoch)

    async def _report(self, report: LoadReport) -> None:
        leader = self._cluster.directory.get(self._known_leader()[0])
        if leader is None:
            raise ServiceNotReady("there is no leader now")
        if self._is_this(leader):
            self.leader.report(report)
        else:
            await self.client.call(leader, REPORT, ReportRequest(report=report))

    def _usage(self) -> Usage:
        return Usage(self._cpu.percent(), resident_bytes(), machine_bytes())


def _mark_draining(registration: BrokerRegistration) -> None:
    registration.draining = True
