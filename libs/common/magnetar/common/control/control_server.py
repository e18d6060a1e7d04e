"""The broker's side of the control plane: gRPC in front of a `BrokerControl`, with health and reflection.

Requests arrive as bytes and are parsed here, so malformed ones are refused with a clear reason. A call for
another run or an unsupported version is refused before `BrokerControl` receives it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

import grpc
from google.protobuf.message import Message
from magnetar.common.control.control_errors import AnotherRun, NotInteroperable, to_wire
from magnetar.common.control.control_pb2 import (
    AssignRequest,
    AssignResponse,
    EndTransactionsRequest,
    EndTransactionsResponse,
    HelloRequest,
    HelloResponse,
    LoadsRequest,
    LoadsResponse,
    MergeRequest,
    MergeResponse,
    NonPersistentTopicsRequest,
    NonPersistentTopicsResponse,
    ReportRequest,
    ReportResponse,
    SplitRequest,
    SplitResponse,
    TakeRequest,
    TakeResponse,
    TransactionStatusRequest,
    TransactionStatusResponse,
    UnloadRequest,
    UnloadResponse,
)
from magnetar.common.control.methods import (
    ASSIGN,
    END_TRANSACTIONS,
    ERROR_KEY,
    HELLO,
    LOADS,
    MERGE,
    MESSAGE_BYTES_MAX,
    NON_PERSISTENT_TOPICS,
    REPORT,
    RUN_KEY,
    SERVICE,
    SPLIT,
    TAKE,
    TRANSACTION_STATUS,
    UNLOAD,
    VERSION_KEY,
    Method,
)
from magnetar.common.control.versions import OURS, Versions
from magnetar.common.errors import ServiceNotReady
from magnetar.common.obs import request_ids
from magnetar.common.obs.logs import get_logger
from magnetar.common.obs.metrics import REGISTRY
from magnetar.common.rpc.options import server_options
from magnetar.common.rpc.refusal_log import RefusalLog
from magnetar.common.rpc.refusals import BadCall, Stopping, TooManyCalls, parse
from magnetar.common.rpc.server import GrpcServer, Guard
from magnetar.common.rpc.wire_errors import REASON_CHARS_MAX
from prometheus_client import Counter

log = get_logger(__name__)

REFUSED: Final = Counter(
    "magnetar_control_refused_calls",
    "Calls of the control plane that this broker answered with an error, by method and gRPC status.",
    ["method", "status"],
    registry=REGISTRY,
)

CALLS_MAX: Final = 1_000
"""Limit of concurrent calls; more are refused."""


class BrokerControl(Protocol):
    """The calls that a broker serves; proto/control defines each.

    Implementations raise the errors of magnetar.common.control.control_errors; any other exception is
    reported as BrokerFailed. A call is cancelled when its caller stops waiting.
    """

    async def assign(self, request: AssignRequest, /) -> AssignResponse: ...

    async def take(self, request: TakeRequest, /) -> TakeResponse: ...

    async def unload(self, request: UnloadRequest, /) -> UnloadResponse: ...

    async def split(self, request: SplitRequest, /) -> SplitResponse: ...

    async def merge(self, request: MergeRequest, /) -> MergeResponse: ...

    async def report(self, request: ReportRequest, /) -> ReportResponse: ...

    async def loads(self, request: LoadsRequest, /) -> LoadsResponse: ...

    async def non_persistent_topics(
        self, request: NonPersistentTopicsRequest, /
    ) -> NonPersistentTopicsResponse: ...

    async def end_transactions(self, request: EndTransactionsRequest, /) -> EndTransactionsResponse: ...

    async def transaction_status(self, request: TransactionStatusRequest, /) -> TransactionStatusResponse: ...


@dataclass(frozen=True, slots=True)
class Identity:
    """The answering broker."""

    broker_id: str
    run: int
    release: str
    versions: Versions = OURS


class ControlServer:
    """Listens from `start` to `close`; accepts calls while serving (`set_serving`)."""

    def __init__(
        self,
        control: BrokerControl,
        identity: Identity,
        *,
        message_bytes_max: int = MESSAGE_BYTES_MAX,
        calls_max: int = CALLS_MAX,
        also: Mapping[str, Mapping[str, Any]] | None = None,
        credentials: grpc.ServerCredentials | None = None,
        guard: Guard | None = None,
    ) -> None:
        """`also`: methods of other services on the same port, by the services' names.

        `credentials` of mutual TLS, with the `guard` that checks the callers of each method.
        """
        self._control = control
        self._identity = identity
        self._calls_max = calls_max
        self._calls = 0
        self._serving = False
        self._refusals = RefusalLog(log)
        self._names = ("", SERVICE, *(also or ()))
        self._server = GrpcServer(
            SERVICE,
            self._methods(),
            self._refuse,
            server_options(message_bytes_max),
            credentials,
            also=also,
            guard=guard,
        )

    async def start(self, host: str, port: int) -> int:
        """Listens and returns the port; port 0 picks a free one. Raises OSError if the port cannot be
        bound.
        """
        await self.set_serving(serving=False)
        return await self._server.start(host, port, "magnetarControlPort")

    async def set_serving(self, *, serving: bool) -> None:
        """Sets the status of the health service, and whether calls are accepted."""
        self._serving = serving
        for name in self._names:
            await self._server.set_health(name, serving=serving)

    async def close(self, grace_s: float) -> None:
        """Refuses new calls and ends those still running after `grace_s` seconds; idempotent."""
        self._serving = False
        await self._server.shut_down_health()
        await self._server.stop(grace_s)

    # --- internal ---

    def _methods(self) -> Mapping[str, Any]:
        control = self._control
        calls: tuple[tuple[Method[Any, Any], Callable[[Any], Awaitable[Message]]], ...] = (
            (HELLO, self._hello),
            (ASSIGN, control.assign),
            (TAKE, control.take),
            (UNLOAD, control.unload),
            (SPLIT, control.split),
            (MERGE, control.merge),
            (REPORT, control.report),
            (LOADS, control.loads),
            (NON_PERSISTENT_TOPICS, control.non_persistent_topics),
            (END_TRANSACTIONS, control.end_transactions),
            (TRANSACTION_STATUS, control.transaction_status),
        )
        return {
            method.name: grpc.unary_unary_rpc_method_handler(self._unary(method, call))
            for method, call in calls
        }

    async def _hello(self, request: HelloRequest) -> HelloResponse:
        us = self._identity
        theirs = Versions(request.oldest_version, request.newest_version)
        if not 1 <= theirs.oldest <= theirs.newest:
            raise BadCall("a Hello says which versions of the protocol the caller speaks")
        us.versions.agree(theirs, f"{request.caller or 'the caller'} (release {request.release})")
        return HelloResponse(
            broker_id=us.broker_id,
            run=us.run,
            release=us.release,
            oldest_version=us.versions.oldest,
            newest_version=us.versions.newest,
        )

    def _unary(self, method: Method[Any, Any], call: Callable[[Any], Awaitable[Message]]) -> Any:
        async def handle(data: bytes, context: Any) -> bytes:
            with request_ids.serving_call(context.invocation_metadata()):
                return await answer(data, context)

        async def answer(data: bytes, context: Any) -> bytes:
            try:
                self._admit(context)
                self._calls += 1
                try:
                    return (await call(parse(method.request, data))).SerializeToString()
                except AnotherRun as error:
                    # The error concerns another broker called meanwhile; to this call's client it would seem
                    # to mean this broker.
                    raise ServiceNotReady(str(error)) from error
                finally:
                    self._calls -= 1
            except Exception as error:
                await self._refuse(context, method.name, error)
                raise AssertionError("abort raises") from error

        return handle

    def _admit(self, context: Any) -> None:
        if not self._serving:
            raise Stopping("the broker is starting or stopping")
        if self._calls >= self._calls_max:
            raise TooManyCalls(f"{self._calls} calls are under way")
        said = dict(context.invocation_metadata() or ())
        us = self._identity
        run, version = _number(said, RUN_KEY), _number(said, VERSION_KEY)
        if run and run != us.run:
            raise AnotherRun(f"broker {us.broker_id} has started again since: look it up")
        if version and not us.versions.oldest <= version <= us.versions.newest:
            raise NotInteroperable(
                f"broker {us.broker_id} speaks versions {us.versions.oldest} to {us.versions.newest} of the "
                f"control protocol, not {version}"
            )

    async def _refuse(self, context: Any, method: str, error: Exception) -> None:
        """Ends a call with the status of `error`; always raises, as `context.abort` does."""
        status, name = to_wire(error)
        known = method.removeprefix("/")
        REFUSED.labels(known if known in _NAMES else "unknown", status.name).inc()
        self._refusals.note(context, method, status, error)
        trailing = ((ERROR_KEY, name),) if name else ()
        reason = str(error) or type(error).__name__
        await context.abort(status, reason[:REASON_CHARS_MAX], trailing)


_NAMES: Final = frozenset(
    each.name
    for each in (
        HELLO,
        ASSIGN,
        TAKE,
        UNLOAD,
        SPLIT,
        MERGE,
        REPORT,
        LOADS,
        NON_PERSISTENT_TOPICS,
        END_TRANSACTIONS,
        TRANSACTION_STATUS,
    )
)


def _number(said: Mapping[str, str | bytes], key: str) -> int:
    """Returns a number from a call's metadata; 0 if absent. Raises BadCall."""
    value = said.get(key, "0")
    text = value.decode("latin-1") if isinstance(value, bytes) else value
    if not (text.isascii() and text.isdecimal() and len(text) <= 20):
        raise BadCall(f"{key} is {text[:100]!r}, not a number")
    return int(text)
