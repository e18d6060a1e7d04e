"""The metadata store of a standalone's worker: the parent process's store, over a unix socket.

Calls wait until the watches that were started before them have begun, so that a listing made after a watch
misses no change.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

import grpc
from google.protobuf.message import Message
from magnetar.common.errors import MetadataError, UnknownOutcome, VersionMismatch
from magnetar.common.metadata import operations
from magnetar.common.metadata.served_methods import (
    BEGIN_SESSION,
    CHILDREN,
    COMMIT,
    END_SESSION,
    GET,
    OPTIONS,
    WATCH,
    Method,
    versioned_of,
    wire_ops,
)
from magnetar.common.metadata.served_session import ServedSession
from magnetar.common.metadata.served_store_pb2 import (
    BeginSessionRequest,
    BeginSessionResponse,
    ChildrenPart,
    ChildrenRequest,
    CommitRequest,
    CommitResponse,
    EndSessionRequest,
    EndSessionResponse,
    GetRequest,
    GetResponse,
    WatchPart,
    WatchRequest,
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
from magnetar.common.runtime.task_owner import TaskOwner

CALL_TIMEOUT_S: Final = 10.0
"""Timeout of a call, in seconds: the parent process answers from a local file."""

_CLOSED: Final = "the metadata store is closed"

Answer = TypeVar("Answer", bound=Message)


class ServedMetadataStore:
    """Implements `store.MetadataStore`. Create it on its event loop; `close` ends it."""

    def __init__(self, socket: Path, *, watch_events_max: int = WATCH_QUEUE_EVENTS_MAX) -> None:
        self._channel = grpc.aio.insecure_channel(f"unix:{socket}", options=OPTIONS)
        self._watch_events_max = watch_events_max
        self._beginning: set[asyncio.Event] = set()
        self._watches: dict[WatchQueue, Any] = {}
        """Watches with their calls."""
        self._sessions: set[ServedSession] = set()
        self._tasks = TaskOwner("served metadata")
        self._closed = False

    async def get(self, key: str) -> Versioned | None:
        with operations.timed("get"):
            answer = await self.call(GET, GetRequest(key=key), GetResponse)
        return versioned_of(answer.item) if answer.HasField("item") else None

    async def children(self, prefix: str) -> Listing:
        with operations.timed("get"):
            await self._ready()
            call = self._stream(CHILDREN)(ChildrenRequest(prefix=prefix))
            revision, items = 0, list[Versioned]()
            try:
                part: ChildrenPart
                async for part in call:
                    revision = part.revision
                    items += map(versioned_of, part.items)
            except grpc.aio.AioRpcError as error:
                raise _unanswered(CHILDREN, error) from None
            except asyncio.CancelledError:
                self._check_canceled()
                raise
            return Listing(revision, items)

    async def put(self, key: str, value: bytes, expected_version: int = ANY_VERSION) -> int:
        return await self.commit([Put(key, value, expected_version)])

    async def delete(self, key: str, expected_version: int = ANY_VERSION) -> None:
        await self.commit([Delete(key, expected_version)])

    async def commit(self, ops: Sequence[Op]) -> int:
        check_ops(ops, has_session=False)
        answer = await self.commit_as(ops, 0)
        return answer.revision

    def watch(self, prefix: str) -> WatchQueue:
        queue = WatchQueue(prefix, self._watch_closed, self._watch_events_max)
        if self._closed:
            queue.close()
            return queue
        call = self._watches[queue] = self._stream(WATCH)(WatchRequest(prefix=prefix))
        begun = asyncio.Event()
        self._beginning.add(begun)
        self._tasks.spawn(self._follow(queue, call, begun), f"watch {prefix}")
        return queue

    async def session(self, ttl_ms: int) -> ServedSession:
        began_s = asyncio.get_running_loop().time()
        request = BeginSessionRequest(ttl_ms=ttl_ms)
        answer = await self.call(BEGIN_SESSION, request, BeginSessionResponse)
        session = ServedSession(self, answer.session, ttl_ms / 1000, began_s)
        self._sessions.add(session)
        self._tasks.spawn(session.keep_alive(), "keep session alive")
        return session

    async def close(self) -> None:
        if self._closed:
            return
        # A session that could not be ended expires by itself.
        await asyncio.gather(*(session.close() for session in list(self._sessions)), return_exceptions=True)
        self._closed = True
        for queue in list(self._watches):
            queue.close()
        await self._tasks.close()
        await self._channel.close()

    # -- for sessions

    async def call(self, method: Method, request: Message, kind: type[Answer]) -> Answer:
        """Calls a method. Raises MetadataError without an answer."""
        await self._ready()
        try:
            answer = await self._unary(method)(request, timeout=CALL_TIMEOUT_S)
        except grpc.aio.AioRpcError as error:
            raise _unanswered(method, error) from None
        except asyncio.CancelledError:
            self._check_canceled()
            raise
        assert isinstance(answer, kind)
        return answer

    async def commit_as(self, ops: Sequence[Op], session: int) -> CommitResponse:
        """Commits as a session, 0 for none; returns an answer without an error, or with `session_ended`.

        Raises as `MetadataStore.commit`.
        """
        operations.count_put(sum(len(op.value) for op in ops if isinstance(op, Put)))
        with operations.timed("put"):
            await self._ready()
            request = CommitRequest(ops=wire_ops(ops), session=session)
            try:
                answer: CommitResponse = await self._unary(COMMIT)(request, timeout=CALL_TIMEOUT_S)
            except grpc.aio.AioRpcError as error:
                raise UnknownOutcome(str(_unanswered(COMMIT, error))) from None
            except asyncio.CancelledError:
                self._check_canceled()
                raise
            if answer.HasField("mismatch"):
                lost = answer.mismatch
                raise VersionMismatch(lost.key, lost.expected, lost.actual)
            if answer.unknown:
                raise UnknownOutcome(answer.unknown)
            if answer.refused:
                raise MetadataError(answer.refused)
            return answer

    async def end(self, session: ServedSession) -> None:
        """Ends a session at the server. Raises MetadataError without an answer."""
        self._sessions.discard(session)
        if not self._closed:
            await self.call(END_SESSION, EndSessionRequest(session=session.number), EndSessionResponse)

    # -- internal

    async def _ready(self) -> None:
        if self._closed:
            raise MetadataError(_CLOSED)
        while self._beginning:
            await next(iter(self._beginning)).wait()

    async def _follow(self, queue: WatchQueue, call: Any, begun: asyncio.Event) -> None:
        """Passes the events of one watch on until it ends on either side."""
        try:
            part: WatchPart
            async for part in call:
                self._begun(begun)
                for event in part.events:
                    queue.push(WatchEvent(event.key, None if event.removed else event.value, event.version))
                if part.lost:
                    queue.lose(part.lost)
            queue.lose("the parent process ended it")
        except grpc.aio.AioRpcError as error:
            queue.lose(str(_unanswered(WATCH, error)))
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
        finally:
            self._begun(begun)
            queue.close()

    def _begun(self, begun: asyncio.Event) -> None:
        begun.set()
        self._beginning.discard(begun)

    def _watch_closed(self, queue: WatchQueue) -> None:
        call = self._watches.pop(queue, None)
        if call is not None:
            call.cancel()

    def _unary(self, method: Method) -> Any:
        return self._channel.unary_unary(
            method.path, method.request.SerializeToString, method.response.FromString
        )

    def _stream(self, method: Method) -> Any:
        return self._channel.unary_stream(
            method.path, method.request.SerializeToString, method.response.FromString
        )

    def _check_canceled(self) -> None:
        """Raises MetadataError if the channel was closed, as opposed to a canceled caller."""
        task = asyncio.current_task()
        if task is None or not task.cancelling():
            raise MetadataError(_CLOSED) from None


def _unanswered(method: Method, error: grpc.aio.AioRpcError) -> MetadataError:
    reason = f"{error.code().name}: {error.details()}"
    return MetadataError(f"the parent process did not answer {method.name} of metadata: {reason}")
