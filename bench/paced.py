"""Latency at a given rate, and with one message in flight: a plain loop over sockets.

Each Send has a place in a schedule that the broker cannot move, and latency counts from there: a broker that
stalls is charged for all that had to wait meanwhile (no coordinated omission). `select` sleeps to the
microsecond, where an event loop's timers round to the millisecond, which is more than some answers take.
"""

from __future__ import annotations

import ctypes
import select
import socket
import time
from dataclasses import dataclass, field
from typing import Final

from bench.frames import CONSUMER_ID, FIRST_SEQUENCE_ID, RECEIPT_MARK, MarkCounter, SendTemplate, simple_frame
from bench.generator import QUEUE_MESSAGES, SILENCE_SECONDS_MAX
from bench.messages import AckFrames, last_message_id

RECEIVE_BYTES: Final = 256 * 1024
CONSUMED_PER_ACK: Final = 100
PR_SET_TIMERSLACK: Final = 29


@dataclass(frozen=True, slots=True)
class Schedule:
    """When each entry is due: entry `n` at `start + n / rate` seconds, whatever happens."""

    start: float
    rate: float

    def due(self, entry: int) -> float:
        return self.start + entry / self.rate

    def count_due(self, now: float) -> int:
        """How many entries are due at `now`."""
        count = max(0, int((now - self.start) * self.rate))
        while self.due(count) <= now:
            count += 1
        return count


@dataclass(slots=True)
class Paced:
    """Latencies in milliseconds, each from the moment when its entry was due."""

    entries: int = 0
    seconds: float = 0.0
    ack_ms: list[float] = field(default_factory=list)
    end_to_end_ms: list[float] = field(default_factory=list)
    lag_ms: list[float] = field(default_factory=list)
    """How late the generator itself sent, which is part of both."""


def wake_punctually() -> None:
    """Ask Linux not to round this thread's sleeps up by 50 us; elsewhere nothing happens."""
    try:
        ctypes.CDLL(None).prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0)
    except (AttributeError, OSError):
        return


def produce_at(
    producer: socket.socket,
    consumer: socket.socket | None,
    template: SendTemplate,
    *,
    rate: float,
    entries: int,
    discard: int,
) -> Paced:
    """Send `entries` by the schedule; the first `discard` of them are sent and not counted."""
    wake_punctually()
    result = Paced()
    receipts, messages = MarkCounter(RECEIPT_MARK), MarkCounter(template.message_mark)
    ack_frames = AckFrames(cumulative=True)
    sockets = [producer] if consumer is None else [producer, consumer]
    if consumer is not None:
        consumer.sendall(simple_frame("flow", consumer_id=CONSUMER_ID, messagePermits=QUEUE_MESSAGES))
    schedule = Schedule(time.perf_counter() + 0.01, rate)
    heard = time.perf_counter()
    sent = granted_from = 0
    while receipts.count < entries or (consumer is not None and messages.count < entries):
        now = time.perf_counter()
        due = min(entries, schedule.count_due(now))
        if due > sent:
            producer.sendall(template.burst(FIRST_SEQUENCE_ID + sent, due - sent))
            result.lag_ms += [(now - schedule.due(entry)) * 1000 for entry in range(max(sent, discard), due)]
            sent = due
            now = time.perf_counter()
        wait = max(0.0, schedule.due(sent) - now) if sent < entries else 1.0
        readable, _, _ = select.select(sockets, (), (), wait)
        for one in readable:
            data = one.recv(RECEIVE_BYTES)
            heard = now = time.perf_counter()
            if not data:
                raise ConnectionError("the broker closed the connection")
            counter, latencies = (
                (receipts, result.ack_ms) if one is producer else (messages, result.end_to_end_ms)
            )
            before = counter.count
            counter.feed(data)
            latencies += [
                (now - schedule.due(entry)) * 1000 for entry in range(max(before, discard), counter.count)
            ]
            if one is consumer and counter.count - granted_from >= CONSUMED_PER_ACK:
                message_id = last_message_id(data, template.message_mark)
                if message_id is not None:
                    permits = counter.count - granted_from
                    flow = simple_frame("flow", consumer_id=CONSUMER_ID, messagePermits=permits)
                    one.sendall(ack_frames.frame(message_id) + flow)
                    granted_from = counter.count
        if now - heard > SILENCE_SECONDS_MAX:
            raise TimeoutError(f"nothing came from the broker for {SILENCE_SECONDS_MAX:g} s")
    result.entries = entries - discard
    result.seconds = time.perf_counter() - schedule.due(discard)
    return result


def one_in_flight(producer: socket.socket, template: SendTemplate, *, seconds: float, discard: int) -> Paced:
    """Send, await the receipt, send the next; the first `discard` are not counted."""
    result = Paced()
    receipts = MarkCounter(RECEIPT_MARK)
    sequence_id = FIRST_SEQUENCE_ID
    started = ends = time.perf_counter() + SILENCE_SECONDS_MAX
    while time.perf_counter() < ends:
        frame = template.burst(sequence_id, 1)
        expected = receipts.count + 1
        sent = time.perf_counter()
        producer.sendall(frame)
        while receipts.count < expected:
            data = producer.recv(RECEIVE_BYTES)
            if not data:
                raise ConnectionError("the broker closed the connection")
            receipts.feed(data)
        now = time.perf_counter()
        sequence_id += 1
        if expected > discard:
            result.ack_ms.append((now - sent) * 1000)
        elif expected == discard:
            started, ends = now, now + seconds
    result.entries = len(result.ack_ms)
    result.seconds = time.perf_counter() - started
    return result
