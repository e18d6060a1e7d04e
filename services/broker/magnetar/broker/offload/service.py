"""The gRPC service of offload: parses, admits and refuses calls; `OffloadCalls` implements them.

It listens on a cluster broker's control port beside the control plane, and on its own port in a standalone.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing
from typing import Any, Final, NoReturn, Protocol

import grpc
from google.protobuf.message import Message
from magnetar.common.obs.logs import get_logger
from magnetar.common.obs.metrics import REGISTRY
from magnetar.common.offload.methods import (
    ATTEMPTS,
    BEGIN,
    COMPLETE,
    DELETED,
    DELETIONS,
    DESCRIBE,
    ERROR_KEY,
    FAIL,
    READ,
    TOPICS,
    WANT,
    WANTED,
    Method,
)
from magnetar.common.offload.offload_errors import to_wire
from magnetar.common.offload.offload_pb2 import (
    AttemptsRequest,
    AttemptsResponse,
    BeginRequest,
    BeginResponse,
    CompleteRequest,
    CompleteResponse,
    DeletedRequest,
    DeletedResponse,
    DeletionsRequest,
    DeletionsResponse,
    DescribeRequest,
    DescribeResponse,
    FailRequest,
    FailResponse,
    ReadRequest,
    ReadResponse,
    TopicsRequest,
    TopicsResponse,
    WantedRequest,
    WantedResponse,
    WantRequest,
    WantResponse,
)
from magnetar.common.rpc.refusal_log import RefusalLog
from magnetar.common.rpc.refusals import BadCall, Stopping, TooManyCalls, parse
from magnetar.common.rpc.wire_errors import REASON_CHARS_MAX
from prometheus_client import Counter

log = get_logger(__name__)

REFUSED: Final = Counter(
    "magnetar_offload_refused_calls",
    "Calls of offload jobs that failed, by method and gRPC status.",
    ["method", "status"],
    registry=REGISTRY,
)

CALLS_MAX: Final = 200
"""Maximum concurrent calls other than reads; further ones are refused, and clients retry."""

CALLS_A_SECOND: Final = 250
BURST_S: Final = 0.5
"""Rate of calls other than reads, and the longest idle time in seconds that counts towards a burst: each call
costs the event loop a millisecond, and messages come first. Calls above the rate wait, at most a second.
"""

READS_MAX: Final = 32
"""Maximum concurrent reads."""

READ_S_MAX: Final = 5 * READ.deadline_s
"""Maximum deadline of a read in seconds: a stream whose reader does not read ends only by its deadline, and
its memory is held until then.
"""


class OffloadCalls(Protocol):
    """Implements the calls of jobs; see proto/offload for each call.

    Raises the errors of magnetar.common.offload.offload_errors; any other error is a failure of this broker.
    A call whose caller has stopped waiting is canceled.
    """

    async def wanted(self, request: WantedRequest, /) -> WantedResponse: ...
    async def want(self, request: WantRequest, /) -> WantResponse: ...
    async def begin(self, request: BeginRequest, /) -> BeginResponse: ...
    async def complete(self, request: CompleteRequest, /) -> CompleteResponse: ...
    async def fail(self, request: FailRequest, /) -> FailResponse: ...
    async def topics(self, request: TopicsRequest, /) -> TopicsResponse: ...
    async def describe(self, request: DescribeRequest, /) -> DescribeResponse: ...
    def read(self, request: ReadRequest, /) -> AsyncGenerator[bytes, None]: ...
    async def attempts(self, request: AttemptsRequest, /) -> AttemptsResponse: ...
    async def deletions(self, request: DeletionsRequest, /) -> DeletionsResponse: ...
    async def deleted(self, request: DeletedRequest, /) -> DeletedResponse: ...


class OffloadService:
    """Handlers for a gRPC server; accepts calls while `serving`."""

    def __init__(
        self, calls: OffloadCalls, *, calls_max: int = CALLS_MAX, reads_max: int = READS_MAX
    ) -> None:
        self.serving = False
        """True while calls are accepted."""
        self._work = calls
        self._calls_max, self._reads_max = calls_max, reads_max
        self._calls = self._reads = 0
        self._next_s = 0.0
        self._refusals = RefusalLog(log)

    def methods(self) -> Mapping[str, Any]:
        """Handlers by method name."""
        work = self._work
        calls: tuple[tuple[Method[Any, Any], Callable[[Any], Awaitable[Message]]], ...] = (
            (WANTED, work.wanted),
            (WANT, work.want),
            (BEGIN, work.begin),
            (COMPLETE, work.complete),
            (FAIL, work.fail),
            (TOPICS, work.topics),
            (DESCRIBE, work.describe),
            (ATTEMPTS, work.attempts),
            (DELETIONS, work.deletions),
            (DELETED, work.deleted),
        )
        handlers: dict[str, Any] = {
            method.name: grpc.unary_unary_rpc_method_handler(self._unary(method, call))
            for method, call in calls
        }
        handlers[READ.name] = grpc.unary_stream_rpc_method_handler(self._read)
        return handlers

    def _unary(self, method: Method[Any, Any], call: Callable[[Any], Awaitable[Message]]) -> Any:
        async def handle(data: bytes, context: Any) -> bytes:
            try:
                self._admit(self._calls, self._calls_max)
                self._calls += 1
                try:
                    await self._pace()
                    return (await call(parse(method.request, data))).SerializeToString()
                finally:
                    self._calls -= 1
            except Exception as error:
                await self.refuse(context, method.name, error)

        return handle

    async def _read(self, data: bytes, context: Any) -> AsyncGenerator[bytes, None]:
        try:
            self._admit(self._reads, self._reads_max)
            left_s = context.time_remaining()
            if left_s is None or left_s > READ_S_MAX:
                raise BadCall(
                    f"a read has a deadline of at most {READ_S_MAX:.0f} s: continue in another read"
                )
            self._reads += 1
            try:
                async with aclosing(self._work.read(parse(ReadRequest, data))) as parts:
                    async for part in parts:
                        yield ReadResponse(records=part).SerializeToString()
            finally:
                self._reads -= 1
        except Exception as error:
            await self.refuse(context, READ.name, error)

    async def _pace(self) -> None:
        now = asyncio.get_running_loop().time()
        self._next_s = max(self._next_s, now - BURST_S) + 1 / CALLS_A_SECOND
        if self._next_s > now:
            await asyncio.sleep(self._next_s - now)

    def _admit(self, under_way: int, most: int) -> None:
        if not self.serving:
            raise Stopping("the broker is starting or stopping")
        if under_way >= most:
            raise TooManyCalls(f"{under_way} calls are in progress; retry")

    async def refuse(self, context: Any, method: str, error: Exception) -> NoReturn:
        """Ends a call with the status of `error`, as `context.abort` does."""
        status, name = to_wire(error)
        known = method.removeprefix("/")
        REFUSED.labels(known if known in _NAMES else "unknown", status.name).inc()
        self._refusals.note(context, method, status, error)
        trailing = ((ERROR_KEY, name),) if name else ()
        await context.abort(status, (str(error) or type(error).__name__)[:REASON_CHARS_MAX], trailing)
        raise AssertionError("abort raises") from error


_NAMES: Final = frozenset(
    each.name
    for each in (
        WANTED,
        WANT,
        BEGIN,
        COMPLETE,
        FAIL,
        TOPICS,
        DESCRIBE,
        READ,
        ATTEMPTS,
        DELETIONS,
        DELETED,
    )
)
