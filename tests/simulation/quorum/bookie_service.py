"""The bookie's edge under simulation: bytes of the simulated network to calls of the bookie's core and back.

It stands where the gRPC server stands: results of a loop turn travel in one message, and an error of a call
is an answer that says nothing.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from google.protobuf.message import Message
from magnetar.bookie.bookie_core import BookieCore
from magnetar.bookie.identity import NotThisBookie
from magnetar.common.errors import Backpressure, LogFailed, LogFull
from magnetar.ledger.bookie_protocol.bookie_client import PROTOCOL_VERSION
from magnetar.ledger.bookie_protocol.bookie_pb2 import (
    BACKPRESSURE,
    FENCED,
    LOG_FAILED,
    OK,
    AppendBatch,
    AppendResult,
    AppendResults,
)
from magnetar.ledger.bookie_protocol.grpc_methods import (
    CLEAR_LIMBO,
    DELETE_HINT,
    DESCRIBE,
    FENCE,
    LIST_ENTRIES,
    LIST_LEDGERS,
    READ,
    READ_LAC,
)
from magnetar.sim.network import NetworkDown

from tests.simulation.quorum.checker import Checker
from tests.simulation.quorum.expected import split_expected
from tests.simulation.quorum.happenings import HELD_BACK, REFUSED_AT_A_FENCE

METHODS = (READ, READ_LAC, FENCE, LIST_LEDGERS, DELETE_HINT, CLEAR_LIMBO, DESCRIBE, LIST_ENTRIES)
REQUESTS = {method.name: method.request for method in METHODS}


class BookieService:
    """Implements `magnetar.sim.network.Service`."""

    def __init__(self, core: BookieCore, checker: Checker, happened: Counter[str]) -> None:
        self._core = core
        self._checker = checker
        self._happened = happened
        self._fencing: Counter[int] = Counter()
        """Fences under way, by ledger."""
        self._calls: dict[str, Callable[[Any], Awaitable[Message]]] = {
            "ReadLac": core.read_lac,
            "Fence": core.fence,
            "ListLedgers": core.list_ledgers,
            "DeleteHint": core.delete_hint,
            "ClearLimbo": core.clear_limbo,
            "Describe": core.describe,
            "ListEntries": core.list_entries,
        }

    def open_stream(self, send: Callable[[bytes], None]) -> _Appends:
        return _Appends(self._core, self._checker, send, self._refused)

    async def call(self, method: str, request: bytes) -> Sequence[bytes]:
        expected, request = split_expected(request)
        message: Any = REQUESTS[method].FromString(request)
        fenced = message.ledger.id if method == "Fence" or (method == "Read" and message.fence) else 0
        self._fencing[fenced] += 1
        parts: list[Any]
        try:
            self._core.identity.require(expected)
            if method == "Read":
                parts = [part async for part in self._core.read(message)]
            else:
                parts = [await self._calls[method](message)]
            if fenced and parts[-1].code == LOG_FAILED:
                self._happened[REFUSED_AT_A_FENCE] += 1
            return [part.SerializeToString() for part in parts]
        except (NotThisBookie, LogFailed, LogFull, Backpressure, OSError) as error:
            raise NetworkDown(f"the call was refused: {error}") from error
        finally:
            self._fencing[fenced] -= 1

    def _refused(self, result: AppendResult) -> None:
        if result.code == BACKPRESSURE:
            self._happened[HELD_BACK] += 1
        if result.code != FENCED and self._fencing[result.ledger.id]:
            self._happened[REFUSED_AT_A_FENCE] += 1


class _Appends:
    """One client's stream."""

    def __init__(
        self,
        core: BookieCore,
        checker: Checker,
        send: Callable[[bytes], None],
        refused: Callable[[AppendResult], None],
    ) -> None:
        self._core = core
        self._checker = checker
        self._send = send
        self._refused = refused
        self._first = True
        self._results: list[AppendResult] = []
        self._flush: asyncio.Handle | None = None

    def receive(self, message: bytes) -> None:
        if self._first:
            message = self._admit(message)
        batch = AppendBatch.FromString(message)
        assert batch.protocol_version == (PROTOCOL_VERSION if self._first else 0)
        self._first = False
        for append in batch.appends:
            self._core.append(append, self._done)

    def _admit(self, message: bytes) -> bytes:
        expected, message = split_expected(message)
        try:
            self._core.identity.require(expected)
        except NotThisBookie as error:
            raise NetworkDown(f"the stream was refused: {error}") from error
        return message

    def broken(self) -> None:
        """What was taken is still written; nobody hears of it."""

    def _done(self, result: AppendResult) -> None:
        self._results.append(result)
        if result.code == OK:
            self._checker.stored(
                self._core.bookie_id, result.ledger.id, result.first_entry_id, result.entry_count
            )
        else:
            self._refused(result)
        if self._flush is None:
            self._flush = asyncio.get_running_loop().call_soon(self._answer)

    def _answer(self) -> None:
        results, self._results, self._flush = self._results, [], None
        self._send(AppendResults(results=results).SerializeToString())
