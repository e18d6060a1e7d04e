"""A TLS connection that begins with blocking calls and goes on in an event loop."""

from __future__ import annotations

import asyncio
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from magnetar.common.security.certificates import Authority

from bench.tls_socket import TlsSocket, attach


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("tls")
    authority = Authority("bench")
    (directory / "ca.pem").write_bytes(authority.certificate)
    authority.issue("server", ips=["127.0.0.1"]).write(directory, "server")
    return directory


@contextmanager
def echoing(files: Path) -> Iterator[int]:
    """A server that sends back what comes until its one client has ended; the port."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(files / "server.cert.pem", files / "server.key.pem")

    def serve() -> None:
        plain, _ = listener.accept()
        try:
            with context.wrap_socket(plain, server_side=True) as peer:
                while data := peer.recv(65_536):
                    peer.sendall(data)
        except OSError:
            pass

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve)
        thread.start()
        yield listener.getsockname()[1]
        thread.join(20)
        assert not thread.is_alive()


def connect(port: int, files: Path, host: str = "127.0.0.1") -> TlsSocket:
    plain = socket.create_connection(("127.0.0.1", port), timeout=20)
    try:
        return TlsSocket(plain, ssl.create_default_context(cafile=str(files / "ca.pem")), host)
    except BaseException:
        plain.close()
        raise


class Listener(asyncio.Protocol):
    """Sends bytes of several records, and ends when all have come back."""

    def __init__(self, sent: bytes) -> None:
        self.sent = sent
        self.got = bytearray()
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        transport.write(self.sent)

    def data_received(self, data: bytes) -> None:
        self.got += data
        if len(self.got) >= len(self.sent) and not self.done.done():
            self.done.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost.set_result(None)


def test_bytes_go_both_ways_before_and_in_the_loop(files: Path) -> None:
    sent = bytes(range(256)) * 1_024

    async def scenario(handed: TlsSocket) -> bytes:
        listener = Listener(sent)
        await attach(listener, handed)
        async with asyncio.timeout(20):
            await listener.done
            listener.transport.write_eof()
            await listener.lost
        return bytes(listener.got)

    with echoing(files) as port, closing(connect(port, files)) as client:
        client.sendall(b"first")
        assert client.recv(100) == b"first"
        assert asyncio.run(scenario(client)) == sent


def test_the_end_is_no_bytes(files: Path) -> None:
    with echoing(files) as port, closing(connect(port, files)) as client:
        client.plain.sendall(client.farewell())
        client.plain.shutdown(socket.SHUT_WR)
        assert client.recv(100) == b""


def test_a_certificate_for_another_host_is_refused(files: Path) -> None:
    with echoing(files) as port, pytest.raises(ssl.SSLCertVerificationError):
        connect(port, files, "localhost")
