"""The metadata store of a standalone: one SQLite file behind one thread.

Requests from one turn of the event loop, and those queued while the thread is busy, form one batch: one
SQLite transaction, one sync of the WAL, one wake-up in each direction. Reads use the same queue, so they see
every earlier write.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, cast

from magnetar.common.errors import MetadataError
from magnetar.common.metadata import operations
from magnetar.common.metadata.sqlite_database import (
    Answer,
    Children,
    Commit,
    EndLease,
    Get,
    Request,
    SqliteDatabase,
)
from magnetar.common.metadata.store import (
    ANY_VERSION,
    Delete,
    Listing,
    Op,
    Put,
    Versioned,
    WatchEvent,
    check_ops,
)
from magnetar.common.metadata.watch_queue import WATCH_QUEUE_EVENTS_MAX, WatchQueue
from magnetar.common.obs.logs import get_logger

log = get_logger(__name__)

_Pending = tuple[Request, "asyncio.Future[Answer]"]

_CLOSED: Final = "the metadata store is closed"


class SqliteMetadataStore:
    """A MetadataStore in one file; made by `open`, used on one event loop, ended by `close`."""

    def __init__(self, database: SqliteDatabase, thread: ThreadPoolExecutor, watch_events_max: int) -> None:
        self._database = database
        self._thread = thread
        self._loop = asyncio.get_running_loop()
        self._pending: list[_Pending] = []
        self._scheduled = False
        self._running = False
        self._closed = False
        self._idle = asyncio.Event()
        self._idle.set()
        self._watches: list[WatchQueue] = []
        self._watch_events_max = watch_events_max
        self._sessions: set[SqliteSession] = set()
        self._leases = 0

    @staticmethod
    async def open(
        path: str | Path, *, watch_events_max: int = WATCH_QUEUE_EVENTS_MAX
    ) -> SqliteMetadataStore:
        """Opens the file, created if absent.

        Raises MetadataError if it cannot be opened or is locked by another process, UnsupportedFormat if this
        release cannot read its format. Ephemeral keys of a crashed process are removed.
        """
        thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="metadata")
        loop = asyncio.get_running_loop()
        try:
            database = await loop.run_in_executor(thread, SqliteDatabase, Path(path))
        except BaseException:
            thread.shutdown(wait=False)
            raise
        return SqliteMetadataStore(database, thread, watch_events_max)

    async def get(self, key: str) -> Versioned | None:
        return cast("Versioned | None", await self._ask(Get(key)))

    async def children(self, prefix: str) -> Listing:
        return cast(Listing, await self._ask(Children(prefix)))

    async def put(self, key: str, value: bytes, expected_version: int = ANY_VERSION) -> int:
        return await self.commit([Put(key, value, expected_version)])

    async def delete(self, key: str, expected_version: int = ANY_VERSION) -> None:
        await self.commit([Delete(key, expected_version)])

    async def commit(self, ops: Sequence[Op]) -> int:
        return await self._commit(ops, None)

    def watch(self, prefix: str) -> WatchQueue:
        queue = WatchQueue(prefix, self._watches.remove, self._watch_events_max)
        self._watches.append(queue)
        if self._closed:
            queue.close()
        return queue

    async def session(self, ttl_ms: int) -> SqliteSession:
        """Starts a session that ends when it or the store is closed, or with the process; `ttl_ms` is
        ignored.
        """
        if self._closed:
            raise MetadataError(_CLOSED)
        self._leases += 1
        session = SqliteSession(self, self._leases)
        self._sessions.add(session)
        return session

    async def close(self) -> None:
        """Answers pending requests, ends the sessions, then closes the file; idempotent."""
        if self._closed:
            return
        # Keys of a session that could not be removed are cleaned up at the next start.
        await asyncio.gather(*(session.close() for session in list(self._sessions)), return_exceptions=True)
        self._closed = True
        await self._idle.wait()
        for queue in list(self._watches):
            queue.close()
        await self._loop.run_in_executor(self._thread, self._database.close)
        self._thread.shutdown(wait=True)

    async def _commit(self, ops: Sequence[Op], lease: int | None) -> int:
        check_ops(ops, has_session=lease is not None)
        return cast(int, await self._ask(Commit(tuple(ops), lease)))

    async def _end(self, session: SqliteSession, lease: int) -> None:
        self._sessions.discard(session)
        if not self._closed:
            await self._ask(EndLease(lease))

    def _ask(self, request: Request) -> asyncio.Future[Answer]:
        future: asyncio.Future[Answer] = self._loop.create_future()
        if self._closed:
            future.set_exception(MetadataError(_CLOSED))
            return future
        if isinstance(request, Commit):
            operations.count_put(sum(len(op.value) for op in request.ops if isinstance(op, Put)))
        writes = isinstance(request, Commit | EndLease)
        future.add_done_callback(operations.noting("put" if writes else "get"))
        self._pending.append((request, future))
        self._idle.clear()
        if not self._running and not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._start_batch)
        return future

    def _start_batch(self) -> None:
        self._scheduled = False
        batch, self._pending = self._pending, []
        self._running = True
        self._thread.submit(self._run_batch, batch)

    def _run_batch(self, batch: list[_Pending]) -> None:
        """Runs in the thread."""
        try:
            answers, events = self._database.run([request for request, _ in batch])
        except Exception as error:
            log.exception("metadata requests failed", requests=len(batch))
            failure = MetadataError(f"metadata request failed: {error!r}")
            answers, events = [failure] * len(batch), []
        self._loop.call_soon_threadsafe(self._finish_batch, batch, answers, events)

    def _finish_batch(self, batch: list[_Pending], answers: list[Answer], events: list[WatchEvent]) -> None:
        self._running = False
        for event in events:
            for queue in list(self._watches):
                queue.push(event)
        for (_, future), answer in zip(batch, answers, strict=True):
            if future.done():
                continue
            if isinstance(answer, MetadataError):
                future.set_exception(answer)
            else:
                future.set_result(answer)
        if self._pending:
            self._start_batch()
        else:
            self._idle.set()


class SqliteSession:
    """A session of this process: it ends when it or the store is closed."""

    __slots__ = ("_ended", "_lease", "_store")

    def __init__(self, store: SqliteMetadataStore, lease: int) -> None:
        self._store = store
        self._lease = lease
        self._ended = asyncio.Event()

    async def put_ephemeral(self, key: str, value: bytes, expected_version: int = ANY_VERSION) -> int:
        return await self.commit([Put(key, value, expected_version, ephemeral=True)])

    async def commit(self, ops: Sequence[Op]) -> int:
        if self._ended.is_set():
            raise MetadataError("the metadata session has ended")
        return await self._store._commit(ops, self._lease)

    async def expired(self) -> None:
        await self._ended.wait()

    @property
    def has_ended(self) -> bool:
        return self._ended.is_set()

    @property
    def alive_until_s(self) -> float:
        return -math.inf if self._ended.is_set() else math.inf

    async def close(self) -> None:
        if not self._ended.is_set():
            self._ended.set()
            await self._store._end(self, self._lease)
