"""Serves one log of a standalone's worker to the other workers: the calls of a bookie that read and fence."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final

import grpc
from google.protobuf.message import Message
from magnetar.common.errors import MagnetarError
from magnetar.common.obs.logs import get_logger
from magnetar.common.rpc.options import message_options
from magnetar.ledger.bookie_protocol.bookie_pb2 import (
    DeleteHintRequest,
    DeleteHintResponse,
    FenceRequest,
    LedgerState,
    ReadLacRequest,
    ReadRequest,
)
from magnetar.ledger.bookie_protocol.bookie_pb2 import LedgerRef as WireRef
from magnetar.ledger.bookie_protocol.grpc_methods import (
    DELETE_HINT,
    FENCE,
    MESSAGE_BYTES_MAX,
    READ,
    READ_LAC,
    SERVICE,
    Method,
)
from magnetar.ledger.bookie_protocol.stored_reads import read_parts, state_of
from magnetar.ledger.ledger_store import LedgerRef
from magnetar.ledger.local_store import LocalLedgerStore

log = get_logger(__name__)

CLOSE_GRACE_S: Final = 0.5
"""Seconds that running calls have to finish when the worker stops."""


class LogServer:
    """Serves `store` from `start` to `close`; the caller keeps the store."""

    def __init__(self, store: LocalLedgerStore, message_bytes_max: int = MESSAGE_BYTES_MAX) -> None:
        self._store = store
        self._server = grpc.aio.server(options=message_options(message_bytes_max))
        calls: list[tuple[Method, Callable[[Any], Awaitable[Message]]]] = [
            (READ_LAC, self._read_lac),
            (FENCE, self._fence),
            (DELETE_HINT, self._delete_hint),
        ]
        handlers: dict[str, Any] = {
            method.name: grpc.unary_unary_rpc_method_handler(
                _refusing(call), method.request.FromString, method.response.SerializeToString
            )
            for method, call in calls
        }
        handlers[READ.name] = grpc.unary_stream_rpc_method_handler(
            self._read, READ.request.FromString, READ.response.SerializeToString
        )
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))

    async def start(self, path: Path) -> None:
        """Listens at the unix socket. Raises OSError."""
        _remove(path)
        try:
            self._server.add_insecure_port(f"unix:{path}")
        except RuntimeError as error:
            raise OSError(f"cannot listen on {path}: {error}") from error
        await self._server.start()

    async def close(self) -> None:
        """Refuses calls and ends those that run; idempotent."""
        await self._server.stop(CLOSE_GRACE_S)

    async def _read(self, request: ReadRequest, context: Any) -> None:
        try:
            ledger = self._store.log.ledger(_ref(request.ledger))
            async for part in read_parts(self._store.log, ledger, request):
                await context.write(part)
        except (MagnetarError, OSError) as error:
            await _refuse(context, error)

    async def _read_lac(self, request: ReadLacRequest) -> LedgerState:
        state = state_of(self._store.log.ledger(_ref(request.ledger)))
        state.lac = state.last_entry_id  # a local ledger is confirmed as far as it is durable
        return state

    async def _fence(self, request: FenceRequest) -> LedgerState:
        ref = _ref(request.ledger)
        closed = await self._store.fence(ref)
        state = state_of(self._store.log.ledger(ref))
        state.last_entry_id, state.byte_length = closed.last_entry_id, closed.byte_length
        return state

    async def _delete_hint(self, request: DeleteHintRequest) -> DeleteHintResponse:
        for ledger in request.ledgers:
            self._store.garbage.deleted(_ref(ledger))
        return DeleteHintResponse()


def _remove(path: Path) -> None:
    """Remove a socket that a killed worker left. This process holds the log's lock."""
    path.unlink(missing_ok=True)


def _ref(ledger: WireRef) -> LedgerRef:
    return LedgerRef(ledger.id, ledger.key)


def _refusing(call: Callable[[Any], Awaitable[Message]]) -> Callable[[Any, Any], Awaitable[Message]]:
    async def handle(request: Any, context: Any) -> Message:
        try:
            return await call(request)
        except (MagnetarError, OSError) as error:
            await _refuse(context, error)
            raise AssertionError("abort raises") from error

    return handle


async def _refuse(context: Any, error: Exception) -> None:
    log.warning("a call of another worker failed", reason=str(error))
    await context.abort(grpc.StatusCode.UNAVAILABLE, str(error))
