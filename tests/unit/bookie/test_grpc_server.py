"""What the transport promises, over loopback and a real core: answers, bounds, whom a bad client harms."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection_pb2
from magnetar.common.obs.metrics import REGISTRY
from magnetar.ledger.bookie_protocol.bookie_client import BookieUnreachable
from magnetar.ledger.bookie_protocol.bookie_pb2 import (
    BACKPRESSURE,
    BAD_RECORD,
    FENCED,
    NO_SUCH_ENTRY,
    OK,
    UNREACHABLE,
    WRONG_KEY,
    Append,
    AppendBatch,
    ReadRequest,
    Record,
)
from magnetar.ledger.bookie_protocol.grpc_client import ClientOptions
from magnetar.ledger.bookie_protocol.grpc_clients import GrpcBookieClients
from magnetar.ledger.bookie_protocol.grpc_methods import SERVICE, WRITABLE_SERVICE
from magnetar.ledger.bookie_protocol.records import decode_run, encode_append, encode_run
from magnetar.ledger.ledger_store import LedgerRef, Run

from tests.unit.bookie.grpc_bookie import (
    CALLS_MAX,
    LEDGER,
    UNCONFIRMED_MAX,
    Bookie,
    append,
    running,
    with_bookie,
)


def refused(status: str) -> float:
    return REGISTRY.get_sample_value("magnetar_bookie_refused_calls_total", {"status": status}) or 0.0


def raw_channel(bookie: Bookie) -> Any:
    # Its own connection, as another process would have.
    options = [("grpc.use_local_subchannel_pool", 1), ("grpc.max_send_message_length", 32 << 20)]
    return grpc.aio.insecure_channel(f"127.0.0.1:{bookie.port}", options=options)


async def first_answer(bookie: Bookie, message: bytes) -> bytes:
    """What an Append stream of another client answers to one message; raises AioRpcError."""
    async with raw_channel(bookie) as channel:
        call = channel.stream_stream(f"/{SERVICE}/Append")()
        await call.write(message)
        answer = await call.read()
        assert answer is not grpc.aio.EOF, f"ended without an error: {await call.code()}"
        call.cancel()
        return bytes(answer)


def record(first: int, entry: bytes = b"x") -> Record:
    return encode_run(Run([entry], first_entry_id=first), LEDGER, -1)


async def eventually(condition: Any) -> None:
    while not condition():  # noqa: ASYNC110
        await asyncio.sleep(0.005)


def test_appended_entries_are_read_back(tmp_path: Path) -> None:
    async def scenario(bookie: Bookie) -> None:
        client = bookie.client
        assert await append(client, 0, [b"a", b"bb"]) == (OK, "")
        assert await append(client, 2, [b"ccc"]) == (OK, "")
        answer = await client.read(LEDGER, 0, 2, 1 << 20)
        assert answer.code == OK
        entries = [entry for record in answer.records for entry in decode_run(record).entries]
        assert entries == [b"a", b"bb", b"ccc"]
        state = await client.read_lac(LEDGER)
        assert (state.lac, state.last_entry_id, state.fenced) == (1, 2, False)
        assert client.pending_bytes == 0

    with_bookie(tmp_path, scenario)


def test_appends_of_many_ledgers_are_each_answered_once(tmp_path: Path) -> None:
    async def scenario(bookie: Bookie) -> None:
        left = {(ledger, entry) for ledger in range(20) for entry in range(50)}
        done = asyncio.Event()

        def told(key: tuple[int, int], code: int, reason: str) -> None:
            assert code == OK, reason
            left.remove(key)
            if not left:
                done.set()

        for entry in range(50):
            for ledger in range(20):
                run = Run([b"x" * 100], first_entry_id=entry)
                bookie.client.append(
                    encode_append(run, LedgerRef(ledger, ledger), entry - 1),
                    lambda code, reason, key=(ledger, entry): told(key, code, reason),  # type: ignore[misc]
                )
            if entry % 7 == 0:
                await asyncio.sleep(0)
        await done.wait()
        assert len((await bookie.client.list_ledgers()).ledgers) == 20

    with_bookie(tmp_path, scenario)


def test_codes_come_back_as_they_are(tmp_path: Path) -> None:
    async def scenario(bookie: Bookie) -> None:
        client = bookie.client
        assert (await append(client, 0, [b"a"]))[0] == OK
        assert (await append(client, 1, [b"a"], ref=LedgerRef(LEDGER.id, 1)))[0] == WRONG_KEY
        assert (await client.fence(LEDGER)).fenced
        assert (await append(client, 1, [b"a"]))[0] == FENCED
        assert (await append(client, 1, [b"a"], recovery=True))[0] == OK
        beyond = await client.read(LEDGER, 1, 9, 1 << 20)
        assert (beyond.code, beyond.stopped_at, len(beyond.records)) == (NO_SUCH_ENTRY, 2, 1)
        unknown = await client.read(LedgerRef(99, 1), 0, 0, 1)
        assert (unknown.code, unknown.stopped_at) == (NO_SUCH_ENTRY, 0)
        with pytest.raises(BookieUnreachable, match=r"INVALID_ARGUMENT.*no range"):
            await client.read(LEDGER, 5, 4, 1)
        description = await client.describe()
        assert (description.bookie_id, description.ledgers) == ("b1", 1)
        await client.delete_hint([LEDGER])
        assert (await client.clear_limbo(LEDGER)).code == OK

    with_bookie(tmp_path, scenario)


def test_a_long_poll_is_answered_when_the_lac_advances(tmp_path: Path) -> None:
    async def scenario(bookie: Bookie) -> None:
        await append(bookie.client, 0, [b"a"])
        waiting = asyncio.ensure_future(bookie.client.read_lac(LEDGER, above=-1, wait_ms=30_000))
        await asyncio.sleep(0.05)
        assert not waiting.done()
        await append(bookie.client, 1, [b"b"])
        assert (await waiting).lac == 0

    with_bookie(tmp_path, scenario)


def test_an_explicit_lac_covers_an_idle_tail(tmp_path: Path) -> None:
    async def scenario(bookie: Bookie) -> None:
        await append(bookie.client, 0, [b"a"])
        waiting = asyncio.ensure_future(bookie.client.read_lac(LEDGER, above=-1, wait_ms=30_000))
        bookie.client.write_lac(LedgerRef(LEDGER.id, 1), 7)  # another key: nobody's
        bookie.client.write_lac(LEDGER, 0)
        assert (await waiting).lac == 0

    with_bookie(tmp_path, scenario)


def test_the_largest_entry_passes_and_a_larger_one_is_refused_before_it_is_sent(tmp_path: Path) -> None:
    async def scenario(bookie: Bookie) -> None:
        entry = bytes(5 << 20)
        assert (await append(bookie.client, 0, [entry]))[0] == OK
        answer = await bookie.client.read(LEDGER, 0, 0, 1)
        assert decode_run(answer.records[0]).entries == [entry]
        code, reason = await append(bookie.client, 1, [bytes(6 << 20)])
        assert code == BAD_RECORD
        assert "longer than a message" in reason
        assert (await append(bookie.client, 1, [b"b"]))[0] == OK

    with_bookie(tmp_path, scenario)


@pytest.mark.parametrize("version", [3, 99])
def test_a_client_two_versions_ahead_is_told_to_upgrade_in_steps(tmp_path: Path, version: int) -> None:
    async def scenario(bookie: Bookie) -> None:
        before = refused("FAILED_PRECONDITION")
        batch = AppendBatch(appends=[Append(record=record(0))], protocol_version=version)
        with pytest.raises(grpc.aio.AioRpcError, match=rf"version {version}.*release at a time") as raised:
            await first_answer(bookie, batch.SerializeToString())
        assert raised.value.code() is grpc.StatusCode.FAILED_PRECONDITION
        async with raw_channel(bookie) as channel:
            with pytest.raises(grpc.aio.AioRpcError) as raised:
                await channel.unary_unary(f"/{SERVICE}/Describe")(
                    b"", metadata=(("magnetar-protocol-version", str(version)),)
                )
        assert raised.value.code() is grpc.StatusCode.FAILED_PRECONDITION
        assert refused("FAILED_PRECONDITION") == before + 2
        assert bookie.core.ledgers.refs() == []

    with_bookie(tmp_path, scenario)


def damaged(header: bytes) -> bytes:
    return header[:20] + bytes([header[20] ^ 1]) + header[21:]


@pytest.mark.parametrize(
    "message",
    [
        b"\xff\xff\xff",
        AppendBatch(appends=[Append(record=record(0))]).SerializeToString(),  # no version
        AppendBatch(protocol_version=1, appends=[Append()]).SerializeToString(),
        AppendBatch(
            protocol_version=1, appends=[Append(record=Record(header=damaged(record(0).header), body=b"x"))]
        ).SerializeToString(),
    ],
    ids=["garbage", "no version", "no record", "damaged header"],
)
def test_a_stream_of_garbage_ends_alone(tmp_path: Path, message: bytes) -> None:
    async def scenario(bookie: Bookie) -> None:
        assert (await append(bookie.client, 0, [b"a"]))[0] == OK
        before = refused("INVALID_ARGUMENT")
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await first_answer(bookie, message)
        assert raised.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert refused("INVALID_ARGUMENT") == before + 1
        assert (await append(bookie.client, 1, [b"b"]))[0] == OK

    with_bookie(tmp_path, scenario)


def test_a_damaged_body_is_a_bad_record_and_the_stream_goes_on(tmp_path: Path) -> None:
    async def scenario(bookie: Bookie) -> None:
        append_one = encode_append(Run([b"abcdefgh"], first_entry_id=0), LEDGER, -1)
        assert append_one.wire.count(b"abcdefgh") == 1
        broken = type(append_one)(LEDGER, 0, 1, append_one.wire.replace(b"abcdefgh", b"abcdefgX"))
        done: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        bookie.client.append(broken, lambda code, _: done.set_result(code))
        assert await done == BAD_RECORD
        assert (await append(bookie.client, 0, [b"a"]))[0] == OK

    with_bookie(tmp_path, scenario)


def test_calls_that_are_none_are_refused_and_counted(tmp_path: Path) -> None:
    async def scenario(bookie: Bookie) -> None:
        before = refused("UNIMPLEMENTED"), refused("INVALID_ARGUMENT")
        async with raw_channel(bookie) as channel:
            with pytest.raises(grpc.aio.AioRpcError, match="unknown method") as raised:
                await channel.unary_unary(f"/{SERVICE}/Explode")(b"")
            assert raised.value.code() is grpc.StatusCode.UNIMPLEMENTED
            for method in ("Fence", "ReadLac"):
                with pytest.raises(grpc.aio.AioRpcError) as raised:
                    await channel.unary_unary(f"/{SERVICE}/{method}")(b"\xff\xff")
                assert raised.value.code() is grpc.StatusCode.INVALID_ARGUMENT
            with pytest.raises(grpc.aio.AioRpcError) as raised:
                await channel.unary_stream(f"/{SERVICE}/Read")(b"\xff\xff").read()
            assert raised.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert (refused("UNIMPLEMENTED"), refused("INVALID_ARGUMENT")) == (before[0] + 1, before[1] + 3)
        assert (await append(bookie.client, 0, [b"a"]))[0] == OK

    with_bookie(tmp_path, scenario)


def test_a_message_over_the_limit_ends_its_own_stream(tmp_path: Path) -> None:
    async def scenario(bookie: Bookie) -> None:
        assert (await append(bookie.client, 0, [b"a"]))[0] == OK
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await first_answer(bookie, bytes(7 << 20))
        assert raised.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert (await append(bookie.client, 1, [b"b"]))[0] == OK

    with_bookie(tmp_path, scenario)


@pytest.mark.parametrize(
    "garbage",
    [b"GET / HTTP/1.1\r\n\r\n", b"\x00" * 4096, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\xff" * 4096],
    ids=["http/1", "zeros", "bad frames"],
)
def test_garbage_on_the_port_harms_no_other_client(tmp_path: Path, garbage: bytes) -> None:
    async def scenario(bookie: Bookie) -> None:
        assert (await append(bookie.client, 0, [b"a"]))[0] == OK
        loop = asyncio.get_running_loop()
        with socket.socket() as one:
            one.setblocking(False)
            await loop.sock_connect(one, ("127.0.0.1", bookie.port))
            await loop.sock_sendall(one, garbage)
            while True:  # until the bookie ends the connection
                try:
                    if not await loop.sock_recv(one, 65536):
                        break
                except ConnectionError:
                    break
        assert (await append(bookie.client, 1, [b"b"]))[0] == OK

    with_bookie(tmp_path, scenario)


def test_too_many_calls_at_a_time_are_refused(tmp_path: Path) -> None:
    async def scenario(bookie: Bookie) -> None:
        await append(bookie.client, 0, [b"a"])
        client = bookie.client
        waiting = [
            asyncio.ensure_future(client.read_lac(LEDGER, above=9, wait_ms=20_000)) for _ in range(CALLS_MAX)
        ]
        reason = ""
        while not reason:  # until those before it are under way
            try:
                await client.read_lac(LEDGER)
            except BookieUnreachable as error:
                reason = str(error)
        assert "RESOURCE_EXHAUSTED" in reason
        for each in waiting:
            each.cancel()
        await asyncio.wait(waiting)

    with_bookie(tmp_path, scenario)


def test_a_stream_over_its_bound_is_not_read_until_it_is_confirmed(tmp_path: Path) -> None:
    async def scenario(bookie: Bookie) -> None:
        held: list[tuple[Any, Any]] = []
        take = bookie.core.append
        bookie.core.append = lambda append, answer: held.append((append, answer))  # type: ignore[method-assign]
        results: list[int] = []
        for entry in range(64):
            bookie.client.append(
                encode_append(Run([bytes(256 << 10)], first_entry_id=entry), LEDGER, -1),
                lambda code, _: results.append(code),
            )
        await eventually(lambda: len(held) * (256 << 10) > UNCONFIRMED_MAX - (1 << 20))
        taken = -1
        while taken != len(held):  # until no more comes
            taken = len(held)
            await asyncio.sleep(0.3)
        # One message of up to 1 MiB may be over the bound.
        assert taken * (256 << 10) <= UNCONFIRMED_MAX + (1 << 20)
        assert results == []
        while len(results) < 64:
            for each in held:
                take(*each)
            held.clear()
            await asyncio.sleep(0.005)
        assert set(results) == {OK}

    with_bookie(tmp_path, scenario)


def test_an_append_that_is_not_answered_in_time_breaks_the_stream(tmp_path: Path) -> None:
    async def scenario(bookie: Bookie) -> None:
        take, held = bookie.core.append, []
        bookie.core.append = lambda append, answer: held.append(append)  # type: ignore[method-assign]
        code, reason = await append(bookie.client, 0, [b"a"])
        assert code == UNREACHABLE
        assert "not answered within 0.2 s" in reason
        bookie.core.append = take  # type: ignore[method-assign]
        assert (await append(bookie.client, 0, [b"a"]))[0] == UNREACHABLE, "not reopened at once"
        await asyncio.sleep(0.02)
        assert (await append(bookie.client, 0, [b"a"]))[0] == OK

    with_bookie(tmp_path, scenario, ClientOptions(append_timeout_s=0.2, reopen_after_s=0.01))


def test_pending_bytes_are_bounded(tmp_path: Path) -> None:
    async def scenario(bookie: Bookie) -> None:
        codes: list[int] = []
        for entry in range(3):
            bookie.client.append(
                encode_append(Run([bytes(600)], first_entry_id=entry), LEDGER, -1),
                lambda code, _: codes.append(code),
            )
        assert 600 < bookie.client.pending_bytes <= 1000
        assert codes == [], "never from inside append"
        await eventually(lambda: len(codes) == 3)
        assert sorted(codes) == [OK, BACKPRESSURE, BACKPRESSURE]

    with_bookie(tmp_path, scenario, ClientOptions(pending_bytes_max=1000))


def test_appends_accepted_before_a_stop_are_acknowledged(tmp_path: Path) -> None:
    async def main() -> None:
        async with asyncio.timeout(60), running(tmp_path) as bookie:
            take, held = bookie.core.append, []
            bookie.core.append = lambda *given: held.append(given)  # type: ignore[method-assign]
            appending = asyncio.ensure_future(append(bookie.client, 0, [b"a"]))
            await eventually(lambda: held)
            closing = asyncio.ensure_future(bookie.server.close(20.0))
            await asyncio.sleep(0.05)
            assert not closing.done()
            take(*held[0])
            assert await appending == (OK, "")
            await closing
            code, reason = await append(bookie.client, 1, [b"b"])
            assert code == UNREACHABLE, reason

    asyncio.run(main())


def test_after_a_loss_the_client_finds_the_bookie_again(tmp_path: Path) -> None:
    async def main() -> None:
        options = ClientOptions(reopen_after_s=0.01, reopen_after_max_s=0.1)
        port = 0
        clients = GrpcBookieClients(lambda _: f"127.0.0.1:{port}", options=options)
        client = clients.client("b1")
        async with asyncio.timeout(60):
            async with running(tmp_path) as first:
                port = first.port
                assert (await append(client, 0, [b"a"]))[0] == OK
            assert (await append(client, 1, [b"b"]))[0] == UNREACHABLE
            with pytest.raises(BookieUnreachable):
                await client.read_lac(LEDGER)
            async with running(tmp_path) as second:
                port = second.port  # another one: the client asks where the bookie is
                while (await append(client, 1, [b"b"]))[0] != OK:  # noqa: ASYNC110
                    await asyncio.sleep(0.02)
                assert (await client.read_lac(LEDGER)).last_entry_id == 1
                await clients.close()
                assert (await append(client, 2, [b"c"]))[0] == UNREACHABLE
                with pytest.raises(BookieUnreachable, match="closed"):
                    await client.read_lac(LEDGER)

    asyncio.run(main())


def test_unknown_bookie_is_unreachable(tmp_path: Path) -> None:
    async def scenario(bookie: Bookie) -> None:
        clients = GrpcBookieClients(lambda _: None)
        client = clients.client("unheard-of")
        code, reason = await append(client, 0, [b"a"])
        assert (code, reason) == (UNREACHABLE, "the address of bookie unheard-of is unknown")
        with pytest.raises(BookieUnreachable, match="is unknown"):
            await client.fence(LEDGER)
        await clients.close()

    with_bookie(tmp_path, scenario)


def test_health_says_serving_and_writable_apart(tmp_path: Path) -> None:
    async def scenario(bookie: Bookie) -> None:
        async with raw_channel(bookie) as channel:
            check = channel.unary_unary(
                "/grpc.health.v1.Health/Check",
                health_pb2.HealthCheckRequest.SerializeToString,
                health_pb2.HealthCheckResponse.FromString,
            )

            async def status(service: str) -> int:
                answer = await check(health_pb2.HealthCheckRequest(service=service))
                return int(answer.status)

            good, bad = health_pb2.HealthCheckResponse.SERVING, health_pb2.HealthCheckResponse.NOT_SERVING
            assert [await status(name) for name in ("", SERVICE, WRITABLE_SERVICE)] == [good] * 3
            await bookie.server.set_serving(serving=True, writable=False)
            assert [await status(name) for name in ("", SERVICE, WRITABLE_SERVICE)] == [good, good, bad]
            await bookie.server.set_serving(serving=False, writable=True)
            assert [await status(name) for name in ("", SERVICE, WRITABLE_SERVICE)] == [bad] * 3
            with pytest.raises(BookieUnreachable, match="UNAVAILABLE"):
                await bookie.client.read_lac(LEDGER)

    with_bookie(tmp_path, scenario)


def test_reflection_describes_the_service(tmp_path: Path) -> None:
    async def scenario(bookie: Bookie) -> None:
        async with raw_channel(bookie) as channel:
            call = channel.stream_stream(
                "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
                reflection_pb2.ServerReflectionRequest.SerializeToString,
                reflection_pb2.ServerReflectionResponse.FromString,
            )()
            await call.write(reflection_pb2.ServerReflectionRequest(list_services=""))
            listed = (await call.read()).list_services_response.service
            assert SERVICE in {each.name for each in listed}
            await call.write(reflection_pb2.ServerReflectionRequest(file_containing_symbol=SERVICE))
            files = (await call.read()).file_descriptor_response.file_descriptor_proto
            assert any(b"ReadLac" in file for file in files)
            await call.done_writing()
            await call.read()

    with_bookie(tmp_path, scenario)


def test_a_read_comes_in_parts_and_stops_at_max_bytes(tmp_path: Path) -> None:
    async def scenario(bookie: Bookie) -> None:
        for entry in range(8):
            await append(bookie.client, entry, [bytes(700 << 10)])
        whole = await bookie.client.read(LEDGER, 0, 7, 64 << 20)
        assert sum(len(record.body) for record in whole.records) == 8 * (700 << 10)
        some = await bookie.client.read(LEDGER, 0, 7, 2 << 20)
        assert (some.code, len(some.records)) == (OK, 2)
        request = ReadRequest(first_entry_id=0, last_entry_id=7, max_bytes=64 << 20)
        request.ledger.id, request.ledger.key = LEDGER.id, LEDGER.key
        async with raw_channel(bookie) as channel:
            call = channel.unary_stream(f"/{SERVICE}/Read")(request.SerializeToString())
            parts = [len(part) async for part in call]
        assert len(parts) == 8
        assert bookie.client.pending_bytes == 0

    with_bookie(tmp_path, scenario)
