"""The bookie process: its core with gRPC, HTTP, metadata and registration, started and stopped in order.

Start: HTTP, which reports live and not ready during recovery; metadata; the data directory (recovered); gRPC;
and last the registration, so that no client connects before the bookie serves. Stop is the reverse: the
registration is removed first, accepted entries are confirmed, the log is sealed.
"""

from __future__ import annotations

import asyncio
import random
from contextlib import AsyncExitStack
from functools import partial
from typing import Final

from magnetar.bookie.autorecovery.auto_recovery import AutoRecovery
from magnetar.bookie.bookie_core import BookieCore, open_bookie_core
from magnetar.bookie.config import BookieConfig
from magnetar.bookie.grpc_server import BookieGrpcServer
from magnetar.bookie.identity import IdentityTaken, require_latest_start
from magnetar.bookie.metrics import BookieStats, Figures, MetricsPage
from magnetar.bookie.registration import Registration
from magnetar.bookie.timed_syncer import TimedSyncer
from magnetar.bookie.tls import caller_check, server_credentials, service_credentials
from magnetar.common.errors import ConfigError, MagnetarError
from magnetar.common.metadata.instance import ensure_instance_id, require_instance
from magnetar.common.metadata.keys import Keys
from magnetar.common.metadata.open_store import open_metadata_store
from magnetar.common.metadata.store import MetadataStore
from magnetar.common.metadata.values import BookieRegistration
from magnetar.common.obs import health
from magnetar.common.obs.http_pages import HttpPages, json_page, text_page
from magnetar.common.obs.logs import get_logger
from magnetar.common.obs.process_metrics import CONTENT_TYPE
from magnetar.common.runtime.blocking import ThreadPool
from magnetar.common.runtime.clock import SystemClock
from magnetar.common.runtime.posix_disk import PosixDisk
from magnetar.common.runtime.task_owner import TaskOwner
from magnetar.common.security.services.credentials import ServiceCredentials
from magnetar.ledger.bookie_protocol.bookie_client import PROTOCOL_VERSION
from magnetar.ledger.bookie_protocol.grpc_clients import GrpcBookieClients
from magnetar.ledger.bookie_protocol.registry import BookieRegistry
from magnetar.ledger.segment_log.kernel_syncer import system_syncer

log = get_logger(__name__)

READ_THREADS_MAX: Final = 4
"""Threads for reads that miss the page cache and for the log's file work."""


class CannotServe(MagnetarError):
    """The bookie cannot start; the message gives the reason and what to change."""


class Bookie:
    """One bookie over one data directory. Use it once: `start`, then `close`."""

    def __init__(self, config: BookieConfig) -> None:
        self.config = config
        self.address = ""
        """Advertised host:port of the gRPC server; empty before `start`."""
        self.http_url = ""
        self.stats = BookieStats()
        self.core: BookieCore
        self._disk: PosixDisk
        self._server: BookieGrpcServer
        self._registration: Registration | None = None
        self._opened = AsyncExitStack()
        self._clock = SystemClock()
        self._started_ms = self._clock.wall_ms()
        self._phase = "starting"
        self._recovered = False
        """Set once `core` exists and HTTP can show its state."""
        self._taken_by = ""
        """The other process that now runs as this bookie; empty if there is none."""
        self._health_news = asyncio.Event()

    async def start(self) -> None:
        """Recovers the data directory, listens and registers. Leaves nothing open on failure.

        Raises ConfigError or CannotServe with every problem found, or another MagnetarError.
        """
        problems = self.config.problems()
        if problems:
            listed = "\n".join(f"  - {problem}" for problem in problems)
            raise ConfigError(f"the configuration cannot be used:\n{listed}")
        try:
            await self._start()
        except OSError as error:
            await self.close()
            raise CannotServe(f"the bookie cannot start: {error}") from error
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """Stops in the reverse order of the start; idempotent."""
        self._phase = "stopping"
        await self._opened.aclose()

    async def _start(self) -> None:
        config, opened = self.config, self._opened
        credentials = service_credentials(config.tls)
        await self._start_http()
        uri, refresh_s = config.identity.metadata_uri, float(config.tls.refresh_s)
        metadata = await open_metadata_store(uri, config.metadata_access.access(uri, refresh_s))
        opened.push_async_callback(metadata.close)
        keys = Keys(config.identity.cluster_name)
        instance_id = await ensure_instance_id(metadata, keys, self._clock, random.SystemRandom())
        self.core = await self._open_core(metadata, keys, instance_id)
        opened.push_async_callback(self.core.close)
        self._recovered = True

        listener = config.listener
        self._server = BookieGrpcServer(
            self.core,
            self.stats,
            message_bytes_max=listener.message_bytes_max,
            unconfirmed_bytes_max=listener.unconfirmed_bytes_max,
            calls_max=listener.calls_max,
            credentials=server_credentials(config.tls, credentials),
            callers=caller_check(config.tls, config.identity.cluster_name),
        )
        grace_s = listener.shutdown_timeout_ms / 1000 / 3
        opened.push_async_callback(self._server.close, grace_s)
        port = await self._server.start(listener.bind_address, listener.port)
        self.address = f"{config.host}:{port}"

        self._registration = registration = Registration(
            metadata,
            keys,
            self._describe,
            config.identity.session_timeout_ms,
            partial(self._require, metadata, keys, instance_id),
        )
        self.core.on_mode_change(self._mode_changed)
        tasks = TaskOwner("bookie")
        opened.push_async_callback(tasks.close)
        tasks.spawn(self._follow_mode(), "health follows the mode")
        await self._server.set_serving(serving=True, writable=not self.core.read_only)
        opened.push_async_callback(registration.close)
        await registration.start()
        if credentials is not None:
            tasks.spawn(credentials.watch(refresh_s), "watch certificates")
        await self._start_auto_recovery(metadata, keys, credentials)
        self._phase = "serving"

    async def _open_core(self, metadata: MetadataStore, keys: Keys, instance_id: bytes) -> BookieCore:
        config = self.config
        root = config.data_dir.absolute()
        root.mkdir(parents=True, exist_ok=True)
        pool = ThreadPool(READ_THREADS_MAX, "read")
        self._opened.callback(pool.close)
        self._disk = PosixDisk(root)
        return await open_bookie_core(
            self._disk,
            metadata,
            keys,
            bookie_id=config.bookie_id,
            instance_id=instance_id,
            pool=pool,
            syncer=TimedSyncer(
                system_syncer(asyncio.get_running_loop(), str(root)), self.stats.journal_syncs, self._clock
            ),
            clock=self._clock,
            rng=random.SystemRandom(),
            log_config=config.segment_log,
            config=config.core,
        )

    async def _start_auto_recovery(
        self, metadata: MetadataStore, keys: Keys, credentials: ServiceCredentials | None
    ) -> None:
        config, opened = self.config, self._opened
        registry = BookieRegistry(metadata, keys)
        opened.push_async_callback(registry.close)
        await registry.start()
        clients = GrpcBookieClients(registry.address, registry.directory, tls=credentials)
        opened.push_async_callback(clients.close)
        recovery = AutoRecovery(
            config.bookie_id,
            metadata,
            keys,
            registry,
            clients,
            self._clock,
            random.SystemRandom(),
            config.auto_recovery,
            set_read_only=self.core.set_read_only,
            data_check=self.core.data_check,
        )
        opened.push_async_callback(recovery.close)
        recovery.start()

    async def _start_http(self) -> None:
        listener = self.config.listener
        if not listener.http_enabled:
            return
        figures = Figures(
            ledgers=lambda: len(self.core.ledgers) if self._recovered else 0,
            writable=lambda: self._writable,
            log=lambda: self.core.log if self._recovered else None,
        )
        metrics = MetricsPage(self.stats, figures, asyncio.get_running_loop().time)
        pages = HttpPages(
            {
                "/metrics": lambda: (200, CONTENT_TYPE, metrics.render()),
                health.LIVEZ: lambda: text_page(health.live()),
                health.READYZ: lambda: text_page(health.ready(self.not_ready)),
                "/health": self._ready_page,
                "/heartbeat": lambda: (200, "text/plain", b"OK\n"),
                "/api/v1/bookie/is_ready": self._ready_page,
                "/api/v1/bookie/state": self._state_page,
            }
        )
        self._opened.push_async_callback(pages.close)
        host = listener.http_host or listener.bind_address
        port = await pages.start(host, listener.http_port)
        self.http_url = f"http://{f'[{host}]' if ':' in host else host}:{port}"

    @property
    def not_ready(self) -> str | None:
        """Returns why no entries may be sent here; None if ready. A read-only bookie is ready for reads."""
        if self._phase != "serving":
            return f"the bookie is {self._phase}"
        if self._taken_by:
            return self._taken_by
        if self._registration is None or not self._registration.registered:
            return "the bookie is not registered in metadata"
        return None

    @property
    def _writable(self) -> bool:
        return self._recovered and not self.core.read_only

    def _ready_page(self) -> tuple[int, str, bytes]:
        return json_page(200 if self._phase == "serving" else 503, {"phase": self._phase})

    def _state_page(self) -> tuple[int, str, bytes]:
        return json_page(
            200,
            {
                "running": self._phase == "serving",
                "readOnly": self._recovered and self.core.read_only,
                "shuttingDown": self._phase == "stopping",
                "availableForHighPriorityWrites": self._writable,
            },
        )

    def _mode_changed(self) -> None:
        if self._registration is not None:
            self._registration.changed()
        self._health_news.set()

    async def _follow_mode(self) -> None:
        while True:
            await self._health_news.wait()
            self._health_news.clear()
            await self._server.set_serving(serving=not self._taken_by, writable=not self.core.read_only)

    async def _require(self, metadata: MetadataStore, keys: Keys, instance_id: bytes) -> None:
        """Checks the requirements of a registration; a bookie whose identity was taken stops serving."""
        await require_instance(metadata, keys, instance_id)
        try:
            await require_latest_start(metadata, keys, self.core.identity)
        except IdentityTaken as error:
            if not self._taken_by:
                log.error("the bookie serves no more: its identity was taken", reason=str(error))
                self._taken_by = str(error)
                self._health_news.set()
            raise

    def _describe(self) -> BookieRegistration:
        config = self.config
        return BookieRegistration(
            bookie_id=config.bookie_id,
            address=self.address,
            rack=config.identity.rack,
            read_only=self.core.read_only,
            protocol_version=PROTOCOL_VERSION,
            free_bytes=self._disk.free_bytes(),
            started_ms=self._started_ms,
            directory_id=self.core.identity.directory_id,
        )
