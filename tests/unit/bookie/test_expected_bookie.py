"""Who answers is checked: a bookie refuses what is meant for another one, or for another disk of its own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from magnetar.ledger.bookie_protocol.bookie_client import BookieElsewhere
from magnetar.ledger.bookie_protocol.bookie_pb2 import (
    NO_SUCH_ENTRY,
    OK,
    UNREACHABLE,
    LedgerState,
    ReadLacRequest,
)
from magnetar.ledger.bookie_protocol.grpc_client import ClientOptions, GrpcBookieClient
from magnetar.ledger.bookie_protocol.grpc_clients import GrpcBookieClients
from magnetar.ledger.bookie_protocol.grpc_methods import EXPECTED_KEY, READ_LAC

from tests.unit.bookie.grpc_bookie import LEDGER, Bookie, append, with_bookie

CALLS: dict[str, Callable[[GrpcBookieClient], Awaitable[object]]] = {
    "read": lambda client: client.read(LEDGER, 0, 0, 100),
    "read and fence": lambda client: client.read(LEDGER, 0, 0, 100, fence=True),
    "read_lac": lambda client: client.read_lac(LEDGER),
    "fence": lambda client: client.fence(LEDGER),
    "list_ledgers": lambda client: client.list_ledgers(),
    "delete_hint": lambda client: client.delete_hint([LEDGER]),
    "clear_limbo": lambda client: client.clear_limbo(LEDGER),
    "describe": lambda client: client.describe(),
}

ANOTHER_DISK = b"another disk" + bytes(4)


@asynccontextmanager
async def expecting(
    bookie: Bookie, bookie_id: str, directory: Callable[[], bytes] = lambda: b""
) -> AsyncIterator[GrpcBookieClient]:
    """A client that takes the address of `bookie` for that of the bookie it expects."""
    options = ClientOptions(append_timeout_s=4, reopen_after_s=0.01, reopen_after_max_s=0.02)
    clients = GrpcBookieClients(lambda _: f"127.0.0.1:{bookie.port}", lambda _: directory(), options=options)
    try:
        yield clients.client(bookie_id)
    finally:
        await clients.close()


def test_nothing_that_is_meant_for_another_bookie_is_answered(tmp_path: Path) -> None:
    async def scenario(bookie: Bookie) -> None:
        assert (await append(bookie.client, 0, [b"a"]))[0] == OK
        async with expecting(bookie, "b2") as client:
            for call in CALLS.values():
                with pytest.raises(BookieElsewhere, match=r"NOT_FOUND.*this is bookie 'b1'.*expects 'b2'"):
                    await call(client)
            code, reason = await append(client, 1, [b"b"])
            assert code == UNREACHABLE
            assert "belongs to another bookie" in reason
        state = await bookie.client.read_lac(LEDGER)
        assert (state.last_entry_id, state.fenced) == (0, False), "nothing of it was done"

    with_bookie(tmp_path, scenario)


def test_nothing_that_is_meant_for_another_disk_of_the_bookie_is_answered(tmp_path: Path) -> None:
    async def scenario(bookie: Bookie) -> None:
        async with expecting(bookie, "b1", lambda: ANOTHER_DISK) as client:
            for call in CALLS.values():
                with pytest.raises(BookieElsewhere, match="another disk by now"):
                    await call(client)
            code, reason = await append(client, 0, [b"a"])
            assert code == UNREACHABLE
            assert "another disk by now" in reason
        answer = await bookie.client.read(LEDGER, 0, 0, 100)
        assert answer.code == NO_SUCH_ENTRY, "it was not written"

    with_bookie(tmp_path, scenario)


def test_the_bookie_that_is_expected_answers_and_says_on_which_disk_it_is(tmp_path: Path) -> None:
    async def scenario(bookie: Bookie) -> None:
        directory = bookie.core.identity.directory_id
        assert len(directory) == 16
        async with expecting(bookie, "b1", lambda: directory) as client:
            assert await append(client, 0, [b"a"]) == (OK, "")
            for call in CALLS.values():
                await call(client)
            assert (await client.describe()).directory_id == directory

    with_bookie(tmp_path, scenario)


def test_a_client_of_a_release_that_names_no_bookie_is_served(tmp_path: Path) -> None:
    async def scenario(bookie: Bookie) -> None:
        assert (await append(bookie.client, 0, [b"a"]))[0] == OK
        request = ReadLacRequest()
        request.ledger.id, request.ledger.key = LEDGER.id, LEDGER.key
        async with grpc.aio.insecure_channel(f"127.0.0.1:{bookie.port}") as channel:
            call: Any = channel.unary_unary(READ_LAC.path)
            answer = await call(request.SerializeToString())
            assert LedgerState.FromString(answer).last_entry_id == 0
            with pytest.raises(grpc.aio.AioRpcError) as raised:
                await call(request.SerializeToString(), metadata=((EXPECTED_KEY, b"\xff"),))
            assert raised.value.code() is grpc.StatusCode.INVALID_ARGUMENT

    with_bookie(tmp_path, scenario)


def test_a_stream_is_given_up_once_the_bookie_has_another_disk(tmp_path: Path) -> None:
    """Two processes may serve as one bookie for a while: one of them on a disk that was given up."""

    async def scenario(bookie: Bookie) -> None:
        directory = bookie.core.identity.directory_id
        async with expecting(bookie, "b1", lambda: directory) as client:
            assert (await append(client, 0, [b"a"]))[0] == OK
            directory = ANOTHER_DISK
            entry = 1
            while (await append(client, entry, [b"b"]))[0] == OK:
                entry += 1
                await asyncio.sleep(0.05)
            reason = ""
            while "another disk by now" not in reason:
                code, reason = await append(client, entry, [b"b"])
                assert code == UNREACHABLE
                await asyncio.sleep(0.01)

    with_bookie(tmp_path, scenario)
