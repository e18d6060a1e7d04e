"""Scenarios in which the topic moves or its broker dies under traffic."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from magnetar.client import Consumer, Producer
from magnetar.client.errors import ClientError

from tests.clients.asyncio_client.harness import Scene, expect, expect_equal, until

COUNT = 300
ENDS_S = 120.0


@dataclass
class _Traffic:
    """One producer that sends numbers one at a time, one consumer that acknowledges them, each in a task.

    The last 100 are not sent before `released` is set, so that the traffic outlasts its disruption.
    """

    producer: Producer[Any]
    consumer: Consumer[Any]
    sent: list[int] = field(default_factory=list)
    failed: dict[int, str] = field(default_factory=dict)
    received: list[int] = field(default_factory=list)
    released: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def tried(self) -> int:
        return len(self.sent) + len(self.failed)

    async def send(self) -> None:
        for number in range(COUNT):
            if number == COUNT - 100:
                await self.released.wait()
            try:
                await self.producer.send(str(number).encode())
            except ClientError as error:
                self.failed[number] = f"{type(error).__name__} {error}"
            else:
                self.sent.append(number)
            await asyncio.sleep(0.002)

    async def receive(self) -> None:
        async for message in self.consumer:
            self.received.append(int(message.data))
            await self.consumer.acknowledge(message)

    async def end(self) -> None:
        """Wait until every number was tried and what was stored arrived."""
        await until(lambda: self.tried == COUNT, f"{COUNT} sends have ended", ENDS_S)
        await until(lambda: set(self.sent) <= set(self.received), "every stored message arrives", ENDS_S)


@asynccontextmanager
async def _traffic(scene: Scene) -> AsyncIterator[_Traffic]:
    """Run traffic until the block ends; an error of the consumer is raised.

    Sends wait for the service without end: those without a receipt go to the next connection.
    """
    client = scene.new_client()
    producer: Producer[Any] = await client.create_producer(scene.topic(), batching=None, send_timeout_s=0)
    traffic = _Traffic(producer, await scene.consumer())
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(traffic.send()), group.create_task(traffic.receive())]
        yield traffic
        for task in tasks:
            task.cancel()


async def moved(scene: Scene) -> None:
    async with _traffic(scene) as traffic:
        for count in (50, 120):
            await until(lambda count=count: traffic.tried >= count, f"{count} sends have ended", 20)  # type: ignore[misc]
            await scene.ask("move", scene.topic())
        traffic.released.set()
        await traffic.end()
    expect_equal(traffic.failed, {}, "failed sends")
    expect_equal(list(dict.fromkeys(traffic.received)), list(range(COUNT)), "order of the first deliveries")


async def killed(scene: Scene) -> None:
    async with _traffic(scene) as traffic:
        await until(lambda: traffic.tried >= 100, "100 sends have ended", 20)
        await scene.ask("kill", scene.topic())
        traffic.released.set()
        await traffic.end()
    expect_equal(traffic.failed, {}, "failed sends")
    connected = traffic.producer.is_connected and traffic.consumer.is_connected
    expect(connected, "producer or consumer is not connected in the end")
