"""A broker that is made up, on a loopback port: it answers as a test says, and keeps what it was asked."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

from magnetar.common.wire import commands
from magnetar.common.wire.batch import parse_metadata, payload_of
from magnetar.common.wire.command_parser import command_field
from magnetar.common.wire.frame import Frame, FrameDecoder, encode_command
from magnetar.common.wire.pulsar_pb2 import (
    BaseCommand,
    CommandSendReceipt,
    MessageIdData,
    MessageMetadata,
    ServerError,
)

Answer = Callable[[Any], bytes]


class MadeUpBroker:
    """One broker, which owns every topic. `stop` ends it; connections can be cut and made again."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, Any]] = []
        self.entries: list[tuple[MessageMetadata, bytes]] = []
        """Metadata and payload of each entry that was sent, in order."""
        self.answers: dict[str, Answer] = {
            "connect": lambda _: commands.connected("made up", 21, 5_000_000),
            "partitionMetadata": lambda command: commands.partition_metadata(command.request_id, 0),
            "lookupTopic": lambda command: commands.lookup_connect(command.request_id, self.url),
            "producer": lambda command: commands.producer_success(command.request_id, command.producer_name),
            "close_producer": lambda command: commands.success(command.request_id),
            "subscribe": lambda command: commands.success(command.request_id),
            "close_consumer": lambda command: commands.success(command.request_id),
            "send": receipt,
        }
        self.url = ""
        self._news = asyncio.Event()
        self._server: asyncio.Server | None = None
        self._transports: set[asyncio.Transport] = set()

    async def __aenter__(self) -> MadeUpBroker:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: _Session(self), "127.0.0.1", 0)
        self.url = f"pulsar://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Ends it: no connection is accepted any more. Idempotent."""
        assert self._server is not None
        self._server.close()
        self.cut()

    def cut(self) -> None:
        """Ends the connections."""
        for transport in self._transports:
            transport.abort()

    def of(self, field: str) -> list[Any]:
        """Returns the commands of a kind that were asked, in order."""
        return [command for name, command in self.asked if name == field]

    async def until(self, field: str, count: int) -> None:
        """Waits until so many commands of a kind were asked."""
        async with asyncio.timeout(10):
            while len(self.of(field)) < count:
                self._news.clear()
                await self._news.wait()

    def connected(self, transport: asyncio.Transport) -> None:
        self._transports.add(transport)

    def disconnected(self, transport: asyncio.Transport) -> None:
        self._transports.discard(transport)

    def answer(self, frame: Frame) -> bytes:
        """Takes a command; returns what is written for it."""
        field = command_field(frame.command)
        command: Any = getattr(frame.command, field)
        self.asked.append((field, command))
        self._news.set()
        if field == "send":
            self.entries.append((parse_metadata(frame.entry), bytes(payload_of(frame.entry))))
        return self.answers[field](command) if field in self.answers else b""


class _Session(asyncio.Protocol):
    """A connection of a client."""

    def __init__(self, broker: MadeUpBroker) -> None:
        self._broker = broker
        self._decoder = FrameDecoder()
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._broker.connected(self._transport)

    def connection_lost(self, exc: Exception | None) -> None:
        assert self._transport is not None
        self._broker.disconnected(self._transport)

    def data_received(self, data: bytes) -> None:
        assert self._transport is not None
        for frame in self._decoder.receive_data(data):
            self._transport.write(self._broker.answer(frame))


def receipt(command: Any) -> bytes:
    """Returns the frame of a receipt for a Send."""
    at = MessageIdData(ledgerId=1, entryId=command.sequence_id)
    sent = CommandSendReceipt(producer_id=command.producer_id, sequence_id=command.sequence_id, message_id=at)
    return encode_command(BaseCommand(type=BaseCommand.SEND_RECEIPT, send_receipt=sent))


def silent(_: Any) -> bytes:
    """Does not answer."""
    return b""


def refused(code: ServerError.ValueType, message: str) -> Answer:
    """Answers a request with an error."""
    return lambda command: commands.error(command.request_id, code, message)


def in_turn(*answers: Answer) -> Answer:
    """Answers each time with the next one, and from then on with the last."""
    left = list(answers)

    def answer(command: Any) -> bytes:
        return (left.pop(0) if len(left) > 1 else left[0])(command)

    return answer
