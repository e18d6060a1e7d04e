"""The other end of an HTTP request's connection, as authentication needs it."""

from __future__ import annotations

from dataclasses import dataclass

from aiohttp import web
from magnetar.common.security.tls.peer_certificate import peer_certificate


@dataclass(frozen=True, slots=True)
class RequestPeer:
    """Address and certificate of a caller."""

    host: str
    port: int
    certificate: bytes | None
    """The certificate (DER) that the handshake verified; None without one, and without TLS."""

    @property
    def address(self) -> str:
        """`host:port`, for logs."""
        return f"{self.host}:{self.port}"


def request_peer(request: web.Request) -> RequestPeer:
    """Return the caller of a request; the host is "?" once the connection is gone."""
    transport = request.transport
    if transport is None:
        return RequestPeer("?", 0, None)
    host, port = (transport.get_extra_info("peername") or ("?", 0))[:2]
    return RequestPeer(str(host), port, peer_certificate(transport))
