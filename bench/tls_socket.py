"""A client's TLS connection that begins with blocking calls and goes on in an event loop.

asyncio and uvloop take no socket whose TLS has begun elsewhere, so the TLS is kept apart from the socket.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable
from typing import Any, Final, TypeVar, cast

T = TypeVar("T")

_READ_BYTES: Final = 256 * 1024


class TlsSocket:
    """TLS over `plain`, which it owns."""

    def __init__(self, plain: socket.socket, context: ssl.SSLContext, host: str) -> None:
        """Shake hands. Raises OSError, ssl.SSLError for a certificate that is not trusted among them."""
        self.plain = plain
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname=host)
        self._blocking(self._tls.do_handshake)

    def sendall(self, data: bytes) -> None:
        self.plain.sendall(self.encrypted(data))

    def recv(self, size: int) -> bytes:
        """Return at least one byte; none at the end of the connection."""
        try:
            return self._blocking(lambda: self._tls.read(size))
        except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
            return b""

    def close(self) -> None:
        self.plain.close()

    def encrypted(self, data: bytes) -> bytes:
        """Return the records that carry the bytes."""
        rest = memoryview(data)
        while rest:
            rest = rest[self._tls.write(rest) :]
        return self._outgoing.read()

    def decrypted(self, records: bytes) -> bytes:
        """Return what the records carry, of those that are whole. Raises ssl.SSLError."""
        if records:
            self._incoming.write(records)
        parts = []
        try:
            while part := self._tls.read(_READ_BYTES):
                parts.append(part)
        except (ssl.SSLWantReadError, ssl.SSLZeroReturnError):
            pass
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def farewell(self) -> bytes:
        """Return the record that ends the connection."""
        try:
            self._tls.unwrap()
        except ssl.SSLError:
            pass  # The peer's own is still to come, and nothing waits for it.
        return self._outgoing.read()

    def _blocking(self, act: Callable[[], T]) -> T:
        while True:
            try:
                found = act()
            except ssl.SSLWantReadError:
                self._flush()
                if records := self.plain.recv(_READ_BYTES):
                    self._incoming.write(records)
                else:
                    self._incoming.write_eof()
            else:
                self._flush()
                return found

    def _flush(self) -> None:
        if self._outgoing.pending:
            self.plain.sendall(self._outgoing.read())


Handed = socket.socket | TlsSocket
"""A connection as a generator gets it."""


class _Transport(asyncio.Transport):
    """Encrypts what a protocol writes."""

    def __init__(self, plain: asyncio.Transport, tls: TlsSocket) -> None:
        super().__init__()
        self._plain = plain
        self._tls = tls

    def write(self, data: Any) -> None:
        self._plain.write(self._tls.encrypted(data))

    def write_eof(self) -> None:
        self._plain.write(self._tls.farewell())
        self._plain.write_eof()

    def abort(self) -> None:
        self._plain.abort()


class _Decrypting(asyncio.Protocol):
    """Gives a protocol what comes by TLS, as if it came in the clear."""

    def __init__(self, inner: asyncio.Protocol, tls: TlsSocket) -> None:
        self._inner = inner
        self._tls = tls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._inner.connection_made(_Transport(cast(asyncio.Transport, transport), self._tls))

    def data_received(self, data: bytes) -> None:
        if plain := self._tls.decrypted(data):
            self._inner.data_received(plain)

    def connection_lost(self, exc: Exception | None) -> None:
        self._inner.connection_lost(exc)


async def attach(protocol: asyncio.Protocol, handed: Handed) -> None:
    """Go on with a prepared connection in the running loop."""
    if isinstance(handed, TlsSocket):
        protocol, handed = _Decrypting(protocol, handed), handed.plain
    handed.setblocking(False)
    await asyncio.get_running_loop().create_connection(lambda: protocol, sock=handed)
