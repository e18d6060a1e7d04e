"""One of the processes of `magnetar standalone --workers N`: a broker that owns some of the bundles.

Its metadata is that of the parent process, its ledgers are in a log of its own. Whatever ends its session
ends the process: acknowledged messages are durable, and the parent process starts it again.
"""

from __future__ import annotations

import asyncio
import os
import random
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Final, NoReturn
from urllib.parse import urlsplit

from magnetar.broker.config import BrokerConfig
from magnetar.broker.control.control_plane import ControlPlane
from magnetar.broker.load.config import DYNAMIC as LOAD_SETTINGS
from magnetar.broker.offload.topic_owners import ClusterOwners
from magnetar.broker.ownership.cluster import Cluster
from magnetar.common.errors import ConfigError, MagnetarError
from magnetar.common.metadata.instance import ensure_instance_id
from magnetar.common.metadata.keys import Keys
from magnetar.common.metadata.served_store import ServedMetadataStore
from magnetar.common.metadata.values import BrokerRegistration
from magnetar.common.obs.logs import get_logger
from magnetar.common.runtime.blocking import ThreadPool
from magnetar.common.runtime.clock import SystemClock
from magnetar.common.runtime.task_owner import TaskOwner
from magnetar.ledger.bookie_protocol.grpc_client import ClientOptions
from magnetar.ledger.bookie_protocol.grpc_clients import GrpcBookieClients
from magnetar.ledger.bookie_protocol.grpc_methods import BATCH_BYTES_MAX, MESSAGE_BYTES_MAX
from magnetar.ledger.data_directory import WrongDataDirectory
from magnetar.ledger.local_store import LocalLedgerStore
from magnetar.ledger.log_server import LogServer
from magnetar.ledger.managed_ledger.context import ManagedLedgerContext
from magnetar.ledger.managed_ledger.entry_cache import EntryCache
from magnetar.ledger.several_logs import SeveralLogs
from magnetar.standalone.broker_front import BrokerFront
from magnetar.standalone.local_log import LogContext, further_logs, log_name, open_log
from magnetar.standalone.offload_service import offload_service
from magnetar.standalone.process_watch import watch_process
from magnetar.standalone.service import Address
from magnetar.standalone.shared_config import SharedStandaloneConfig
from magnetar.standalone.start_error import CannotStart, listed, reason
from magnetar.standalone.worker_plan import WorkerPlan

_log = get_logger("magnetar.workers")

READ_THREADS_MAX: Final = 4
"""Threads for uncached reads and for the log's file operations."""

LOCK_WAIT_S: Final = 10.0
"""Seconds to wait for the log's lock: a worker of an earlier parent process may be about to end."""

OTHERS_WAIT_S: Final = 5.0
"""Seconds to wait for the other workers before clients are served at the shared ports, so that the first
worker does not take all bundles.
"""

STEP_S: Final = 0.05

DIED: Final = 1
"""Exit code of a worker that cannot go on."""


class StandaloneWorker:
    """Implements `service.Service`. Use it once: `start`, then `close`."""

    def __init__(
        self, config: SharedStandaloneConfig, data_dir: Path, plan: WorkerPlan, descriptor: int = 0
    ) -> None:
        """`descriptor` is a pipe that ends with the parent process."""
        self._config = config.advertised()
        self._data_dir = data_dir
        self._plan = plan
        self._descriptor = descriptor
        self._opened = AsyncExitStack()
        self._tasks = TaskOwner("standalone worker")
        self._clock = SystemClock()
        self._rng = random.SystemRandom()
        self._keys = Keys(config.standalone.broker.cluster_name)
        self._front: BrokerFront | None = None

    @property
    def shutdown_timeout_ms(self) -> int:
        return self._config.standalone.broker.shutdown_timeout_ms

    @property
    def addresses(self) -> list[Address]:
        return [] if self._front is None else self._front.addresses

    async def start(self) -> None:
        """Serve this worker's bundles; returns when clients are served.

        Raises ConfigError or CannotStart with every problem found, or another MagnetarError.
        """
        asyncio.get_running_loop().add_reader(self._descriptor, self._input_came)
        try:
            await self._start()
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """Notify clients, confirm accepted messages, close ledgers, and leave. Idempotent."""
        if self._front is not None:
            self._front.broker.leaving = "the broker stops"
        await self._tasks.close()
        await self._opened.aclose()
        asyncio.get_running_loop().remove_reader(self._descriptor)

    async def _start(self) -> None:
        problems = self._config.problems(self._plan.count)
        if problems:
            raise ConfigError(listed("invalid configuration", problems))
        metadata = ServedMetadataStore(self._plan.metadata_socket)
        self._opened.push_async_callback(metadata.close)
        pool = ThreadPool(READ_THREADS_MAX, "read")
        self._opened.callback(pool.close)
        watch_process(self._opened)
        try:
            ledgers = await self._open_ledgers(metadata, pool)
        except (MagnetarError, OSError) as error:
            problem = f"{self._data_dir}: {reason(error)}"
            raise CannotStart(listed("magnetar cannot start", [problem])) from error
        try:
            await self._serve(ledgers, pool)
        except OSError as error:
            raise CannotStart(listed("magnetar cannot start", [reason(error)])) from error

    async def _open_ledgers(self, metadata: ServedMetadataStore, pool: ThreadPool) -> ManagedLedgerContext:
        config, plan = self._config.standalone, self._plan
        context = LogContext(
            self._data_dir,
            metadata,
            config.metadata_path(self._data_dir),
            config.broker.cluster_name,
            await ensure_instance_id(metadata, self._keys, self._clock, self._rng),
            pool,
            self._clock,
            self._rng,
            config.segment_log,
        )
        message_bytes_max = max(MESSAGE_BYTES_MAX, config.broker.publish.message_bytes_max + BATCH_BYTES_MAX)
        clients = GrpcBookieClients(
            lambda name: f"unix:{plan.log_socket(name)}",
            options=ClientOptions(message_bytes_max=message_bytes_max),
        )
        self._opened.push_async_callback(clients.close)
        here: dict[str, LocalLedgerStore] = {}
        # Logs of more workers than there are now are shared out among these.
        numbers = [plan.number, *(n for n in further_logs(self._data_dir) if n >= plan.count)]
        for name in (log_name(n) for n in numbers if n % plan.count == plan.number):
            here[name] = await self._open_log(context, name)
            server = LogServer(here[name], message_bytes_max)
            await server.start(plan.log_socket(name))
            self._opened.push_async_callback(server.close)
        ledgers = SeveralLogs(
            log_name(plan.number), here, clients, metadata, self._keys, self._clock, self._rng
        )
        self._opened.push_async_callback(ledgers.close)
        cache = EntryCache(config.managed_ledger.cache_megabytes * 1024 * 1024)
        return ManagedLedgerContext(ledgers, metadata, self._keys, self._clock, config.managed_ledger, cache)

    async def _open_log(self, context: LogContext, name: str) -> LocalLedgerStore:
        deadline = self._clock.monotonic() + LOCK_WAIT_S
        while True:
            try:
                return await open_log(self._opened, context, name)
            except WrongDataDirectory as error:
                if self._clock.monotonic() > deadline or "LOCK" not in str(error):
                    raise
            await asyncio.sleep(STEP_S)

    async def _serve(self, ledgers: ManagedLedgerContext, pool: ThreadPool) -> None:
        config, plan, opened = self._config.standalone, self._plan, self._opened
        broker_config = config.broker
        cluster = Cluster(
            ledgers.metadata,
            self._keys,
            self._clock,
            self._rng,
            session_ttl_ms=self._config.workers.session_timeout_ms,
        )
        opened.push_async_callback(cluster.close)
        self._front = front = BrokerFront(
            opened,
            _with_own_ports(broker_config, plan),
            ledgers,
            pool,
            metadata_url=f"sqlite:{config.metadata_path(self._data_dir)}",
            cluster=cluster,
            has_console=config.console.enabled,
            shared=plan.shared_ports(broker_config.listener),
        )
        front.open_http()
        await cluster.begin(urlsplit(front.http_url).netloc)
        control = self._control_plane(front, cluster)
        front.broker.join(control)
        opened.push_async_callback(control.close)
        port = max(config.jobs.port, 0) if plan.number == 0 else 0
        host = config.jobs_host
        await control.listen(host, port, f"[{host}]" if ":" in host else host)
        await front.open()

        def fill(registration: BrokerRegistration) -> None:
            front.broker.fill_registration(registration)
            control.fill_registration(registration)

        await cluster.register(fill)
        await control.serve()
        front.broker.prove_ownership(cluster.presence.lease)
        self._tasks.spawn(self._follow_session(cluster), "session")
        await self._until_others_serve(cluster)
        await front.open_shared()

    def _control_plane(self, front: BrokerFront, cluster: Cluster) -> ControlPlane:
        broker, config = front.broker, self._config
        return ControlPlane(
            cluster,
            broker.registry,
            broker.ledgers.metadata,
            self._keys,
            self._clock,
            broker.dynamic_config.follow_also(config.load, LOAD_SETTINGS),
            broker.transactions,
            config.standalone.broker.transactions,
            cluster_name=config.standalone.broker.cluster_name,
            http_url=front.http_url,
            offload=offload_service(broker, ClusterOwners(cluster)),
        )

    async def _until_others_serve(self, cluster: Cluster) -> None:
        deadline = self._clock.monotonic() + OTHERS_WAIT_S
        while True:
            if len(cluster.directory.all()) >= self._plan.count or self._clock.monotonic() > deadline:
                return
            await asyncio.sleep(STEP_S)

    async def _follow_session(self, cluster: Cluster) -> None:
        _die(f"the session of this worker has ended: {await cluster.presence.lost()}")

    def _input_came(self) -> None:
        try:
            ended = not os.read(self._descriptor, 4096)
        except OSError:
            ended = True
        if ended:
            _die("the parent process of this worker ended")


def _with_own_ports(config: BrokerConfig, plan: WorkerPlan) -> BrokerConfig:
    return replace(config, listener=plan.own_ports(config.listener))


def _die(why: str) -> NoReturn:
    """End at once: without its session, or the metadata of the parent process, nothing can be closed in
    order.
    """
    _log.error("worker ends", reason=why)
    os._exit(DIED)
