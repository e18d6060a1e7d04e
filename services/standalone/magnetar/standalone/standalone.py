"""The composition: metadata, storage, broker and HTTP in one process, started and stopped in order.

Start: the metadata file, the log (recovered), then the sockets, last of all, so that nobody is accepted who
cannot be served. Stop is the reverse: clients are told, what was taken is confirmed, cursors are flushed,
then storage is closed.
"""

from __future__ import annotations

import asyncio
import random
import socket
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final

from magnetar.broker.broker import Broker
from magnetar.common.errors import ConfigError, MagnetarError, StorageError, UnknownOutcome, VersionMismatch
from magnetar.common.metadata.keys import Keys
from magnetar.common.metadata.sqlite_store import SqliteMetadataStore
from magnetar.common.metadata.store import ABSENT, MetadataStore
from magnetar.common.metadata.values import InstanceId, decode, encode
from magnetar.common.runtime.blocking import ThreadPool
from magnetar.common.runtime.clock import Clock, SystemClock
from magnetar.common.runtime.disk import Disk
from magnetar.common.runtime.loop_lag import LoopLagProbe
from magnetar.common.runtime.posix_disk import PosixDisk
from magnetar.common.runtime.task_owner import TaskOwner
from magnetar.ledger.data_directory import COOKIE
from magnetar.ledger.local_store import LocalLedgerStore, open_local_store
from magnetar.ledger.managed_ledger.context import ManagedLedgerContext
from magnetar.ledger.managed_ledger.entry_cache import EntryCache
from magnetar.ledger.segment_log.kernel_syncer import system_syncer
from magnetar.standalone.config import StandaloneConfig
from magnetar.standalone.idle_collection import collect_when_idle
from magnetar.standalone.lazy_http import LazyHttp

LEDGERS_DIRECTORY: Final = "ledgers"
"""Beside the metadata file in the data directory: the log with every entry."""

READ_THREADS_MAX: Final = 4
"""Threads for reads that miss the page cache and for the log's file work."""


class CannotStart(MagnetarError):
    """The process cannot serve; the message lists every reason that was found, one a line."""


class Standalone:
    """One Magnetar over one data directory. Use it once: `start`, then `close`."""

    def __init__(self, config: StandaloneConfig, data_dir: Path) -> None:
        self.config = config.advertised()
        self.data_dir = data_dir
        self.broker: Broker | None = None
        self.broker_url = ""
        self.http_url = ""
        self._opened = AsyncExitStack()

    async def start(self) -> None:
        """Recover what the data directory holds and listen; nothing is left open when it fails.

        Raises ConfigError or CannotStart with every problem found, or another MagnetarError.
        """
        try:
            await self._start()
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """Stop in the reverse order of the start; idempotent."""
        await self._opened.aclose()

    async def _start(self) -> None:
        problems = self.config.problems()
        if problems:
            raise ConfigError(_listed("the configuration cannot be used", problems))
        problems = _ports_in_use(self.config)
        try:
            ledgers = await self._open_storage()
        except (MagnetarError, OSError) as error:
            problems.append(f"{self.data_dir}: {_reason(error)}; --data-dir chooses another directory")
        if problems:
            raise CannotStart(_listed("magnetar cannot start", problems))
        try:
            await self._open_sockets(ledgers)
        except OSError as error:
            raise CannotStart(_listed("magnetar cannot start", [_reason(error)])) from error

    async def _open_storage(self) -> ManagedLedgerContext:
        config, clock, rng = self.config, SystemClock(), random.SystemRandom()
        root = self.data_dir / LEDGERS_DIRECTORY
        root.mkdir(parents=True, exist_ok=True)
        keys = Keys(config.broker.cluster_name)
        metadata = await SqliteMetadataStore.open(config.metadata_path(self.data_dir))
        self._opened.push_async_callback(metadata.close)
        self._pool = ThreadPool(READ_THREADS_MAX, "read")
        self._opened.callback(self._pool.close)
        disk = PosixDisk(root)
        instance_id = await _instance_id(metadata, keys, clock, rng)
        await _refuse_lost_ledgers(disk, metadata, keys)
        ledgers: LocalLedgerStore = await open_local_store(
            disk,
            metadata,
            keys,
            instance_id=instance_id,
            pool=self._pool,
            syncer=system_syncer(asyncio.get_running_loop(), str(root)),
            clock=clock,
            rng=rng,
            config=config.segment_log,
        )
        self._opened.push_async_callback(ledgers.close)
        cache = EntryCache(config.managed_ledger.cache_megabytes * 1024 * 1024)
        return ManagedLedgerContext(ledgers, metadata, keys, clock, config.managed_ledger, cache)

    async def _open_sockets(self, ledgers: ManagedLedgerContext) -> None:
        listener = self.config.broker.listener
        broker = Broker(self.config.broker, ledgers, ledgers.metadata, ledgers.keys, ledgers.clock)
        http = LazyHttp(broker, self._pool)
        probe = LoopLagProbe()
        probe.start()
        self._opened.callback(probe.stop)
        tasks = TaskOwner("standalone")
        self._opened.push_async_callback(tasks.close)
        tasks.spawn(collect_when_idle(), "collect when idle")
        self._opened.push_async_callback(http.close)
        self._opened.push_async_callback(broker.close)
        await broker.start()
        port = http.start(listener.bind_address, listener.web_service_port)
        self.http_url = f"http://{listener.advertised_address}:{port}"
        broker.urls.http_url = self.http_url
        self.broker_url = broker.urls.broker_url
        self.broker = broker


def _reason(error: Exception) -> str:
    return error.strerror if isinstance(error, OSError) and error.strerror else str(error)


def _listed(what: str, problems: list[str]) -> str:
    return f"{what}:\n" + "\n".join(f"  - {problem}" for problem in problems)


def _ports_in_use(config: StandaloneConfig) -> list[str]:
    """What is wrong with the ports, before the log is recovered in vain. The real bind still has the word."""
    listener = config.broker.listener
    problems = []
    for key, port in (
        ("brokerServicePort", listener.broker_service_port),
        ("webServicePort", listener.web_service_port),
    ):
        if port == 0:
            continue
        family = socket.AF_INET6 if ":" in listener.bind_address else socket.AF_INET
        try:
            socket.create_server((listener.bind_address, port), family=family).close()
        except OSError as error:
            problems.append(
                f"{listener.bind_address}:{port} ({key}): {_reason(error)}; "
                f"--set {key}=PORT chooses another port, 0 any free one"
            )
    return problems


async def _instance_id(metadata: MetadataStore, keys: Keys, clock: Clock, rng: random.Random) -> bytes:
    """The id that metadata and ledgers have in common, made at the first start."""
    found = await metadata.get(keys.instance_id)
    if found is None:
        made = InstanceId(uuid=rng.randbytes(16), created_ms=clock.wall_ms())
        try:
            await metadata.put(keys.instance_id, encode(made), ABSENT)
        except (VersionMismatch, UnknownOutcome):
            pass  # whatever is there now is the id
        found = await metadata.get(keys.instance_id)
        if found is None:
            raise StorageError("the instance id could not be written")
    return decode(InstanceId, found.value).uuid


async def _refuse_lost_ledgers(disk: Disk, metadata: MetadataStore, keys: Keys) -> None:
    """Raises StorageError when metadata has ledgers and the directory of their entries is a fresh one."""
    if COOKIE in disk.listdir(""):
        return
    ledgers = (await metadata.children(keys.ledgers_prefix)).items
    if ledgers:
        raise StorageError(
            f"the metadata names {len(ledgers)} ledgers but {LEDGERS_DIRECTORY}/ is empty: both must be "
            "kept, moved and restored together"
        )
