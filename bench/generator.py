"""The load at full speed: producing in a window and consuming, on uvloop, as cheaply as Python can.

Latencies are taken at the last message of each burst, from the moment when the burst was written. For
latencies at a given rate see paced.py.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Literal, cast

import uvloop

from bench.frames import (
    CONSUMER_ID,
    FIRST_SEQUENCE_ID,
    RECEIPT_MARK,
    MarkCounter,
    Sends,
    SendTemplate,
    simple_frame,
)
from bench.messages import AckFrames, MessageSplitter, last_message_id, message_id_of
from bench.tls_socket import Handed, attach

Acks = Literal["cumulative", "individual", "alternate"]
"""Acknowledgment modes of a consumer: cumulative, each message, or every second message."""

SILENCE_SECONDS_MAX: Final = 30.0
QUEUE_MESSAGES: Final = 1_000
"""Permits of a consumer, renewed by halves: the receiver queue of Pulsar's clients."""

CLOSE_SECONDS_MAX: Final = 30.0
KEEP_ALIVE_SECONDS: Final = 10.0
_PONG: Final = simple_frame("pong")

BURSTS_A_WINDOW: Final = 8
BURST_BYTES_MAX: Final = 256 * 1024


@dataclass(slots=True)
class Run:
    """Measurements of one run; `seconds` begin with the first Send, or the first permit of a backlog."""

    entries: int
    seconds: float
    ack_ms: list[float] = field(default_factory=list)
    end_to_end_ms: list[float] = field(default_factory=list)


class Side(asyncio.Protocol):
    def __init__(self) -> None:
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.transport: asyncio.Transport
        self.heard = time.monotonic()
        self.ended = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost.set_result(None)
        if not self.done.done():
            self.done.set_exception(ConnectionError(f"the broker closed the connection: {exc}"))

    def finish(self) -> None:
        self.ended = time.perf_counter()
        if not self.done.done():
            self.done.set_result(None)


class Produce(Side):
    """Sends frames, at most `window` without receipt, until `entries` are sent or `seconds` have passed."""

    def __init__(self, template: Sends, window: int, entries: int, seconds: float) -> None:
        super().__init__()
        self.entries = entries
        self.on_all_sent: Callable[[int], None] | None = None
        self.written: deque[tuple[int, float]] = deque()
        """(entries sent with this burst, when it was written), for the consuming side to take from."""
        self.ack_ms: list[float] = []
        self._template = template
        self._window = window
        self._seconds = seconds
        self._burst = max(1, min(window // BURSTS_A_WINDOW, BURST_BYTES_MAX // template.frame_bytes))
        self._sent = 0
        self._receipts = MarkCounter(RECEIPT_MARK)
        self._unanswered: deque[tuple[int, float]] = deque()
        self._deadline = 0.0

    def start(self) -> None:
        self._deadline = time.perf_counter() + self._seconds
        self._fill()

    def data_received(self, data: bytes) -> None:
        self.heard = time.monotonic()
        self._receipts.feed(data)
        received = self._receipts.count
        now = time.perf_counter()
        unanswered = self._unanswered
        while unanswered and unanswered[0][0] <= received:
            self.ack_ms.append((now - unanswered.popleft()[1]) * 1000)
        if self._seconds and now >= self._deadline and self._sent < self.entries:
            self.entries = self._sent
            self._all_sent()
        if received >= self.entries:
            self.finish()
        else:
            self._fill()

    def _fill(self) -> None:
        free = self._window - (self._sent - self._receipts.count)
        while free >= self._burst and self._sent < self.entries:
            count = min(self._burst, self.entries - self._sent)
            now = time.perf_counter()
            self.transport.write(self._template.burst(FIRST_SEQUENCE_ID + self._sent, count))
            self._sent += count
            free -= count
            self._unanswered.append((self._sent, now))
            self.written.append((self._sent, now))
            if self._sent == self.entries:
                self._all_sent()

    def _all_sent(self) -> None:
        if self.on_all_sent is not None:
            self.on_all_sent(self._sent)


class Consume(Side):
    """Takes messages, grants permits and acknowledges as it goes, until it has `entries` of them."""

    def __init__(self, template: SendTemplate, acks: Acks, entries: int | None = None) -> None:
        super().__init__()
        self.written: deque[tuple[int, float]] = deque()
        """When what comes was sent, as Produce keeps it; empty when a backlog is drained."""
        self.end_to_end_ms: list[float] = []
        self._entries = entries
        self._messages_each = template.messages
        self._mark = template.message_mark
        self._messages = MarkCounter(self._mark)
        self._splitter = MessageSplitter()
        self._acks = acks
        self._answered = 0
        """Messages that were whole, and so acknowledged or passed over; a mark comes sooner."""
        self._ack_frames = AckFrames(cumulative=acks == "cumulative")
        self._granted = 0
        self._acked_cumulatively = 0
        self._flow = simple_frame("flow", consumer_id=CONSUMER_ID, messagePermits=QUEUE_MESSAGES // 2)

    def start(self) -> None:
        self._grant()

    def expect(self, entries: int) -> None:
        """Finish at `entries` messages (batches count once)."""
        self._entries = entries
        self._finish_at_the_last()

    def data_received(self, data: bytes) -> None:
        self.heard = time.monotonic()
        self._messages.feed(data)
        count = self._messages.count
        written = self.written
        if written and written[0][0] <= count:
            now = time.perf_counter()
            while written and written[0][0] <= count:
                self.end_to_end_ms.append((now - written.popleft()[1]) * 1000)
        if self._acks == "cumulative":
            if count - self._acked_cumulatively >= 100 // self._messages_each or count == self._entries:
                self._acknowledge_up_to_the_last_in(data)
        else:
            commands = self._splitter.feed(data)
            first = self._answered
            self._answered += len(commands)
            if self._acks == "alternate":
                commands = commands[first & 1 :: 2]
            if commands:
                self.transport.write(self._ack_frames.frames([message_id_of(one) for one in commands]))
        self._grant()
        self._finish_at_the_last()

    def _acknowledge_up_to_the_last_in(self, data: bytes) -> None:
        message_id = last_message_id(data, self._mark)
        if message_id is not None:
            self.transport.write(self._ack_frames.frame(message_id))
            self._acked_cumulatively = self._messages.count

    def _grant(self) -> None:
        received = self._messages.count * self._messages_each
        while self._granted - received <= QUEUE_MESSAGES // 2:
            self._granted += QUEUE_MESSAGES // 2
            self.transport.write(self._flow)

    def _finish_at_the_last(self) -> None:
        done = self._messages.count if self._acks == "cumulative" else self._answered
        if self._entries is not None and done >= self._entries:
            self.finish()


async def until_done(*sides: Side) -> None:
    """Wait for all sides; a broker that falls silent, or that closes a connection, is an error."""
    waiting = {side.done for side in sides}
    alive = time.monotonic()
    while waiting:
        finished, waiting = await asyncio.wait(waiting, timeout=1.0, return_when=asyncio.FIRST_COMPLETED)
        if time.monotonic() - alive > KEEP_ALIVE_SECONDS:
            # In place of looking for pings among the messages.
            alive = time.monotonic()
            for side in sides:
                side.transport.write(_PONG)
        for one in finished:
            one.result()
        if waiting and time.monotonic() - max(side.heard for side in sides) > SILENCE_SECONDS_MAX:
            raise TimeoutError(f"nothing came from the broker for {SILENCE_SECONDS_MAX:g} s")


async def close(*sides: Side) -> None:
    """Close the connections; everything written is sent first, and read by a broker that closes in answer."""
    for side in sides:
        side.transport.write_eof()
    await asyncio.wait([side.lost for side in sides], timeout=CLOSE_SECONDS_MAX)
    for side in sides:
        side.transport.abort()


def produce(sock: Handed, template: Sends, *, window: int, entries: int, seconds: float = 0.0) -> Run:
    """Produce on a connection whose producer is open, until each entry has its receipt."""

    async def main() -> Run:
        side = Produce(template, window, entries, seconds)
        await attach(side, sock)
        started = time.perf_counter()
        side.start()
        await until_done(side)
        await close(side)
        return Run(side.entries, side.ended - started, side.ack_ms)

    return uvloop.run(main())


def consume(sock: Handed, template: SendTemplate, *, entries: int, acks: Acks) -> Run:
    """Consume on a connection whose consumer is open, until `entries` messages (batches count once) came."""

    async def main() -> Run:
        side = Consume(template, acks, entries)
        await attach(side, sock)
        started = time.perf_counter()
        side.start()
        await until_done(side)
        await close(side)
        return Run(entries, side.ended - started)

    return uvloop.run(main())


def produce_and_consume(
    producer: Handed,
    consumer: Handed,
    template: SendTemplate,
    *,
    window: int,
    entries: int,
    seconds: float,
    acks: Acks,
) -> Run:
    """Both at once, until everything that was sent came back; `seconds` end with the last message."""

    async def main() -> Run:
        consuming = Consume(template, acks)
        producing = Produce(template, window, entries, seconds)
        producing.written = consuming.written
        producing.on_all_sent = consuming.expect
        await attach(consuming, consumer)
        await attach(producing, producer)
        consuming.start()
        started = time.perf_counter()
        producing.start()
        await until_done(producing, consuming)
        ended = max(producing.ended, consuming.ended)
        await close(producing, consuming)
        return Run(producing.entries, ended - started, producing.ack_ms, consuming.end_to_end_ms)

    return uvloop.run(main())
