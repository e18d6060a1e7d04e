"""The offload service behind a real connection, answering from a script."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any

from magnetar.broker.offload.service import OffloadService
from magnetar.common.offload.methods import CALLERS, MESSAGE_BYTES_MAX, SERVICE
from magnetar.common.offload.offload_client import OffloadChannel
from magnetar.common.offload.offload_pb2 import (
    AttemptsRequest,
    AttemptsResponse,
    BeginRequest,
    BeginResponse,
    CompleteRequest,
    CompleteResponse,
    DeletedRequest,
    DeletedResponse,
    Deletion,
    DeletionsRequest,
    DeletionsResponse,
    DescribeRequest,
    DescribeResponse,
    FailRequest,
    FailResponse,
    Ledger,
    ReadRequest,
    TopicsRequest,
    TopicsResponse,
    WantedRequest,
    WantedResponse,
    WantRequest,
    WantResponse,
)
from magnetar.common.rpc.callers import CallerCheck
from magnetar.common.rpc.options import server_options
from magnetar.common.rpc.server import GrpcServer
from magnetar.common.security.services.credentials import ServiceCredentials
from magnetar.testing.free_ports import free_ports

HOST = "127.0.0.1"
CLUSTER = "blue"
A = b"a" * 16


class Calls:
    """Answers from a script; each of `errors` is raised once."""

    def __init__(self) -> None:
        self.asked: list[Any] = []
        self.errors: list[Exception] = []
        self.held: asyncio.Event | None = None
        self.parts: list[bytes | Exception] = []
        self.owner = ""
        self.reading = 0

    async def _note(self, request: Any) -> None:
        self.asked.append(request)
        if self.held is not None:
            await self.held.wait()
        if self.errors:
            raise self.errors.pop(0)

    async def wanted(self, request: WantedRequest) -> WantedResponse:
        await self._note(request)
        return WantedResponse(ledgers=[Ledger(ledger_id=7)], more=True)

    async def want(self, request: WantRequest) -> WantResponse:
        await self._note(request)
        return WantResponse(ledgers=[Ledger(ledger_id=7)])

    async def begin(self, request: BeginRequest) -> BeginResponse:
        await self._note(request)
        return BeginResponse(ledger=Ledger(ledger_id=request.ledger_id))

    async def complete(self, request: CompleteRequest) -> CompleteResponse:
        await self._note(request)
        return CompleteResponse(ledger=Ledger(ledger_id=request.ledger_id))

    async def fail(self, request: FailRequest) -> FailResponse:
        await self._note(request)
        return FailResponse()

    async def topics(self, request: TopicsRequest) -> TopicsResponse:
        await self._note(request)
        return TopicsResponse(topics=["t"])

    async def describe(self, request: DescribeRequest) -> DescribeResponse:
        await self._note(request)
        first = request.after_ledger_id + 1
        ledgers = [Ledger(ledger_id=first), Ledger(ledger_id=first + 1)]
        return DescribeResponse(creation_id=3, ledgers=ledgers, owner=self.owner, more=first < 5)

    async def read(self, request: ReadRequest) -> AsyncGenerator[bytes, None]:
        self.asked.append(request)
        self.reading += 1
        try:
            for part in self.parts:
                if isinstance(part, Exception):
                    raise part
                yield part
            if self.held is not None:
                await self.held.wait()
        finally:
            self.reading -= 1

    async def attempts(self, request: AttemptsRequest) -> AttemptsResponse:
        await self._note(request)
        page = int(request.after_topic or "0")
        following = str(page + 1) if page < 2 else ""
        return AttemptsResponse(paths=[f"p{page}"], complete=page != 1, next_after_topic=following)

    async def deletions(self, request: DeletionsRequest) -> DeletionsResponse:
        await self._note(request)
        return DeletionsResponse(deletions=[Deletion(intent_id="i", location="l", path="p")], more=True)

    async def deleted(self, request: DeletedRequest) -> DeletedResponse:
        await self._note(request)
        return DeletedResponse()


class Served:
    """A service that listens, from `start` to `stop`, on one port."""

    def __init__(self, calls: Calls, *, tls: ServiceCredentials | None = None, **limits: int) -> None:
        """With `tls` callers need a certificate of a service of CLUSTER."""
        self.calls = calls
        self._tls = tls
        self.service = OffloadService(calls, **limits)
        (self.port,) = free_ports(1)
        self.address = f"{HOST}:{self.port}"
        self._server: GrpcServer | None = None

    async def start(self) -> None:
        self._server = GrpcServer(
            SERVICE,
            self.service.methods(),
            self.service.refuse,
            server_options(MESSAGE_BYTES_MAX),
            None if self._tls is None else self._tls.server(),
            guard=None if self._tls is None else CallerCheck(CLUSTER, CALLERS).guard,
        )
        await self._server.start(HOST, self.port, "magnetarControlPort")
        self.service.serving = True

    async def stop(self) -> None:
        if self._server is not None:
            await self._server.stop(0)


def serving(body: Callable[[Served], Awaitable[None]], *, start: bool = True, **limits: int) -> None:
    async def run() -> None:
        served = Served(Calls(), tls=None, **limits)
        if start:
            await served.start()
        try:
            await body(served)
        finally:
            await served.stop()

    asyncio.run(run())


async def ask(served: Served, call: Callable[[OffloadChannel], Any], deadline_s: float = 20.0) -> Any:
    """As a job does, in a thread."""

    def run() -> Any:
        with OffloadChannel(served.address, deadline_s=deadline_s) as channel:
            return call(channel)

    return await asyncio.to_thread(run)
