"""Other brokers, for calls over HTTP: who owns which topic is said by the test."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from magnetar.common.errors import ServiceNotReady
from magnetar.common.metadata.values import BrokerRegistration
from magnetar.common.naming.bundle_range import BundleRange
from magnetar.common.naming.namespace_name import NamespaceName
from magnetar.common.naming.topic_name import TopicName

THIS = "this:8080"


def registration(broker_id: str, http_url: str = "") -> BrokerRegistration:
    found = BrokerRegistration(broker_id=broker_id, run=1)
    found.addresses.http_url = http_url or f"http://{broker_id}"
    return found


@dataclass
class FakeCluster:
    """`owners` are asked in turn, the last one again and again; None is this broker."""

    owners: list[BrokerRegistration | None] = field(default_factory=lambda: [registration("other:8080")])
    is_ours: Callable[[TopicName], bool] = lambda name: False
    asked: list[str] = field(default_factory=list)

    broker_id: str = THIS
    run: int = 7

    @property
    def presence(self) -> FakeCluster:
        return self

    @property
    def ownership(self) -> FakeCluster:
        return self

    @property
    def table(self) -> FakeCluster:
        return self

    @property
    def finder(self) -> FakeCluster:
        return self

    def __iter__(self) -> Iterator[Any]:
        return iter(())

    def of_topic(self, name: TopicName) -> object | None:
        return self if self.is_ours(name) else None

    def get(self, namespace: NamespaceName, bundle: BundleRange) -> object | None:
        return None

    async def find(self, name: TopicName) -> BrokerRegistration:
        self.asked.append(name.full)
        return self._next()

    def owner(self, namespace: NamespaceName, bundle: BundleRange) -> BrokerRegistration | None:
        self.asked.append(f"{namespace}/{bundle}")
        return self._next()

    async def assigned(self, namespace: NamespaceName, bundle: BundleRange) -> BrokerRegistration:
        raise ServiceNotReady("nobody takes it")

    def _next(self) -> BrokerRegistration:
        owner = self.owners[0] if len(self.owners) == 1 else self.owners.pop(0)
        this = registration(THIS)
        this.run = 7
        return this if owner is None else owner


@dataclass
class OtherBroker:
    """The HTTP of another broker; answers what it is told to, by the order of calls."""

    answers: list[bytes] = field(default_factory=list)
    requests: list[tuple[str, bytes]] = field(default_factory=list)
    server: asyncio.Server | None = None
    serving: set[asyncio.Task[Any]] = field(default_factory=set)

    async def start(self) -> BrokerRegistration:
        self.server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        port = self.server.sockets[0].getsockname()[1]
        return registration(f"127.0.0.1:{port}")

    async def stop(self) -> None:
        """Once nobody is connected any more."""
        assert self.server is not None
        if self.serving:
            await asyncio.wait(self.serving)
        self.server.close()
        await self.server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self.serving.add(task)
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                length = next(
                    (
                        int(line.split(":")[1])
                        for line in head.split("\r\n")
                        if line.lower().startswith("content-length")
                    ),
                    0,
                )
                self.requests.append((head.split(" HTTP")[0], await reader.readexactly(length)))
                answer = self.answers.pop(0) if self.answers else answered(204)
                if not answer:
                    break
                writer.write(answer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


def answered(status: int, body: bytes = b"") -> bytes:
    return b"HTTP/1.1 %d X\r\nContent-Length: %d\r\n\r\n%s" % (status, len(body), body)
