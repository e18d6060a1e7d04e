"""Entries read directly from the bookies of a closed ledger by quorum reads.

The quorum client is asyncio's; its loop runs in a thread beside the task, which decodes and compresses while
the next entries are on their way. Where bookies moved or the ledger was copied meanwhile, a broker says it.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Iterator
from concurrent.futures import Future
from types import TracebackType
from typing import Any, Final, TypeVar

from magnetar.common.errors import MagnetarError, NoSuchLedger, StorageError
from magnetar.common.metadata.values import LedgerMetadata, decode
from magnetar.common.offload.offload_errors import may_pass
from magnetar.common.offload.offload_pb2 import Bookies
from magnetar.common.runtime.clock import SystemClock
from magnetar.common.security.services.credentials import loaded
from magnetar.ledger.bookie_protocol.grpc_clients import GrpcBookieClients
from magnetar.ledger.ledger_store import LedgerRef, Run
from magnetar.ledger.quorum.reader import QuorumLedgerReader, ReadContext, ReadOptions
from magnetar.ledger.quorum.replica_order import ReplicaOrder
from magnetar.ledger.quorum.striping import LedgerLayout
from magnetar.spark.ledgers.ledger_lookup import find_ledger
from magnetar.spark.ledgers.ledger_source import LedgerSource
from magnetar.spark.ledgers.service_channel import credential_files

CHUNK_BYTES: Final = 4 << 20
"""Bytes of entries in one read."""

PATIENCE_S: Final = 90.0
"""Timeout in seconds for unreadable entries: bookies may be restarting."""

PAUSE_S: Final = 0.2
PAUSE_MAX_S: Final = 5.0

T = TypeVar("T")


class BookieEntries:
    """Implements `entries.Entries`. To be used in a `with`."""

    def __init__(self, source: LedgerSource, *, patience_s: float = PATIENCE_S) -> None:
        self._source = source
        self._patience_s = patience_s
        bookies = Bookies.FromString(source.bookies)
        self._metadata = _closed(decode(LedgerMetadata, bookies.ledger_metadata))
        self._addresses = dict(bookies.addresses)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="bookie reads", daemon=True)

    def __enter__(self) -> BookieEntries:
        self._thread.start()
        try:
            self._clients, self._reader = self._submit(self._connect()).result()
        except BaseException:
            self._end_loop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._submit(self._clients.close()).result()
        finally:
            self._end_loop()

    def read(self, first_entry_id: int, last_entry_id: int) -> Iterator[list[Run]]:
        """See `Entries.read`; one answer is read ahead."""
        ahead: Future[list[Run]] | None = self._submit(self._read(first_entry_id, last_entry_id))
        try:
            while ahead is not None:
                runs = ahead.result()
                at = runs[-1].last_entry_id + 1
                ahead = self._submit(self._read(at, last_entry_id)) if at <= last_entry_id else None
                yield runs
        finally:
            if ahead is not None:
                ahead.cancel()

    # --- inside ---

    async def _connect(self) -> tuple[GrpcBookieClients, QuorumLedgerReader]:
        clients = GrpcBookieClients(self._addresses.get, tls=loaded(credential_files(self._source.service)))
        context = ReadContext(clients, ReplicaOrder(SystemClock()), ReadOptions())
        reader = QuorumLedgerReader(
            LedgerRef(self._source.ledger_id, self._source.ledger_key),
            LedgerLayout.of(self._metadata),
            context,
            reload=self._reload,
            end=self._metadata.last_entry_id,
        )
        return clients, reader

    async def _read(self, first: int, last: int) -> list[Run]:
        """Read at least one entry, retrying while it may become readable."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._patience_s
        pause_s = PAUSE_S
        while True:
            try:
                return await self._reader.read(first, last, CHUNK_BYTES)
            except MagnetarError as error:
                if not may_pass(error) or loop.time() + pause_s > deadline:
                    raise
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, PAUSE_MAX_S)

    async def _reload(self) -> LedgerMetadata:
        """Reload the ledger's metadata and the current addresses of its bookies."""
        source = self._source
        found = await asyncio.to_thread(find_ledger, source.service, source.topic, source.ledger_id)
        if found is None or found.ledger_key != source.ledger_key or not found.HasField("bookies"):
            raise NoSuchLedger(f"ledger {source.ledger_id} of {source.topic} is no longer on bookies")
        self._addresses.clear()
        self._addresses.update(found.bookies.addresses)
        return _closed(decode(LedgerMetadata, found.bookies.ledger_metadata))

    def _submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def _end_loop(self) -> None:
        async def cancel_all() -> None:
            tasks = asyncio.all_tasks() - {asyncio.current_task()}
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

        self._submit(cancel_all()).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


def _closed(metadata: LedgerMetadata) -> LedgerMetadata:
    if metadata.state != LedgerMetadata.CLOSED:
        raise StorageError(f"ledger {metadata.ref.id} is not closed: only closed ledgers are read here")
    return metadata
