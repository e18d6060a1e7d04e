"""Serves a metadata store to other processes of this machine over a unix socket.

A session ends when its client closes it, or when no keep-alive came for its time: a worker that died and is
restarted within that time replaces its own registration, so that its bundles wait for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from random import SystemRandom
from typing import Any, Final

import grpc
from magnetar.common.errors import MetadataError, UnknownOutcome, VersionMismatch, WatchLost
from magnetar.common.metadata.served_methods import (
    BEGIN_SESSION,
    CHILDREN,
    COMMIT,
    END_SESSION,
    GET,
    KEEP_ALIVE,
    OPTIONS,
    SERVICE,
    WATCH,
    Method,
    item_of,
    ops_of,
)
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
    KeepAliveRequest,
    KeepAliveResponse,
    Mismatch,
    WatchPart,
    WatchRequest,
)
from magnetar.common.metadata.store import MetadataStore, Session
from magnetar.common.obs.logs import get_logger
from magnetar.common.runtime.task_owner import TaskOwner

log = get_logger(__name__)

PART_ITEMS_MAX: Final = 1_000
"""Maximum items in one part of a listing, unless they are long."""

PART_BYTES_MAX: Final = 1 << 20
"""Bytes of values after which a part of a listing ends."""


@dataclass(slots=True, eq=False)
class _Lease:
    """A session of a client."""

    session: Session
    ttl_s: float
    timer: asyncio.TimerHandle | None = None


class MetadataServer:
    """Serves `store` from `start` to `close`; the caller keeps the store."""

    def __init__(self, store: MetadataStore) -> None:
        self._store = store
        self._leases: dict[int, _Lease] = {}
        self._rng = SystemRandom()
        self._tasks = TaskOwner("metadata server")
        self._server = grpc.aio.server(options=OPTIONS)
        one, stream = grpc.unary_unary_rpc_method_handler, grpc.unary_stream_rpc_method_handler
        served: list[tuple[Method, Any, Any]] = [
            (GET, self._get, one),
            (CHILDREN, self._children, stream),
            (COMMIT, self._commit, one),
            (WATCH, self._watch, stream),
            (BEGIN_SESSION, self._begin_session, one),
            (KEEP_ALIVE, self._keep_alive, one),
            (END_SESSION, self._end_session, one),
        ]
        handlers = {
            method.name: handler(call, method.request.FromString, method.response.SerializeToString)
            for method, call, handler in served
        }
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))

    async def start(self, path: Path) -> None:
        """Listens at the unix socket; its directory is the caller's, who decides its rights. Raises
        OSError.
        """
        try:
            self._server.add_insecure_port(f"unix:{path}")
        except RuntimeError as error:
            raise OSError(f"cannot listen on {path}: {error}") from error
        await self._server.start()

    async def close(self) -> None:
        """Ends the calls and the sessions; idempotent."""
        await self._server.stop(None)
        leases, self._leases = self._leases, {}
        for lease in leases.values():
            if lease.timer is not None:
                lease.timer.cancel()
            try:
                await lease.session.close()
            except MetadataError as error:
                log.warning("a session was not ended", reason=str(error))
        await self._tasks.close()

    # -- methods

    async def _get(self, request: GetRequest, context: Any) -> GetResponse:
        try:
            found = await self._store.get(request.key)
        except MetadataError as error:
            await _unavailable(context, error)
        return GetResponse(item=None if found is None else item_of(found))

    async def _children(self, request: ChildrenRequest, context: Any) -> AsyncIterator[ChildrenPart]:
        try:
            listing = await self._store.children(request.prefix)
        except MetadataError as error:
            await _unavailable(context, error)
        part, size = ChildrenPart(revision=listing.revision), 0
        for item in listing.items:
            part.items.append(item_of(item))
            size += len(item.value)
            if len(part.items) >= PART_ITEMS_MAX or size >= PART_BYTES_MAX:
                yield part
                part, size = ChildrenPart(revision=listing.revision), 0
        yield part

    async def _commit(self, request: CommitRequest, context: Any) -> CommitResponse:
        ops = ops_of(request.ops)
        try:
            if not request.session:
                return CommitResponse(revision=await self._store.commit(ops))
            lease = self._leases.get(request.session)
            if lease is None or lease.session.has_ended:
                return CommitResponse(session_ended=True)
            return CommitResponse(revision=await lease.session.commit(ops))
        except VersionMismatch as lost:
            return CommitResponse(mismatch=Mismatch(key=lost.key, expected=lost.expected, actual=lost.actual))
        except UnknownOutcome as error:
            return CommitResponse(unknown=str(error) or "no reason given")
        except (MetadataError, ValueError) as error:
            return CommitResponse(refused=str(error) or "no reason given")

    async def _watch(self, request: WatchRequest, _context: Any) -> AsyncIterator[WatchPart]:
        watch = self._store.watch(request.prefix)
        try:
            yield WatchPart()
            async for event in watch:
                removed = event.value is None
                yield WatchPart(
                    events=[
                        WatchPart.Event(
                            key=event.key, value=event.value or b"", removed=removed, version=event.version
                        )
                    ]
                )
        except WatchLost as error:
            yield WatchPart(lost=str(error) or "no reason given")
        finally:
            await watch.aclose()

    async def _begin_session(self, request: BeginSessionRequest, context: Any) -> BeginSessionResponse:
        try:
            session = await self._store.session(request.ttl_ms)
        except MetadataError as error:
            await _unavailable(context, error)
        # Random, so that no worker of an earlier parent process meets another's session.
        number = self._rng.getrandbits(63) + 1
        lease = self._leases[number] = _Lease(session, request.ttl_ms / 1000)
        self._heard(number, lease)
        return BeginSessionResponse(session=number)

    async def _keep_alive(self, request: KeepAliveRequest, _context: Any) -> KeepAliveResponse:
        lease = self._leases.get(request.session)
        if lease is None or lease.session.has_ended:
            return KeepAliveResponse(ended=True)
        self._heard(request.session, lease)
        return KeepAliveResponse()

    async def _end_session(self, request: EndSessionRequest, context: Any) -> EndSessionResponse:
        lease = self._leases.pop(request.session, None)
        if lease is not None:
            if lease.timer is not None:
                lease.timer.cancel()
            try:
                await lease.session.close()
            except MetadataError as error:
                await _unavailable(context, error)
        return EndSessionResponse()

    # -- internal

    def _heard(self, number: int, lease: _Lease) -> None:
        if lease.timer is not None:
            lease.timer.cancel()
        lease.timer = asyncio.get_running_loop().call_later(lease.ttl_s, self._expired, number)

    def _expired(self, number: int) -> None:
        lease = self._leases.pop(number, None)
        if lease is not None:
            log.warning("metadata session expired", session=f"{number:x}", ttl_s=lease.ttl_s)
            self._tasks.spawn(lease.session.close(), "end session")


async def _unavailable(context: Any, error: MetadataError) -> None:
    await context.abort(grpc.StatusCode.UNAVAILABLE, str(error))
    raise AssertionError("abort raises")
