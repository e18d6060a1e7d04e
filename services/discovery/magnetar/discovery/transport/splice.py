"""Two sockets as one: what a client sends goes to its broker as it is, and back.

Nothing is parsed. Each side is read only while the other takes what was read, so a pair holds little more
than its two socket buffers. What ends on the broker's side ends for the client at once, since a broker that
goes does not come back on this connection; a client that has said all it has to say still hears the rest.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, cast

from magnetar.discovery.transport.connection_close import close_soon
from magnetar.discovery.transport.connection_metrics import PROXIED_BYTES

BUFFER_BYTES_MAX: Final = 128 * 1024
"""Bytes that wait for one side at which the other is no longer read; read on at a quarter."""

LAST_WORDS_S: Final = 10.0
"""How long a broker may take to end after its client has."""

_FROM_CLIENTS: Final = PROXIED_BYTES.labels("clients")
_FROM_BROKERS: Final = PROXIED_BYTES.labels("brokers")


class Splice:
    """A client and its broker, from the moment the broker is connected. Belongs to its creator."""

    __slots__ = ("_broker", "_client", "_loop", "_on_end", "_waiting_bytes", "broker_heard", "ended")

    def __init__(self, on_end: Callable[[Splice], None]) -> None:
        """`on_end` is called once, when nothing more will be carried."""
        self._loop = asyncio.get_running_loop()
        self._on_end = on_end
        self._client: asyncio.Transport | None = None
        self._broker: asyncio.Transport | None = None
        self.broker_heard = True
        """Anything came from the broker since `stuck` was last asked."""
        self._waiting_bytes = 0
        self.ended = False

    def broker_side(self) -> asyncio.Protocol:
        """The protocol for the connection to the broker; made before the client's is taken over."""
        return _BrokerSide(self)

    def begin(self, client: asyncio.Transport, first: bytes) -> None:
        """Take the client's connection over, whose reading is paused, and send the broker `first`."""
        broker = self._broker
        assert broker is not None, "the broker is connected first"
        self._client = client
        for each in (client, broker):
            each.set_write_buffer_limits(high=BUFFER_BYTES_MAX)
        client.set_protocol(_ClientSide(self))
        client.resume_reading()  # before the write, which may pause it
        broker.write(first)
        _FROM_CLIENTS.inc(len(first))

    def stuck(self) -> bool:
        """Whether since the last call the broker has said nothing though it is listened to, or the client has
        taken nothing of what waits for it.
        """
        assert self._broker is not None
        assert self._client is not None
        heard, self.broker_heard = self.broker_heard, False
        before, self._waiting_bytes = self._waiting_bytes, self._client.get_write_buffer_size()
        return not heard and (self._broker.is_reading() or self._waiting_bytes == before)

    def end(self) -> None:
        """Carry nothing more: either side gets what is on its way to it, for a moment. Idempotent."""
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

    def data_received(self, data: bytes) -> None:
        broker = self._splice._broker
        assert broker is not None
        broker.write(data)
        _FROM_CLIENTS.inc(len(data))

    def eof_received(self) -> bool:
        """The client says no more; it may still listen, for as long as the broker takes to end."""
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

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._splice._broker = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        splice = self._splice
        if splice._client is None:
            splice.end()  # a broker says nothing before it was sent a Connect
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
