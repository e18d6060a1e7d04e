"""Raw frames on asyncio: one connection that carries producers and consumers of many topics."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self

from magnetar.common.wire import pulsar_pb2 as pb

from tests.integration.harness import Endpoint
from tests.integration.raw.transcript import PROTOCOL_VERSION, Frame, parse_frame, simple_frame

ANSWER_SECONDS_MAX = 60.0
PING_SECONDS = 0.5


class Refused(Exception):
    """The server answered with an error; its name is the first argument."""

    @property
    def name(self) -> str:
        return str(self.args[0])


class Ended(Exception):
    """The connection is gone."""


class Silence(AssertionError):
    """An answer did not come: the server hangs."""


@dataclass(slots=True)
class Handlers:
    """What a producer or consumer wants to hear; called while data is read, so they must not wait."""

    on_frame: Callable[[Frame], None]
    on_lost: Callable[[], None]


class RawConnection(asyncio.Protocol):
    """Answers pings, sends its own, and knows since when everything it reads was written."""

    def __init__(self) -> None:
        self.open = False
        self.written_since = float("-inf")
        """What comes from now on was written by the server after this moment (time.monotonic).

        A ping that was sent then is answered.
        """
        self.consumers: dict[int, Handlers] = {}
        self.producers: dict[int, Handlers] = {}
        self._waiting: dict[int, asyncio.Future[Frame]] = {}
        self._pings: list[tuple[float, Callable[[], None] | None]] = []
        self._buffer = bytearray()
        self._last_id = 0
        self._connected: asyncio.Future[Frame] = asyncio.get_running_loop().create_future()
        self._transport: asyncio.Transport

    @classmethod
    async def connect(
        cls, endpoint: Endpoint, seconds_max: float = ANSWER_SECONDS_MAX, broker: str = ""
    ) -> Self:
        """Return a connection after Connected, to a broker behind a proxy where one is named (`host:port`).

        Raises OSError, which TimeoutError is one of, or Ended.
        """
        behind = {"proxy_to_broker_url": broker} if broker else {}
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(seconds_max):
            _, connection = await loop.create_connection(cls, endpoint.host, endpoint.port)
            try:
                connection.send("connect", client_version="soak", protocol_version=PROTOCOL_VERSION, **behind)
                await connection._connected
            except BaseException:
                connection.abort()
                raise
        return connection

    def next_id(self) -> int:
        """A producer, consumer or request id that this connection has not used."""
        self._last_id += 1
        return self._last_id

    def send(self, name: str, **fields: Any) -> None:
        """One command, if the connection is still there."""
        self.send_bytes(simple_frame(name, **fields))

    def send_bytes(self, data: bytes) -> None:
        if self.open and not self._transport.is_closing():
            self._transport.write(data)

    async def ask(self, name: str, **fields: Any) -> Frame:
        """The answer to a request. Raises Refused, Ended, or Silence when none comes."""
        if not self.open:
            raise Ended
        request_id = self.next_id()
        answer: asyncio.Future[Frame] = asyncio.get_running_loop().create_future()
        self._waiting[request_id] = answer
        self.send(name, request_id=request_id, **fields)
        try:
            async with asyncio.timeout(ANSWER_SECONDS_MAX):
                return await answer
        except TimeoutError:
            raise Silence(f"no answer to {name} {fields} within {ANSWER_SECONDS_MAX:g} s") from None
        finally:
            self._waiting.pop(request_id, None)

    def ping(self, answered: Callable[[], None] | None = None) -> None:
        """Everything sent so far is handled by the server once this is answered."""
        if self.open:
            self._pings.append((time.monotonic(), answered))
            self.send("ping")

    def abort(self) -> None:
        """End without a word, as a client that crashes."""
        if self.open:
            self._transport.abort()
            self._gone()

    # -- asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self.open = True

    def connection_lost(self, exc: Exception | None) -> None:
        self._gone()

    def data_received(self, data: bytes) -> None:
        if not self.open:
            return
        buffer = self._buffer
        buffer += data
        at = 0
        while len(buffer) - at >= 4:
            size = int.from_bytes(buffer[at : at + 4], "big")
            if len(buffer) - at < 4 + size:
                break
            self._received(parse_frame(bytes(buffer[at + 4 : at + 4 + size])))
            at += 4 + size
        del buffer[:at]

    def _received(self, frame: Frame) -> None:
        name, command = frame.name, frame.command
        if name == "message" or name in ("active_consumer_change", "close_consumer", "reachedEndOfTopic"):
            self._tell(self.consumers, command.consumer_id, frame)
        elif name in ("send_receipt", "send_error", "close_producer"):
            self._tell(self.producers, command.producer_id, frame)
        elif name == "ping":
            self.send("pong")
        elif name == "pong":
            sent_at, answered = self._pings.pop(0)
            self.written_since = sent_at
            if answered is not None:
                answered()
        elif name == "connected":
            self._connected.set_result(frame)
        elif (waiting := self._waiting.get(command.request_id)) is not None and not waiting.done():
            if name == "error" or (name == "ackResponse" and command.HasField("error")):
                error = pb.ServerError.Name(command.error)
                waiting.set_exception(Refused(error, str(command.message)))
            else:
                waiting.set_result(frame)

    def _tell(self, handlers: dict[int, Handlers], number: int, frame: Frame) -> None:
        known = handlers.get(number)
        if known is not None:
            known.on_frame(frame)

    def _gone(self) -> None:
        if not self.open:
            return
        self.open = False
        for waiting in (self._connected, *self._waiting.values()):
            if not waiting.done():
                waiting.set_exception(Ended())
        for handlers in (*self.consumers.values(), *self.producers.values()):
            handlers.on_lost()
        self.consumers.clear()
        self.producers.clear()
