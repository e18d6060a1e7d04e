"""`magnetar standalone --workers N`: serves one data directory at one address with N processes.

The parent process is not a broker. It has the metadata, which it serves to the workers over a unix socket,
and starts, watches and restarts them. All listen at the same ports; each has ports of its own, too, with
which lookups send a client to the worker that owns a topic's bundle.
"""

from __future__ import annotations

import os
import random
import shutil
import tempfile
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final

from magnetar.broker.namespaces import Namespaces
from magnetar.common.errors import ConfigError, MagnetarError
from magnetar.common.metadata.instance import ensure_instance_id
from magnetar.common.metadata.keys import Keys
from magnetar.common.metadata.sqlite_store import SqliteMetadataStore
from magnetar.common.metadata.store_server import MetadataServer
from magnetar.common.runtime.clock import SystemClock
from magnetar.standalone.broker_front import ports_in_use
from magnetar.standalone.config import NO_PORT
from magnetar.standalone.ports import port_problems
from magnetar.standalone.reserved_ports import ReservedPorts
from magnetar.standalone.service import Address
from magnetar.standalone.shared_config import SharedStandaloneConfig
from magnetar.standalone.start_error import CannotStart, listed, reason
from magnetar.standalone.worker_plan import WorkerPlan, metadata_socket
from magnetar.standalone.worker_processes import STOPS_LATER_MS, WorkerProcesses

AGAIN_AFTER_S: Final = 0.1
"""First delay before a dead worker is restarted: its bundles wait for it."""

BUNDLES_PER_WORKER: Final = 4
"""Bundles of public/default for each worker of the first start."""

SOCKETS_DIRECTORY: Final = "sockets"

SOCKET_PATH_MAX: Final = 100
"""Maximum length of a unix socket's path: the system's limit, less a reserve."""


class StandaloneWorkers:
    """Implements `service.Service`. Use it once: `start`, then `close`."""

    def __init__(
        self,
        config: SharedStandaloneConfig,
        data_dir: Path,
        count: int,
        command: Sequence[str] | None = None,
    ) -> None:
        """`command`: see `WorkerProcesses`."""
        self._config = config.advertised()
        self._data_dir = data_dir
        self._count = count
        self._command = command
        self._opened = AsyncExitStack()
        self._shared: dict[str, int] = {}
        self.processes: WorkerProcesses | None = None

    @property
    def shutdown_timeout_ms(self) -> int:
        return self._config.standalone.broker.shutdown_timeout_ms + STOPS_LATER_MS

    @property
    def addresses(self) -> list[Address]:
        config = self._config.standalone
        host, pages = config.broker.listener.advertised_address, "(/docs, /metrics, /health, /admin/v2)"
        schemes = {
            "brokerServicePort": ("clients", "pulsar", ""),
            "brokerServicePortTls": ("clients", "pulsar+ssl", ""),
            "webServicePort": ("HTTP", "http", pages),
            "webServicePortTls": ("HTTPS", "https", pages),
        }
        found = []
        for key, (label, scheme, note) in schemes.items():
            if key in self._shared:
                found.append(Address(label, f"{scheme}://{host}:{self._shared[key]}", note))
        if config.jobs.port > 0:
            jobs = f"[{config.jobs_host}]" if ":" in config.jobs_host else config.jobs_host
            found.append(Address("jobs", f"{jobs}:{config.jobs.port}", "(offload and Spark)"))
        found.append(Address("data", str(self._data_dir)))
        return [*found, Address("workers", str(self._count))]

    async def start(self) -> None:
        """Start metadata, then all workers; returns when all are ready.

        Raises ConfigError or CannotStart with every problem found, and CannotStart when a worker ends.
        """
        try:
            await self._start()
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """Stop the workers, then metadata. Idempotent."""
        await self._opened.aclose()

    async def _start(self) -> None:
        config, listener = self._config.standalone, self._config.standalone.broker.listener
        problems = self._config.problems(self._count)
        if problems:
            raise ConfigError(listed("invalid configuration", problems))
        problems = ports_in_use(listener)
        if config.jobs.port != NO_PORT:
            problems += port_problems(config.jobs_host, {"magnetarControlPort": config.jobs.port})
        try:
            sockets = await self._serve_metadata()
        except (MagnetarError, OSError) as error:
            problems.append(f"{self._data_dir}: {reason(error)}; --data-dir chooses another directory")
        if problems:
            raise CannotStart(listed("magnetar cannot start", problems))
        try:
            plans = self._plans(sockets)
        except OSError as error:
            raise CannotStart(listed("magnetar cannot start", [reason(error)])) from error
        self.processes = WorkerProcesses(
            self._count,
            lambda number: plans[number].text(),
            config.broker.shutdown_timeout_ms,
            self._command,
            again_after_s=AGAIN_AFTER_S,
            restart_stopped=True,
        )
        self._opened.push_async_callback(self.processes.close)
        await self.processes.start()

    async def _serve_metadata(self) -> str:
        """Open the metadata and serve it; returns the directory of the sockets."""
        config = self._config.standalone
        _make(self._data_dir)
        metadata = await SqliteMetadataStore.open(config.metadata_path(self._data_dir))
        self._opened.push_async_callback(metadata.close)
        keys = Keys(config.broker.cluster_name)
        await ensure_instance_id(metadata, keys, SystemClock(), random.SystemRandom())
        # Every worker serves a part of the first namespaces.
        bundles = BUNDLES_PER_WORKER * self._count
        await Namespaces(metadata, keys).ensure_defaults(config.broker.cluster_name, bundles)
        sockets = _sockets_directory(self._data_dir)
        self._opened.callback(shutil.rmtree, sockets, ignore_errors=True)
        # Workers are started by fork and exec: gRPC has nothing to do for them, and would say so each time.
        os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
        server = MetadataServer(metadata)
        self._opened.push_async_callback(server.close)
        await server.start(metadata_socket(sockets))
        return sockets

    def _plans(self, sockets: str) -> list[WorkerPlan]:
        """Reserve all ports. Raises OSError."""
        listener, first = self._config.standalone.broker.listener, self._config.workers.first_port
        reserved = ReservedPorts(listener.bind_address)
        self._opened.callback(reserved.close)
        keys = list(listener.ports)
        self._shared = {key: reserved.reserve(port) for key, port in listener.ports.items()}
        plans = []
        for number in range(self._count):
            begin = first + number * len(keys)
            own = {key: reserved.reserve(begin + i if first else 0) for i, key in enumerate(keys)}
            plans.append(WorkerPlan(number, self._count, sockets, self._shared, own))
        return plans


def _make(directory: Path) -> None:
    directory.mkdir(parents=True, exist_ok=True)


def _sockets_directory(data_dir: Path) -> str:
    """Return an empty directory for sockets that only this user enters."""
    directory = data_dir / SOCKETS_DIRECTORY
    if len(str(directory / "ledgers-63.sock")) > SOCKET_PATH_MAX:
        return tempfile.mkdtemp(prefix="magnetar-")
    shutil.rmtree(directory, ignore_errors=True)  # left by a process that was killed
    directory.mkdir(mode=0o700)
    return str(directory)
