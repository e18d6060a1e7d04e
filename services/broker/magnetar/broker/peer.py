"""The far end of a client connection, as topics and subscriptions see it.

The transport implements it over a socket; tests implement it over a list. Nothing in here waits.
"""

from __future__ import annotations

from typing import Protocol


class Peer(Protocol):
    """One connected client process."""

    listener: str | None
    """The advertised listener that its lookups name, "" for none; None when it has looked nothing up."""

    certificate: bytes | None
    """The certificate (DER) that the client showed and that is trusted; None without one, and without TLS."""

    protocol_version: int
    """The protocol's version that both sides understand; 0 before Connect."""

    @property
    def address(self) -> str:
        """`host:port` of the client, for logs and statistics."""
        ...

    @property
    def writable(self) -> bool:
        """False while the socket's write buffer is over its limit; dispatch to this peer pauses then."""
        ...

    @property
    def connected(self) -> bool:
        """False once the connection is closed or closing."""
        ...

    def write(self, data: bytes) -> None:
        """Queue bytes; everything queued in one turn of the event loop leaves in one write."""
        ...

    def write_parts(self, parts: list[bytes]) -> None:
        """Queue many pieces at once; the list is borrowed only for the call."""
        ...

    def publish_pending(self, byte_count: int) -> None:
        """Account for publish bytes taken (positive) or settled (negative); bounds what is read on."""
        ...

    def pause_reading_for(self, seconds: float) -> None:
        """Read nothing more from this connection for so long: it publishes more than it may."""
        ...

    def close(self, reason: str) -> None:
        """Close the connection after what is queued was written; the reason is logged."""
        ...

    async def is_alive(self) -> bool:
        """Ping the client and wait for any sign of life, for a bounded time; closes it when there is none.

        The liveness probe of Pulsar 4.0: asked before a newcomer is refused because of this peer.
        """
        ...
