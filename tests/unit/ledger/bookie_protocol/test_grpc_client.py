"""What a caller hears of a bookie that is elsewhere before it has answered."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import grpc
import pytest
from magnetar.ledger.bookie_protocol.bookie_client import BookieUnreachable
from magnetar.ledger.bookie_protocol.grpc_client import ClientOptions, GrpcBookieClient
from magnetar.ledger.bookie_protocol.grpc_clients import GrpcBookieClients
from magnetar.ledger.bookie_protocol.grpc_methods import READ, READ_LAC
from magnetar.ledger.ledger_store import LedgerRef

from tests.etcd_server import grpc_streams_end

LEDGER = LedgerRef(1, 7)
PATIENT = ClientOptions(read_timeout_s=50)

CALLS: list[Callable[[GrpcBookieClient], Awaitable[object]]] = [
    lambda client: client.read(LEDGER, 0, 0, 100),
    lambda client: client.read_lac(LEDGER),
]


class SilentBookie(grpc.GenericRpcHandler):
    """Takes reads and answers none; `called` once one is there."""

    def __init__(self) -> None:
        self.called = asyncio.Event()

    def service(self, details: Any) -> Any:
        if details.method == READ.path:
            return grpc.unary_stream_rpc_method_handler(self._stream)
        return grpc.unary_unary_rpc_method_handler(self._answer) if details.method == READ_LAC.path else None

    async def _answer(self, _request: bytes, _context: object) -> bytes:
        self.called.set()
        await asyncio.Event().wait()
        return b""

    async def _stream(self, request: bytes, context: object) -> AsyncIterator[bytes]:
        yield await self._answer(request, context)


def with_silent_bookie(
    scenario: Callable[[GrpcBookieClient, SilentBookie, Callable[[], None]], Awaitable[None]],
) -> None:
    """`scenario(client, bookie, move)`: after `move()` the bookie's address is one where nobody listens."""

    async def main() -> None:
        async with asyncio.timeout(60):
            bookie, server = SilentBookie(), grpc.aio.server()
            server.add_generic_rpc_handlers([bookie])
            address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
            await server.start()

            def move() -> None:
                nonlocal address
                address = "127.0.0.1:1"

            clients = GrpcBookieClients(lambda _: address, options=PATIENT)
            try:
                await scenario(clients.client("b1"), bookie, move)
            finally:
                await clients.close()
                await server.stop(0)
                await grpc_streams_end()

    asyncio.run(main())


@pytest.mark.parametrize("call", CALLS, ids=["read", "read_lac"])
def test_a_call_to_where_a_bookie_no_longer_is_ends_as_unreachable(
    call: Callable[[GrpcBookieClient], Awaitable[object]],
) -> None:
    async def scenario(client: GrpcBookieClient, bookie: SilentBookie, move: Callable[[], None]) -> None:
        waiting = asyncio.ensure_future(call(client))
        await bookie.called.wait()
        move()
        with pytest.raises(BookieUnreachable):
            await client.describe()  # the next call goes to the new address and gives the old one up
        with pytest.raises(BookieUnreachable, match="b1: the connection was closed meanwhile"):
            await waiting

    with_silent_bookie(scenario)


@pytest.mark.parametrize("call", CALLS, ids=["read", "read_lac"])
def test_a_caller_that_is_canceled_itself_stays_canceled(
    call: Callable[[GrpcBookieClient], Awaitable[object]],
) -> None:
    async def scenario(client: GrpcBookieClient, bookie: SilentBookie, _move: Callable[[], None]) -> None:
        waiting = asyncio.ensure_future(call(client))
        await bookie.called.wait()
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting

    with_silent_bookie(scenario)
