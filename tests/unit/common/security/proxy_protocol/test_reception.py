"""PROXY headers in front of connections, with TLS and without: addresses, bounds, and the bytes behind."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import cast

import pytest
import uvloop
from magnetar.common.security.proxy_protocol import reception
from magnetar.common.security.proxy_protocol.config import ProxyProtocolConfig
from magnetar.common.security.proxy_protocol.header import Client
from magnetar.common.security.proxy_protocol.port import PlainAcceptor, ProxiedPort
from magnetar.common.security.proxy_protocol.reception import HEADERS, HeaderReception
from magnetar.common.security.tls.accepting import TlsAcceptor
from magnetar.common.security.tls.ports import TlsPorts

from tests.unit.common.security.tls.peers import Files

HEADER = b"PROXY TCP4 192.0.2.7 10.0.0.1 51000 6650\r\n"
CLIENT = Client("192.0.2.7", 51_000)
EVENT_LOOPS = pytest.mark.parametrize("run", [asyncio.run, uvloop.run])


class Echo(asyncio.Protocol):
    def __init__(self, port: Port, client: Client | None) -> None:
        port.clients.append(client)
        self._port = port

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._port.transports.append(self._transport)

    def data_received(self, data: bytes) -> None:
        self._transport.write(data)


class Port:
    """An echo that reads PROXY headers; `files` make it one with TLS."""

    def __init__(self, headers: HeaderReception, files: Files | None) -> None:
        self.clients: list[Client | None] = []
        self.transports: list[asyncio.Transport] = []
        self.headers = headers
        self.tls = None if files is None else TlsPorts(files.config)
        self.socket = socket.create_server(("127.0.0.1", 0), backlog=2_000)
        self.number = int(self.socket.getsockname()[1])
        proxied = ProxiedPort(headers, lambda client: Echo(self, client))
        self.acceptor = (
            PlainAcceptor(self.socket, proxied)
            if self.tls is None
            else TlsAcceptor(self.socket, lambda: Echo(self, None), self.tls.binary, proxied)
        )
        self.acceptor.start()

    async def close(self) -> None:
        self.acceptor.close()
        self.headers.close()
        self.socket.close()
        if self.tls is not None:
            await self.tls.close()
        for each in self.transports:
            each.abort()

    async def refuses(self, data: bytes) -> bool:
        """Whether the connection ends, and reaches no protocol."""
        before = len(self.clients)
        reader, writer = await asyncio.open_connection("127.0.0.1", self.number)
        writer.write(data)
        async with asyncio.timeout(20):
            with suppress(ConnectionResetError):
                assert await reader.read() == b""
        writer.close()
        return len(self.clients) == before


@asynccontextmanager
async def port(*networks: str, files: Files | None = None, timeout_s: float = 10.0) -> AsyncIterator[Port]:
    made = Port(HeaderReception(networks or ("127.0.0.0/8",), timeout_s=timeout_s), files)
    try:
        yield made
    finally:
        await made.close()


def counted(result: str) -> float:
    return float(HEADERS.labels(result)._value.get())


@EVENT_LOOPS
def test_the_client_of_the_header_reaches_the_protocol_with_all_bytes_behind(
    run: Callable[..., None],
) -> None:
    async def body() -> None:
        async with port() as opened:
            for pieces in ((HEADER + b"ping",), (HEADER[:9], HEADER[9:], b"ping"), (HEADER, b"ping")):
                reader, writer = await asyncio.open_connection("127.0.0.1", opened.number)
                for piece in pieces:
                    writer.write(piece)
                    await writer.drain()
                    await asyncio.sleep(0.01)
                assert await reader.readexactly(4) == b"ping"
                assert opened.clients[-1] == CLIENT
                writer.close()
            assert len(opened.headers) == 0

    before = counted("ok")
    run(body())
    assert counted("ok") == before + 3


@EVENT_LOOPS
def test_the_header_comes_before_tls_and_is_no_part_of_it(run: Callable[..., None], tmp_path: Path) -> None:
    files = Files(tmp_path)

    async def body() -> None:
        loop = asyncio.get_running_loop()
        async with port(files=files) as opened:
            sock = socket.create_connection(("127.0.0.1", opened.number))
            sock.sendall(HEADER)
            sock.setblocking(False)
            reader, writer = await asyncio.open_connection(
                sock=sock, ssl=files.client(), server_hostname="localhost"
            )
            writer.write(b"ping")
            async with asyncio.timeout(20):
                assert await reader.readexactly(4) == b"ping"
            assert opened.clients == [CLIENT]
            writer.transport.abort()
            assert await opened.refuses(b"\x16\x03\x01\x02\x00\x01"), "TLS without a header"
            del loop

    run(body())


def test_other_addresses_send_no_header_and_cannot_choose_theirs() -> None:
    async def body() -> None:
        async with port("10.0.0.0/8", "2001:db8::/32") as opened:
            reader, writer = await asyncio.open_connection("127.0.0.1", opened.number)
            writer.write(HEADER)
            assert await reader.readexactly(len(HEADER)) == HEADER, "these are the client's own bytes"
            assert opened.clients == [None]
            writer.close()

    asyncio.run(body())


def test_a_load_balancers_own_connection_has_its_own_address() -> None:
    async def body() -> None:
        async with port() as opened:
            reader, writer = await asyncio.open_connection("127.0.0.1", opened.number)
            writer.write(b"PROXY UNKNOWN\r\nping")
            assert await reader.readexactly(4) == b"ping"
            assert opened.clients == [None]
            writer.close()

    asyncio.run(body())


def test_invalid_and_slow_headers_are_counted_and_logged(capsys: pytest.CaptureFixture[str]) -> None:
    before = {each: counted(each) for each in ("invalid", "timeout", "closed")}

    async def body() -> None:
        async with port(timeout_s=0.2) as opened:
            for data in (b"GET / HTTP/1.1\r\n\r\n", b"PROXY TCP4 x\r\n", b"\x00\x00\x00\x19"):
                assert await opened.refuses(data)
            for data in (b"", b"PROXY TC"):
                assert await opened.refuses(data)
            _, writer = await asyncio.open_connection("127.0.0.1", opened.number)
            writer.close()  # how load balancers check a port
            async with asyncio.timeout(20):
                while counted("closed") == before["closed"]:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
            assert len(opened.headers) == 0

    asyncio.run(body())
    assert {each: counted(each) - count for each, count in before.items()} == {
        "invalid": 3,
        "timeout": 2,
        "closed": 1,
    }
    assert capsys.readouterr().out.count("connection without a valid PROXY header") >= 1


def test_waiting_connections_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reception, "WAITING_MAX", 3)

    async def body() -> None:
        async with port() as opened:
            silent = [await asyncio.open_connection("127.0.0.1", opened.number) for _ in range(5)]
            async with asyncio.timeout(20):
                for reader, _ in silent[:2]:
                    assert await reader.read() == b"", "the oldest make room"
            reader, writer = silent[4]
            writer.write(HEADER + b"ping")
            assert await reader.readexactly(4) == b"ping"
            for _, each in silent:
                each.close()

    asyncio.run(body())


def test_closing_ends_connections_without_a_header() -> None:
    async def body() -> None:
        async with port() as opened:
            reader, writer = await asyncio.open_connection("127.0.0.1", opened.number)
            writer.write(HEADER[:5])
            async with asyncio.timeout(20):
                while not len(opened.headers):  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
                opened.headers.close()
                with suppress(ConnectionResetError):  # bytes were unread
                    assert await reader.read() == b""
            writer.close()

    asyncio.run(body())


def test_settings_name_the_load_balancers() -> None:
    assert ProxyProtocolConfig().problems() == []
    assert ProxyProtocolConfig(enabled=True, networks=("10.1.0.0/16", "::1")).problems() == []
    [problem] = ProxyProtocolConfig(enabled=True).problems()
    assert "magnetarProxyProtocolFrom" in problem
    [problem] = ProxyProtocolConfig(enabled=True, networks=("10.1.0.1/16",)).problems()
    assert "host bits" in problem
