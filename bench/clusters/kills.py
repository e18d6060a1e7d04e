"""The longest pause of a publisher, at a steady rate, around the kill of a process.

The publisher is the asyncio client of this repository, against both clusters: it looks the topic up and sends
again by itself. Sends follow a schedule whatever happens to the cluster.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

import uvloop
from magnetar.client import Client, MessageId, Producer
from magnetar.client.errors import ClientError

from bench.cluster_client import ClusterClient
from bench.loads import Measured
from bench.target import Target, new_topic

SIZE: Final = 1_024
BEFORE_S: Final = 3.0
AFTER_S: Final = 5.0
"""Publishing goes on for so long once messages are confirmed again."""

PATIENCE_S: Final = 120.0
PENDING_MAX: Final = 1_000_000
LATE_S: Final = 0.001


@dataclass(frozen=True, slots=True)
class Kill:
    """Publish, kill a process with SIGKILL, and publish on until all is confirmed again."""

    service_url: str
    """Addresses of all brokers."""

    rate: float
    bookie_pid: int = 0
    """0: the broker that serves the topic is killed."""

    broker_pids: tuple[tuple[str, int], ...] = ()
    """Service URLs and processes of the brokers."""

    def __call__(self, target: Target) -> Measured:
        return uvloop.run(self._measure(target))

    async def _measure(self, target: Target) -> Measured:
        topic = new_topic()
        sent = Sent()
        async with Client(self.service_url) as client:
            producer = await client.create_producer(
                topic, batching=None, send_timeout_s=0.0, max_pending_messages=PENDING_MAX
            )
            pid = self.bookie_pid or dict(self.broker_pids)[await owner(target.service_url, topic)]
            publishing = asyncio.create_task(publish(producer, self.rate, sent))
            await asyncio.sleep(BEFORE_S)
            os.kill(pid, signal.SIGKILL)
            killed = time.perf_counter()
            await asyncio.sleep(AFTER_S)
            await until(lambda: bool(sent.confirmed_at) and sent.confirmed_at[-1] > killed + AFTER_S)
            await asyncio.sleep(AFTER_S)
            publishing.cancel()
            await asyncio.wait([publishing])
            await until(lambda: len(sent.confirmed_at) + len(sent.errors) == sent.count)
            await producer.close()
        if sent.errors:
            raise RuntimeError(f"{len(sent.errors)} of {sent.count} messages failed: {sent.errors[0]}")
        before, after = pauses(sent.confirmed_at, killed)
        return Measured(
            {
                "longest pause": after * 1e3,
                "longest pause before the kill": before * 1e3,
                "messages": float(sent.count),
            },
            {},
        )


@dataclass(slots=True)
class Sent:
    """Messages so far."""

    count: int = 0
    confirmed_at: list[float] = field(default_factory=list)
    errors: list[ClientError] = field(default_factory=list)

    def settle(self, error: ClientError | None, _: MessageId | None) -> None:
        """A message was confirmed or failed."""
        if error is None:
            self.confirmed_at.append(time.perf_counter())
        else:
            self.errors.append(error)


async def publish(producer: Producer[bytes], rate: float, sent: Sent) -> None:
    """Send by a schedule until canceled."""
    payload = bytes(SIZE)
    began = time.perf_counter()
    while True:
        due = int((time.perf_counter() - began) * rate) + 1
        while sent.count < due:
            producer.send_nowait(payload, sent.settle)
            sent.count += 1
        await asyncio.sleep(max(LATE_S, began + sent.count / rate - time.perf_counter()))


def pauses(confirmed_at: Sequence[float], killed: float) -> tuple[float, float]:
    """The longest time between two confirmations before the kill, and of those that end after it."""
    gaps = [(later, later - earlier) for earlier, later in pairwise(confirmed_at)]
    before = max((gap for later, gap in gaps if later <= killed), default=0.0)
    return before, max((gap for later, gap in gaps if later > killed), default=0.0)


async def owner(service_url: str, topic: str) -> str:
    """The service URL of the broker that serves a topic."""
    client = ClusterClient(service_url)
    try:
        return await client.where(topic)
    finally:
        client.close()


async def until(condition: Callable[[], bool]) -> None:
    """Raises TimeoutError when it does not come to hold."""
    async with asyncio.timeout(PATIENCE_S):
        while not condition():  # noqa: ASYNC110 - it looks at a list that callbacks fill
            await asyncio.sleep(0.05)
