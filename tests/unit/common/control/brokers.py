"""Brokers that answer the control plane over loopback, in this process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager

from magnetar.common.control.control_client import Caller, ControlClient
from magnetar.common.control.control_pb2 import (
    AssignRequest,
    AssignResponse,
    EndTransactionsRequest,
    EndTransactionsResponse,
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
from magnetar.common.control.control_server import ControlServer, Identity
from magnetar.common.control.versions import OURS, Versions
from magnetar.common.metadata.values import BrokerRegistration

from tests.etcd_server import grpc_streams_end

CALLER = Caller("caller:8080", "1.0", run=5)


class FakeControl:
    """Answers what a test told it to; remembers who was asked for what."""

    def __init__(self) -> None:
        self.assigned: list[AssignRequest] = []
        self.reports: list[ReportRequest] = []
        self.fail: Exception | None = None
        self.gate = asyncio.Event()
        self.gate.set()
        self.cancelled = 0

    async def assign(self, request: AssignRequest, /) -> AssignResponse:
        self.assigned.append(request)
        try:
            await self.gate.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        if self.fail is not None:
            raise self.fail
        return AssignResponse(broker_id="b1", run=7)

    async def take(self, request: TakeRequest, /) -> TakeResponse:
        await self.gate.wait()
        if self.fail is not None:
            raise self.fail
        return TakeResponse(version=request.from_version + 1)

    async def unload(self, request: UnloadRequest, /) -> UnloadResponse:
        return UnloadResponse(broker_id=request.to_broker_id)

    async def split(self, request: SplitRequest, /) -> SplitResponse:
        return SplitResponse(bundles=[request.bundle])

    async def merge(self, request: MergeRequest, /) -> MergeResponse:
        return MergeResponse(version=len(request.bundle))

    async def report(self, request: ReportRequest, /) -> ReportResponse:
        self.reports.append(request)
        return ReportResponse()

    async def loads(self, request: LoadsRequest, /) -> LoadsResponse:
        return LoadsResponse()

    async def non_persistent_topics(
        self, request: NonPersistentTopicsRequest, /
    ) -> NonPersistentTopicsResponse:
        return NonPersistentTopicsResponse(topics=[f"non-persistent://{request.namespace}/t"])

    async def end_transactions(self, request: EndTransactionsRequest, /) -> EndTransactionsResponse:
        return EndTransactionsResponse()

    async def transaction_status(self, request: TransactionStatusRequest, /) -> TransactionStatusResponse:
        return TransactionStatusResponse()


def registration(port: int, *, broker_id: str = "b1", run: int = 7) -> BrokerRegistration:
    return BrokerRegistration(broker_id=broker_id, run=run, control_address=f"127.0.0.1:{port}")


@asynccontextmanager
async def serving(
    control: FakeControl,
    *,
    run: int = 7,
    versions: Versions = OURS,
    port: int = 0,
    calls_max: int = 8,
) -> AsyncIterator[BrokerRegistration]:
    """A broker "b1" that serves."""
    server = ControlServer(control, Identity("b1", run, "1.0", versions), calls_max=calls_max)
    bound = await server.start("127.0.0.1", port)
    try:
        await server.set_serving(serving=True)
        yield registration(bound, run=run)
    finally:
        await server.close(1.0)


@asynccontextmanager
async def calling(
    caller: Caller = CALLER, *, connections_max: int = 4, calls_max: int = 100
) -> AsyncIterator[ControlClient]:
    client = ControlClient(caller, connections_max=connections_max, calls_max=calls_max)
    try:
        yield client
    finally:
        await client.close()


def run(scenario: Callable[[AsyncExitStack], Awaitable[None]]) -> None:
    """A scenario with a stack for what it opens; nothing of gRPC is left behind."""

    async def main() -> None:
        async with asyncio.timeout(60), AsyncExitStack() as opened:
            opened.push_async_callback(grpc_streams_end)
            await scenario(opened)

    asyncio.run(main())
