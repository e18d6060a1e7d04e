"""Composes metadata, storage, broker and HTTP in one process, and starts and stops them in order.

Start order: the metadata file, the log with its recovery, HTTP, the client socket, and the port for jobs.
Health is 'not ready' until clients can be served. The stop order is the reverse: jobs end, clients are
notified, accepted messages are confirmed, cursors are flushed, HTTP closes, then storage.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Final

from magnetar.broker.broker import Broker
from magnetar.common.errors import ConfigError, MagnetarError
from magnetar.common.metadata.instance import ensure_instance_id
from magnetar.common.metadata.keys import Keys
from magnetar.common.metadata.sqlite_store import SqliteMetadataStore
from magnetar.common.runtime.blocking import ThreadPool
from magnetar.common.runtime.clock import SystemClock
from magnetar.ledger.ledger_store import LedgerStore
from magnetar.ledger.managed_ledger.context import ManagedLedgerContext
from magnetar.ledger.managed_ledger.entry_cache import EntryCache
from magnetar.standalone.broker_front import BrokerFront, ports_in_use
from magnetar.standalone.config import NO_PORT, StandaloneConfig
from magnetar.standalone.lazy_grpc import GrpcEdge, LazyGrpc
from magnetar.standalone.local_log import LEDGERS_DIRECTORY, LogContext, further_logs, log_name, open_log
from magnetar.standalone.ports import port_problems
from magnetar.standalone.process_watch import watch_process
from magnetar.standalone.service import Address
from magnetar.standalone.start_error import CannotStart, listed, reason

READ_THREADS_MAX: Final = 4
"""Threads for uncached reads and for the log's file operations."""


class Standalone:
    """A standalone Magnetar with one data directory, for a single use: `start`, then `close`."""

    def __init__(self, config: StandaloneConfig, data_dir: Path) -> None:
        self.config = config.advertised()
        self.data_dir = data_dir
        self.broker: Broker | None = None
        self.broker_url = ""
        self.http_url = ""
        self._clients: list[Address] = []
        self.jobs_address = ""
        """Address of the offload service, host:port; empty without one."""
        self._opened = AsyncExitStack()

    @property
    def shutdown_timeout_ms(self) -> int:
        return self.config.broker.shutdown_timeout_ms

    @property
    def addresses(self) -> list[Address]:
        return [
            *self._clients,
            *([Address("jobs", self.jobs_address, "(offload and Spark)")] if self.jobs_address else ()),
            Address("data", str(self.data_dir)),
        ]

    async def start(self) -> None:
        """Recover the data directory and listen; nothing is left open after a failure.

        Raises ConfigError or CannotStart with every problem found, or another MagnetarError.
        """
        try:
            await self._start()
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """Stop in the reverse order of the start. Idempotent."""
        await self._opened.aclose()

    async def _start(self) -> None:
        problems = self.config.problems()
        if problems:
            raise ConfigError(listed("invalid configuration", problems))
        problems = ports_in_use(self.config.broker.listener) + self._jobs_port_in_use()
        try:
            ledgers = await self._open_storage()
        except (MagnetarError, OSError) as error:
            problems.append(f"{self.data_dir}: {reason(error)}; --data-dir chooses another directory")
        if problems:
            raise CannotStart(listed("magnetar cannot start", problems))
        try:
            await self._open_sockets(ledgers)
        except OSError as error:
            raise CannotStart(listed("magnetar cannot start", [reason(error)])) from error

    async def _open_storage(self) -> ManagedLedgerContext:
        config, clock, rng = self.config, SystemClock(), random.SystemRandom()
        self.data_dir.mkdir(parents=True, exist_ok=True)
        keys = Keys(config.broker.cluster_name)
        path = config.metadata_path(self.data_dir)
        metadata = await SqliteMetadataStore.open(path)
        self._opened.push_async_callback(metadata.close)
        self._pool = ThreadPool(READ_THREADS_MAX, "read")
        self._opened.callback(self._pool.close)
        instance_id = await ensure_instance_id(metadata, keys, clock, rng)
        context = LogContext(
            self.data_dir,
            metadata,
            path,
            config.broker.cluster_name,
            instance_id,
            self._pool,
            clock,
            rng,
            config.segment_log,
        )
        first = await open_log(self._opened, context, LEDGERS_DIRECTORY)
        ledgers: LedgerStore = first
        if further := further_logs(self.data_dir):  # an earlier start had workers
            from magnetar.ledger.several_logs import SeveralLogs

            here = {LEDGERS_DIRECTORY: first}
            for worker in further:
                here[log_name(worker)] = await open_log(self._opened, context, log_name(worker))
            ledgers = SeveralLogs(LEDGERS_DIRECTORY, here, None, metadata, keys, clock, rng)
            self._opened.push_async_callback(ledgers.close)
        cache = EntryCache(config.managed_ledger.cache_megabytes * 1024 * 1024)
        return ManagedLedgerContext(ledgers, metadata, keys, clock, config.managed_ledger, cache)

    async def _open_sockets(self, ledgers: ManagedLedgerContext) -> None:
        watch_process(self._opened)
        front = BrokerFront(
            self._opened,
            self.config.broker,
            ledgers,
            self._pool,
            metadata_url=f"sqlite:{self.config.metadata_path(self.data_dir)}",
            has_console=self.config.console.enabled,
        )
        front.open_http()
        await front.open()
        self.broker, self.broker_url, self.http_url = front.broker, front.broker_url, front.http_url
        self._clients = front.addresses
        self._open_jobs(front.broker)

    def _open_jobs(self, broker: Broker) -> None:
        port, host = self.config.jobs.port, self.config.jobs_host
        if port == NO_PORT:
            return

        def load() -> Callable[[], GrpcEdge]:
            from magnetar.standalone.jobs_server import JobsServer

            return partial(JobsServer, broker)

        jobs = LazyGrpc(load, self._pool)
        bound = jobs.start(host, port)
        self._opened.push_async_callback(jobs.close)
        self.jobs_address = f"[{host}]:{bound}" if ":" in host else f"{host}:{bound}"

    def _jobs_port_in_use(self) -> list[str]:
        port = self.config.jobs.port
        return [] if port == NO_PORT else port_problems(self.config.jobs_host, {"magnetarControlPort": port})
