"""The load itself: producing in a window or at a fixed rate, and consuming, on uvloop.

Latencies are taken at the last message of each burst, from the moment when it was due: with a rate that is
its place in the schedule, so a broker that stalls is charged for all that had to wait (no coordinated
omission).
"""

from __future__ import annotations

import asyncio
import socket
import time
from collections import deque
from dataclasses import dataclass, field
from typing import cast

import uvloop

from bench.frames import (
    CONSUMER_ID,
    FIRST_SEQUENCE_ID,
    RECEIPT_MARK,
    MarkCounter,
    SendTemplate,
    last_message_id,
    simple_frame,
)

SILENCE_SECONDS_MAX = 60.0
PERMITS_EACH = 5_000
PERMITS_MAX = 20_000


@dataclass(slots=True)
class Run:
    """What one measured run saw."""

    entries: int
    seconds: float
    latencies_ms: list[float] = field(default_factory=list)
    lags_ms: list[float] = field(default_factory=list)
    """With a rate: how late the generator itself was, which is part of each latency."""


def percentile(values: list[float], share: float) -> float:
    """The value that `share` of the values do not exceed; 0.0 when there are none."""
    return sorted(values)[min(len(values) - 1, int(len(values) * share))] if values else 0.0


class _Base(asyncio.Protocol):
    def __init__(self, done: asyncio.Future[None]) -> None:
        self.done = done
        self.transport: asyncio.Transport
        self.heard = time.monotonic()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.done.done():
            self.done.set_exception(ConnectionError(f"the broker closed the connection: {exc}"))


class Produce(_Base):
    """Sends `entries` frames, at most `window` without receipt, or `rate` a second when that is not 0."""

    def __init__(
        self, done: asyncio.Future[None], template: SendTemplate, entries: int, window: int, rate: float
    ) -> None:
        super().__init__(done)
        self.template = template
        self.entries = entries
        self.window = window
        self.burst = max(1, min(window // 4, 1_000_000 // template.frame_bytes or 1))
        self.rate = rate
        self.sent = 0
        self.receipts = MarkCounter(RECEIPT_MARK)
        self.due: deque[tuple[int, float]] = deque()  # (entries sent with this burst, when it was due)
        self.latencies_ms: list[float] = []
        self.lags_ms: list[float] = []
        self.started = 0.0

    def start(self) -> None:
        self.started = time.perf_counter()
        if self.rate:
            self._tick()
        else:
            self._fill()

    def data_received(self, data: bytes) -> None:
        self.heard = time.monotonic()
        self.receipts.feed(data)
        received = self.receipts.count
        now = time.perf_counter()
        due = self.due
        while due and due[0][0] <= received:
            self.latencies_ms.append((now - due.popleft()[1]) * 1000)
        if received >= self.entries:
            if not self.done.done():
                self.done.set_result(None)
        elif not self.rate:
            self._fill()

    def _fill(self) -> None:
        free = self.window - (self.sent - self.receipts.count)
        while free >= self.burst and self.sent < self.entries:
            count = min(self.burst, self.entries - self.sent)
            self._send(count, time.perf_counter())
            free -= count

    def _tick(self) -> None:
        """Send what is due by now, one message a burst, so that each has its own latency."""
        elapsed = time.perf_counter() - self.started
        while self.sent < min(self.entries, int(elapsed * self.rate)):
            due = self.started + self.sent / self.rate
            self.lags_ms.append((time.perf_counter() - due) * 1000)
            self._send(1, due)
        if self.sent < self.entries:
            asyncio.get_running_loop().call_later(0.0005, self._tick)

    def _send(self, count: int, due: float) -> None:
        self.transport.write(self.template.burst(FIRST_SEQUENCE_ID + self.sent, count))
        self.sent += count
        self.due.append((self.sent, due))


class Consume(_Base):
    """Takes `entries` messages, grants permits and acknowledges cumulatively as it goes."""

    def __init__(self, done: asyncio.Future[None], template: SendTemplate, entries: int) -> None:
        super().__init__(done)
        self.entries = entries
        self.messages_each = template.messages
        self.mark = template.message_mark
        self.messages = MarkCounter(self.mark)
        self.granted = 0

    def start(self) -> None:
        self._grant()

    def data_received(self, data: bytes) -> None:
        self.heard = time.monotonic()
        joined = self.messages.feed(data)
        if self.messages.count >= self.entries:
            if not self.done.done():
                self.done.set_result(None)
            return
        if self._grant():
            position = last_message_id(joined, self.mark)
            if position is not None:
                self.transport.write(
                    simple_frame(
                        "ack",
                        consumer_id=CONSUMER_ID,
                        ack_type="Cumulative",
                        message_id=[{"ledgerId": position[0], "entryId": position[1]}],
                    )
                )

    def _grant(self) -> bool:
        granted = False
        while self.granted - self.messages.count * self.messages_each <= PERMITS_MAX - PERMITS_EACH:
            self.granted += PERMITS_EACH
            self.transport.write(simple_frame("flow", consumer_id=CONSUMER_ID, messagePermits=PERMITS_EACH))
            granted = True
        return granted


async def _drive(protocol: Produce | Consume, sock: socket.socket) -> float:
    """Run one side to its end; returns the seconds from its first byte to its last."""
    loop = asyncio.get_running_loop()
    sock.setblocking(False)
    transport, _ = await loop.create_connection(lambda: protocol, sock=sock)
    try:
        started = time.perf_counter()
        protocol.start()
        while not protocol.done.done():
            await asyncio.wait([protocol.done], timeout=1.0)
            if time.monotonic() - protocol.heard > SILENCE_SECONDS_MAX:
                raise TimeoutError(f"nothing came from the broker for {SILENCE_SECONDS_MAX:g} s")
        protocol.done.result()
        return time.perf_counter() - started
    finally:
        transport.abort()


def produce(
    sock: socket.socket, template: SendTemplate, entries: int, *, window: int, rate: float = 0.0
) -> Run:
    """Produce on a connection whose producer is open, until each entry has its receipt."""

    async def main() -> Run:
        protocol = Produce(asyncio.get_running_loop().create_future(), template, entries, window, rate)
        seconds = await _drive(protocol, sock)
        return Run(entries, seconds, protocol.latencies_ms, protocol.lags_ms)

    return uvloop.run(main())


def consume(sock: socket.socket, template: SendTemplate, entries: int) -> Run:
    """Consume on a connection whose consumer is open, until `entries` messages (batches count once) came."""

    async def main() -> Run:
        protocol = Consume(asyncio.get_running_loop().create_future(), template, entries)
        return Run(entries, await _drive(protocol, sock))

    return uvloop.run(main())
