"""Handshakes are counted and bounded, and a slow or silent peer holds up no other one."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
import uvloop
from magnetar.common.security.tls import handshakes
from magnetar.common.security.tls.handshakes import Handshakes

from tests.unit.common.security.tls.peers import EchoPort, Files, counted, echo_port


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.005)


def hello(context: ssl.SSLContext) -> bytes:
    """The first bytes of a client."""
    outgoing = ssl.MemoryBIO()
    client = context.wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname="localhost")
    with pytest.raises(ssl.SSLWantReadError):
        client.do_handshake()
    return outgoing.read()


async def raw(port: EchoPort, first: bytes = b"") -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port.port)
    writer.write(first)
    return reader, writer


async def ended(reader: asyncio.StreamReader) -> None:
    """Until the port has closed the connection; unread bytes make that a reset."""
    async with asyncio.timeout(10):
        with suppress(ConnectionResetError):
            assert await reader.read() == b""


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run])
@pytest.mark.parametrize("first", [b"", b"\x16\x03\x01"], ids=["silent", "half a hello"])
def test_a_peer_that_does_not_go_on_is_closed_in_time(
    run: Callable[..., None], files: Files, first: bytes
) -> None:
    async def body() -> None:
        before = counted("timeout")
        async with echo_port(files.config, handshake_timeout_ms=200) as port:
            reader, writer = await raw(port, first)
            await ended(reader)
            writer.close()
            assert counted("timeout") == before + 1

    run(body())


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run])
def test_plain_text_is_closed_at_once_and_told_once(
    run: Callable[..., None], files: Files, capsys: pytest.CaptureFixture[str]
) -> None:
    async def body() -> None:
        before = counted("plaintext")
        async with echo_port(files.config) as port:
            for _ in range(2):
                reader, writer = await raw(port, b"GET / HTTP/1.1\r\n\r\n")
                await ended(reader)
                writer.close()
        assert counted("plaintext") == before + 2

    run(body())
    assert capsys.readouterr().out.count("plain text on a TLS port") == 1


def test_stalled_handshakes_leave_their_slots_to_others(files: Files) -> None:
    async def body() -> None:
        async with echo_port(files.config, handshakes_max=1) as port:
            stalled = [await raw(port, hello(files.client())) for _ in range(5)]
            async with asyncio.timeout(10):
                assert await port.echo(files.client()) is not None
            for _, writer in stalled:
                writer.transport.abort()

    asyncio.run(body())


def test_more_than_the_bound_wait_and_all_get_their_turn(files: Files) -> None:
    async def body() -> None:
        async with echo_port(files.config, handshakes_per_s=2000) as port:
            found = await asyncio.gather(*(port.echo(files.client()) for _ in range(40)))
            assert None not in found

    asyncio.run(body())


def test_handshakes_begin_at_the_rate(files: Files) -> None:
    async def body() -> None:
        async with echo_port(files.config, handshakes_max=2, handshakes_per_s=10) as port:
            loop = asyncio.get_running_loop()
            began = loop.time()
            found = await asyncio.gather(*(port.echo(files.client()) for _ in range(6)))
            assert None not in found
            assert loop.time() - began >= 0.39  # two at once, then four more at 10 a second

    asyncio.run(body())


def test_the_oldest_silent_connection_makes_room(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    async def body() -> None:
        monkeypatch.setattr(handshakes, "SILENT_PER_ADDRESS_MAX", 2)
        before = counted("crowded")
        async with echo_port(files.config) as port:
            silent = [await raw(port) for _ in range(3)]
            await ended(silent[0][0])
            assert counted("crowded") == before + 1
            assert await port.echo(files.client()) is not None
            for _, writer in silent:
                writer.transport.abort()

    asyncio.run(body())


def test_accepting_pauses_while_too_many_wait(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    async def body() -> None:
        monkeypatch.setattr(handshakes, "QUEUED_MAX", 4)
        async with echo_port(files.config, handshakes_max=1, handshakes_per_s=100) as port:
            found = await asyncio.gather(*(port.echo(files.client()) for _ in range(30)))
            assert None not in found

    asyncio.run(body())


def test_addresses_take_turns() -> None:
    """One address that floods the queue does not delay another one by more than its own handshakes."""

    async def body() -> None:
        queue = Handshakes(at_once_max=2, per_s=1000, timeout_s=5)
        begun: list[str] = []
        queue._begin = lambda arrival: begun.append(arrival.address)  # type: ignore[method-assign]
        queue._tokens, queue._per_s = 0.0, 20
        queue._tokens_at = asyncio.get_running_loop().time()
        pairs = [socket.socketpair() for _ in range(7)]
        for index, (ours, theirs) in enumerate(pairs):
            theirs.send(b"\x16\x03\x01\x02")
            ours.setblocking(False)
            address = "quiet" if index == 6 else "loud"
            queue.admit(handshakes.Arrival(ours, address, address, ssl.SSLContext, asyncio.Protocol))
        await until(lambda: len(begun) >= 3)
        assert "quiet" in begun[:2]
        await queue.close()
        for pair in pairs:
            for each in pair:
                each.close()

    asyncio.run(body())


def test_closing_ends_what_has_begun(files: Files) -> None:
    async def body() -> None:
        async with echo_port(files.config) as port:
            silent, half = await raw(port), await raw(port, b"\x16\x03\x01")
            await until(lambda: port.tls._handshakes.waiting >= 1)
            await asyncio.sleep(0.05)
        for reader, writer in (silent, half):
            await ended(reader)
            writer.close()

    asyncio.run(body())
