"""Joins a client socket and a broker socket, and copies bytes in both directions.

Nothing is parsed. Each side is read only while the other side accepts the data, so a pair needs little more
memory than its two socket buffers. When the broker's side ends, the client's connection closes at once. When
the client half-closes its side, it still receives the broker's remaining data.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, cast

from magnetar.common.runtime.closed_transport import ClosedTransport
from magnetar.discovery.transport.connection_close import close_soon
from magnetar.discovery.transport.connection_metrics import PROXIED_BYTES

BUFFER_BYTES_MAX: Final = 128 * 1024
"""Pending bytes of one side above which the other side is not read; reading resumes at a quarter."""

LAST_WORDS_S: Final = 10.0
"""Timeout of a broker to close after its client has, in seconds."""

_FROM_CLIENTS: Final = PROXIED_BYTES.labels("clients")
_FROM_BROKERS: Final = PROXIED_BYTES.labels("brokers")


class Splice:
    """A joined client and broker, from the broker's connect on. Owned by its creator."""

    __slots__ = (
        *("_broker", "_client", "_loop", "_on_end", "_waiting_bytes"),
        *("broker_heard", "ended", "expires_at"),
    )

    def __init__(self, on_end: Callable[[Splice], None], expires_at: float | None = None) -> None:
        """`on_end` is called once, when no more bytes will be copied."""
        self.expires_at = expires_at
        """When the client's certificate expires, in seconds since 1970 UTC; None: not known here."""
        self._loop = asyncio.get_running_loop()
        self._on_end = on_end
        self._client: asyncio.Transport | None = None
        self._broker: asyncio.Transport | None = None
        self.broker_heard = True
        """Whether bytes arrived from the broker since the last call of `stuck`."""
        self._waiting_bytes = 0
        self.ended = False

    def broker_side(self) -> asyncio.Protocol:
        """Protocol of the connection to the broker; created before the client's is taken over."""
        return _BrokerSide(self)

    def begin(self, client: asyncio.Transport, first: bytes) -> None:
        """Take over the client's connection, with reading paused, and send `first` to the broker."""
        broker = self._broker
        assert broker is not None, "the broker is connected first"
        self._client = client
        for each in (client, broker):
            each.set_write_buffer_limits(high=BUFFER_BYTES_MAX)
        client.set_protocol(_ClientSide(self))
        client.resume_reading()  # Before the write, which may pause reading.
        broker.write(first)
        _FROM_CLIENTS.inc(len(first))

    def stuck(self) -> bool:
        """Return whether, since the last call, the broker sent nothing although it was read, or the client
        accepted none of its pending bytes.
        """
        assert self._broker is not None
        assert self._client is not None
        heard, self.broker_heard = self.broker_heard, False
        before, self._waiting_bytes = self._waiting_bytes, self._client.get_write_buffer_size()
        return not heard and (self._broker.is_reading() or self._waiting_bytes == before)

    def end(self) -> None:
        """Stop copying; each side gets a short time to read pending data. Idempotent."""
        if self.ended:
            return
        self.ended = True
        for transport in (self._client, self._broker):
            if transport is not None:
                close_soon(transport)
        self._on_end(self)


class _Side(asyncio.Protocol):
    __slots__ = ("_splice",)

    def __init__(self, splice: Splice) -> None:
        self._splice = splice

    def connection_lost(self, error: Exception | None) -> None:
        self._splice.end()


class _ClientSide(_Side):
    __slots__ = ()

    def connection_lost(self, error: Exception | None) -> None:
        super().connection_lost(error)
        self._splice._client = ClosedTransport()  # a transport with TLS holds up to 256 KiB

    def data_received(self, data: bytes) -> None:
        broker = self._splice._broker
        assert broker is not None
        broker.write(data)
        _FROM_CLIENTS.inc(len(data))

    def eof_received(self) -> bool:
        """Handle the client's half-close: it may still receive data until the broker closes."""
        splice = self._splice
        broker = splice._broker
        if broker is None or broker.is_closing():
            return False
        broker.write_eof()
        splice._loop.call_later(LAST_WORDS_S, splice.end)
        return True

    def pause_writing(self) -> None:
        if self._splice._broker is not None:
            self._splice._broker.pause_reading()

    def resume_writing(self) -> None:
        if self._splice._broker is not None:
            self._splice._broker.resume_reading()


class _BrokerSide(_Side):
    __slots__ = ()

    def connection_lost(self, error: Exception | None) -> None:
        super().connection_lost(error)
        self._splice._broker = ClosedTransport()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._splice._broker = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        splice = self._splice
        if splice._client is None:
            splice.end()  # A broker sends nothing before it receives a Connect.
            return
        splice.broker_heard = True
        splice._client.write(data)
        _FROM_BROKERS.inc(len(data))

    def eof_received(self) -> bool:
        self._splice.end()
        return False

    def pause_writing(self) -> None:
        if self._splice._client is not None:
            self._splice._client.pause_reading()

    def resume_writing(self) -> None:
        if self._splice._client is not None:
            self._splice._client.resume_reading()
