"""The bookie's gRPC edge: methods by name, limits, health and reflection; the core implements the methods.

Requests arrive as bytes and are parsed here, so malformed ones are refused with a clear reason.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeAlias

import grpc
from google.protobuf.message import Message
from magnetar.bookie.append_session import AppendSession
from magnetar.bookie.bookie_core import BookieCore
from magnetar.bookie.grpc_errors import Refusals, check_metadata
from magnetar.bookie.metrics import BookieStats
from magnetar.common.errors import MagnetarError
from magnetar.common.obs import request_ids
from magnetar.common.obs.metrics import REGISTRY
from magnetar.common.rpc.callers import CallerCheck
from magnetar.common.rpc.options import server_options
from magnetar.common.rpc.refusals import Stopping, TooManyCalls, parse
from magnetar.common.rpc.server import GrpcServer
from magnetar.ledger.bookie_protocol.bookie_pb2 import OK, ReadRequest
from magnetar.ledger.bookie_protocol.grpc_methods import (
    APPEND,
    CLEAR_LIMBO,
    DELETE_HINT,
    DESCRIBE,
    FENCE,
    LIST_ENTRIES,
    LIST_LEDGERS,
    READ,
    READ_LAC,
    SERVICE,
    WRITABLE_SERVICE,
    Method,
)
from prometheus_client import Gauge

CLIENTS: Final = Gauge("magnetar_bookie_append_streams", "Clients with an append stream.", registry=REGISTRY)

Handler: TypeAlias = Callable[[Any, Any], Any]


class BookieGrpcServer:
    """Listens from `start` to `close`; reports as serving after `set_serving(True)`."""

    def __init__(
        self,
        core: BookieCore,
        stats: BookieStats,
        *,
        message_bytes_max: int,
        unconfirmed_bytes_max: int,
        calls_max: int,
        credentials: grpc.ServerCredentials | None = None,
        callers: CallerCheck | None = None,
    ) -> None:
        """`callers` checks who may call what, where `credentials` require client certificates."""
        self._core = core
        self._stats = stats
        self._unconfirmed_bytes_max = unconfirmed_bytes_max
        self._calls_max = calls_max
        self._calls = 0
        self._serving = False
        self._sessions: set[AppendSession] = set()
        self._refusals = Refusals()
        self._server = GrpcServer(
            SERVICE,
            self._methods(),
            self._refusals.refuse,
            server_options(message_bytes_max),
            credentials,
            guard=None if callers is None else callers.guard,
        )

    async def start(self, host: str, port: int) -> int:
        """Listens and returns the port. Raises OSError if the port cannot be bound."""
        await self.set_serving(serving=False, writable=False)
        return await self._server.start(host, port, "bookiePort")

    async def set_serving(self, *, serving: bool, writable: bool) -> None:
        """Sets the health status and whether calls are accepted; when not, streams end cleanly."""
        self._serving = serving
        if not serving:
            self._finish_streams()
        for name, good in (("", serving), (SERVICE, serving), (WRITABLE_SERVICE, serving and writable)):
            await self._server.set_health(name, serving=good)

    async def close(self, grace_s: float) -> None:
        """Refuses new calls, confirms accepted entries, and ends calls still running after `grace_s` seconds;
        idempotent.
        """
        self._serving = False
        await self._server.shut_down_health()
        self._finish_streams()
        await self._server.stop(grace_s)

    # --- internal ---

    def _finish_streams(self) -> None:
        for session in self._sessions:
            session.finish()

    def _methods(self) -> dict[str, Any]:
        core = self._core
        calls: dict[Method, Callable[[Any], Awaitable[Message]]] = {
            READ_LAC: core.read_lac,
            FENCE: core.fence,
            LIST_LEDGERS: core.list_ledgers,
            DELETE_HINT: core.delete_hint,
            CLEAR_LIMBO: core.clear_limbo,
            DESCRIBE: core.describe,
            LIST_ENTRIES: core.list_entries,
        }
        handlers: dict[str, Any] = {
            APPEND: grpc.stream_stream_rpc_method_handler(self._append),
            READ.name: grpc.unary_stream_rpc_method_handler(self._read),
        }
        for method, call in calls.items():
            handlers[method.name] = grpc.unary_unary_rpc_method_handler(self._unary(method, call))
        return handlers

    def _admit(self, context: Any) -> None:
        if not self._serving:
            raise Stopping("the bookie is starting or stopping")
        check_metadata(context.invocation_metadata(), self._core.identity)

    def _admit_call(self, context: Any) -> None:
        self._admit(context)
        if self._calls >= self._calls_max:
            raise TooManyCalls(f"{self._calls} calls are under way (maxReadsInProgressLimit)")

    def _unary(self, method: Method, call: Callable[[Any], Awaitable[Message]]) -> Handler:
        async def handle(data: bytes, context: Any) -> bytes:
            with request_ids.serving_call(context.invocation_metadata()):
                return await answer(data, context)

        async def answer(data: bytes, context: Any) -> bytes:
            try:
                self._admit_call(context)
                self._calls += 1
                try:
                    return (await call(parse(method.request, data))).SerializeToString()
                finally:
                    self._calls -= 1
            except (MagnetarError, OSError, ValueError) as error:
                await self._refusals.refuse(context, method.name, error)
                raise AssertionError("abort raises") from error

        return handle

    async def _read(self, data: bytes, context: Any) -> None:
        with request_ids.serving_call(context.invocation_metadata()):
            await self._answer_read(data, context)

    async def _answer_read(self, data: bytes, context: Any) -> None:
        stats, now = self._stats, asyncio.get_running_loop().time
        began, code = now(), OK
        try:
            self._admit_call(context)
            self._calls += 1
            try:
                async for part in self._core.read(parse(ReadRequest, data)):
                    code = part.code
                    message = part.SerializeToString()
                    stats.read_bytes += len(message)
                    await context.write(message)
            finally:
                self._calls -= 1
        except (MagnetarError, OSError, ValueError) as error:
            await self._refusals.refuse(context, READ.name, error)
        stats.read_requests.observe(now(), now() - began, success=code == OK)

    async def _append(self, _requests: Any, context: Any) -> None:
        session = AppendSession(self._core, self._stats, context, self._unconfirmed_bytes_max)
        try:
            self._admit(context)
            self._sessions.add(session)
            CLIENTS.set(len(self._sessions))
            try:
                await session.run()
            finally:
                self._sessions.discard(session)
                CLIENTS.set(len(self._sessions))
            if not self._serving:
                await context.abort(grpc.StatusCode.UNAVAILABLE, "the bookie stops")
        except MagnetarError as error:
            await self._refusals.refuse(context, APPEND, error)
