"""Opens a log of a standalone's data directory, checked against the metadata beside it."""

from __future__ import annotations

import asyncio
import random
import re
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from magnetar.common.errors import StorageError
from magnetar.common.metadata.keys import Keys
from magnetar.common.metadata.store import MetadataStore
from magnetar.common.metadata.values import Counter, LedgerMetadata, decode
from magnetar.common.runtime.blocking import ThreadPool
from magnetar.common.runtime.clock import Clock
from magnetar.common.runtime.disk import Disk
from magnetar.common.runtime.posix_disk import PosixDisk
from magnetar.ledger.data_directory import COOKIE
from magnetar.ledger.local_store import LocalLedgerStore, open_local_store
from magnetar.ledger.segment_log.config import SegmentLogConfig
from magnetar.ledger.segment_log.kernel_syncer import system_syncer
from magnetar.ledger.segment_log.unsynced_writer import UnsyncedWriter

LEDGERS_DIRECTORY: Final = "ledgers"
"""Directory of the log with all entries, beside the metadata file; of the first worker's where there are
several.
"""

_FURTHER: Final = re.compile(rf"{LEDGERS_DIRECTORY}-([1-9]\d{{0,2}})")


def log_name(worker: int) -> str:
    """Return the name and directory of a worker's log."""
    return f"{LEDGERS_DIRECTORY}-{worker}" if worker else LEDGERS_DIRECTORY


def further_logs(data_dir: Path) -> list[int]:
    """Return the workers other than the first that have a log in the data directory."""
    if not data_dir.is_dir():
        return []
    found = (_FURTHER.fullmatch(each.name) for each in data_dir.iterdir())
    return sorted(int(match[1]) for match in found if match is not None)


@dataclass(frozen=True, slots=True)
class LogContext:
    """Parts that the logs of a data directory share."""

    data_dir: Path
    metadata: MetadataStore
    metadata_path: Path
    """The file of the metadata, for error messages."""
    cluster: str
    instance_id: bytes
    pool: ThreadPool
    clock: Clock
    rng: random.Random
    config: SegmentLogConfig

    @property
    def keys(self) -> Keys:
        return Keys(self.cluster)


async def open_log(opened: AsyncExitStack, context: LogContext, name: str) -> LocalLedgerStore:
    """Recover the log `name` and return its store, which closes with `opened`.

    Raises StorageError when log and metadata do not belong together, and as `open_local_store`.
    """
    root = context.data_dir / name
    root.mkdir(parents=True, exist_ok=True)
    disk = PosixDisk(root)
    await _refuse_lost_ledgers(disk, name, context)
    loop = asyncio.get_running_loop()
    ledgers: LocalLedgerStore = await open_local_store(
        disk,
        context.metadata,
        context.keys,
        instance_id=context.instance_id,
        pool=context.pool,
        syncer=system_syncer(loop, str(root)) if context.config.sync_data else UnsyncedWriter(loop),
        clock=context.clock,
        rng=context.rng,
        config=context.config,
    )
    opened.push_async_callback(ledgers.close)
    await _refuse_older_metadata(ledgers, name, context)
    return ledgers


async def _refuse_lost_ledgers(disk: Disk, name: str, context: LogContext) -> None:
    """Raises StorageError when metadata has ledgers of this log but the directory of their entries is
    empty.
    """
    if COOKIE in disk.listdir(""):
        return
    listed = (await context.metadata.children(context.keys.ledgers_prefix)).items
    ledgers = [each for each in listed if _log_of(each.value) == name]
    if ledgers:
        raise StorageError(
            f"the metadata names {len(ledgers)} ledgers but {name}/ is empty: both must be "
            "kept, moved and restored together"
        )


def _log_of(value: bytes) -> str:
    return decode(LedgerMetadata, value).properties.get("log", LEDGERS_DIRECTORY)


async def _refuse_older_metadata(ledgers: LocalLedgerStore, name: str, context: LogContext) -> None:
    """Raises StorageError when the log has entries of ledgers newer than the metadata."""
    last_id = max((ledger.ref.id for ledger in ledgers.log.ledgers()), default=0)
    counter = await context.metadata.get(context.keys.ledger_id_counter)
    if last_id < (1 if counter is None else decode(Counter, counter.value).next):
        return
    raise StorageError(
        f"{name}/ has ledger {last_id}, which is newer than the metadata: the "
        "metadata is an older "
        "copy. Keep, move and restore both together. If there is no newer copy of the metadata, run "
        f"`magnetar admin --metadata sqlite:{context.metadata_path} --cluster {context.cluster} metadata "
        "mark-restored`: newer data is then not served, and nothing is deleted until `release`"
    )
