"""A TLS port in process with certificates of its own, and clients of it."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import uvloop
from magnetar.common.security.certificates import Authority, Leaf
from magnetar.common.security.tls.accepting import TlsAcceptor
from magnetar.common.security.tls.config import TlsConfig
from magnetar.common.security.tls.handshake_results import HANDSHAKES
from magnetar.common.security.tls.peer_certificate import peer_certificate
from magnetar.common.security.tls.ports import TlsPorts

uvloop.run(asyncio.sleep(0))  # opens a pipe that its loops share, which is then no leak of the first test


class Files:
    """A directory with an authority and the certificate of a server, written as settings name them."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.authority = Authority("clients")
        self.trust(self.authority)
        self.serve(self.authority.issue("server", dns=["localhost"], ips=["127.0.0.1"]))

    @property
    def config(self) -> TlsConfig:
        name = str(self.directory)
        return TlsConfig(
            certificate_file=f"{name}/server.pem",
            key_file=f"{name}/server.key",
            trust_certs_file=f"{name}/trust.pem",
        )

    def trust(self, *authorities: Authority) -> None:
        """Clients of these authorities are accepted."""
        pems = b"".join(each.certificate for each in authorities)
        (self.directory / "trust.pem").write_bytes(pems)

    def serve(self, leaf: Leaf) -> None:
        (self.directory / "server.pem").write_bytes(leaf.certificate)
        (self.directory / "server.key").write_bytes(leaf.key)

    def client(self, leaf: Leaf | None = None, *, trusted: Authority | None = None) -> ssl.SSLContext:
        """A client's context that trusts the authority, with a certificate of its own or without."""
        context = ssl.create_default_context(cadata=(trusted or self.authority).certificate.decode())
        if leaf is not None:
            certificate, key = self.directory / "client.pem", self.directory / "client.key"
            certificate.write_bytes(leaf.certificate)
            key.write_bytes(leaf.key)
            context.load_cert_chain(certificate, key)
        return context


class Echo(asyncio.Protocol):
    """Answers each piece with itself. `made` has those whose handshake is complete."""

    def __init__(self, made: list[Echo]) -> None:
        self._made = made

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._made.append(self)
        self.transport = cast(asyncio.Transport, transport)
        self.certificate = peer_certificate(transport)

    def data_received(self, data: bytes) -> None:
        self.transport.write(data)


class EchoPort:
    """A TLS port that echoes."""

    def __init__(self, config: TlsConfig) -> None:
        self.tls = TlsPorts(config)
        self.socket = socket.create_server(("127.0.0.1", 0), backlog=1024)
        self.port = int(self.socket.getsockname()[1])
        self.protocols: list[Echo] = []
        self.acceptor = TlsAcceptor(self.socket, lambda: Echo(self.protocols), self.tls.binary)
        self.acceptor.start()

    async def close(self) -> None:
        self.acceptor.close()
        await self.tls.close()
        self.socket.close()
        for each in self.protocols:
            each.transport.abort()

    async def echo(self, context: ssl.SSLContext) -> bytes | None:
        """Connect, have four bytes echoed; returns the certificate that the port showed, None if refused."""
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", self.port, ssl=context)
        except (ConnectionError, ssl.SSLError):
            return None
        try:
            writer.write(b"ping")
            await writer.drain()
            shown: bytes = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
            return shown if await reader.readexactly(4) == b"ping" else None
        except (ConnectionError, ssl.SSLError, asyncio.IncompleteReadError):
            return None
        finally:
            writer.transport.abort()


@asynccontextmanager
async def echo_port(config: TlsConfig, **settings: Any) -> AsyncIterator[EchoPort]:
    port = EchoPort(replace(config, **settings))
    try:
        yield port
    finally:
        await port.close()


def counted(result: str) -> float:
    """How many handshakes ended so."""
    return float(HANDSHAKES.labels(result)._value.get())
