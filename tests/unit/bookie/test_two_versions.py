"""The bookie protocol of this release and of the next one, over real gRPC, in both directions."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import grpc
import pytest
from magnetar.common.rpc.options import server_options
from magnetar.common.rpc.server import GrpcServer
from magnetar.ledger.bookie_protocol import bookie_pb2
from magnetar.ledger.bookie_protocol.bookie_client import PROTOCOL_VERSION
from magnetar.ledger.bookie_protocol.bookie_pb2 import OK
from magnetar.ledger.bookie_protocol.grpc_clients import GrpcBookieClients
from magnetar.ledger.bookie_protocol.grpc_methods import SERVICE, VERSION_KEY
from magnetar.ledger.bookie_protocol.records import decode_run, encode_run
from magnetar.ledger.ledger_store import Run

from tests.etcd_server import grpc_stays, grpc_streams_end
from tests.unit.bookie.grpc_bookie import LEDGER, Bookie, append, with_bookie
from tests.unit.common.control.next_version import added, next_version

NEXT = next_version(bookie_pb2.DESCRIPTOR)
NEXT_METADATA = ((VERSION_KEY, str(PROTOCOL_VERSION + 1)),)
ADDED_CODE = 12
"""A way in which an append can fail that this release does not know."""


@pytest.fixture(scope="module", autouse=True)
def _grpc() -> Iterator[None]:
    with grpc_stays():
        yield


def added_append(first: int, entries: list[bytes]) -> Any:
    """One append as the next release writes it."""
    record = encode_run(Run(entries, first_entry_id=first), LEDGER, first - 1)
    message: Any = added(NEXT["Append"]())
    message.record.header, message.record.body = record.header, record.body
    added(message.record)
    return message


def test_a_broker_of_the_next_release_writes_to_and_reads_from_a_bookie_of_this_one(tmp_path: Path) -> None:
    async def scenario(bookie: Bookie) -> None:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{bookie.port}") as channel:
            stream = channel.stream_stream(
                f"/{SERVICE}/Append", NEXT["AppendBatch"].SerializeToString, NEXT["AppendResults"].FromString
            )(metadata=NEXT_METADATA)
            batch = added(NEXT["AppendBatch"](protocol_version=PROTOCOL_VERSION + 1))
            batch.appends.append(added_append(0, [b"a", b"bb"]))
            await stream.write(batch)
            results: Any = await stream.read()
            (result,) = results.results
            assert (result.code, result.first_entry_id, result.entry_count) == (OK, 0, 2)
            await stream.done_writing()
            assert await stream.read() is grpc.aio.EOF

            ask = added(NEXT["ReadLacRequest"]())
            ask.ledger.id, ask.ledger.key = LEDGER.id, LEDGER.key
            added(ask.ledger)
            state: Any = await channel.unary_unary(
                f"/{SERVICE}/ReadLac",
                NEXT["ReadLacRequest"].SerializeToString,
                NEXT["LedgerState"].FromString,
            )(ask, metadata=NEXT_METADATA)
            assert (state.last_entry_id, state.code, state.added) == (1, OK, "")
            added_call: Any = channel.unary_unary(f"/{SERVICE}/AddedCall")
            with pytest.raises(grpc.aio.AioRpcError) as raised:
                await added_call(b"", metadata=NEXT_METADATA)
            assert raised.value.code() is grpc.StatusCode.UNIMPLEMENTED
        answer = await bookie.client.read(LEDGER, 0, 1, 1 << 20)
        assert answer.code == OK
        assert sum(len(record.body) for record in answer.records) == 3

    with_bookie(tmp_path, scenario)


class NextBookie:
    """A bookie of the next release: it fills in what is new in every answer."""

    def __init__(self) -> None:
        self.codes: list[int] = [OK]
        """Of the next appends; the last one stays."""
        calls: dict[str, tuple[str, Callable[[Any], Any]]] = {
            "Fence": ("FenceRequest", lambda request: self._state(request, fenced=True)),
            "ReadLac": ("ReadLacRequest", lambda request: self._state(request, fenced=False)),
            "Describe": ("DescribeRequest", self._describe),
        }
        methods: dict[str, Any] = {
            name: grpc.unary_unary_rpc_method_handler(_unary(NEXT[kind], call))
            for name, (kind, call) in calls.items()
        }
        methods["Append"] = grpc.stream_stream_rpc_method_handler(self._append)
        self.server = GrpcServer(SERVICE, methods, _refuse, server_options(1 << 20))

    async def _append(self, requests: Any, context: Any) -> None:
        first = True
        async for data in requests:
            batch: Any = NEXT["AppendBatch"].FromString(data)
            assert batch.protocol_version == (PROTOCOL_VERSION if first else 0)
            first = False
            answer = added(NEXT["AppendResults"]())
            for each in batch.appends:
                code = self.codes.pop(0) if len(self.codes) > 1 else self.codes[0]
                run = decode_run(bookie_pb2.Record(header=each.record.header, body=each.record.body))
                result = answer.results.add(first_entry_id=run.first_entry_id, code=code, reason="new")
                result.entry_count = len(run.entries)
                result.ledger.id, result.ledger.key = LEDGER.id, LEDGER.key
                added(result)
            await context.write(answer.SerializeToString())

    def _state(self, request: Any, *, fenced: bool) -> Any:
        state = added(NEXT["LedgerState"](lac=3, last_entry_id=4, fenced=fenced))
        state.ledger.CopyFrom(request.ledger)
        return state

    def _describe(self, _request: Any) -> Any:
        return added(NEXT["Description"](bookie_id="b1", protocol_version=PROTOCOL_VERSION + 1))


def _unary(kind: Any, call: Callable[[Any], Any]) -> Callable[[bytes, Any], Awaitable[bytes]]:
    async def handle(data: bytes, _context: Any) -> bytes:
        answer: bytes = call(kind.FromString(data)).SerializeToString()
        return answer

    return handle


async def _refuse(context: Any, method: str, error: Exception) -> None:
    await context.abort(grpc.StatusCode.UNIMPLEMENTED, f"{method}: {error}")


def test_a_broker_of_this_release_writes_to_a_bookie_of_the_next_one() -> None:
    async def scenario(opened: AsyncExitStack) -> None:
        theirs = NextBookie()
        port = await theirs.server.start("127.0.0.1", 0, "port")
        opened.push_async_callback(theirs.server.stop, 1.0)
        clients = GrpcBookieClients(lambda _: f"127.0.0.1:{port}")
        opened.push_async_callback(clients.close)
        client = clients.client("b1")
        assert await append(client, 0, [b"a", b"b"]) == (OK, "new")
        theirs.codes = [ADDED_CODE, OK]
        code, _ = await append(client, 2, [b"c"])
        assert code == ADDED_CODE, "a failure of a new kind is a failure"
        assert (await append(client, 2, [b"c"]))[0] == OK
        assert (await client.fence(LEDGER)).fenced
        assert (await client.read_lac(LEDGER)).lac == 3
        assert (await client.describe()).protocol_version == PROTOCOL_VERSION + 1

    async def main() -> None:
        async with asyncio.timeout(60), AsyncExitStack() as opened:
            opened.push_async_callback(grpc_streams_end)
            await scenario(opened)

    asyncio.run(main())
