"""A client of a cluster that is cheap for many topics at once: raw frames, a connection a broker, no caches.

It does what clients do: looks a topic up, opens a producer or consumer at the broker that is named, sends,
and looks it up again when that broker does not serve it or is gone.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Final, TypeVar, cast
from urllib.parse import urlsplit

from magnetar.common.wire import pulsar_pb2 as pb

from bench.frames import FIRST_SEQUENCE_ID, SendTemplate, simple_frame

RETRY_S: Final = 0.1
ANSWER_SECONDS_MAX: Final = 60.0

T = TypeVar("T")


class Refused(Exception):
    """A broker answered with an error; the message has it."""


class Link(asyncio.Protocol):
    """One connection: questions by their request id, receipts by their producer."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self.connected: asyncio.Future[Any] = loop.create_future()
        self.closed = False
        self._transport: asyncio.Transport
        self._received = b""
        self._answers: dict[int, asyncio.Future[Any]] = {}
        self._receipts: dict[int, asyncio.Future[Any]] = {}
        self._ids = itertools.count(1)

    @staticmethod
    async def to(service_url: str) -> Link:
        """Raises OSError, or ConnectionError as all of its calls do."""
        url = urlsplit(service_url)
        loop = asyncio.get_running_loop()
        _, protocol = await loop.create_connection(Link, url.hostname or "127.0.0.1", url.port or 6650)
        await protocol.connected
        return protocol

    def next_id(self) -> int:
        return next(self._ids)

    async def ask(self, name: str, **fields: Any) -> Any:
        """One command with a request id, and its answer. Raises Refused, ConnectionError, TimeoutError."""
        number = self.next_id()
        frame = simple_frame(name, request_id=number, **fields)
        return await self._exchange(self._answers, number, frame)

    async def send(self, producer_id: int, frame: bytes) -> None:
        """One message and its receipt. Raises as `ask`."""
        await self._exchange(self._receipts, producer_id, frame)

    def close(self) -> None:
        self._transport.abort()

    async def _exchange(self, waiting: dict[int, asyncio.Future[Any]], key: int, frame: bytes) -> Any:
        if self.closed:
            raise ConnectionError("the connection is closed")
        answer = waiting[key] = asyncio.get_running_loop().create_future()
        self._transport.write(frame)
        try:
            async with asyncio.timeout(ANSWER_SECONDS_MAX):
                return await answer
        finally:
            waiting.pop(key, None)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.write(simple_frame("connect", client_version="bench", protocol_version=21))

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed = True
        for answer in (self.connected, *self._answers.values(), *self._receipts.values()):
            if not answer.done():
                answer.set_exception(ConnectionError("the broker closed the connection"))

    def data_received(self, data: bytes) -> None:
        received = self._received + data
        position = 0
        while len(received) - position >= 4:
            end = position + 4 + int.from_bytes(received[position : position + 4], "big")
            if end > len(received):
                break
            size = int.from_bytes(received[position + 4 : position + 8], "big")
            self._take(pb.BaseCommand.FromString(received[position + 8 : position + 8 + size]))
            position = end
        self._received = received[position:]

    def _take(self, command: Any) -> None:
        name = next(field.name for field, _ in command.ListFields() if field.name != "type")
        body = getattr(command, name)
        if name == "ping":
            self._transport.write(simple_frame("pong"))
        elif name == "connected":
            self.connected.set_result(body)
        elif name in ("send_receipt", "send_error"):
            self._settle(self._receipts.get(body.producer_id), body, name == "send_error")
        elif name == "close_producer":
            self._settle(self._receipts.get(body.producer_id), body, True)
        elif hasattr(body, "request_id"):
            refused = name == "error" or bool(getattr(body, "error", 0) and body.HasField("error"))
            self._settle(self._answers.get(body.request_id), body, refused)

    def _settle(self, answer: asyncio.Future[Any] | None, body: Any, refused: bool) -> None:
        if answer is None or answer.done():
            return
        if refused:
            answer.set_exception(Refused(" ".join(str(body).split())))
        else:
            answer.set_result(body)


class ClusterClient:
    """Looks topics up through one door, and keeps one connection to each broker."""

    def __init__(self, door: str) -> None:
        """`door`: the service URL of a discovery, or of a broker."""
        self._door = door
        self._links: dict[str, asyncio.Task[Link]] = {}

    async def link(self, service_url: str) -> Link:
        """The connection to a broker, opened when there is none. Raises OSError."""
        task = self._links.get(service_url)
        if task is None or (task.done() and (task.exception() is not None or task.result().closed)):
            task = self._links[service_url] = asyncio.create_task(Link.to(service_url))
        return await asyncio.shield(task)

    async def where(self, topic: str) -> str:
        """The service URL of the broker that serves it. Raises Refused, OSError, TimeoutError."""
        door = await self.link(self._door)
        answer = await door.ask("lookupTopic", topic=topic, authoritative=False)
        return str(answer.brokerServiceUrl)

    async def subscribe_once(self, topic: str) -> None:
        """Have the topic, loaded, with the durable subscription `bench`, and no consumer."""
        link = await self.link(await self.where(topic))
        number = link.next_id()
        await link.ask("subscribe", topic=topic, subscription="bench", subType="Shared", consumer_id=number)
        await link.ask("close_consumer", consumer_id=number)

    async def publish_once(self, topic: str, template: SendTemplate) -> None:
        """One message of this topic, by a producer that stays."""
        link = await self.link(await self.where(topic))
        number = link.next_id()
        await link.ask("producer", topic=topic, producer_id=number)
        await link.send(number, one_send(template, number))

    def close(self) -> None:
        for task in self._links.values():
            task.cancel()
            if task.done() and not task.cancelled() and task.exception() is None:
                task.result().close()


def one_send(template: SendTemplate, producer_id: int) -> bytes:
    """A Send of another producer than the one that a template is made for."""
    frame = template.burst(FIRST_SEQUENCE_ID, 1)
    size = int.from_bytes(frame[4:8], "big")
    command = pb.BaseCommand.FromString(frame[8 : 8 + size])
    command.send.producer_id = producer_id
    encoded = command.SerializeToString()
    rest = frame[8 + size :]
    return (
        (len(encoded) + 4 + len(rest)).to_bytes(4, "big") + len(encoded).to_bytes(4, "big") + encoded + rest
    )


async def until_done(work: Callable[[], Awaitable[T]], deadline: float) -> T:
    """Retry after every failure, like clients. Raises the last failure after `deadline`."""
    while True:
        try:
            return await work()
        except (Refused, OSError, TimeoutError):
            if time.perf_counter() > deadline:
                raise
            await asyncio.sleep(RETRY_S)


async def for_all(topics: Iterable[str], work: Callable[[str], Awaitable[None]], at_once: int) -> None:
    """Run a coroutine for each item, with bounded concurrency."""
    remaining = iter(topics)

    async def take() -> None:
        for topic in remaining:
            await work(topic)

    async with asyncio.TaskGroup() as group:
        for _ in range(at_once):
            group.create_task(take())
