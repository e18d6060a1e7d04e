"""The remote end of a client connection, as topics and subscriptions use it.

The transport implements it over a socket; tests implement it over a list. No method blocks except `is_alive`.
"""

from __future__ import annotations

from typing import Protocol

from magnetar.broker.client_endings import EndCode
from magnetar.broker.read_pauses import ReadPauses


class Peer(Protocol):
    """One connected client process."""

    listener: str | None
    """Advertised listener named by the client's lookups, "" for none; None before its first lookup."""

    certificate: bytes | None
    """The certificate (DER) that the client showed and that is trusted; None without one, and without TLS."""

    protocol_version: int
    """Negotiated protocol version; 0 before Connect."""

    @property
    def address(self) -> str:
        """`host:port` of the client, for logs and statistics."""
        ...

    @property
    def writable(self) -> bool:
        """False while the socket's write buffer is over its limit; dispatch to this peer pauses then."""
        ...

    @property
    def unwritable_s(self) -> float:
        """For how many seconds the socket's write buffer has been over its limit; 0: it is not."""
        ...

    @property
    def read_pauses(self) -> ReadPauses:
        """When and why the broker did not read from the client lately; for explanations."""
        ...

    @property
    def connected(self) -> bool:
        """False once the connection is closed or closing."""
        ...

    def write(self, data: bytes) -> None:
        """Queues bytes; everything queued in one turn of the event loop is sent in one write."""
        ...

    def write_parts(self, parts: list[bytes]) -> None:
        """Queues many buffers at once; the list is borrowed only for the call."""
        ...

    def publish_pending(self, byte_count: int) -> None:
        """Accounts for publish bytes received (positive) or settled (negative); at the bound, reading
        pauses.
        """
        ...

    def pause_reading_for(self, seconds: float) -> None:
        """Stops reading from this connection for `seconds`, because it exceeds its publish rate."""
        ...

    def close(self, reason: str, code: EndCode) -> None:
        """Closes the connection after the queued bytes were written; the reason is logged, and recorded with
        its code.
        """
        ...

    async def is_alive(self) -> bool:
        """Pings the client and waits, for a bounded time, for any response; closes the connection without
        one.

        This is the liveness check of Pulsar 4.0, made before a new producer or consumer is refused in favor
        of this peer's.
        """
        ...
