"""The certificate that the other end of a connection showed."""

from __future__ import annotations

import asyncio


def peer_certificate(transport: asyncio.BaseTransport) -> bytes | None:
    """The peer's certificate as DER, verified in the handshake; None without one, and without TLS."""
    tls = transport.get_extra_info("ssl_object")
    if tls is None:
        return None
    certificate: bytes | None = tls.getpeercert(binary_form=True)
    return certificate
